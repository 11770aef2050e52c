// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/integration/harness"
)

// line is one line of a log with what is read from it.
type line struct {
	key, text []byte
	millis    int64
}

// input is a log and how its event times are written.
type input struct {
	topic, codec, file string
	regex, layout      string // of the event time, as `varve produce` takes them
	key                *regexp.Regexp
	// together repeats each stretch of lines in place, so that times rise over the whole log; otherwise the whole log is repeated,
	// and times jump back again and again.
	together bool
	lines    []line
}

// inputs are real logs (loghub, arXiv:2008.06448), which a checkout may keep beside it, or lines made here where it does not.
func inputs(t testing.TB) []*input {
	t.Helper()
	all := []*input{
		{topic: "hdfs", codec: "lz4", file: "HDFS_2k.log", regex: `^(\d{6} \d{6}) `, layout: "060102 150405", key: regexp.MustCompile(`blk_-?\d+`), together: true},
		{topic: "bgl", codec: "zstd", file: "BGL_2k.log", regex: `^\S+ (\d+) `, layout: "unix", key: regexp.MustCompile(`R\d\d-M\d\S*`)},
	}
	for _, in := range all {
		path := filepath.Join(harness.Root(t), "..", "shared", "data", in.file)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Logf("no real log: %v; lines made by this test take its place", err)
			text = madeUp(in)
		}
		in.parse(t, text)
	}
	return all
}

func (in *input) parse(t testing.TB, text []byte) {
	t.Helper()
	find := regexp.MustCompile(in.regex)
	for raw := range bytes.Lines(text) {
		raw = bytes.TrimSuffix(raw, []byte("\n"))
		m := find.FindSubmatch(raw)
		if m == nil {
			t.Fatalf("%s: no event time in %q", in.file, raw)
		}
		l := line{text: raw, key: in.key.Find(raw)}
		if in.layout == "unix" {
			seconds, err := strconv.ParseInt(string(m[1]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			l.millis = seconds * 1000
		} else {
			at, err := time.ParseInLocation(in.layout, string(m[1]), time.UTC)
			if err != nil {
				t.Fatal(err)
			}
			l.millis = at.UnixMilli()
		}
		in.lines = append(in.lines, l)
	}
	if len(in.lines) < 1000 {
		t.Fatalf("%s: only %d lines", in.file, len(in.lines))
	}
}

// madeUp makes 2,000 lines in the layout of the input, with times that mostly rise.
func madeUp(in *input) []byte {
	rng := rand.New(rand.NewPCG(7, 11))
	at := time.Date(2008, 11, 9, 20, 36, 15, 0, time.UTC)
	var b strings.Builder
	for i := range 2000 {
		at = at.Add(time.Duration(rng.IntN(60)-5) * time.Second)
		if in.layout == "unix" {
			fmt.Fprintf(&b, "- %d %s R%02d-M%d-N%d RAS KERNEL INFO %d double-hummer alignment exceptions\n",
				at.Unix(), at.Format("2006.01.02"), rng.IntN(40), rng.IntN(2), rng.IntN(16), i)
		} else {
			fmt.Fprintf(&b, "%s %d INFO store.Receiver: Received block blk_%d of size %d from node %d\n",
				at.Format(in.layout), rng.IntN(3000), rng.Int64(), rng.IntN(1<<26), rng.IntN(200))
		}
	}
	return []byte(b.String())
}

// order yields the line numbers to produce until their text is at least size bytes, in the input's order.
func (in *input) order(size int64) []int32 {
	total := int64(0)
	for _, l := range in.lines {
		total += int64(len(l.text)) + 1
	}
	times := int((size + total - 1) / total)
	out := make([]int32, 0, times*len(in.lines))
	stretch := len(in.lines)
	if in.together {
		stretch = 50
	}
	for from := 0; from < len(in.lines); from += stretch {
		for range times {
			for i := from; i < min(from+stretch, len(in.lines)); i++ {
				out = append(out, int32(i))
			}
		}
	}
	return out
}

// moments are every distinct event time t, and t±1.
func (in *input) moments() []int64 {
	seen := map[int64]bool{}
	var out []int64
	for _, l := range in.lines {
		for _, at := range []int64{l.millis - 1, l.millis, l.millis + 1} {
			if !seen[at] {
				seen[at] = true
				out = append(out, at)
			}
		}
	}
	return out
}
