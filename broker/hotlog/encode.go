// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/varve/varve/record"
)

// errLookAgain: the batch boundaries moved between a trim's look-up and its turn.
var errLookAgain = errors.New("hotlog: boundaries moved")

// encode writes one change into the Pebble batch and moves the committer's view of the log. An error is fatal; an error that
// concerns the caller alone goes to o.rest.err.
func (d *DB) encode(c *commit, o *op) error {
	l := o.log
	switch o.kind {
	case opAppend:
		return d.encodeAppend(c, o)
	case opCreate:
		return c.putMeta(l)
	case opEpoch:
		return c.putEpoch(l, record.EpochStart{Epoch: o.rest.epoch, Start: o.rest.offset})
	case opAdopt:
		l.w.meta.currentEpoch = max(l.w.meta.currentEpoch, o.rest.epoch)
		return c.putMeta(l)
	case opDropProducers:
		for _, pid := range o.rest.pids {
			c.key = l.prefix.producerKey(c.key[:0], pid)
			if err := c.batch.Delete(c.key, nil); err != nil {
				return err
			}
		}
		return nil
	case opReplaceProducers:
		if err := c.deleteRange(l, kindProducer, kindProducer+1); err != nil {
			return err
		}
		if err := c.putProducers(l, o.rest.producers); err != nil {
			return err
		}
		l.w.meta.producersStale = false
		return c.putMeta(l)
	case opTrim:
		return d.encodeTrim(c, o)
	case opTruncate:
		return d.encodeTruncate(c, o)
	case opReset:
		return d.encodeReset(c, o)
	case opDrop:
		return d.encodeDrop(c, l)
	case opMove:
		return d.encodeMove(c, o)
	case opStore:
		return o.rest.apply(c)
	}
	return fmt.Errorf("hotlog: unknown change %d", o.kind)
}

func (d *DB) encodeAppend(c *commit, o *op) error {
	l, b := o.log, o.batch
	k := dataKey{base: b.BaseOffset(), position: l.w.position, delta: b.LastOffsetDelta()}
	if k.base != l.w.end {
		return fmt.Errorf("H1: batch at %d of %v where the log ends at %d", k.base, l.id, l.w.end)
	}
	if o.newEpoch {
		if err := c.putEpoch(l, record.EpochStart{Epoch: b.LeaderEpoch(), Start: k.base}); err != nil {
			return err
		}
	}
	at, err := c.putData(l, k, b)
	if err != nil {
		return err
	}
	l.recent.add(place{k.base, k.delta, at}, d.o.recentPlaces)
	if err := c.placed(d, l, k, int64(len(b))); err != nil {
		return err
	}
	if o.pid >= 0 && len(o.state) > 0 {
		if err := c.putProducer(l, o.pid, k.next(), o.state); err != nil {
			return err
		}
	}
	l.w.end = k.next()
	l.w.position += int64(len(b))
	l.endPosition.Store(l.w.position)
	l.count()
	d.stats.appends.Add(1)
	d.stats.appendedBytes.Add(int64(len(b)))
	c.touch(l)
	return nil
}

func (c *commit) putProducer(l *Log, pid int64, end record.Offset, state []byte) error {
	set := c.batch.SetDeferred(producerKeyLen, producerValueMin+len(state))
	l.prefix.producerKey(set.Key[:0], pid)
	set.Value[0] = valueFormat
	binary.BigEndian.PutUint64(set.Value[1:], uint64(end))
	copy(set.Value[producerValueMin:], state)
	return set.Finish()
}

func (c *commit) putProducers(l *Log, producers []Producer) error {
	for _, p := range producers {
		end := l.w.end
		if p.End > 0 {
			end = min(end, p.End)
		}
		if err := c.putProducer(l, p.ID, end, p.State); err != nil {
			return err
		}
	}
	return nil
}

// putMeta writes the committer's view of the log with the newest high watermark.
func (c *commit) putMeta(l *Log) error {
	m := &l.w.meta
	m.highWatermark = min(record.Offset(l.highWatermark.Load()), l.w.end)
	l.currentEpoch.Store(int32(m.currentEpoch))
	l.producersStale.Store(m.producersStale)
	set := c.batch.SetDeferred(kindPrefixLen, metaValueLen)
	l.prefix.kind(set.Key[:0], kindMeta)
	m.put(set.Value)
	return set.Finish()
}

// putEpoch adds a leader-epoch entry. Entries that start there or later belong to epochs without a record: they go.
func (c *commit) putEpoch(l *Log, e record.EpochStart) error {
	if err := c.cutEpochs(l, e.Start); err != nil {
		return err
	}
	if err := c.setEpoch(l, e); err != nil {
		return err
	}
	l.setEpochs(append(slices.Clip(l.Epochs()), e))
	if e.Epoch > l.w.meta.currentEpoch {
		l.w.meta.currentEpoch = e.Epoch
		return c.putMeta(l)
	}
	return nil
}

func (c *commit) setEpoch(l *Log, e record.EpochStart) error {
	set := c.batch.SetDeferred(epochKeyLen, epochValueLen)
	l.prefix.epochKey(set.Key[:0], e.Epoch)
	set.Value[0] = valueFormat
	binary.BigEndian.PutUint64(set.Value[1:], uint64(e.Start))
	return set.Finish()
}

// cutEpochs removes the entries that start at or after from.
func (c *commit) cutEpochs(l *Log, from record.Offset) error {
	epochs := l.Epochs()
	n := len(epochs)
	for n > 0 && epochs[n-1].Start >= from {
		n--
		c.key = l.prefix.epochKey(c.key[:0], epochs[n].Epoch)
		if err := c.batch.Delete(c.key, nil); err != nil {
			return err
		}
	}
	if n < len(epochs) {
		l.setEpochs(slices.Clip(epochs[:n]))
	}
	return nil
}

// deleteRange removes the log's keys of kinds [from, to).
func (c *commit) deleteRange(l *Log, from, to byte) error {
	return c.batch.DeleteRange(l.prefix.kind(nil, from), l.prefix.kind(nil, to), nil)
}

// encodeTrim moves the start. Readers see the new start before the apply makes data disappear, so that they answer ErrTrimmed
// or hold an iterator from before. The range deletion waits until enough is dead to be worth its cost to later seeks.
func (d *DB) encodeTrim(c *commit, o *op) error {
	l, r := o.log, o.rest
	m := &l.w.meta
	if r.offset <= m.start {
		return nil
	}
	if r.generation != l.generation.Load() {
		r.err = errLookAgain
		return nil
	}
	if err := c.freeFront(d, l, m.startPosition, r.at.position); err != nil {
		return err
	}
	m.start, m.startPosition = r.offset, r.at.position
	l.startPosition.Store(m.startPosition)
	l.count()
	l.start.Store(int64(m.start))
	dead, live := m.startPosition-m.keptPosition, l.w.position-m.startPosition
	if dead > 0 && (dead >= min(max(live, minTrimBytes), maxTrimBytes) || d.disk.full.Load()) {
		if err := c.batch.DeleteRange(l.prefix.dataSeek(nil, m.kept), l.prefix.dataSeek(nil, r.at.base), nil); err != nil {
			return err
		}
		m.kept, m.keptPosition = r.at.base, r.at.position
		l.kept.Store(int64(m.kept))
	}
	return c.putMeta(l)
}

// encodeTruncate removes the suffix from the batch that holds the offset on. What cannot be looked up concerns the caller alone,
// so every look-up comes before the first write.
func (d *DB) encodeTruncate(c *commit, o *op) error {
	l, r := o.log, o.rest
	m := &l.w.meta
	l.generation.Add(1)
	to, position, err := l.truncationPoint(r.offset)
	var pids []int64
	if err == nil {
		pids, err = l.producersBeyond(to)
	}
	if err != nil {
		r.err = fmt.Errorf("truncate %v to %d: %w", l.id, r.offset, err)
		d.endStructural(l)
		return nil
	}
	for _, pid := range pids {
		c.key = l.prefix.producerKey(c.key[:0], pid)
		if err := c.batch.Delete(c.key, nil); err != nil {
			return err
		}
		m.producersStale = true
	}
	if err := c.cutEpochs(l, to); err != nil {
		return err
	}
	if err := c.batch.DeleteRange(l.prefix.dataSeek(nil, to), l.prefix.kind(nil, kindEnd), nil); err != nil {
		return err
	}
	l.recent.forget()
	if err := c.freeBack(d, l, m.startPosition, position); err != nil {
		return err
	}
	if to < m.start { // the start lay inside the batch that goes
		m.start, m.startPosition = to, position
		m.kept, m.keptPosition = min(m.kept, to), min(m.keptPosition, position)
	}
	r.offset = to
	l.w.end, l.w.position = to, position
	l.publish()
	d.endStructural(l)
	return c.putMeta(l)
}

// encodeDrop removes everything. A log that is not open says only now what it holds.
func (d *DB) encodeDrop(c *commit, l *Log) error {
	if !l.w.loaded {
		if _, err := l.load(); err != nil {
			d.o.Logger.Warn("the log files of a dropped partition stay until the next start", "partition", l.id, "dir", d.dir, "error", err)
		}
	}
	l.dropped.Store(true)
	d.stats.live.Add(-l.w.counted)
	c.freeAll(d, l)
	return c.deleteRange(l, 0, math.MaxUint8)
}

// truncationPoint is where the log ends once every batch at or above an offset is gone.
func (l *Log) truncationPoint(to record.Offset) (end record.Offset, position int64, err error) {
	if to < l.w.meta.start {
		return 0, 0, fmt.Errorf("start %d: %w", l.w.meta.start, ErrTrimmed)
	}
	if to >= l.w.end {
		return l.w.end, l.w.position, nil
	}
	k, size, found, err := l.holding(to)
	switch {
	case err != nil:
		return 0, 0, err
	case !found || k.next() < to:
		return 0, 0, fmt.Errorf("%w: no batch holds offset %d, end %d", ErrCorrupt, to, l.w.end)
	case k.next() == to:
		return to, k.position + size, nil
	}
	return k.base, k.position, nil
}

// producersBeyond lists the producer entries that were written with a batch that ends past end.
func (l *Log) producersBeyond(end record.Offset) (pids []int64, err error) {
	err = l.eachProducer(func(pid int64, at record.Offset, _ []byte) error {
		if at > end {
			pids = append(pids, pid)
		}
		return nil
	})
	return pids, err
}

// encodeReset replaces everything the log holds by an empty log at a new start.
func (d *DB) encodeReset(c *commit, o *op) error {
	l, r := o.log, o.rest
	m := &l.w.meta
	l.generation.Add(1)
	if err := c.deleteRange(l, 0, math.MaxUint8); err != nil {
		return err
	}
	l.recent.forget()
	c.freeAll(d, l)
	*m = stored{
		start: r.offset, startPosition: l.w.position, kept: r.offset, keptPosition: l.w.position,
		highWatermark: record.NoOffset, currentEpoch: m.currentEpoch,
	}
	for _, e := range r.epochs {
		if err := c.setEpoch(l, e); err != nil {
			return err
		}
		m.currentEpoch = max(m.currentEpoch, e.Epoch)
	}
	l.setEpochs(slices.Clone(r.epochs))
	l.w.end = r.offset
	l.highWatermark.Store(int64(record.NoOffset))
	if err := c.putProducers(l, r.producers); err != nil {
		return err
	}
	l.publish()
	d.endStructural(l)
	return c.putMeta(l)
}

// endStructural lets appends go on, from the new end.
func (d *DB) endStructural(l *Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.q.structural--
	l.q.end, l.q.epoch = l.w.end, l.lastEpoch()
}
