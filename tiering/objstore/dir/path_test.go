// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"strings"
	"testing"

	"github.com/varve/varve/tiering/objstore"
)

func TestEscapeKey(t *testing.T) {
	long := strings.Repeat("a", 200)
	for key, want := range map[string]string{
		"a/b.c":          "a/b.c@",
		"Topic/X":        "^topic/^x@",
		"a b/é":          "a%20b/%c3%a9@",
		".x/y.":          "%2ex/y%2e@",
		"...":            "%2e.%2e@",
		"con/NUL.txt":    "%63on/%4e^u^l.txt@",
		"com1/com10":     "%63om1/com10@",
		"a@/b+":          "a%40/b%2b@",
		"^%":             "%5e%25@",
		long:             long + "@",
		long + "b/c":     long + "+/b/c@",
		long[1:] + "B/c": long[1:] + "+/^b/c@",
	} {
		if got := escapeKey(key); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}

// keyOf is the inverse of escapeKey, written apart from List.
func keyOf(t *testing.T, path string) string {
	t.Helper()
	var key strings.Builder
	for rest := strings.TrimSuffix(path, objectSuffix); rest != ""; {
		name, more, _ := strings.Cut(rest, "/")
		base, joined := strings.CutSuffix(name, joinSuffix)
		part, ok := unescapeName(base)
		if !ok || part == "" {
			t.Fatalf("name %q of path %q does not unescape", name, path)
		}
		key.WriteString(part)
		if !joined && more != "" {
			key.WriteByte('/')
		}
		rest = more
	}
	return key.String()
}

// FuzzEscapeKey: D2 for any pair of keys, and names that every file system takes.
func FuzzEscapeKey(f *testing.F) {
	for _, pair := range [][2]string{{"a", "A"}, {"a/b", "a"}, {"é", "é"}, {"con", "%63on"}, {strings.Repeat("x", 300), strings.Repeat("X", 300)}, {"a.", "a"}, {"^a", "A"}, {"a+/b", "a/b"}} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, key := range []string{a, b} {
			if objstore.CheckKey(key) != nil {
				t.Skip("no key of a store")
			}
			path := escapeKey(key)
			if got := keyOf(t, path); got != key {
				t.Fatalf("key %q has path %q, which means %q", key, path, got)
			}
			for name := range strings.SplitSeq(path, "/") {
				bare := strings.TrimSuffix(name, objectSuffix)
				switch {
				case len(name) > chunkLength+1, strings.HasPrefix(name, "."), strings.HasSuffix(name, "."), strings.HasSuffix(name, " "), isDevice(bare):
					t.Fatalf("key %q has the name %q", key, name)
				case strings.Trim(strings.TrimRight(name, "@+"), "abcdefghijklmnopqrstuvwxyz0123456789-._=^%") != "":
					t.Fatalf("key %q has the name %q", key, name)
				}
			}
		}
		if a == b {
			return
		}
		pa, pb := escapeKey(a), escapeKey(b)
		if strings.EqualFold(pa, pb) {
			t.Fatalf("keys %q and %q have one path %q", a, b, pa)
		}
		if strings.HasPrefix(pa+"/", pb+"/") || strings.HasPrefix(pb+"/", pa+"/") {
			t.Fatalf("the file of one of %q and %q is a directory of the other: %q, %q", a, b, pa, pb)
		}
	})
}
