// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve/varve/record"
)

// unmapped are sentinels that never reach an answer, with the reason.
var unmapped = map[string]string{
	"metadata.ErrEtcdEmpty":       "stops the start",
	"metadata.ErrBucketEmpty":     "stops the start",
	"metadata.ErrBucketOfOther":   "stops the start",
	"metadata.ErrDataOfOther":     "stops the start",
	"metadata.ErrDataOfOtherNode": "stops the start",
	"metadata.ErrNodeIDTaken":     "stops the start",
	"metadata.ErrUnknownNode":     "the operations API answers it",
}

// TestMappingIsTotal reads the packages below and requires a row for every exported sentinel (G3).
func TestMappingIsTotal(t *testing.T) {
	table, err := os.ReadFile("errors.go")
	check(t, err)
	for _, pkg := range []string{"broker", "metadata", "metadata/config", "record", "gateway/group"} {
		sentinels := exportedErrors(t, filepath.Join("..", pkg))
		if len(sentinels) == 0 {
			t.Errorf("no sentinels found in %s: the test looks in the wrong place", pkg)
		}
		for _, name := range sentinels {
			full := filepath.Base(pkg) + "." + name
			mapped := strings.Contains(string(table), "{"+full+", ")
			if _, ok := unmapped[full]; ok == mapped {
				t.Errorf("%s: mapped=%v, listed as unmapped=%v", full, mapped, ok)
			}
		}
	}
	for r := record.CorruptMessage; !strings.HasPrefix(r.String(), "reason "); r++ {
		if _, ok := rejections[r]; !ok {
			t.Errorf("no code for a batch refused with %q", r)
		}
	}
}

// exportedErrors are the names of package-level variables Err… made by errors.New.
func exportedErrors(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	check(t, err)
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		check(t, err)
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR || strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, s := range g.Specs {
				for _, n := range s.(*ast.ValueSpec).Names {
					if strings.HasPrefix(n.Name, "Err") {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// TestRetriable compares the table's retriable column with what a client library thinks of the code.
func TestRetriable(t *testing.T) {
	for _, m := range mappings {
		if codeOf(fmt.Errorf("doing something: %w", m.err)) != m.code {
			t.Errorf("%v, wrapped, is code %d, want %d: a row above it hides it", m.err, codeOf(m.err), m.code)
		}
		if m.code == codeUnknownServerError {
			if m.retriable {
				t.Errorf("%v: an unknown server error is not retriable", m.err)
			}
			continue
		}
		if got := kerr.IsRetriable(kerr.ErrorForCode(m.code.int16())); got != m.retriable {
			t.Errorf("%v: code %d is retriable=%v to clients, the table says %v", m.err, m.code, got, m.retriable)
		}
	}
	if codeOf(nil) != codeNone || codeOf(fmt.Errorf("never seen")) != codeUnknownServerError {
		t.Error("nil or an unknown error has the wrong code")
	}
}
