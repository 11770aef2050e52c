// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve/varve/record"
)

// OpenLog opens a partition's log, or begins an empty one at offset 0. It reads the small keys and the key of the last batch,
// whatever the log's size. obs may be nil. A log can be opened once until it is dropped or the DB is closed.
func (d *DB) OpenLog(id record.PartitionID, obs Observer) (*Log, error) {
	l := &Log{db: d, id: id, prefix: makePrefix(id), obs: obs}
	l.q.opening = true
	slot, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer d.leave(slot)
	d.mu.Lock()
	if other := d.mu.logs[id]; other != nil {
		err := ErrOpen
		if other.q.dropped {
			err = ErrBusy
		}
		d.mu.Unlock()
		return nil, fmt.Errorf("open log of %v: %w", id, err)
	}
	d.mu.logs[id] = l
	d.mu.Unlock()

	found, err := l.load()
	if err != nil {
		d.forget(l)
		return nil, fmt.Errorf("open log of %v in %s: %w", id, d.dir, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l.q.opening = false
	l.q.end, l.q.epoch = l.w.end, l.lastEpoch()
	if found || d.mu.closing || d.mu.failed {
		return l, nil
	}
	// A log that vanishes in a crash before its first batch is the empty log it was: nobody waits for this.
	o := d.newOpLocked(l, opCreate, opOverhead)
	if d.enqueueLocked(o) {
		d.wakeCommitter()
	}
	return l, nil
}

// load reads the log's state from Pebble.
func (l *Log) load() (found bool, err error) {
	m := &l.w.meta
	m.highWatermark, m.currentEpoch = record.NoOffset, record.NoEpoch
	it, err := l.db.p.NewIter(&pebble.IterOptions{LowerBound: l.prefix.kind(nil, 0), UpperBound: l.prefix.kind(nil, math.MaxUint8)})
	if err != nil {
		return false, err
	}
	defer it.Close()
	if found, err = l.loadView(it); err != nil {
		return false, l.readError(m.start, err)
	}
	l.w.loaded = true
	l.publish()
	l.durableEnd.Store(int64(l.w.end)) // what is replayed is synced before Open returns
	l.highWatermark.Store(int64(m.highWatermark))
	l.currentEpoch.Store(int32(m.currentEpoch))
	l.producersStale.Store(m.producersStale)
	return found, nil
}

// loadView reads the committer's view: the small keys, the end, which file holds what.
func (l *Log) loadView(it *pebble.Iterator) (found bool, err error) {
	m := &l.w.meta
	if found, err = l.loadSmall(it); err != nil {
		return false, err
	}
	l.w.end, l.w.position = m.start, m.startPosition
	if it.SeekLT(l.prefix.kind(nil, kindEnd)) && l.owns(it.Key()) && it.Key()[partitionPrefixLen] == kindData {
		k, err := parseDataKey(it.Key())
		if err != nil {
			return false, err
		}
		if k.next() < m.start || !found {
			return false, fmt.Errorf("%w: last batch ends at %d, start %d", ErrCorrupt, k.next(), m.start)
		}
		p, err := pointerAt(it)
		if err != nil {
			return false, err
		}
		l.w.end, l.w.position = k.next(), k.position+int64(p.size)
	}
	if err := it.Error(); err != nil {
		return false, err
	}
	return found, l.loadExtents(it)
}

// owns tells whether a key is one of this log's.
func (l *Log) owns(key []byte) bool {
	return len(key) > partitionPrefixLen && bytes.Equal(key[:partitionPrefixLen], l.prefix[:])
}

// loadSmall reads meta and the epoch entries, which come first.
func (l *Log) loadSmall(it *pebble.Iterator) (found bool, err error) {
	var epochs []record.EpochStart
	for ok := it.SeekGE(l.prefix.kind(nil, 0)); ok && l.owns(it.Key()); ok = it.Next() {
		key := it.Key()
		kind := key[partitionPrefixLen]
		if kind > kindEpoch {
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return false, err
		}
		if kind == kindMeta {
			if l.w.meta, err = parseMeta(key, value); err != nil {
				return false, err
			}
			found = true
			continue
		}
		if kind != kindEpoch || len(key) != epochKeyLen {
			return false, fmt.Errorf("%w: key %x", ErrCorrupt, key)
		}
		if err := checkValue(key, value, epochValueLen); err != nil {
			return false, err
		}
		e := record.EpochStart{
			Epoch: record.Epoch(binary.BigEndian.Uint32(key[kindPrefixLen:])),
			Start: record.Offset(binary.BigEndian.Uint64(value[1:])),
		}
		if n := len(epochs); n > 0 && epochs[n-1].Start >= e.Start {
			return false, fmt.Errorf("%w: epoch %d starts at %d, epoch %d before it at %d", ErrCorrupt, e.Epoch, e.Start, epochs[n-1].Epoch, epochs[n-1].Start)
		}
		epochs = append(epochs, e)
	}
	if len(epochs) > 0 {
		l.setEpochs(epochs)
	}
	return found, it.Error()
}
