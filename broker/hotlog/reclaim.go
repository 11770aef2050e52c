// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varve/varve/record"
)

// reclaimer is the goroutine that gives log files back: it flushes Pebble so that files are not needed for a replay, retires files
// without live bytes, waits for the readers that may still look into them, and moves the last live batches out of files that are
// nearly dead.
type reclaimer struct {
	d        *DB
	flushing <-chan struct{} // closed when Pebble has flushed everything up to flushTo
	flushTo  uint64
	retired  []*logFile // nobody finds them any more, readers from before may
	draining []*logFile // as soon as the readers of the other epoch are gone
	timer    *time.Timer
}

func (d *DB) wakeReclaimer() {
	select {
	case d.reclaim <- struct{}{}:
	default:
	}
}

func (d *DB) reclaimLoop() {
	defer close(d.reclaimerDone)
	r := &reclaimer{d: d, timer: time.NewTimer(time.Hour)}
	r.timer.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-r.flushing:
			r.flushing, d.flushedTo = nil, r.flushTo
		case <-d.reclaim:
		case <-r.timer.C:
		}
		if d.hasFailed() || d.closing.Load() {
			continue
		}
		if err := r.pass(); err != nil && !errors.Is(err, ErrClosed) {
			d.o.Logger.Warn("log files are not given back", "dir", d.dir, "error", err)
			r.timer.Reset(d.o.rewriteAfter)
		}
	}
}

func (r *reclaimer) pass() error {
	r.flush()
	r.retire()
	if err := r.drain(); err != nil {
		return err
	}
	if r.d.disk.full.Load() {
		if err := r.d.files.dropSpares(); err != nil {
			return err
		}
	}
	return r.rewrite()
}

// flush bounds what a start has to replay, and lets go of the files before.
func (r *reclaimer) flush() {
	d := r.d
	if r.flushing != nil || d.stats.logSinceFlush.Load() < flushAfterFiles*d.o.fileBytes {
		return
	}
	d.stats.logSinceFlush.Store(0)
	r.flushTo = d.appliedTo.Load()
	done, err := d.p.AsyncFlush()
	if err != nil {
		d.o.Logger.Warn("pebble does not flush", "dir", d.dir, "error", err)
		return
	}
	r.flushing = done
}

// retire takes the files that nothing points to, durably, out of what is counted.
func (r *reclaimer) retire() {
	s := &r.d.files
	durable := r.d.durableTo.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.byNumber {
		if f.sealed && f.live == 0 && f.writes == 0 && f.freedAt <= durable && f.lastSequence <= min(r.d.flushedTo, durable) && !slices.Contains(r.retired, f) && !slices.Contains(r.draining, f) {
			r.retired = append(r.retired, f)
		}
	}
}

// drain forgets retired files once every reader that began before they were retired has left.
func (r *reclaimer) drain() error {
	d := r.d
	for {
		if len(r.draining) == 0 {
			if len(r.retired) == 0 {
				return nil
			}
			r.draining, r.retired = r.retired, nil
			d.mu.Lock()
			d.mu.epoch++
			d.mu.Unlock()
		}
		d.draining.Store(true)
		d.mu.Lock()
		busy := d.active[(d.mu.epoch-1)%2].Load() > 0
		d.mu.Unlock()
		if busy {
			return nil // the last of them wakes us
		}
		d.draining.Store(false)
		done := r.draining
		r.draining = nil
		for _, f := range done {
			keep := !d.disk.full.Load() && f.size >= d.o.fileBytes/2 && f.size <= 2*d.o.fileBytes
			if err := d.files.forget(f, keep); err != nil {
				return err
			}
		}
	}
}

// rewrite moves live batches out of the files that hold the fewest, while more is dead than may be.
func (r *reclaimer) rewrite() error {
	for !r.d.hasFailed() && !r.d.closing.Load() {
		f, wait := r.candidate()
		if f == nil {
			if wait > 0 {
				r.timer.Reset(wait)
			}
			return nil
		}
		moved, err := r.d.rewrite(f)
		if err != nil {
			return fmt.Errorf("move batches out of %s: %w", f.name, err)
		}
		if moved == 0 {
			r.d.files.mu.Lock()
			f.notBefore = time.Now().Add(r.d.o.rewriteAfter)
			r.d.files.mu.Unlock()
		}
		r.flush()
		r.retire()
		if err := r.drain(); err != nil {
			return err
		}
	}
	return nil
}

// candidate is the file to rewrite, if there is too much garbage, or how long to wait until one is old enough.
func (r *reclaimer) candidate() (best *logFile, wait time.Duration) {
	d := r.d
	durable := d.durableTo.Load()
	s := &d.files
	s.mu.Lock()
	defer s.mu.Unlock()
	var live, dead int64
	now := time.Now()
	for _, f := range s.byNumber {
		live += f.live
		if !f.sealed || f.live == 0 {
			continue
		}
		dead += f.size - f.live
		from := f.sealedAt.Add(d.o.rewriteAfter)
		if f.notBefore.After(from) {
			from = f.notBefore
		}
		if age := from.Sub(now); age > 0 {
			if wait == 0 || age < wait {
				wait = age
			}
			continue
		}
		if f.lastSequence <= durable && f.live <= f.size/4*3 && (best == nil || f.live*best.size < best.live*f.size) {
			best = f
		}
	}
	if dead <= max(live, garbageFiles*d.o.fileBytes) && !d.o.eager {
		return nil, 0
	}
	return best, wait
}

// part is what one log has in a file.
type part struct {
	log      *Log
	base     record.Offset
	from, to int64 // positions
}

// rewrite moves the live batches that open logs have in a file to the end of the log. It tells how many bytes went.
func (d *DB) rewrite(f *logFile) (moved int64, err error) {
	var parts []part
	d.mu.Lock()
	logs := make([]*Log, 0, len(d.mu.logs))
	for _, l := range d.mu.logs {
		if !l.q.opening && !l.q.dropped {
			logs = append(logs, l)
		}
	}
	d.mu.Unlock()
	d.files.mu.Lock()
	for _, l := range logs {
		for i, e := range l.w.extents {
			if e.file == f {
				parts = append(parts, part{l, e.base, e.position, l.extentEndShared(i)})
			}
		}
	}
	d.files.mu.Unlock()
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.to-a.from, b.to-b.from) })
	for _, p := range parts {
		n, err := d.rewritePart(f, p)
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// rewritePart moves the batches of one log, a chunk at a time. What changes meanwhile stays for the next time.
func (d *DB) rewritePart(f *logFile, p part) (moved int64, err error) {
	for from := max(p.base, p.log.Start()); ; {
		r := &opRest{}
		next, more, err := d.readMove(f, p, from, r)
		if err != nil || len(r.moves) == 0 {
			return moved, err
		}
		if err := p.log.change(opMove, r, nil); err != nil {
			if errors.Is(err, ErrBusy) {
				err = nil
			}
			return moved, err
		}
		if err := r.wait(); err == errLookAgain {
			return moved, nil
		} else if err != nil {
			return moved, err
		}
		moved += int64(len(r.data))
		if !more {
			return moved, nil
		}
		from = next
	}
}

// readMove reads a chunk of p from the batch that holds from on.
func (d *DB) readMove(f *logFile, p part, from record.Offset, r *opRest) (next record.Offset, more bool, err error) {
	slot, err := d.enter()
	if err != nil {
		return 0, false, err
	}
	defer d.leave(slot)
	l := p.log
	r.generation = l.generation.Load()
	c := cursors.Get().(*cursor)
	defer cursors.Put(c)
	g := gather{l: l}
	defer g.close()
	err = l.walk(c, from, l.AppendedEnd(), func(k dataKey, at pointer) (bool, error) {
		if at.file != f.number || k.position >= p.to {
			return false, nil
		}
		if g.size() > 0 && g.size()+int(at.size) > moveBytes {
			next, more = k.base, true
			return false, nil
		}
		r.moves = append(r.moves, move{k, at.size})
		return true, g.add(k, at)
	})
	if err == nil {
		err = g.flush()
	}
	r.data = g.buf
	if errors.Is(err, ErrTrimmed) || errors.Is(err, ErrClosed) && l.dropped.Load() {
		r.moves, err = nil, nil
	}
	return next, more, err
}

// move is a batch that gets a new place.
type move struct {
	key  dataKey
	size uint32
}

// encodeMove points the log's keys to copies of batches that are written with this frame. What was trimmed meanwhile is left out.
func (d *DB) encodeMove(c *commit, o *op) error {
	l, r := o.log, o.rest
	if r.generation != l.generation.Load() {
		r.err = errLookAgain
		return nil
	}
	data, moves := r.data, r.moves
	for len(moves) > 0 && moves[0].key.position < l.w.meta.startPosition {
		data, moves = data[moves[0].size:], moves[1:]
	}
	if len(moves) == 0 {
		return nil
	}
	for _, m := range moves {
		if err := c.putData(l, m.key, data[:m.size]); err != nil {
			return err
		}
		data = data[m.size:]
	}
	last := moves[len(moves)-1]
	d.stats.movedBytes.Add(last.key.position + int64(last.size) - moves[0].key.position)
	return c.moved(d, l, moves[0].key, last.key.next(), last.key.position+int64(last.size))
}

func (c *commit) putData(l *Log, k dataKey, b []byte) error {
	set := c.batch.SetDeferred(dataKeyLen, pointerValueLen)
	l.prefix.putDataKey(set.Key, k)
	p := c.place(b)
	p.put(set.Value)
	return set.Finish()
}
