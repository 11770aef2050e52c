// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"bytes"
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
	due      time.Time // of the timer; zero when nothing waits for it
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
			r.due = time.Time{}
		}
		if d.hasFailed() || d.closing.Load() {
			continue
		}
		if err := r.pass(); err != nil && !errors.Is(err, ErrClosed) {
			d.o.Logger.Warn("log files are not given back", "dir", d.dir, "error", err)
			r.again(d.o.rewriteAfter)
		}
	}
}

// again has a pass made when so much time has passed, or earlier.
func (r *reclaimer) again(wait time.Duration) {
	if due := time.Now().Add(wait); r.due.IsZero() || due.Before(r.due) {
		r.due = due
		r.timer.Reset(wait)
	}
}

func (r *reclaimer) pass() error {
	if err := r.giveBack(); err != nil {
		return err
	}
	return r.rewrite()
}

// giveBack is all that needs no moves.
func (r *reclaimer) giveBack() error {
	r.flush()
	r.retire()
	if err := r.drain(); err != nil {
		return err
	}
	return r.spares()
}

// spares keeps as many files to be written over as are of use, and none on a full disk.
func (r *reclaimer) spares() error {
	s, disk := &r.d.files, &r.d.disk
	if disk.full.Load() {
		_, err := s.dropSpares(0, 0)
		return err
	}
	wanted, wait := s.sparesWanted(time.Now())
	least := minSpareFiles * maxSpareLen * r.d.o.fileBytes
	left, err := s.dropSpares(wanted, max(least, disk.free()/spareShare))
	if left > minSpareFiles {
		r.again(wait)
	}
	return err
}

// flush bounds what a start has to replay, and lets go of the files before.
func (r *reclaimer) flush() {
	d := r.d
	select { // a rewrite may go on for long
	case <-r.flushing:
		r.flushing, d.flushedTo = nil, r.flushTo
	default:
	}
	if r.flushing != nil || d.stats.logSinceFlush.Load() < flushAfterFiles*d.o.fileBytes && !(d.disk.full.Load() && r.flushFrees()) {
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

// flushFrees tells whether a dead file waits for a flush only.
func (r *reclaimer) flushFrees() bool {
	s := &r.d.files
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.byNumber {
		if f.sealed && f.live == 0 && f.lastSequence > r.d.flushedTo {
			return true
		}
	}
	return false
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
		var err error
		for _, f := range done {
			keep := !d.disk.full.Load() && f.size >= d.o.fileBytes/2 && f.size <= maxSpareLen*d.o.fileBytes
			err = errors.Join(err, d.files.forget(f, keep))
		}
		if err != nil {
			return err
		}
	}
}

// rewrite moves live batches out of the files that hold the fewest, while more is dead than may be.
func (r *reclaimer) rewrite() error {
	for !r.d.hasFailed() && !r.d.closing.Load() {
		f, wait := r.candidate()
		if f == nil {
			if wait > 0 {
				r.again(wait)
			}
			return nil
		}
		moved, err := r.d.rewrite(f)
		if err != nil && !r.d.hasFailed() && !r.d.closing.Load() {
			// What cannot be read stays where it is, and must not keep the other files from being given back.
			r.d.o.Logger.Warn("a log file is not emptied", "file", f.name, "moved", moved, "error", err)
			r.postpone(f, badFileAfter)
		} else if moved == 0 {
			r.postpone(f, r.d.o.rewriteAfter)
		}
		if err := r.giveBack(); err != nil {
			return err
		}
	}
	return nil
}

func (r *reclaimer) postpone(f *logFile, wait time.Duration) {
	s := &r.d.files
	s.mu.Lock()
	defer s.mu.Unlock()
	f.notBefore = time.Now().Add(wait)
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
	enough := max(live, garbageFiles*d.o.fileBytes)
	if d.disk.full.Load() { // appends are refused: every file's worth counts
		enough = d.o.fileBytes
	}
	if dead <= enough && !d.o.eager {
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
	// In the order of the keys, so that one look-up finds the blocks that the one before it read.
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(bytes.Compare(a.log.prefix[:], b.log.prefix[:]), cmp.Compare(a.from, b.from))
	})
	m := mover{d: d}
	for _, p := range parts {
		if d.hasFailed() || d.closing.Load() {
			break
		}
		if partErr := m.part(f, p); partErr != nil && err == nil {
			err = fmt.Errorf("move batches of %v: %w", p.log.id, partErr) // the others can go all the same
		}
	}
	waitErr := m.wait(0)
	return m.moved, errors.Join(err, waitErr)
}

// mover queues moves of many logs and waits for all of them together: a file may hold a little of each of thousands of logs, and
// one sync for each would never catch up with the appends.
type mover struct {
	d       *DB
	waiting []*opRest
	bytes   int
	moved   int64
}

// part moves the batches of one log, a chunk at a time. What changes meanwhile stays for the next time.
func (m *mover) part(f *logFile, p part) error {
	for from := max(p.base, p.log.Start()); ; {
		r := &opRest{}
		next, more, err := m.d.readMove(f, p, from, r)
		if err != nil || len(r.moves) == 0 {
			return err
		}
		if err := p.log.change(opMove, r, nil); errors.Is(err, ErrBusy) || errors.Is(err, ErrClosed) {
			return nil // it is being truncated, reset or dropped
		} else if err != nil {
			return err
		}
		m.waiting = append(m.waiting, r)
		m.bytes += len(r.data) + opOverhead
		if err := m.wait(maxMovingBytes); err != nil || !more {
			return err
		}
		from = next
	}
}

// wait waits for the oldest moves until no more than so many bytes are on their way.
func (m *mover) wait(bytes int) (err error) {
	for len(m.waiting) > 0 && m.bytes > bytes {
		r := m.waiting[0]
		m.waiting[0] = nil
		m.waiting = m.waiting[1:]
		m.bytes -= len(r.data) + opOverhead
		switch opErr := r.wait(); opErr {
		case nil:
			m.moved += int64(len(r.data))
		case errLookAgain:
		default:
			err = errors.Join(err, opErr)
		}
	}
	return err
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
		if _, err := c.putData(l, m.key, data[:m.size]); err != nil {
			return err
		}
		data = data[m.size:]
	}
	l.recent.forget()
	last := moves[len(moves)-1]
	d.stats.movedBytes.Add(last.key.position + int64(last.size) - moves[0].key.position)
	return c.moved(d, l, moves[0].key, last.key.next(), last.key.position+int64(last.size))
}

func (c *commit) putData(l *Log, k dataKey, b []byte) (pointer, error) {
	set := c.batch.SetDeferred(dataKeyLen, pointerValueLen)
	l.prefix.putDataKey(set.Key, k)
	p := c.place(b)
	p.put(set.Value)
	return p, set.Finish()
}
