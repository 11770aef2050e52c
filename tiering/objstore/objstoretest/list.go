// SPDX-License-Identifier: Apache-2.0

package objstoretest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/varve/varve/tiering/objstore"
)

// createMany creates small objects with some parallelism.
func createMany(t *testing.T, s objstore.Store, keys []string) {
	t.Helper()
	var wg sync.WaitGroup
	next := make(chan string)
	for range 16 {
		wg.Go(func() {
			for key := range next {
				if err := s.Create(t.Context(), key, objstore.Bytes([]byte(key)), attempt("many")); err != nil {
					t.Errorf("create %s: %v", key, err)
				}
			}
		})
	}
	for _, key := range keys {
		next <- key
	}
	close(next)
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func list(t *testing.T, s objstore.Store, prefix, after string) []string {
	t.Helper()
	var keys []string
	err := s.List(t.Context(), prefix, after, func(i objstore.Info) error {
		if i.Size != int64(len(i.Key)) {
			t.Errorf("list: %s has size %d, want %d", i.Key, i.Size, len(i.Key))
		}
		keys = append(keys, i.Key)
		return nil
	})
	if err != nil {
		t.Fatalf("list %q after %q: %v", prefix, after, err)
	}
	return keys
}

// expectList compares a listing with what must be in it.
func expectList(t *testing.T, s objstore.Store, all []string, prefix, after string) {
	t.Helper()
	var want []string
	for _, key := range all {
		if strings.HasPrefix(key, prefix) && key > after {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	got := list(t, s, prefix, after)
	if !slices.Equal(got, want) {
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("list %q after %q: %d keys, want %d; first difference at %d:\n got %q\nwant %q", prefix, after, len(got), len(want), i,
					got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
			}
		}
	}
}

// testListPages: more keys than a page holds, in directories and not.
func testListPages(t *testing.T, s objstore.Store) {
	var keys []string
	for i := range 1300 {
		keys = append(keys, fmt.Sprintf("pages/%d/object-%04d", i%3, i))
	}
	createMany(t, s, keys)
	expectList(t, s, keys, "", "")
	expectList(t, s, keys, "pages/", "")
	expectList(t, s, keys, "pages/1/", "")
	expectList(t, s, keys, "pages/1/object-00", "")
	expectList(t, s, keys, "pages/", "pages/1/object-0502")
	expectList(t, s, keys, "pages/2/", "pages/2/object-1298")
	expectList(t, s, keys, "pages/", "pages/2/object-1298")
	expectList(t, s, keys, "pages/", "pages/3")
	expectList(t, s, keys, "nothing", "")
}

// oddKeys are names that some layer between here and a disk may mistake for something else.
var oddKeys = []string{
	"odd/a b", "odd/a+b", "odd/a%20b", "odd/a%2Fb", "odd/a&b=c;d", "odd/ü", "odd/u\u0308", "odd/日本語", "odd/😀", "odd/~x", "odd/(x)!*'", `odd/a"b`,
	"odd/<x>&amp;", "odd/UPPER", "odd/upper", "odd/#h", "odd/?q=1", "odd/a:b", "odd/@", "odd/a,b", "odd/$v", "odd/^c", "odd/`t`", "odd/{b}|[c]",
	"odd/.hidden", "odd/dot.", "odd/..two", "odd/...", "odd/con", "odd/NUL.txt", "odd/com1", "odd/-dash", "odd/=eq", "odd/_", "odd/ lead", "odd/trail ",
	"odd/" + strings.Repeat("long", 55), "odd/deep/er/than/the/rest/x",
}

func testListKeys(t *testing.T, s objstore.Store) {
	createMany(t, s, oddKeys)
	for _, key := range oddKeys {
		expect(t, s, key, []byte(key))
	}
	expectList(t, s, oddKeys, "", "")
	expectList(t, s, oddKeys, "odd/a", "")
	expectList(t, s, oddKeys, "odd/", "odd/a b")
	for i, err := range s.Delete(t.Context(), oddKeys) {
		if err != nil {
			t.Errorf("delete %s: %v", oddKeys[i], err)
		}
	}
	expectList(t, s, nil, "", "")
}

func testListStop(t *testing.T, s objstore.Store) {
	keys := []string{"s/1", "s/2", "s/3"}
	createMany(t, s, keys)
	own := errors.New("own error")
	for _, test := range []struct{ give, want error }{{objstore.ErrStop, nil}, {fmt.Errorf("wrapped: %w", objstore.ErrStop), nil}, {own, own}} {
		var seen []string
		err := s.List(t.Context(), "s/", "", func(i objstore.Info) error {
			if seen = append(seen, i.Key); len(seen) == 2 {
				return test.give
			}
			return nil
		})
		if !errors.Is(err, test.want) || !slices.Equal(seen, keys[:2]) {
			t.Fatalf("list stopped by %v: %v, seen %q", test.give, err, seen)
		}
	}
}

func testDelete(t *testing.T, s objstore.Store) {
	keys := []string{"d/1", "d/2", "d/sub/3"}
	createMany(t, s, keys)
	errs := s.Delete(t.Context(), []string{"d/1", "d/absent", "", "d/sub/3", "x/y/z"})
	for i, err := range errs {
		if (err != nil) != (i == 2) {
			t.Fatalf("delete: %v", errs)
		}
	}
	for _, gone := range []string{"d/1", "d/sub/3"} {
		_, err := s.Get(t.Context(), gone, 0, 1, nil)
		wantErr(t, "get "+gone, err, objstore.ErrNotFound)
	}
	expectList(t, s, []string{"d/2"}, "", "")
	if errs := s.Delete(t.Context(), nil); len(errs) != 0 {
		t.Fatalf("delete of nothing: %v", errs)
	}
	for range 2 {
		if err := s.Delete(t.Context(), []string{"d/2"})[0]; err != nil {
			t.Fatalf("delete twice: %v", err)
		}
	}
}

func testDeleteMany(t *testing.T, s objstore.Store) {
	var keys []string
	for i := range 1100 {
		keys = append(keys, fmt.Sprintf("many/%04d", i))
	}
	createMany(t, s, keys[:100])
	errs := s.Delete(t.Context(), keys)
	if len(errs) != len(keys) {
		t.Fatalf("delete of %d keys: %d results", len(keys), len(errs))
	}
	for i, err := range errs {
		if err != nil {
			t.Fatalf("delete %s: %v", keys[i], err)
		}
	}
	expectList(t, s, nil, "many/", "")
}
