// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDirectoryInUse: etcd waits for ever, and in silence, for a directory that another process has.
func TestDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	s, err := Start(t.Context(), dir, Options{UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), dir, Options{UnsafeNoFsync: true}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second member started: %v", err)
	}
	s.Close()
	again, err := Start(t.Context(), dir, Options{UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestSmallWAL: a member for development sets little of the disk aside, also of a directory that a large one was in.
func TestSmallWAL(t *testing.T) {
	dir := t.TempDir()
	for _, size := range []int64{0, 1 << 20, 0} {
		s, err := Start(t.Context(), dir, Options{UnsafeNoFsync: true, WALSegmentBytes: size})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	dir = t.TempDir()
	s, err := Start(t.Context(), dir, Options{UnsafeNoFsync: true, WALSegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	files, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no log: %v", err)
	}
	for _, f := range files {
		if st, err := os.Stat(f); err != nil || st.Size() > 1<<20 {
			t.Errorf("%s: %v, %v", f, st.Size(), err)
		}
	}
}

// TestDiscard: a member that a refused start made goes with it, unless it was there before or others can know of it.
func TestDiscard(t *testing.T) {
	dir := t.TempDir()
	start := func(o Options) *Server {
		t.Helper()
		o.UnsafeNoFsync = true
		s, err := Start(t.Context(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	left := func(want bool, what string) {
		t.Helper()
		if entries, err := os.ReadDir(dir); err != nil || (len(entries) > 0) != want {
			t.Errorf("%s: left %v, %v", what, entries, err)
		}
	}
	start(Options{}).Discard()
	left(false, "made by this start")
	start(Options{Listen: "http://127.0.0.1:0"}).Discard()
	left(true, "others may use it")
	start(Options{}).Discard()
	left(true, "there before")
}
