// SPDX-License-Identifier: Apache-2.0

package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// goFile is one parsed Go file.
type goFile struct {
	path string // from the module's root
	dir  string // the package, "." for the root
	test bool
	src  []byte
	ast  *ast.File
}

// imports lists the file's imports, those of our own module from its root.
func (f *goFile) imports(module string) (own, foreign []string) {
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // The parser has taken it, so it is a string.
		}
		if rest, ok := strings.CutPrefix(p, module+"/"); ok {
			own = append(own, rest)
		} else {
			foreign = append(foreign, p)
		}
	}
	return own, foreign
}

// tree is the source tree, read once.
type tree struct {
	module string
	fset   *token.FileSet
	files  []*goFile
	texts  map[string][]byte // every text file, Go files included
	exists func(name string) bool
}

// skipped folders hold what builds and runs leave behind, and what the go tool does not compile.
var skipped = map[string]bool{".git": true, ".cache": true, "bin": true, "varve-data": true, "testdata": true, "vendor": true, "node_modules": true}

const maxText = 1 << 20

func load(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet(), texts: map[string][]byte{}}
	t.exists = func(name string) bool {
		_, err := fs.Stat(fsys, name)
		return err == nil
	}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped[d.Name()]:
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Size() > maxText {
			return err
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		return t.add(name, src)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the source tree: %w", err)
	}
	first, _, _ := strings.Cut(string(t.texts["go.mod"]), "\n")
	t.module = strings.TrimSpace(strings.TrimPrefix(first, "module "))
	if t.module == "" {
		return nil, fmt.Errorf("go.mod names no module in its first line %q", first)
	}
	return t, nil
}

func (t *tree) add(name string, src []byte) error {
	if bytes.IndexByte(src, 0) >= 0 {
		return nil
	}
	t.texts[name] = src
	if path.Ext(name) != ".go" {
		return nil
	}
	parsed, err := parser.ParseFile(t.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parsing %s: %w", name, err)
	}
	t.files = append(t.files, &goFile{path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), src: src, ast: parsed})
	return nil
}

// packages groups the files by folder.
func (t *tree) packages() map[string][]*goFile {
	out := map[string][]*goFile{}
	for _, f := range t.files {
		out[f.dir] = append(out[f.dir], f)
	}
	return out
}

// repository is the tree this test lies in.
func repository(t *testing.T) *tree {
	t.Helper()
	got, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.files) < 20 {
		t.Fatalf("only %d Go files found: this is not the repository", len(got.files))
	}
	return got
}

// report fails the test with each finding.
func report(t *testing.T, findings []string) {
	t.Helper()
	slices.Sort(findings)
	for _, f := range slices.Compact(findings) {
		t.Error(f)
	}
}

// small makes a tree of a few files. A Go file given without header and package clause gets them.
func small(t *testing.T, files map[string]string) *tree {
	t.Helper()
	fsys := fstest.MapFS{"go.mod": &fstest.MapFile{Data: []byte("module example.org/m\n")}}
	for name, text := range files {
		if path.Ext(name) == ".go" && !strings.Contains(text, "package ") {
			text = spdx + "\n\npackage p\n\n" + text
		}
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	got, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// expect demands that each finding has its wanted part, in any order, and that there are no others.
func expect(t *testing.T, findings []string, wanted ...string) {
	t.Helper()
	left := slices.Clone(findings)
	for _, w := range wanted {
		i := slices.IndexFunc(left, func(f string) bool { return strings.Contains(f, w) })
		if i < 0 {
			t.Errorf("nothing was found about %q in %q", w, findings)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	if len(left) > 0 {
		t.Errorf("also found: %q", left)
	}
}

func TestLoad(t *testing.T) {
	got := small(t, map[string]string{"a/a.go": "", "a/testdata/broken.go": "package (", ".git/config": "x", "a/b.bin": "a\x00b", "README.md": "hi"})
	if got.module != "example.org/m" || len(got.files) != 1 || len(got.texts) != 3 {
		t.Fatalf("module %q, %d Go files, %d texts", got.module, len(got.files), len(got.texts))
	}
	if _, err := load(fstest.MapFS{"go.mod": {Data: []byte("module m\n")}, "a.go": {Data: []byte("package (")}}); err == nil {
		t.Fatal("a file that does not parse was passed over")
	}
	if _, err := load(fstest.MapFS{"a.go": {Data: []byte("package a")}}); err == nil {
		t.Fatal("a tree without go.mod was taken")
	}
}
