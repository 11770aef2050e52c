// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestCrashWhileOpening: a directory that was in use opens again whatever a power failure during an Open left of it.
func TestCrashWhileOpening(t *testing.T) {
	disk := vfs.NewCrashableMem()
	d := mustOpen(t, "data", small(disk))
	l := mustLog(t, d, 0, nil)
	check(t, l.Append(makeBatch(0, 1, 3, 200, 1), -1, nil))
	wait, err := l.BeginEpoch(2, 3)
	check(t, err)
	check(t, wait())
	check(t, d.Close())

	crashes := 0
	crash := func() {
		for seed := range uint64(12) {
			crashes++
			left := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(seed, uint64(crashes)))})
			d, err := Open("data", small(left))
			if err != nil {
				t.Errorf("crash %d: %v", crashes, err)
				continue
			}
			if end := mustLog(t, d, 0, nil).DurableEnd(); end != 3 {
				t.Errorf("crash %d: the log ends at %d", crashes, end)
			}
			check(t, d.Close())
		}
	}
	for range 2 {
		d := mustOpen(t, "data", small(&syncFS{FS: disk, before: crash}))
		check(t, d.Close())
	}
	if crashes < 100 {
		t.Fatalf("only %d crashes", crashes)
	}
}
