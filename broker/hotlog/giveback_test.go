// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve/varve/record"
)

// smallDisk is a disk of a few MiB that its log files fill.
type smallDisk struct {
	*vfs.MemFS
	total uint64
}

func (s *smallDisk) GetDiskUsage(dir string) (u vfs.DiskUsage, err error) {
	names, err := s.MemFS.List(dir)
	for _, name := range names {
		if info, err := s.MemFS.Stat(s.MemFS.PathJoin(dir, name)); err == nil {
			u.UsedBytes += uint64(info.Size())
		}
	}
	u.TotalBytes, u.UsedBytes = s.total, min(u.UsedBytes, s.total)
	u.AvailBytes = u.TotalBytes - u.UsedBytes
	return u, err
}

// until polls for something that a goroutine does soon.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// TestFullDiskGarbage: on a full disk that is half garbage the garbage goes, though elsewhere that much would be let be.
func TestFullDiskGarbage(t *testing.T) {
	o := small(&smallDisk{vfs.NewMem(), 32 << 20})
	o.MemTableBytes, o.fileBytes, o.rewriteAfter = 256<<10, 1<<20, time.Millisecond
	d := mustOpen(t, "data", o)
	defer d.Close()
	hot, kept := newWatch(), newWatch()
	a, b := mustLog(t, d, 1, hot), mustLog(t, d, 2, kept)
	for end := record.Offset(0); ; end++ {
		if a.Append(makeBatch(end, 0, 1, 100<<10, 1), -1, nil) != nil {
			break
		}
		hot.waitDurable(end + 1)
		if b.Append(makeBatch(end, 0, 1, 104<<10, 1), -1, nil) != nil {
			break
		}
		kept.waitDurable(end + 1)
	}
	check(t, a.Trim(a.AppendedEnd()))
	until(t, "appends are accepted", func() bool { return !d.DiskFull() })
}

// TestFullDiskSpares: files that wait to be written over go when the disk is full, though nothing is trimmed.
func TestFullDiskSpares(t *testing.T) {
	var full atomic.Bool
	o := small((&MemFS{vfs.NewMem()}).FillingFS(full.Load))
	o.fileBytes, o.rewriteAfter = 1<<20, time.Millisecond
	d := mustOpen(t, "data", o)
	defer d.Close()
	w := newWatch()
	l := mustLog(t, d, 1, w)
	end := record.Offset(0)
	spares := func() bool { _, spare := d.files.usage(); return spare > 0 }
	until(t, "there is a spare file", func() bool {
		check(t, l.Append(makeBatch(end, 0, 1, 128<<10, 1), -1, nil))
		end++
		w.waitDurable(end)
		check(t, l.Trim(end))
		return spares()
	})
	full.Store(true)
	until(t, "the spare files are gone", func() bool {
		if l.Append(makeBatch(end, 0, 1, 100, 1), -1, nil) == nil {
			end++
			w.waitDurable(end)
		}
		return d.disk.full.Load() && !spares()
	})
}

// TestSparesFollowTheLoad: dead files are kept to be written over while as many are begun, and go soon after; of a disk with little space
// they take little.
func TestSparesFollowTheLoad(t *testing.T) {
	const files = 24
	for name, c := range map[string]struct {
		fs        vfs.FS
		low, high int64 // spares right after the files died
	}{
		"any space":    {vfs.NewMem(), files - 4, files},
		"little space": {&smallDisk{vfs.NewMem(), 64 << 20}, minSpareFiles, 12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := small(c.fs)
				o.fileBytes = 1 << 20
				d := mustOpen(t, "data", o)
				defer d.Close()
				spares := func() int64 { _, bytes := d.files.usage(); return bytes / o.fileBytes }
				w := newWatch()
				l := mustLog(t, d, 1, w)
				fill := func(n record.Offset) {
					from := l.AppendedEnd()
					for end := from; end < from+n*8; end++ {
						check(t, l.Append(makeBatch(end, 0, 1, 127<<10, 1), -1, nil))
						w.waitDurable(end + 1)
					}
				}
				fill(files)
				check(t, l.Trim(l.AppendedEnd()))
				fill(2) // the trim is durable, and Pebble flushed
				time.Sleep(time.Second)
				if n := spares(); n < c.low || n > c.high {
					t.Errorf("%d spares of %d files, expected %d to %d", n, files, c.low, c.high)
				}
				before, _ := d.files.usage()
				fill(3)
				if now, _ := d.files.usage(); now != before {
					t.Errorf("files take %d bytes and took %d before three were written over", now, before)
				}
				time.Sleep(spareFor)
				if n := spares(); n < 1 || n > minSpareFiles {
					t.Errorf("%d spares are left", n)
				}
			})
		})
	}
}

// TestDamageKeepsOneFile: a batch that cannot be read keeps its own file, and no other.
func TestDamageKeepsOneFile(t *testing.T) {
	fs := vfs.NewMem()
	o := small(fs)
	o.fileBytes, o.rewriteAfter, o.eager = 256<<10, time.Millisecond, true
	d := mustOpen(t, "data", o)
	defer d.Close()
	hot, kept := newWatch(), newWatch()
	a, b := mustLog(t, d, 1, hot), mustLog(t, d, 2, kept)
	for i := range record.Offset(100) {
		check(t, a.Append(makeBatch(i, 0, 1, 60<<10, 1), -1, nil))
		hot.waitDurable(i + 1)
		if i%4 == 0 {
			check(t, b.Append(makeBatch(i/4, 0, 1, 1000, 1), -1, nil))
			kept.waitDurable(i/4 + 1)
		}
		if i == 0 {
			name, at := placeOf(t, d, b)
			flip(t, fs, name, at)
		}
	}
	check(t, a.Trim(100))
	until(t, "the other files are gone", func() bool {
		check(t, d.SetWitness(1, 1)) // a frame
		return len(d.files.sorted()) <= 8
	})
	if d.files.get(1) == nil {
		t.Error("the file of the damaged batch is gone")
	}
}

// placeOf is where the first batch of a log lies.
func placeOf(t *testing.T, d *DB, l *Log) (name string, at int64) {
	t.Helper()
	check(t, l.walk(new(cursor), l.Start(), l.AppendedEnd(), func(_ dataKey, p pointer) (bool, error) {
		name, at = d.files.get(p.file).name, int64(p.offset)
		return false, nil
	}))
	return name, at
}

// TestMovesShareFrames: what a file holds of many logs is moved with few frames, not one for each.
func TestMovesShareFrames(t *testing.T) {
	o := small(vfs.NewMem())
	o.fileBytes, o.rewriteAfter = 1<<20, 100*time.Hour
	d := mustOpen(t, "data", o)
	defer d.Close()
	const logs = 300
	var waits []func() error
	for i := range logs {
		l := mustLog(t, d, i, nil)
		check(t, l.Append(makeBatch(0, 0, 1, 500, byte(i)), -1, nil))
		wait, err := l.AdoptEpoch(0)
		check(t, err)
		waits = append(waits, wait)
	}
	for _, wait := range waits {
		check(t, wait())
	}
	// The committer stands while they are queued: how many frames it makes of what arrives meanwhile is the machine's affair.
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	check(t, mustLog(t, d, logs, blocker{gate}).Append(makeBatch(0, 0, 1, 500, 0), -1, nil))
	queued := func() int { d.mu.Lock(); defer d.mu.Unlock(); return d.mu.queuedOps }
	until(t, "the committer has taken the append", func() bool { return queued() == 0 })
	before := d.stats.batches.Load()
	var moved int64
	done := make(chan error, 1)
	go func() {
		var err error
		moved, err = d.rewrite(d.files.get(1))
		done <- err
	}()
	until(t, "every move is queued", func() bool { return queued() >= logs })
	open()
	check(t, <-done)
	if frames := d.stats.batches.Load() - before; moved < logs*500 || frames > logs/10 {
		t.Errorf("%d bytes moved with %d frames", moved, frames)
	}
}
