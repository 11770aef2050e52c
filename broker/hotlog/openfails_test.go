// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestOpenFailsOften: a closed directory whose Open fails again and again, as on a full disk, opens once it can.
func TestOpenFailsOften(t *testing.T) {
	for _, what := range []string{"STORE.new", logFileSuffix} {
		mem := vfs.NewMem()
		d := mustOpen(t, "data", small(mem))
		w := newWatch()
		l := mustLog(t, d, 1, w)
		check(t, l.Append(makeBatch(0, 0, 1, 100, 1), -1, nil))
		w.waitDurable(1)
		check(t, d.Close())
		var on atomic.Bool
		on.Store(true)
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if on.Load() && strings.HasSuffix(op.Path, what) && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				return syscall.EIO
			}
			return nil
		}))
		for i := range 5 {
			_, err := Open("data", small(fs))
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: open %d: %v", what, i, err)
			}
		}
		on.Store(false)
		d, err := Open("data", small(fs))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		check(t, d.Close())
		d = mustOpen(t, "data", small(fs))
		until(t, "the older manifests are gone", func() bool {
			names, err := fs.List("data")
			check(t, err)
			return len(slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "MANIFEST") })) <= 3
		})
		check(t, d.Close())
	}
}
