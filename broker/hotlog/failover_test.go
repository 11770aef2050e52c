// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/varve/varve/record"
)

// stallingDisk holds operations on the log files in "data" while told to.
type stallingDisk struct {
	mu      sync.Mutex
	moved   sync.Cond
	stalled bool
	kinds   func(errorfs.OpKind) bool
	held    atomic.Int64
}

func newStallingDisk(kinds func(errorfs.OpKind) bool) *stallingDisk {
	s := &stallingDisk{kinds: kinds}
	s.moved.L = &s.mu
	return s
}

func (s *stallingDisk) over(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !isWAL(op.Path) || !strings.HasPrefix(op.Path, "data/") || !s.kinds(op.Kind) {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held.Add(1)
		for s.stalled {
			s.moved.Wait()
		}
		s.held.Add(-1)
		return nil
	}))
}

func (s *stallingDisk) set(stalled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = stalled
	s.moved.Broadcast()
}

func allWrites(k errorfs.OpKind) bool { return k.ReadOrWrite() == errorfs.OpIsWrite }
func onlySyncs(k errorfs.OpKind) bool { return k == errorfs.OpFileSyncData }

// TestWALFailover: the log goes on in the second directory while the first stalls, comes back, and all of it is replayed, whatever
// of the first directory is lost that was not synced there.
func TestWALFailover(t *testing.T) {
	for name, kinds := range map[string]func(errorfs.OpKind) bool{"writes": allWrites, "syncs": onlySyncs} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			disk := newStallingDisk(kinds)
			o := small(disk.over(mem))
			o.WALFailoverDir = "second"
			d := mustOpen(t, "data", o)
			w, w2 := newWatch(), newWatch()
			l, l2 := mustLog(t, d, 1, w), mustLog(t, d, 2, w2)
			end := record.Offset(0)
			put := func() {
				check(t, l.Append(makeBatch(end, 0, 1, 1000, byte(end)), 1, fmt.Appendf(nil, "s%d", end)))
				check(t, l2.Append(makeBatch(end, 0, 1, 3000, byte(end)), -1, nil))
				end++
				w.waitDurable(end)
				w2.waitDurable(end)
			}
			put()
			for range 2 {
				disk.set(true)
				put()
				if !d.head.file.second {
					t.Error("the log did not go on in the second directory")
				}
				put()
				check(t, d.p.Flush()) // the first places are durable now, the second may be
				o := o
				o.FS = crashed(mem, 0)
				verifyTwo(t, o, end)
				disk.set(false)
				for deadline := time.Now().Add(time.Minute); d.stuck.Load() > 0; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatal("still stuck")
					}
				}
				for i := 0; d.head.file.second; i++ {
					if put(); i > 10000 {
						t.Fatal("the log does not come back")
					}
				}
				o.FS = crashed(mem, 0)
				verifyTwo(t, o, end)
			}
			check(t, d.Close())
			o.FS = mem
			verifyTwo(t, o, end)
		})
	}
}

func verifyTwo(t *testing.T, o Options, end record.Offset) {
	t.Helper()
	d := mustOpen(t, "data", o)
	for n := 1; n <= 2; n++ {
		l := mustLog(t, d, n, nil)
		if l.AppendedEnd() != end {
			t.Fatalf("log %d ends at %d, not %d", n, l.AppendedEnd(), end)
		}
		check(t, l.Scan(0, end, func(b record.Batch) error {
			if b[len(b)-1] != byte(b.BaseOffset()) {
				return fmt.Errorf("batch %d has another's bytes", b.BaseOffset())
			}
			return nil
		}))
	}
	check(t, d.Close())
}

// TestFailoverDirNeeded: what was in use with a second directory is not opened without it after a crash.
func TestFailoverDirNeeded(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := small(mem)
	o.WALFailoverDir = "second"
	d := mustOpen(t, "data", o)
	check(t, mustLog(t, d, 1, nil).Append(makeBatch(0, 0, 1, 100, 0), -1, nil))
	left := crashed(mem, 0)
	check(t, d.Close())
	_, err := Open("data", small(left))
	wantErr(t, err, ErrFailoverDir)
	if !strings.Contains(err.Error(), "second") {
		t.Errorf("does not say which: %v", err)
	}
	// After a clean close it matters whether files of the log lie there.
	f, err := mem.Create("second/00000099.batches", vfs.WriteCategoryUnspecified)
	check(t, err)
	check(t, f.Close())
	_, err = Open("data", small(mem))
	wantErr(t, err, ErrFailoverDir)
	check(t, mem.Remove("second/00000099.batches"))
	check(t, mustOpen(t, "data", small(mem)).Close())
}

// TestFailoverBesideChanges: the first disk stalls now and then while logs change in every way, power fails at some moment, and
// what was reported durable is there.
func TestFailoverBesideChanges(t *testing.T) {
	mem := vfs.NewCrashableMem()
	disk := newStallingDisk(onlySyncs)
	c := &crasher{t: t, fs: mem, options: func(o *Options) { o.WALFailoverDir = "second" }}
	o := small(disk.over(mem))
	o.fileBytes, o.rewriteAfter, o.eager, o.WALFailoverDir = 32<<10, time.Nanosecond, true, "second"
	d := mustOpen(t, "data", o)
	logs := make([]*Log, crashPartitions)
	for i := range logs {
		c.histories[i] = newHistory()
		logs[i] = mustLog(t, d, i, c.histories[i])
	}
	rng := rand.New(rand.NewPCG(7, 8))
	c.active.Store(true)
	seconds := 0
	for step := range 16 {
		disk.set(step%8 >= 5)
		for i := range logs {
			logs[i] = crashStep(t, d, logs[i], c.histories[i], rng, step+i)
			if step%3 == 0 {
				flushed, err := d.p.AsyncFlush()
				check(t, err)
				<-flushed
			}
		}
		c.point()
		d.head.mu.Lock()
		if d.head.file.second {
			seconds++
		}
		d.head.mu.Unlock()
		if t.Failed() {
			break
		}
	}
	disk.set(false)
	check(t, d.Close())
	c.point()
	if seconds == 0 {
		t.Error("the log never went on in the second directory")
	}
}
