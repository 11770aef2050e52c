// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve/varve/record"
)

// cursor is the recycled part of a read: Pebble copies bounds and seek keys.
type cursor struct {
	opts               pebble.IterOptions
	lower, upper, seek [dataSeekKeyLen]byte
}

var cursors = sync.Pool{New: func() any { return new(cursor) }}

// enter keeps the DB open until leave.
func (d *DB) enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closing || d.mu.failed {
		return ErrClosed
	}
	d.readers.Add(1)
	return nil
}

func (d *DB) leave() { d.readers.Done() }

// Read appends whole batches to buf and returns it: from the batch that holds from up to, not including, the first that begins
// at or past limit, together at most maxBytes, except that the first always comes when firstWhole is set. Nothing there is not
// an error. ErrTrimmed: from is below the start.
func (l *Log) Read(from, limit record.Offset, maxBytes int, firstWhole bool, buf []byte) ([]byte, error) {
	begin := len(buf)
	err := l.walk(from, limit, func(it *pebble.Iterator) (bool, error) {
		value := it.LazyValue()
		taken := len(buf) - begin
		if taken+value.Len() > maxBytes && (taken > 0 || !firstWhole) {
			return false, nil
		}
		b, err := it.ValueAndErr()
		if err != nil {
			return false, err
		}
		buf = append(buf, b...)
		return true, nil
	})
	if err != nil {
		return buf[:begin], err
	}
	return buf, nil
}

// Scan calls fn for each batch Read would return without a limit of bytes, in order, as they were at one moment. The batch is
// valid during the call only. A long Scan holds what it reads on disk and in memory, and delays Close, which ends it with ErrClosed.
func (l *Log) Scan(from, limit record.Offset, fn func(record.Batch) error) error {
	return l.walk(from, limit, func(it *pebble.Iterator) (bool, error) {
		b, err := it.ValueAndErr()
		if err != nil {
			return false, err
		}
		if l.db.closing.Load() {
			return false, ErrClosed
		}
		return true, fn(b)
	})
}

// walk positions an iterator on each batch of [from, limit) and calls fn until it says no.
//
// It races with a trim and with a truncate. A trim moves start before the data goes: a start that still allows from after the
// iterator exists means that the iterator holds the data. A truncate or reset makes generation odd before it changes anything
// and even after it is applied: if the data is missing and generation moved, look again.
func (l *Log) walk(from, limit record.Offset, fn func(*pebble.Iterator) (bool, error)) error {
	if err := l.db.enter(); err != nil {
		return err
	}
	defer l.db.leave()
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
		again, err := l.walkOnce(from, bound, generation, fn)
		if !again {
			return err
		}
	}
}

func (l *Log) walkOnce(from, bound record.Offset, generation uint64, fn func(*pebble.Iterator) (bool, error)) (again bool, err error) {
	c := cursors.Get().(*cursor)
	defer cursors.Put(c)
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
		more, err := fn(it)
		if err != nil || !more {
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
	if err := l.db.enter(); err != nil {
		return k, 0, false, err
	}
	defer l.db.leave()
	return l.holding(o)
}

// holding finds the batch that holds o, or ends at it, and its size. It reads keys only.
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
	value := it.LazyValue()
	return k, int64(value.Len()), true, nil
}

// Producers calls fn for each producer entry, by ascending id. state is valid during the call only.
func (l *Log) Producers(fn func(pid int64, state []byte) error) error {
	if err := l.db.enter(); err != nil {
		return err
	}
	defer l.db.leave()
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
	if pebble.IsCorruptionError(err) {
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
