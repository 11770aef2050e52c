// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve/varve/record"
)

// cursor is the recycled part of a read: Pebble copies bounds and seek keys.
type cursor struct {
	opts               pebble.IterOptions
	lower, upper, seek [dataSeekKeyLen]byte
	gather             gather
	places             []place
}

var cursors = sync.Pool{New: func() any { return new(cursor) }}

// enter keeps the DB open, and every file that an iterator made from now on points to, until leave.
func (d *DB) enter() (slot uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closing || d.mu.failed {
		return 0, ErrClosed
	}
	d.readers.Add(1)
	slot = d.mu.epoch % 2
	d.active[slot].Add(1)
	return slot, nil
}

func (d *DB) leave(slot uint64) {
	if d.active[slot].Add(-1) == 0 && d.draining.Load() {
		d.wakeReclaimer()
	}
	d.readers.Done()
}

// gather reads batches that lie one behind the other with one call.
type gather struct {
	l     *Log
	buf   []byte
	begin int // of what was gathered, in buf
	held  *logFile
	// The run that is not read yet: its place, and which offsets it holds.
	file       uint32
	at         int64
	pending    int
	base, next record.Offset
	// Of a read that may leave runs in their files.
	lend    bool
	chunks  []Chunk
	spanned int
	header  [record.HeaderSize]byte
}

// size is how much was gathered, read or not.
func (g *gather) size() int { return len(g.buf) - g.begin + g.pending + g.spanned }

// add takes the next batch, and reads what came before if it lies elsewhere.
func (g *gather) add(k dataKey, p pointer) error {
	if g.pending > 0 && p.file == g.file && int64(p.offset) == g.at+int64(g.pending) {
		g.pending += int(p.size)
		g.next = k.next()
		return nil
	}
	if err := g.flush(); err != nil {
		return err
	}
	g.file, g.at, g.pending, g.base, g.next = p.file, int64(p.offset), int(p.size), k.base, k.next()
	return nil
}

// open gives the file of the pending run. It is kept: the next run lies in the same one most often.
func (g *gather) open() (*logFile, error) {
	if g.held != nil && g.held.number == g.file {
		return g.held, nil
	}
	g.close()
	f, err := g.l.db.files.acquire(g.file)
	g.held = f
	return f, err
}

func (g *gather) close() {
	if g.held != nil {
		g.l.db.files.release(g.held)
		g.held = nil
	}
}

// flush reads the pending run behind what is in buf, and checks that it is what the keys say.
func (g *gather) flush() error {
	if g.pending == 0 {
		return nil
	}
	n := g.pending
	g.pending = 0
	f, err := g.open()
	if err != nil {
		return err
	}
	if g.lend {
		if done, err := g.span(f, n); done {
			return err
		}
	}
	begin := len(g.buf)
	g.buf = slices.Grow(g.buf, n)[:begin+n]
	got, err := f.handle.ReadAt(g.buf[begin:], g.at)
	if got < n {
		g.buf = g.buf[:begin]
		return shortRead(f, g.at, n, got, err)
	}
	next := g.base
	for rest := record.Batch(g.buf[begin:]); len(rest) > 0; {
		b, more, err := record.Split(rest)
		if err != nil || b.BaseOffset() != next {
			g.buf = g.buf[:begin]
			return fmt.Errorf("%w: no batch at %d of %v at offset %d of log file %s", ErrCorrupt, next, g.l.id, g.at+int64(n-len(rest)), f.name)
		}
		next, rest = b.NextOffset(), more
	}
	if next != g.next {
		g.buf = g.buf[:begin]
		return fmt.Errorf("%w: batches of %v at offset %d of log file %s end at %d, not %d", ErrCorrupt, g.l.id, g.at, f.name, next, g.next)
	}
	if g.lend {
		g.copied(begin)
	}
	return nil
}

func shortRead(f *logFile, at int64, want, got int, err error) error {
	if errors.Is(err, io.EOF) {
		err = ErrCorrupt
	}
	return fmt.Errorf("%d of %d bytes at offset %d of log file %s: %w", got, want, at, f.name, err)
}

// Read appends whole batches to buf and returns it: from the batch that holds from up to, not including, the first that begins
// at or past limit, together at most maxBytes, except that the first always comes when firstWhole is set. Nothing there is not
// an error. ErrTrimmed: from is below the start.
func (l *Log) Read(from, limit record.Offset, maxBytes int, firstWhole bool, buf []byte) ([]byte, error) {
	r := Reading{From: from, Limit: limit, MaxBytes: maxBytes, FirstWhole: firstWhole, Buf: buf}
	err := l.ReadInto(&r)
	return r.Buf, err
}

// collect gathers what a read asks for.
func (l *Log) collect(c *cursor, from, limit record.Offset, maxBytes int, firstWhole bool) error {
	g := &c.gather
	defer g.close()
	take := func(k dataKey, p pointer) (bool, error) {
		if taken := g.size(); taken+int(p.size) > maxBytes && (taken > 0 || !firstWhole) {
			return false, nil
		}
		return true, g.add(k, p)
	}
	done, err := l.walkRecent(c, from, limit, take)
	if !done {
		err = l.walk(c, from, limit, take)
	}
	if err != nil {
		return err
	}
	return l.readError(g.base, g.flush())
}

// Scan calls fn for each batch Read would return without a limit of bytes, in order, as they were at one moment. The batch is
// valid during the call only. A long Scan holds what it reads on disk and in memory, and delays Close, which ends it with ErrClosed.
func (l *Log) Scan(from, limit record.Offset, fn func(record.Batch) error) error {
	slot, err := l.db.enter()
	if err != nil {
		return err
	}
	defer l.db.leave(slot)
	c := cursors.Get().(*cursor)
	defer cursors.Put(c)
	room := scanBuffers.Get().(*[]byte)
	g := &gather{l: l, buf: (*room)[:0]}
	defer g.close()
	defer func() {
		if cap(g.buf) <= 2*scanBytes {
			*room = g.buf[:0]
		}
		scanBuffers.Put(room)
	}()
	err = l.walk(c, from, limit, func(k dataKey, p pointer) (bool, error) {
		if g.size() > 0 && g.size()+int(p.size) > scanBytes {
			if err := g.deliver(fn); err != nil {
				return false, err
			}
		}
		return true, g.add(k, p)
	})
	if err != nil {
		return err
	}
	return g.deliver(fn)
}

var scanBuffers = sync.Pool{New: func() any { return new([]byte) }}

// deliver reads what is pending and calls fn for each batch in buf.
func (g *gather) deliver(fn func(record.Batch) error) error {
	if err := g.flush(); err != nil {
		return g.l.readError(g.base, err)
	}
	for rest := record.Batch(g.buf); len(rest) > 0; {
		if g.l.db.closing.Load() {
			return ErrClosed
		}
		b, more, err := record.Split(rest)
		if err != nil {
			return err
		}
		if err := fn(b); err != nil {
			return err
		}
		rest = more
	}
	g.buf = g.buf[:0]
	return nil
}

// walk positions an iterator on each batch of [from, limit) and calls fn until it says no.
//
// It races with a trim and with a truncate. A trim moves start before the data goes: a start that still allows from after the
// iterator exists means that the iterator holds the data. A truncate or reset makes generation odd before it changes anything
// and even after it is applied: if the data is missing and generation moved, look again.
func (l *Log) walk(c *cursor, from, limit record.Offset, fn func(dataKey, pointer) (bool, error)) error {
	for {
		generation := l.generation.Load()
		if l.dropped.Load() {
			return ErrClosed
		}
		bound := min(limit, l.AppendedEnd())
		if from < l.Start() {
			return fmt.Errorf("read %v at %d, start %d: %w", l.id, from, l.Start(), ErrTrimmed)
		}
		if from >= bound {
			return nil
		}
		again, err := l.walkOnce(c, from, bound, generation, fn)
		if !again {
			return err
		}
	}
}

func (l *Log) walkOnce(c *cursor, from, bound record.Offset, generation uint64, fn func(dataKey, pointer) (bool, error)) (again bool, err error) {
	c.opts = pebble.IterOptions{
		LowerBound: l.prefix.dataSeek(c.lower[:0], record.Offset(l.kept.Load())),
		UpperBound: l.prefix.dataSeek(c.upper[:0], bound),
	}
	it, err := l.db.p.NewIter(&c.opts)
	if err != nil {
		return false, l.readError(from, err)
	}
	defer func() {
		if closeErr := it.Close(); closeErr != nil && err == nil && !again {
			err = l.readError(from, closeErr)
		}
	}()
	if from < l.Start() {
		return false, fmt.Errorf("read %v at %d, start %d: %w", l.id, from, l.Start(), ErrTrimmed)
	}
	k, found, err := l.seekHolding(it, c, from)
	if err != nil {
		return false, l.readError(from, err)
	}
	if !found || k.next() <= from {
		if l.moved(generation) {
			return true, nil
		}
		return false, fmt.Errorf("%w: no batch of %v holds offset %d, start %d, end %d", ErrCorrupt, l.id, from, l.Start(), l.AppendedEnd())
	}
	for {
		p, err := pointerAt(it)
		if err != nil {
			return false, l.readError(k.base, err)
		}
		if more, err := fn(k, p); err != nil || !more {
			return false, l.readError(k.base, err)
		}
		if !it.Next() {
			if err := it.Error(); err != nil {
				return false, l.readError(k.base, err)
			}
			if k.next() < bound && !l.moved(generation) {
				return false, fmt.Errorf("%w: H1: batches of %v end at %d, end %d", ErrCorrupt, l.id, k.next(), l.AppendedEnd())
			}
			return false, nil
		}
		next, err := parseDataKey(it.Key())
		if err != nil {
			return false, err
		}
		if next.base != k.next() {
			return false, fmt.Errorf("%w: H1: batch of %v at %d after one that ends at %d", ErrCorrupt, l.id, next.base, k.next())
		}
		k = next
	}
}

// moved tells whether a truncate, reset or drop may have taken effect since generation was read.
func (l *Log) moved(generation uint64) bool {
	return generation%2 == 1 || l.generation.Load() != generation || l.dropped.Load()
}

// seekHolding positions the iterator on the last batch that begins at or before o: the one that holds o, if one does.
func (l *Log) seekHolding(it *pebble.Iterator, c *cursor, o record.Offset) (k dataKey, found bool, err error) {
	ok := it.SeekGE(l.prefix.dataSeek(c.seek[:0], o))
	if !ok || record.Offset(binary.BigEndian.Uint64(it.Key()[kindPrefixLen:])) != o {
		ok = it.SeekLT(l.prefix.dataSeek(c.seek[:0], o+1))
	}
	if !ok {
		return k, false, it.Error()
	}
	k, err = parseDataKey(it.Key())
	return k, true, err
}

// lookUp is holding for callers outside the committer.
func (l *Log) lookUp(o record.Offset) (k dataKey, size int64, found bool, err error) {
	slot, err := l.db.enter()
	if err != nil {
		return k, 0, false, err
	}
	defer l.db.leave(slot)
	return l.holding(o)
}

// holding finds the batch that holds o, or ends at it, and its size. It reads no batch.
func (l *Log) holding(o record.Offset) (k dataKey, size int64, found bool, err error) {
	c := cursors.Get().(*cursor)
	defer cursors.Put(c)
	c.opts = pebble.IterOptions{LowerBound: l.prefix.dataSeek(c.lower[:0], record.Offset(l.kept.Load())), UpperBound: l.prefix.kind(c.upper[:0], kindEnd)}
	it, err := l.db.p.NewIter(&c.opts)
	if err != nil {
		return k, 0, false, l.readError(o, err)
	}
	defer it.Close()
	k, found, err = l.seekHolding(it, c, o)
	if err != nil || !found {
		return k, 0, false, l.readError(o, err)
	}
	p, err := pointerAt(it)
	return k, int64(p.size), true, l.readError(o, err)
}

func pointerAt(it *pebble.Iterator) (p pointer, err error) {
	value, err := it.ValueAndErr()
	if err != nil {
		return p, err
	}
	return parsePointer(it.Key(), value)
}

// Producers calls fn for each producer entry, by ascending id. state is valid during the call only.
func (l *Log) Producers(fn func(pid int64, state []byte) error) error {
	slot, err := l.db.enter()
	if err != nil {
		return err
	}
	defer l.db.leave(slot)
	return l.eachProducer(func(pid int64, _ record.Offset, state []byte) error { return fn(pid, state) })
}

func (l *Log) eachProducer(fn func(pid int64, end record.Offset, state []byte) error) error {
	it, err := l.db.p.NewIter(&pebble.IterOptions{LowerBound: l.prefix.kind(nil, kindProducer), UpperBound: l.prefix.kind(nil, kindProducer+1)})
	if err != nil {
		return l.producerError(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		key := it.Key()
		value, err := it.ValueAndErr()
		if err != nil {
			return l.producerError(err)
		}
		if len(key) != producerKeyLen {
			return fmt.Errorf("%w: producer key %x", ErrCorrupt, key)
		}
		if err := checkValue(key, value, producerValueMin); err != nil {
			return err
		}
		pid := int64(binary.BigEndian.Uint64(key[kindPrefixLen:]))
		if err := fn(pid, record.Offset(binary.BigEndian.Uint64(value[1:])), value[producerValueMin:]); err != nil {
			return err
		}
	}
	return l.producerError(it.Error())
}

func (l *Log) readError(at record.Offset, err error) error {
	if err != nil && !errors.Is(err, ErrTrimmed) && (pebble.IsCorruptionError(err) || errors.Is(err, ErrCorrupt)) {
		return fmt.Errorf("%w: read %v at %d in %s: %w", ErrCorrupt, l.id, at, l.db.dir, err)
	}
	return err
}

func (l *Log) producerError(err error) error {
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: read producers of %v in %s: %w", ErrCorrupt, l.id, l.db.dir, err)
	}
	return err
}
