// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve/varve/record"
)

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestIdleCost: an idle log costs memory only, and little: 1,000 fit in 2 MiB.
func TestIdleCost(t *testing.T) {
	d := mustOpen(t, "data", small(vfs.NewMem()))
	defer d.Close()
	w := newWatch()
	goroutines, before := runtime.NumGoroutine(), heap()
	const n = 1000
	logs := make([]*Log, n)
	for i := range logs {
		logs[i] = mustLog(t, d, i, w)
	}
	check(t, d.SetWitness(1, 1)) // all creations are applied
	if got := heap() - before; got > 2<<20 {
		t.Errorf("%d logs take %d bytes of heap", n, got)
	}
	if got := runtime.NumGoroutine() - goroutines; got > 2 { // Pebble may be flushing
		t.Errorf("%d more goroutines", got)
	}
	runtime.KeepAlive(logs)
}

// raceDetector tells that the race detector is on: it makes pools forget at random, so allocations cannot be counted.
var raceDetector bool

// TestReadAllocs: a run from a memtable takes at most 5 allocations, from an sst or blob file 9.
func TestReadAllocs(t *testing.T) {
	if raceDetector {
		t.Skip("allocations cannot be counted under the race detector, whose pools forget at random")
	}
	for _, size := range []int{1 << 10, 16 << 10} {
		dir := filepath.Join(t.TempDir(), "data")
		d := mustOpen(t, dir, Options{})
		w := newWatch()
		l := mustLog(t, d, 1, w)
		for i := range record.Offset(64) {
			check(t, l.Append(makeBatch(i, 0, 1, size, 1), -1, nil))
		}
		w.waitDurable(64)
		buf := make([]byte, 0, 2<<20)
		read := func() {
			if got, err := l.Read(0, 64, 2<<20, true, buf); err != nil || len(got) != 64*size {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
		}
		if n := testing.AllocsPerRun(200, read); n > 5 {
			t.Errorf("memtable, batches of %d: %.1f allocations a run", size, n)
		}
		check(t, d.Close())
		d = mustOpen(t, dir, Options{})
		l = mustLog(t, d, 1, nil)
		read() // fills the block cache
		if n := testing.AllocsPerRun(200, read); n > 9 {
			t.Errorf("sst, batches of %d: %.1f allocations a run", size, n)
		}
		check(t, d.Close())
	}
}
