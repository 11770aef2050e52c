// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve/varve/record"
)

// commit is one frame on its way: filled, written and applied to Pebble by the committer, synced by the syncer, then used again.
type commit struct {
	sequence uint64
	batch    *pebble.Batch
	// pieces are the record batches of the frame, which begins at start of file; data is their size.
	pieces []record.Batch
	file   *logFile
	start  int64
	data   int64
	// buffer is where small batches are gathered, so that a frame takes few writes.
	buffer []byte
	// list are the pieces of the next write.
	list [][]byte
	// image is the whole frame and imageEnd its length, kept to write it again, if there is a failover directory.
	image    []byte
	imageEnd int64
	ops      []*op
	bytes    int
	// touched are the logs whose end moved by appends, each once.
	touched []touch
	written time.Time
	// applied tells the syncer that Pebble has the batch, or why not.
	applied chan error
	// freedSome: bytes of log files became dead.
	freedSome bool
	key       []byte
}

type touch struct {
	log *Log
	end record.Offset
}

func (d *DB) newCommit() *commit {
	return &commit{
		batch:  d.p.NewBatch(pebble.WithInitialSizeBytes(64<<10), pebble.WithMaxRetainedSizeBytes(maxRetainedMeta)),
		buffer: make([]byte, 0, gatherBytes), applied: make(chan error, 1),
	}
}

// commitLoop is the committer goroutine. It ends when the queue is empty and the DB is closing, or on failure.
func (d *DB) commitLoop() {
	defer close(d.toSync)
	for c := range d.free {
		if !d.gather(c) {
			return
		}
		d.checkDisk(c.bytes)
		c.written = time.Now()
		d.head.mu.Lock()
		err := d.write(c)
		d.head.mu.Unlock()
		if err != nil {
			d.fail(fmt.Errorf("write a frame of %d changes: %w", len(c.ops), err))
			d.finish(c, ErrFailed)
			return
		}
		// Before the apply: that may have to wait for a flush, and a flush waits for the sync of what it writes.
		d.toSync <- c
		err = d.apply(c)
		if err != nil {
			d.fail(fmt.Errorf("apply a batch of %d changes: %w", len(c.ops), err))
		}
		c.applied <- err
		if err != nil {
			return
		}
	}
}

// gather waits for work and takes it. It returns false when there is none left and none will come.
func (d *DB) gather(c *commit) bool {
	for {
		d.mu.Lock()
		if d.mu.failed {
			d.mu.Unlock()
			return false
		}
		if d.mu.small.head != nil || d.mu.large.head != nil {
			d.sequence++
			c.sequence = d.sequence
			d.takeLocked(c)
			d.mu.Unlock()
			return true
		}
		closing := d.mu.closing
		d.mu.idle = true
		d.mu.Unlock()
		if closing {
			return false
		}
		<-d.wake
		d.checkDisk(0)
		if err := d.applyRepoint(math.MaxUint64); err != nil {
			d.fail(fmt.Errorf("apply a batch of new places: %w", err))
			return false
		}
	}
}

// write fills the Pebble batch and writes the frame.
func (d *DB) write(c *commit) error {
	if err := d.beginFrame(c); err != nil {
		return err
	}
	for _, o := range c.ops {
		if err := d.encode(c, o); err != nil {
			return err
		}
	}
	for _, t := range c.touched {
		if err := c.touchHighWatermark(t.log, c.written); err != nil {
			return err
		}
	}
	return d.writeFrame(c)
}

// apply gives Pebble the batch of a frame that is written, and moves the appended ends.
func (d *DB) apply(c *commit) (err error) {
	// Pebble panics where its commit pipeline cannot go on. That is a failed apply: nothing after it may be acknowledged, and
	// Pebble must not be touched again.
	defer func() {
		if r := recover(); r != nil {
			d.abandon()
			err = fmt.Errorf("%w: panic in apply: %v", ErrFailed, r)
		}
	}()
	if err := d.applyRepoint(c.sequence); err != nil {
		return err
	}
	if err := d.p.Apply(c.batch, pebble.NoSync); err != nil {
		return err
	}
	if err := d.applyRepoint(c.sequence + 1); err != nil {
		return err
	}
	d.appliedTo.Store(c.sequence)
	for _, t := range c.touched {
		t.log.appendedEnd.Store(int64(t.end))
	}
	d.settle(c)
	for _, t := range c.touched {
		if t.log.obs != nil {
			t.log.obs.Appended(t.end)
		}
	}
	return nil
}

// settle ends what readers had to be warned of before the apply.
func (d *DB) settle(c *commit) {
	for _, o := range c.ops {
		if o.kind == opTruncate || o.kind == opReset {
			o.log.generation.Add(1)
		}
	}
}

// touch notes that appends moved the log's end.
func (c *commit) touch(l *Log) {
	if l.w.touchedIn == c.sequence {
		c.touched[l.w.touchedAt].end = l.w.end
		return
	}
	l.w.touchedIn, l.w.touchedAt = c.sequence, len(c.touched)
	c.touched = append(c.touched, touch{l, l.w.end})
}

// touchHighWatermark writes the high-watermark checkpoint beside a batch of the same log, at most every hwInterval.
func (c *commit) touchHighWatermark(l *Log, now time.Time) error {
	hw := record.Offset(l.highWatermark.Load())
	if hw == l.w.meta.highWatermark || now.Sub(l.w.hwAt) < hwInterval {
		return nil
	}
	l.w.hwAt = now
	return c.putMeta(l)
}

// syncLoop is the syncer goroutine: it syncs frames in the order in which they were written.
func (d *DB) syncLoop() {
	defer close(d.done)
	for c := range d.toSync {
		if err := d.sync(c); err != nil {
			d.fail(err)
		}
		err := <-c.applied
		if d.hasFailed() {
			err = ErrFailed // sticky: a later sync that succeeds proves nothing about what a failed one covered
		}
		if err == nil {
			d.durable(c)
		}
		d.finish(c, err)
		freed := c.freedSome
		c.reset()
		d.free <- c
		if freed {
			d.wakeReclaimer()
		}
	}
}

// durable reports what the sync of c covers.
func (d *DB) durable(c *commit) {
	d.durableTo.Store(c.sequence)
	d.stats.sync.observe(time.Since(c.written))
	d.stats.batches.Add(1)
	for _, o := range c.ops {
		if o.kind == opTruncate || o.kind == opReset {
			if o.rest.err == nil {
				o.log.durableEnd.Store(int64(o.rest.offset))
			}
		}
	}
	for _, t := range c.touched {
		t.log.durableEnd.Store(int64(t.end))
	}
	for _, t := range c.touched {
		if t.log.obs != nil {
			t.log.obs.Durable(t.end)
		}
	}
}

// finish tells the waiters of c's ops and recycles the ops.
func (d *DB) finish(c *commit, err error) {
	for _, o := range c.ops {
		if o.rest == nil {
			continue
		}
		if o.rest.err == nil {
			o.rest.err = err
		}
		if o.kind == opDrop {
			d.forget(o.log)
		}
		close(o.rest.done)
	}
	d.mu.Lock()
	d.recycleLocked(c.ops)
	d.mu.Unlock()
}

func (c *commit) reset() {
	c.batch.Reset()
	clear(c.ops)
	clear(c.touched)
	clear(c.pieces)
	c.ops, c.touched, c.pieces, c.bytes, c.data, c.file, c.freedSome = c.ops[:0], c.touched[:0], c.pieces[:0], 0, 0, nil, false
}

// fail makes the first error the last: the process is told, the queue is refused, nothing more is acknowledged.
func (d *DB) fail(err error) {
	d.mu.Lock()
	first := !d.mu.failed
	d.mu.failed = true
	d.failed.Store(true)
	c := &commit{}
	for first && (d.mu.small.head != nil || d.mu.large.head != nil) {
		l := d.mu.small.pop()
		if l == nil {
			l = d.mu.large.pop()
		}
		for l.q.head != nil {
			d.takeOneLocked(c, l)
		}
	}
	d.mu.Unlock()
	if !first {
		return
	}
	d.synced.fail()
	d.o.Fatal(err)
	d.finish(c, ErrFailed)
	d.wakeCommitter()
}

func (d *DB) hasFailed() bool { return d.failed.Load() }
