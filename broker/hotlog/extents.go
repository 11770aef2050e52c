// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve/varve/record"
)

// extent says that the batches of a log from a position on, up to the next extent's, lie in one file. Extents are what tells how
// many live bytes a file holds without a look at every batch.
type extent struct {
	base     record.Offset // of the batch at position
	position int64
	file     *logFile
}

const extentValueLen = 1 + 4

func (c *commit) putExtent(l *Log, e extent) error {
	set := c.batch.SetDeferred(extentKeyLen, extentValueLen)
	l.prefix.extentKey(set.Key[:0], e.base, e.position)
	putExtentValue(set.Value, e.file.number)
	return set.Finish()
}

func putExtentValue(dst []byte, file uint32) []byte {
	dst[0] = valueFormat
	binary.BigEndian.PutUint32(dst[1:], file)
	return dst
}

func parseExtentValue(key, value []byte) (file uint32, err error) {
	if err := checkValue(key, value, extentValueLen); err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(value[1:]), nil
}

func (c *commit) deleteExtent(l *Log, e extent) error {
	c.key = l.prefix.extentKey(c.key[:0], e.base, e.position)
	return c.batch.Delete(c.key, nil)
}

// placed notes that a batch was appended to c's file.
func (c *commit) placed(d *DB, l *Log, k dataKey, size int64) error {
	d.files.mu.Lock()
	c.file.live += size
	n := len(l.w.extents)
	if n > 0 && l.w.extents[n-1].file == c.file {
		d.files.mu.Unlock()
		return nil
	}
	e := extent{k.base, k.position, c.file}
	l.w.extents = append(l.w.extents, e)
	d.files.mu.Unlock()
	return c.putExtent(l, e)
}

// freeFront notes that the bytes of the log below a position are dead, from the old start position on.
func (c *commit) freeFront(d *DB, l *Log, from, to int64) error {
	d.files.mu.Lock()
	gone := 0
	for i, e := range l.w.extents {
		end := l.extentEnd(i)
		c.freed(e.file, min(end, to)-max(e.position, from))
		if end > to {
			break
		}
		gone++
	}
	dead := l.w.extents[:gone]
	l.w.extents = l.w.extents[gone:]
	d.files.mu.Unlock()
	for _, e := range dead {
		if err := c.deleteExtent(l, e); err != nil {
			return err
		}
	}
	return nil
}

// freeBack notes that the bytes of the log from a position on are dead.
func (c *commit) freeBack(d *DB, l *Log, start, from int64) error {
	d.files.mu.Lock()
	keep := len(l.w.extents)
	for i, e := range slices.Backward(l.w.extents) {
		c.freed(e.file, l.extentEnd(i)-max(e.position, from, start))
		if e.position < from && from > start { // some of it stays
			break
		}
		keep = i
	}
	dead := slices.Clone(l.w.extents[keep:])
	l.w.extents = l.w.extents[:keep]
	d.files.mu.Unlock()
	for _, e := range dead {
		if err := c.deleteExtent(l, e); err != nil {
			return err
		}
	}
	return nil
}

// freeAll notes that everything the log holds is dead; its keys go otherwise.
func (c *commit) freeAll(d *DB, l *Log) {
	d.files.mu.Lock()
	defer d.files.mu.Unlock()
	for i, e := range l.w.extents {
		c.freed(e.file, l.extentEnd(i)-max(e.position, l.w.meta.startPosition))
	}
	l.w.extents = nil
}

func (c *commit) freed(f *logFile, bytes int64) {
	if bytes <= 0 {
		return
	}
	f.live -= bytes
	f.freedAt = c.sequence
	c.freedSome = true
}

// extentEnd is the position behind the last batch of an extent.
func (l *Log) extentEnd(i int) int64 {
	if i+1 < len(l.w.extents) {
		return l.w.extents[i+1].position
	}
	return l.w.position
}

// extentEndShared is extentEnd for others than the committer.
func (l *Log) extentEndShared(i int) int64 {
	if i+1 < len(l.w.extents) {
		return l.w.extents[i+1].position
	}
	return l.endPosition.Load()
}

// moved notes that the batches from first up to the position and base of next, all of one extent, lie in c's file now.
func (c *commit) moved(d *DB, l *Log, first dataKey, nextBase record.Offset, nextPosition int64) error {
	d.files.mu.Lock()
	i := 0
	for i+1 < len(l.w.extents) && l.w.extents[i+1].position <= first.position {
		i++
	}
	old, end := l.w.extents[i], l.extentEnd(i)
	c.freed(old.file, nextPosition-first.position)
	c.file.live += nextPosition - first.position
	var with []extent
	before := old.position < first.position && l.w.meta.startPosition < first.position
	if before {
		with = append(with, old)
	}
	if before || i == 0 || l.w.extents[i-1].file != c.file {
		with = append(with, extent{first.base, first.position, c.file})
	}
	if nextPosition < end {
		with = append(with, extent{nextBase, nextPosition, old.file})
	}
	l.w.extents = slices.Replace(l.w.extents, i, i+1, with...)
	d.files.mu.Unlock()
	if !before {
		if err := c.deleteExtent(l, old); err != nil {
			return err
		}
	}
	for _, e := range with {
		if e != old {
			if err := c.putExtent(l, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachExtent calls fn for the stored extents of a log that hold something at or above start.
func (d *DB) eachExtent(it *pebble.Iterator, p *prefix, start int64, fn func(base record.Offset, position int64, file uint32) error) error {
	var held bool
	var base record.Offset
	var at int64
	var file uint32
	for ok := it.SeekGE(p.kind(nil, kindExtent)); ok; ok = it.Next() {
		key := it.Key()
		if len(key) != extentKeyLen || key[partitionPrefixLen] != kindExtent || !bytes.Equal(key[:partitionPrefixLen], p[:]) {
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		nextFile, err := parseExtentValue(key, value)
		if err != nil {
			return err
		}
		nextBase, next := record.Offset(binary.BigEndian.Uint64(key[kindPrefixLen:])), int64(binary.BigEndian.Uint64(key[kindPrefixLen+8:]))
		if held && next <= at {
			return fmt.Errorf("%w: extent at position %d after one at %d", ErrCorrupt, next, at)
		}
		if held && next > start {
			if err := fn(base, at, file); err != nil {
				return err
			}
		}
		held, base, at, file = true, nextBase, next, nextFile
	}
	if err := it.Error(); err != nil || !held {
		return err
	}
	return fn(base, at, file)
}

// loadExtents reads the log's extents into the committer's view.
func (l *Log) loadExtents(it *pebble.Iterator) error {
	l.w.extents = nil
	err := l.db.eachExtent(it, &l.prefix, l.w.meta.startPosition, func(base record.Offset, position int64, file uint32) error {
		f := l.db.files.get(file)
		if f == nil {
			return fmt.Errorf("%w: log file %s is not there", ErrCorrupt, l.db.fs.PathJoin(l.db.dir, logFileName(file)))
		}
		l.w.extents = append(l.w.extents, extent{base, position, f})
		return nil
	})
	if err != nil {
		return err
	}
	if l.w.position > l.w.meta.startPosition && (len(l.w.extents) == 0 || l.w.extents[0].position > l.w.meta.startPosition) {
		return fmt.Errorf("%w: nothing says which log file holds position %d", ErrCorrupt, l.w.meta.startPosition)
	}
	return nil
}

// countLive finds out, when the store is opened, how many live bytes each file holds, for all logs, and that each such file is there.
func (d *DB) countLive() error {
	it, err := d.p.NewIter(&pebble.IterOptions{LowerBound: []byte{spacePartition}, UpperBound: []byte{spacePartition + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; {
		key := it.Key()
		if len(key) < kindPrefixLen {
			return fmt.Errorf("%w: partition key %x", ErrCorrupt, key)
		}
		l := &Log{db: d, prefix: prefix(key[:partitionPrefixLen])}
		l.id = l.prefix.id()
		if _, err := l.loadView(it); err != nil {
			return fmt.Errorf("%v: %w", l.id, err)
		}
		for i, e := range l.w.extents {
			e.file.live += max(0, l.extentEnd(i)-max(e.position, l.w.meta.startPosition))
		}
		ok = it.SeekGE(l.prefix.kind(nil, math.MaxUint8))
	}
	return it.Error()
}
