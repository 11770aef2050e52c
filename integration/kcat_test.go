// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"io"
	"os/exec"
	"strconv"
	"testing"

	"github.com/varve/varve/integration/harness"
)

// kcat reads the whole topic with kcat (librdkafka) and compares each line with what was acknowledged (A1, A2).
func (l *ledger) kcat(t testing.TB, bootstrap string) (records int, hashes []string) {
	t.Helper()
	bin := harness.Need(t, "kcat", "read the topic back with an unrelated client library")
	for p := range l.at {
		cmd := exec.CommandContext(within(t, patience), bin, "-C", "-q", "-e", "-b", bootstrap, "-t", l.in.topic, "-p", strconv.Itoa(p),
			"-o", "beginning", "-X", "check.crcs=true", "-X", "message.timeout.ms=60000", "-f", `%o %T %s\n`)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		lines := bufio.NewReaderSize(out, 1<<20)
		var want []byte
		offset := int64(0)
		for ; ; offset++ {
			got, err := lines.ReadSlice('\n') // a scanner would take a carriage return off the line
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("reading from kcat: %v", err)
			}
			if offset >= int64(len(l.at[p])) {
				t.Fatalf("%s-%d: kcat reads more than the %d records that were acknowledged: %q", l.in.topic, p, offset, got)
			}
			in, _ := l.line(int32(p), offset)
			want = entry(want, offset, in.millis, in.text)
			if !bytes.Equal(want, got) {
				t.Fatalf("%s-%d: kcat reads %q, acknowledged was %q", l.in.topic, p, got, want)
			}
			h.Write(want)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("kcat: %v: %s", err, errs.String())
		}
		if offset != int64(len(l.at[p])) {
			t.Fatalf("%s-%d: kcat read %d of %d records: %s", l.in.topic, p, offset, len(l.at[p]), errs.String())
		}
		records += int(offset)
		hashes = append(hashes, sum(h))
	}
	return records, hashes
}
