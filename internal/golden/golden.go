// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write golden files anew")

// maxTold is how many differing lines of a file are shown.
const maxTold = 10

// Check compares a file with what it should hold, and names the lines that differ.
func Check(t testing.TB, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) == got {
		return
	}
	have, want := strings.Split(got, "\n"), strings.Split(string(text), "\n")
	t.Errorf("%s: %d lines, want %d (-rewrite accepts what is there now)", path, len(have), len(want))
	told := 0
	for i := 0; i < min(len(have), len(want)) && told < maxTold; i++ {
		if have[i] != want[i] {
			t.Errorf("line %d\n got %s\nwant %s", i+1, have[i], want[i])
			told++
		}
	}
}

// Stories runs each testdata/*.txt: lines that begin with "> " are steps, those behind them what must come of it. start begins a
// story and returns what takes a step.
func Stories(t *testing.T, start func(t *testing.T) (step func(words []string) []string)) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			step := start(t)
			for line := range strings.Lines(string(text)) {
				line = strings.TrimRight(line, "\n")
				switch {
				case strings.HasPrefix(line, "> "):
					fmt.Fprintln(&got, line)
					for _, out := range step(strings.Fields(line[2:])) {
						fmt.Fprintln(&got, "  "+out)
					}
				case strings.HasPrefix(line, "  "): // what came of it before
				default:
					fmt.Fprintln(&got, line)
				}
			}
			Check(t, file, got.String())
		})
	}
}
