// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"

	"github.com/varve/varve/record"
)

// When a write or a sync of the log takes too long and Options.WALFailoverDir is set, the log goes on in a file there: the frames
// that are not synced yet are written to it once more, each with a batch that points into the new file, and then whatever comes.
// It returns to the first directory when nothing is stuck there any more. DESIGN.md says why a crash at any moment is harmless.

// errStalled: the disk did not answer in time. What was asked of it goes on in a goroutine that is left alone.
var errStalled = errors.New("hotlog: disk stalled")

// repoint is a batch that Pebble has to get behind the commits whose frames were written again.
type repoint struct {
	batch *pebble.Batch
	last  uint64 // of these commits
}

// attempt does I/O on a file, in time if there is another directory to go on in.
func (d *DB) attempt(f *logFile, io func() error) error {
	if d.o.WALFailoverDir == "" || f.second {
		return io()
	}
	const running, finished, left = 0, 1, 2
	var state atomic.Int32
	done := make(chan error, 1)
	d.files.busy(f)
	go func() {
		err := io()
		d.files.idle(f)
		done <- err
		if !state.CompareAndSwap(running, finished) {
			d.stuck.Add(-1)
			d.wakeReclaimer()
			d.o.Logger.Info("a stalled operation on the log has ended", "file", f.name, "error", err)
		}
	}()
	late := time.NewTimer(failoverAfter)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
	}
	d.stuck.Add(1)
	if !state.CompareAndSwap(running, left) {
		d.stuck.Add(-1)
		return <-done
	}
	return errStalled
}

// failOverLocked goes on in the other directory. current, if any, is the commit whose frame is being written; Pebble does not have
// it yet. head.mu is held.
func (d *DB) failOverLocked(current *commit) error {
	old := d.head.file
	g, err := d.files.create(true)
	if err != nil {
		return err
	}
	d.stats.slow.Add(1)
	d.o.Logger.Warn("the disk stalls, the log goes on in the other directory", "stalled", old.name, "file", g.name)
	d.files.seal(old)
	d.head.file, d.head.at, d.head.allocated = g, 0, 0
	var runs []run
	for _, c := range d.head.unsynced {
		b, err := d.writeAgainLocked(c, &runs)
		if err != nil {
			return err
		}
		if d.head.repoint == nil {
			d.head.repoint = &repoint{batch: d.p.NewBatch()}
		}
		d.head.repoint.last = c.sequence
		if err := errors.Join(d.head.repoint.batch.Apply(b, nil), b.Close()); err != nil {
			return err
		}
	}
	if current != nil {
		b, err := d.writeAgainLocked(current, &runs)
		if err != nil {
			return err
		}
		old := current.batch
		current.batch = b
		if err := old.Close(); err != nil {
			return err
		}
	}
	d.wakeCommitter() // for the repoint, if nothing else comes
	return nil
}

// writeAgainLocked writes the frame of a commit to the head, and returns the batch that points there. earlier are the runs of the
// frames that were written again before; this one's come to them.
func (d *DB) writeAgainLocked(c *commit, earlier *[]run) (*pebble.Batch, error) {
	old, start, g := c.file, d.head.at, d.head.file
	data := c.image[frameHeaderLen : frameHeaderLen+c.data]
	b, runs, err := d.repointed(c, c.image[frameHeaderLen+c.data:c.imageEnd], start, *earlier)
	if err != nil {
		return nil, err
	}
	h := frameHeader{file: g.number, data: uint32(c.data), meta: uint32(b.Len() + appliedRecordLen), sequence: c.sequence, synced: d.synced.load()}
	at := position{g.number, start, h.next(start), c.sequence}
	if err := b.Set(keyApplied, at.put(make([]byte, positionValueLen)), nil); err != nil {
		return nil, err
	}
	if b.Len() != int(h.meta) {
		return nil, fmt.Errorf("hotlog: batch of %d bytes where %d were expected", b.Len(), h.meta)
	}
	image := make([]byte, frameHeaderLen, at.end-start)
	image = append(append(image, data...), b.Repr()...)
	h.body = crc32.Checksum(image[frameHeaderLen:], castagnoli)
	h.put(image, &d.storeID)
	if _, err := g.handle.WriteAt(image, start); err != nil {
		return nil, err
	}
	c.file, c.start, c.image, c.imageEnd = g, start, image, int64(len(image))
	d.head.at = at.end
	d.stats.logBytes.Add(h.len())
	d.files.wrote(g, at.end, c.sequence)
	d.files.release(old)
	for _, r := range runs {
		d.reassign(r, old, g, c.sequence)
	}
	*earlier = append(*earlier, runs...)
	return b, nil
}

// run is a row of batches of one log in a frame.
type run struct {
	log            prefix
	base, nextBase record.Offset
	from, to       int64 // positions
}

// repointed is the Pebble batch of a commit, with c's file and place exchanged for start of the head, but without the applied key.
//
// A commit that truncated or trimmed a run away deleted the extents that there were then. The run's own is one more, which only
// its frame's second writing makes: it goes with the run.
func (d *DB) repointed(c *commit, meta []byte, start int64, earlier []run) (b *pebble.Batch, runs []run, err error) {
	b = d.p.NewBatch()
	reader := batchrepr.Read(meta)
	var gone []run
	for {
		kind, key, value, ok, err := reader.Next()
		if err != nil || !ok {
			return b, runs, errors.Join(err, d.putRuns(b, runs), deleteRuns(b, gone))
		}
		gone = append(gone, runsGone(kind, key, value, earlier, runs)...)
		switch kind {
		case pebble.InternalKeyKindSet:
			if slices.Equal(key, keyApplied) {
				continue
			}
			if len(key) > partitionPrefixLen && key[0] == spacePartition {
				if value, runs, err = d.repointValue(c, key, value, start, runs); err != nil {
					return b, nil, err
				}
			}
			err = b.Set(key, value, nil)
		case pebble.InternalKeyKindDelete:
			err = b.Delete(key, nil)
		case pebble.InternalKeyKindRangeDelete:
			err = b.DeleteRange(key, value, nil)
		default:
			err = fmt.Errorf("hotlog: unexpected kind %v in a batch", kind)
		}
		if err != nil {
			return b, nil, err
		}
	}
}

// repointValue is the value of a data or extent key for the new place; others stay. runs grows by the data.
func (d *DB) repointValue(c *commit, key, value []byte, start int64, runs []run) ([]byte, []run, error) {
	switch key[partitionPrefixLen] {
	case kindData:
		k, err := parseDataKey(key)
		if err != nil {
			return nil, runs, err
		}
		p, err := parsePointer(key, value)
		if err != nil {
			return nil, runs, err
		}
		next := k.position + int64(p.size)
		if n := len(runs); n > 0 && runs[n-1].log == prefix(key[:partitionPrefixLen]) && runs[n-1].to == k.position {
			runs[n-1].to, runs[n-1].nextBase = next, k.next()
		} else {
			runs = append(runs, run{prefix(key[:partitionPrefixLen]), k.base, k.next(), k.position, next})
		}
		p.file, p.offset = d.head.file.number, uint32(int64(p.offset)-c.start+start)
		value = make([]byte, pointerValueLen)
		p.put(value)
	case kindExtent:
		if file, err := parseExtentValue(key, value); err != nil {
			return nil, runs, err
		} else if file == c.file.number {
			value = putExtentValue(make([]byte, extentValueLen), d.head.file.number)
		}
	}
	return value, runs, nil
}

// putRuns writes an extent for each run: the ones of before may have begun in an earlier frame, which stays where it is.
func (d *DB) putRuns(b *pebble.Batch, runs []run) error {
	for _, r := range runs {
		if err := b.Set(r.log.extentKey(nil, r.base, r.from), putExtentValue(make([]byte, extentValueLen), d.head.file.number), nil); err != nil {
			return err
		}
	}
	return nil
}

// runsGone are the runs that an entry of a batch removes: a truncate's range deletion, or a meta whose start lies behind them.
func runsGone(kind pebble.InternalKeyKind, key, value []byte, earlier, own []run) (gone []run) {
	if len(key) < kindPrefixLen || key[0] != spacePartition {
		return nil
	}
	p := prefix(key[:partitionPrefixLen])
	switch {
	case kind == pebble.InternalKeyKindRangeDelete && bytes.Equal(value, p.kind(nil, kindEnd)):
		for _, r := range earlier {
			if r.log == p && bytes.Compare(key, p.dataSeek(nil, r.base)) <= 0 {
				gone = append(gone, r)
			}
		}
	case kind == pebble.InternalKeyKindSet && key[partitionPrefixLen] == kindMeta:
		m, err := parseMeta(key, value)
		if err != nil {
			return nil // it is the committer's own
		}
		for _, r := range slices.Concat(earlier, own) {
			if r.log == p && r.to <= m.startPosition {
				gone = append(gone, r)
			}
		}
	}
	return gone
}

func deleteRuns(b *pebble.Batch, runs []run) error {
	for _, r := range runs {
		if err := b.Delete(r.log.extentKey(nil, r.base, r.from), nil); err != nil {
			return err
		}
	}
	return nil
}

// reassign notes in the committer's view of a log that a run lies in another file.
func (d *DB) reassign(r run, old, g *logFile, sequence uint64) {
	d.mu.Lock()
	l := d.mu.logs[r.log.id()]
	d.mu.Unlock()
	if l == nil {
		return
	}
	d.files.mu.Lock()
	defer d.files.mu.Unlock()
	var out []extent
	for i, e := range l.w.extents {
		end := l.extentEnd(i)
		if e.file != old || end <= r.from || e.position >= r.to {
			out = append(out, e)
			continue
		}
		if n := min(end, r.to) - max(e.position, r.from, l.w.meta.startPosition); n > 0 {
			old.live -= n
			old.freedAt = max(old.freedAt, sequence)
			g.live += n
		}
		moved := extent{e.base, e.position, g}
		if e.position < r.from {
			out = append(out, e)
			moved.base, moved.position = r.base, r.from
		}
		out = append(out, moved)
		if end > r.to {
			out = append(out, extent{r.nextBase, r.to, old})
		}
	}
	l.w.extents = out
}

// applyRepoint gives Pebble the pointers to frames that were written again, if it has all of these already (below: before sequence).
func (d *DB) applyRepoint(before uint64) error {
	d.head.mu.Lock()
	r := d.head.repoint
	if r == nil || r.last >= before {
		d.head.mu.Unlock()
		return nil
	}
	d.head.repoint = nil
	d.head.mu.Unlock()
	if err := d.p.Apply(r.batch, pebble.NoSync); err != nil {
		return err
	}
	return r.batch.Close()
}

// syncSomewhere makes c's frame durable where it is, or where it is written again because that takes too long.
func (d *DB) syncSomewhere(c *commit) error {
	for {
		if d.hasFailed() {
			return ErrFailed
		}
		d.head.mu.Lock()
		f := c.file
		d.head.mu.Unlock()
		err := d.attempt(f, f.handle.SyncData)
		d.head.mu.Lock()
		if c.file == f && err == errStalled {
			if err := d.failOverLocked(nil); err != nil {
				d.head.mu.Unlock()
				return err
			}
		}
		done := c.file == f
		if done {
			d.head.unsynced = d.head.unsynced[:copy(d.head.unsynced, d.head.unsynced[1:])]
		}
		d.head.mu.Unlock()
		if done {
			d.files.release(f)
			return err
		}
	}
}

// comeBackLocked returns to the first directory if nothing is stuck there and a file is ready.
func (d *DB) comeBackLocked() error {
	if !d.head.file.second || d.stuck.Load() > 0 {
		return nil
	}
	select {
	case next := <-d.prepared:
		return d.goOnIn(next)
	default:
		return nil
	}
}

// goOnIn makes a prepared file the head. One from before the log went on elsewhere has too low a number: files are replayed by number.
func (d *DB) goOnIn(next preparedFile) error {
	if next.err != nil {
		return next.err
	}
	if next.file.number < d.head.file.number {
		d.files.seal(next.file)
		return nil
	}
	d.files.seal(d.head.file)
	d.wakeReclaimer()
	d.head.file, d.head.at, d.head.allocated = next.file, 0, next.file.size
	return nil
}
