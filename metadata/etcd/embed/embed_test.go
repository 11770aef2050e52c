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
