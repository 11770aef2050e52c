// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"math"
	"slices"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/segment"
)

// producers is what a replica remembers of the producers of a partition and of their transactions. It is a function of the log:
// leaders, followers and a rebuild after a truncation give it the same batches. Partition.mu guards it.
type producers struct {
	byID    map[int64]*producer
	txns    txnList // not over
	ended   []*txn  // those of them with a marker, by marker
	aborted abortedIndex
	marks   []abortMark // entries of abort markers on the disk, by marker
}

// abortMark is an abort marker that has an entry of its own on the disk.
type abortMark struct {
	marker record.Offset
	pid    int64
}

// newProducers makes one for a hot log that begins at start.
func newProducers(start record.Offset) *producers {
	return &producers{byID: map[int64]*producer{}, aborted: abortedIndex{floor: start}}
}

// change is what a batch does to its producer. It is found before the batch is queued, and remembered once it is.
type change struct {
	pid   int64 // -1: the batch has no producer
	entry producer
	abort bool // it is the marker of a transaction that is aborted
}

// change finds what a batch does. The offset is stamped.
func (t *producers) change(b record.Batch, appendTime, now int64) (c change) {
	if c.pid = b.ProducerID(); c.pid < 0 {
		return c
	}
	known := t.byID[c.pid]
	if !b.IsControl() {
		c.entry = known.with(b, appendTime, now)
		return c
	}
	m, ok, err := b.Marker()
	if err != nil || !ok {
		c.pid = record.NoProducerID // a control record of another kind is no producer's
		return c
	}
	c.entry = known.withMarker(b, m, now)
	c.abort = !m.Commit && known.open()
	return c
}

// encode gives the key and the stored form under which the entry goes to the disk with the batch. An abort marker has a key of its
// own: what was aborted is known after a restart without a look at the log.
func (c *change) encode(dst []byte) (key int64, state []byte) {
	switch {
	case c.pid < 0:
		return c.pid, nil
	case c.abort:
		return abortKey | int64(c.entry.at), c.entry.encodeAbort(dst, c.pid)
	}
	return c.pid, c.entry.encode(dst)
}

// remember takes a change over. fresh: the producer was not known.
func (t *producers) remember(c *change) (fresh bool) {
	if c.pid < 0 {
		return false
	}
	e := &c.entry
	switch {
	case e.txn != nil && e.marker >= 0:
		e.txn.marker = e.marker
		t.ended = append(t.ended, e.txn)
		if c.abort {
			a := abortedTxn{Aborted: segment.Aborted{ProducerID: c.pid, First: e.first, Marker: e.at}, epoch: e.txnEpoch}
			a.rest = t.txns.earliestOpen(e.at + 1)
			t.aborted.list = append(t.aborted.list, a)
			t.marks = append(t.marks, abortMark{e.at, c.pid})
		}
		e.txn = nil
	case e.open() && e.txn == nil:
		e.txn = &txn{pid: c.pid, first: e.first, marker: record.NoOffset, began: e.lastUsed}
		t.txns.add(e.txn)
	}
	known := t.byID[c.pid]
	if known == nil {
		known = new(producer)
		t.byID[c.pid] = known
		fresh = true
	}
	*known = *e
	return fresh
}

// committed takes a high watermark over: a transaction is over once its marker is below it (protocols §10.5).
func (t *producers) committed(hw record.Offset) {
	n := 0
	for n < len(t.ended) && t.ended[n].marker < hw {
		t.txns.remove(t.ended[n])
		t.ended[n] = nil
		n++
	}
	if t.ended = t.ended[n:]; len(t.ended) == 0 {
		t.ended = nil
	}
}

// lastStable bounds what readers of committed data see below the high watermark.
func (t *producers) lastStable(logStart, hw record.Offset) record.Offset {
	if t == nil || t.txns.head == nil {
		return hw
	}
	return min(max(t.txns.head.first, logStart), hw)
}

// load takes over one entry of the disk or of a segment's snapshot. settle comes after the last.
func (t *producers) load(key int64, state []byte) error {
	if key < abortKey {
		e, err := decodeProducer(state)
		if err != nil {
			return err
		}
		if known := t.byID[key]; known == nil || e.at >= known.at {
			if known != nil {
				e.aborted = known.aborted
			}
			t.byID[key] = &e
		}
		return nil
	}
	pid, e, err := decodeAbort(state)
	if err != nil {
		return err
	}
	marker := record.Offset(key &^ abortKey)
	t.marks = append(t.marks, abortMark{marker, pid})
	if marker >= t.aborted.floor {
		t.aborted.list = append(t.aborted.list, abortedTxn{Aborted: segment.Aborted{ProducerID: pid, First: e.first, Marker: marker}, epoch: e.txnEpoch})
	}
	known := t.byID[pid]
	if known == nil || known.at < e.at {
		t.byID[pid] = &e
	}
	if e.aborted = marker; known != nil {
		known.aborted = max(known.aborted, marker)
		e.aborted = known.aborted
	}
	return nil
}

// settle brings what was loaded in order: the transactions that are open, and those whose marker may be above the high watermark.
func (t *producers) settle() {
	var all []*txn
	for pid, e := range t.byID {
		if e.first < 0 {
			continue
		}
		x := &txn{pid: pid, first: e.first, marker: record.NoOffset, began: e.lastUsed}
		if e.marker >= 0 {
			x.marker = e.marker
			t.ended = append(t.ended, x)
		} else {
			e.txn = x
		}
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b *txn) int { return cmp.Compare(a.first, b.first) })
	for _, x := range all {
		t.txns.add(x)
	}
	slices.SortFunc(t.ended, func(a, b *txn) int { return cmp.Compare(a.marker, b.marker) })
	slices.SortFunc(t.marks, func(a, b abortMark) int { return cmp.Compare(a.marker, b.marker) })
	t.aborted.settle(t.txns.earliestOpen(math.MaxInt64))
}

// stored is everything as entries for the disk.
func (t *producers) stored() []hotlog.Producer {
	out := make([]hotlog.Producer, 0, len(t.byID)+len(t.aborted.list))
	for pid, e := range t.byID {
		out = append(out, hotlog.Producer{ID: pid, State: e.encode(nil)})
	}
	for _, a := range t.aborted.list {
		e := newProducer(0, 0)
		e.at, e.first, e.marker, e.txnEpoch = a.Marker, a.First, a.Marker, a.epoch
		// The list of what was aborted below a truncation has to outlive it: no look at the log brings it back.
		out = append(out, hotlog.Producer{ID: abortKey | int64(a.Marker), State: e.encodeAbort(nil, a.ProducerID), End: a.Marker + 1})
	}
	return out
}

// snapshot is what a segment that ends at end carries (W2): the entries as they were there. What follows is in the log, from which
// whoever starts there learns it; of a committed transaction across end it learns no more than it needs, the end.
func (t *producers) snapshot(end record.Offset) []segment.Producer {
	across := map[int64]*abortedTxn{}
	for i := t.aborted.from(end); i < len(t.aborted.list); i++ {
		if a := &t.aborted.list[i]; a.First < end {
			across[a.ProducerID] = a
		}
	}
	var out []segment.Producer
	for pid, e := range t.byID {
		if below, ok := e.below(end, across[pid]); ok {
			out = append(out, segment.Producer{ID: pid, State: below.encode(nil)})
		}
	}
	slices.SortFunc(out, func(a, b segment.Producer) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// forget drops the producers that were last used before that time, and those idle longest of more than most, and gives the keys to be
// removed from the disk. One stays as long as it has a transaction that is not over, or an abort in the hot log.
func (t *producers) forget(before int64, most int) (keys []int64, n int) {
	if excess := len(t.byID) - most; excess > 0 {
		used := make([]int64, 0, len(t.byID))
		for _, e := range t.byID {
			used = append(used, e.lastUsed)
		}
		slices.Sort(used)
		before = max(before, used[excess])
	}
	for pid, e := range t.byID {
		if e.lastUsed < before && e.txn == nil && e.aborted < t.aborted.floor {
			keys = append(keys, pid)
			delete(t.byID, pid)
		}
	}
	n = len(keys)
	t.marks = slices.DeleteFunc(t.marks, func(m abortMark) bool {
		e := t.byID[m.pid]
		// The newest entry of its producer may be this one.
		gone := m.marker < t.aborted.floor && (e == nil || e.at > m.marker)
		if gone {
			keys = append(keys, abortKey|int64(m.marker))
		}
		return gone
	})
	return keys, n
}

// ProducerState is what a partition remembers of an idempotent producer.
type ProducerState struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // -1: none in this epoch
	LastUsed         int64 // ms since the epoch
	CoordinatorEpoch int32 // of the last marker, -1: none
	// TxnStart is the first offset of its transaction that is not over, -1: none.
	TxnStart record.Offset
}

// Producers are the idempotent producers that the partition remembers, by id. Only the leader tells.
func (p *Partition) Producers() ([]ProducerState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.lead == nil {
		return nil, ErrNotLeader
	}
	known := p.mu.lead.producers.byID
	all := make([]ProducerState, 0, len(known))
	for id, entry := range known {
		s := ProducerState{
			ID: id, Epoch: entry.epoch, LastSequence: -1, LastUsed: entry.lastUsed,
			CoordinatorEpoch: entry.coordinatorEpoch, TxnStart: record.NoOffset,
		}
		if entry.n > 0 {
			s.LastSequence = entry.batches[entry.n-1].lastSeq
		}
		if entry.open() {
			s.TxnStart = entry.first
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b ProducerState) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// producersLocked are those of the role in force; nil without one.
func (p *Partition) producersLocked() *producers {
	switch {
	case p.mu.lead != nil:
		return p.mu.lead.producers
	case p.mu.follow != nil:
		return p.mu.follow.producers
	}
	return nil
}

// lsoLocked is the last stable offset: the high watermark, or the first offset of the earliest transaction that is not over.
func (p *Partition) lsoLocked() record.Offset {
	return p.producersLocked().lastStable(p.mu.logStart, p.mu.hw)
}
