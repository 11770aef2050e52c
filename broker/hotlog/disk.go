// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// diskGuard refuses appends before the disk is full. A failed write of the log ends the process, so the mark leaves room for a few
// log files, which everything else still writes to, and for Pebble's flushes. A reserve file is given back once the mark is reached, or at
// once when some write finds no space (another program took it): flushes, compactions and trims go on with it.
type diskGuard struct {
	fs        vfs.FS // below the wrapper that reports ENOSPC
	dir, file string
	log       logWarn
	nowFull   func() // wakes who can give space back
	memTable  int64  // or the size of a log file, if that is more
	// maxReserve bounds the reserve file.
	maxReserve int64
	full       atomic.Bool
	checkedAt  atomic.Int64
	available  atomic.Int64
	mark       atomic.Int64
	since      int64 // the committer's: bytes since the last check
	mu         struct {
		sync.Mutex
		unsupported bool
		held        int64 // size of the reserve file, 0 while there is none
		noSpaceAt   time.Time
	}
}

type logWarn func(msg string, args ...any)

func (g *diskGuard) open(d *DB) {
	g.fs, g.dir, g.memTable, g.log = d.fs, d.dir, max(d.o.MemTableBytes, d.o.fileBytes), d.o.Logger.Warn
	g.nowFull, g.maxReserve = d.wakeReclaimer, d.o.ReserveBytes
	g.file = d.fs.PathJoin(d.dir, "RESERVE")
	g.check()
	if g.full.Load() {
		g.release() // or the replay at start may not fit
	}
}

// highWater is the free space below which appends are refused: 5 % of the disk, at most 4 GiB, but room for the memtables,
// unless that is a quarter of a small disk.
func highWater(total, memTable int64) int64 {
	return max(min(total/20, maxHighWater), min(3*memTable, total/4))
}

func (g *diskGuard) reserveSize(total int64) int64 { return min(total/50, g.maxReserve) }

// check looks at the free space and moves full. Leaving full takes an eighth more than the mark, the reserve not counted.
func (g *diskGuard) check() {
	g.checkedAt.Store(time.Now().UnixNano())
	g.since = 0
	usage, err := g.fs.GetDiskUsage(g.dir)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.unsupported = err != nil; err != nil {
		return // a file system without sizes, as in tests: only ENOSPC counts
	}
	total, available := int64(usage.TotalBytes), int64(usage.AvailBytes)
	mark := highWater(total, g.memTable)
	g.available.Store(available)
	g.mark.Store(mark)
	if g.mu.held == 0 {
		available -= g.reserveSize(total)
	}
	switch {
	case !g.full.Load() && available < mark:
		g.full.Store(true)
		g.log("disk nearly full: appends refused", "dir", g.dir, "available", usage.AvailBytes, "mark", mark)
		g.releaseLocked()
		g.nowFull()
	case g.full.Load() && available >= mark+mark/8 && time.Since(g.mu.noSpaceAt) > stayFull:
		g.full.Store(false)
		g.log("disk has space again: appends accepted", "dir", g.dir, "available", usage.AvailBytes)
		g.keepLocked(g.reserveSize(total))
	}
}

// outOfSpace is called by the file system when a write found no space, before it is tried once more.
func (g *diskGuard) outOfSpace() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.full.Store(true)
	g.mu.noSpaceAt = time.Now()
	g.releaseLocked()
	g.nowFull()
}

// free is the space at the last check, or more than any disk has where that is not known.
func (g *diskGuard) free() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.unsupported {
		return math.MaxInt64
	}
	return g.available.Load()
}

func (g *diskGuard) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releaseLocked()
}

func (g *diskGuard) releaseLocked() {
	g.mu.held = 0
	_ = g.fs.Remove(g.file) // not there: nothing to give back
}

// keepReserve makes the reserve file when there is room.
func (g *diskGuard) keepReserve() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.unsupported || g.full.Load() {
		return
	}
	usage, err := g.fs.GetDiskUsage(g.dir)
	if err != nil {
		return
	}
	g.keepLocked(g.reserveSize(int64(usage.TotalBytes)))
}

func (g *diskGuard) keepLocked(size int64) {
	f, err := g.fs.Create(g.file, vfs.WriteCategoryUnspecified)
	if err == nil {
		if err = f.Preallocate(0, size); err == nil {
			err = f.Sync()
		}
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}
	if err != nil {
		g.log("no reserve file", "dir", g.dir, "bytes", size, "error", err)
		g.releaseLocked()
		return
	}
	g.mu.held = size
}

// checkDisk is the committer's look, before it writes bytes: cheap unless time or bytes have passed.
func (d *DB) checkDisk(bytes int) {
	g := &d.disk
	g.since += int64(bytes)
	if time.Now().UnixNano()-g.checkedAt.Load() >= int64(diskCheckInterval) || g.since >= min(diskCheckBytes, max(g.mark.Load()/8, 1<<20)) {
		g.check()
	}
}

// recheckDisk asks the committer to look again, since nothing else happens while appends are refused.
func (d *DB) recheckDisk() {
	if time.Now().UnixNano()-d.disk.checkedAt.Load() >= int64(diskCheckInterval) {
		d.wakeCommitter()
	}
}

// DiskFull tells whether appends are refused for want of space.
func (d *DB) DiskFull() bool {
	full := d.disk.full.Load()
	if full {
		d.recheckDisk()
	}
	return full
}
