// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// silence is how long a seed may say nothing before it counts as hanging: one takes seconds.
const silence = time.Minute

// hunt runs the seeds against one planted bug, one after the other, until one finds it.
type hunt struct {
	t      *testing.T
	mutant mutant
	binary string
	others []string // findings that are not finds
}

var (
	atSeed  = regexp.MustCompile(`^=== RUN\s+Test\w*Seeds/set/(\d+)\.`)
	finding = regexp.MustCompile(`seed (\d+), ([^:]*): ([SV]\d+(?:, [SV]\d+)*): (.*)`)
	broken  = regexp.MustCompile(`^(?:panic|fatal error): (.*)|invariant violated: (.*)`)
)

func (h *hunt) run(root string, planted map[string][]byte) {
	h.build(root, planted)
	found, last, began := "", 0, time.Now()
	for from := 1; from <= h.mutant.seeds && found == ""; from = last + 1 {
		found, last = h.seeds(from)
	}
	for _, o := range h.others[:min(len(h.others), 10)] {
		h.t.Logf("not a find: %s", o)
	}
	if found == "" {
		h.t.Errorf("%d seeds do not find it by any of %s", h.mutant.seeds, h.mutant.ids)
		return
	}
	// This line is a row of the table in docs/track-record.md.
	h.t.Logf("| %s | %s | %s | %d | %d |", h.mutant.name, h.mutant.ids, found, last, h.mutant.seeds)
	h.t.Logf("after %v", time.Since(began).Round(time.Second))
}

// build makes the simulation with the bug laid over the source.
func (h *hunt) build(root string, planted map[string][]byte) {
	dir := h.t.TempDir()
	replace := map[string]string{}
	for file, text := range planted {
		copied := filepath.Join(dir, strconv.Itoa(len(replace))+".go")
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			h.t.Fatal(err)
		}
		path, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			h.t.Fatal(err)
		}
		replace[path] = copied
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		h.t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		h.t.Fatal(err)
	}
	h.binary = filepath.Join(dir, "sim.test")
	if out, err := exec.Command("go", "test", "-vet=off", "-c", "-overlay", overlay, "-o", h.binary, ".").CombinedOutput(); err != nil {
		h.t.Fatalf("the bug does not compile: %v\n%s", err, out)
	}
}

// seeds runs the seeds from one on until one finds the bug or the process ends by itself. It returns the last seed that was run.
func (h *hunt) seeds(from int) (found string, last int) {
	c := exec.Command(h.binary, "-test.run", "^"+h.mutant.test()+"$", "-test.v", "-test.timeout", "0")
	c.Env = append(os.Environ(), "VARVE_SIM_SERIAL=1", "VARVE_SIM_SEED=", "VARVE_SIM_FROM="+strconv.Itoa(from), fmt.Sprintf("VARVE_SIM_SEEDS=%d", h.mutant.seeds-from+1))
	out, to, err := os.Pipe()
	if err != nil {
		h.t.Fatal(err)
	}
	c.Stdout, c.Stderr = to, to
	if err := c.Start(); err != nil {
		h.t.Fatal(err)
	}
	_ = to.Close()
	defer out.Close()
	quiet := time.AfterFunc(silence, func() { _ = c.Process.Kill() })
	last = from
	found, ended := h.read(out, &last, func() { quiet.Reset(silence) })
	hangs := !quiet.Stop()
	_ = c.Process.Kill()
	_ = c.Wait()
	switch {
	case found != "" || ended:
	case hangs:
		h.others = append(h.others, fmt.Sprintf("seed %d: hangs", last))
	}
	if found == "" && ended {
		last = h.mutant.seeds
	}
	return found, last
}

// read follows the output of a run. ended: the run came to its end.
func (h *hunt) read(out io.Reader, last *int, alive func()) (found string, ended bool) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		alive()
		line := lines.Text()
		if m := atSeed.FindStringSubmatch(line); m != nil {
			*last, _ = strconv.Atoi(m[1])
		}
		if m := finding.FindStringSubmatch(line); m != nil {
			if h.wanted(m[3]) {
				*last, _ = strconv.Atoi(m[1])
				h.t.Logf("seed %s after %s: %s: %.300s", m[1], m[2], m[3], m[4])
				return m[3], false
			}
			h.others = append(h.others, fmt.Sprintf("seed %s: %s: %.300s", m[1], m[3], m[4]))
		} else if broken.MatchString(line) {
			h.others = append(h.others, fmt.Sprintf("seed %d: %.300s", *last, line))
		}
		ended = ended || strings.HasPrefix(line, "--- PASS: "+h.mutant.test()+" ") || strings.HasPrefix(line, "--- FAIL: "+h.mutant.test()+" ")
	}
	return "", ended
}

// wanted tells whether a finding names a statement that the bug breaks.
func (h *hunt) wanted(ids string) bool {
	for id := range strings.SplitSeq(ids, ", ") {
		if slices.Contains(strings.Split(h.mutant.ids, ","), id) {
			return true
		}
	}
	return false
}
