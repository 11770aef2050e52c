// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"errors"
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
