// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"sync/atomic"
	"time"
)

// Metrics is a snapshot of the store's counters.
type Metrics struct {
	// DiskBytes is everything on disk, WALBytes what of the log Pebble has not flushed yet, LiveBytes the sum over all open logs from start to end.
	DiskBytes, WALBytes, LiveBytes int64
	// MemTableBytes and CacheBytes are held outside the Go heap.
	MemTableBytes, CacheBytes int64
	// AppendedBytes counts batches since Open, WrittenBytes what was written for them (log, Pebble's flushes and compactions).
	AppendedBytes, WrittenBytes int64
	// QueuedBytes and QueuedOps wait for the committer.
	QueuedBytes int64
	QueuedOps   int
	// Batches counts frames of the log, Appends the record batches in them.
	Batches, Appends int64
	// Sync is the time from the beginning of a frame's write to the end of its sync.
	Sync Histogram
	// Flushes and Compactions count Pebble's background work, Stalls how often writes were held back by it, SlowOps the disk operations over the stall threshold.
	Flushes, Compactions, Stalls, SlowOps int64
	// AvailableBytes is the free space at the last check, HighWaterBytes the mark below which appends are refused.
	AvailableBytes, HighWaterBytes int64
	DiskFull                       bool
}

// WriteAmplification is bytes written per byte appended; 0 before the first append.
func (m *Metrics) WriteAmplification() float64 {
	if m.AppendedBytes == 0 {
		return 0
	}
	return float64(m.WrittenBytes) / float64(m.AppendedBytes)
}

// Histogram counts durations: Counts[i] are those at or below Bounds[i] and above Bounds[i-1], the last count those above all.
type Histogram struct {
	Bounds []time.Duration
	Counts []uint64
	Sum    time.Duration
}

var syncBounds = [...]time.Duration{
	100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
}

type histogram struct {
	counts [len(syncBounds) + 1]atomic.Uint64
	sum    atomic.Int64
}

func (h *histogram) observe(t time.Duration) {
	i := 0
	for i < len(syncBounds) && t > syncBounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(t))
}

type stats struct {
	sync             histogram
	batches, appends atomic.Int64
	appendedBytes    atomic.Int64
	// logBytes and logSinceFlush count frames, since Open and since Pebble's last flush; movedBytes batches that got another place.
	logBytes, logSinceFlush, movedBytes atomic.Int64
	stalls, slow                        atomic.Int64
	live                                atomic.Int64
}

// Metrics takes Pebble's lock for a moment and sums over the open logs: for scrapes, not for every request.
func (d *DB) Metrics() Metrics {
	m := Metrics{
		AppendedBytes: d.stats.appendedBytes.Load(), Batches: d.stats.batches.Load(), Appends: d.stats.appends.Load(),
		Stalls: d.stats.stalls.Load(), SlowOps: d.stats.slow.Load(),
		LiveBytes: d.LiveBytes(), AvailableBytes: d.disk.available.Load(), HighWaterBytes: d.disk.mark.Load(), DiskFull: d.disk.full.Load(),
	}
	m.Sync = Histogram{Bounds: syncBounds[:], Counts: make([]uint64, len(syncBounds)+1), Sum: time.Duration(d.stats.sync.sum.Load())}
	for i := range m.Sync.Counts {
		m.Sync.Counts[i] = d.stats.sync.counts[i].Load()
	}
	d.mu.Lock()
	m.QueuedBytes, m.QueuedOps = d.mu.queuedBytes, d.mu.queuedOps
	d.mu.Unlock()
	slot, err := d.enter()
	if err != nil {
		return m
	}
	defer d.leave(slot)
	p := d.p.Metrics()
	files, _ := d.files.usage()
	m.DiskBytes, m.WALBytes = int64(p.DiskSpaceUsage())+files, d.stats.logSinceFlush.Load()
	m.MemTableBytes, m.CacheBytes = int64(p.MemTable.Size+p.MemTable.ZombieSize), p.BlockCache.Size
	m.Flushes, m.Compactions = p.Flush.Count, p.Compact.Count
	m.WrittenBytes = d.stats.logBytes.Load()
	for i := range p.Levels {
		level := &p.Levels[i]
		m.WrittenBytes += int64(level.TableBytesFlushed + level.TableBytesCompacted)
	}
	return m
}
