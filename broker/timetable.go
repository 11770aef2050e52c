// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"container/list"
	"errors"
	"slices"
	"sort"
	"sync"

	"github.com/varve/varve/record"
)

// timeTable is what a stretch of committed log answers lookups by time from, without reading it again: the records whose timestamp
// is above those of all records before them in the stretch. Only such a record can be the first with a timestamp of at least t.
type timeTable struct {
	base   record.Offset
	epoch  record.Epoch // of the whole stretch
	deltas []int32      // offsets from base, ascending
	times  []int64      // ascending
}

// errMixedEpochs: the stretch lies across a change of leader; it is looked up by scanning.
var errMixedEpochs = errors.New("broker: stretch of several leader epochs")

// first is the first record with a timestamp of at least ts.
func (t *timeTable) first(ts int64) (TimeOffset, bool) {
	i := sort.Search(len(t.times), func(i int) bool { return t.times[i] >= ts })
	if i == len(t.times) {
		return noTimeOffset, false
	}
	return TimeOffset{Offset: t.base + record.Offset(t.deltas[i]), Timestamp: t.times[i], Epoch: t.epoch}, true
}

// add appends what the next batch contributes.
func (t *timeTable) add(b record.Batch) error {
	if b.IsControl() || len(t.times) > 0 && b.MaxTimestamp() <= t.times[len(t.times)-1] {
		return nil
	}
	if len(t.times) == 0 {
		t.epoch = b.LeaderEpoch()
	} else if t.epoch != b.LeaderEpoch() {
		return errMixedEpochs
	}
	return b.Each(func(r *record.Record) bool {
		if len(t.times) == 0 || r.Timestamp > t.times[len(t.times)-1] {
			t.deltas = append(t.deltas, int32(r.Offset-t.base))
			t.times = append(t.times, r.Timestamp)
		}
		return true
	})
}

// timeTables keeps the tables that were asked for last, up to a number of bytes for the whole node. What it holds is committed, so
// it never changes; a partition that is deleted leaves entries that age out.
type timeTables struct {
	mu struct {
		sync.Mutex
		entries map[timeTableKey]*list.Element
		order   list.List // of *timeTableEntry, last used first
		bytes   int
	}
}

type timeTableKey struct {
	partition record.PartitionID
	base      record.Offset
}

type timeTableEntry struct {
	key   timeTableKey
	table *timeTable
}

// bytes is about what the entry takes, with its places in the map and the list.
func (e *timeTableEntry) bytes() int { return 256 + 4*cap(e.table.deltas) + 8*cap(e.table.times) }

func (c *timeTables) get(k timeTableKey) (*timeTable, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.mu.entries[k]
	if !ok {
		return nil, false
	}
	c.mu.order.MoveToFront(e)
	return e.Value.(*timeTableEntry).table, true
}

func (c *timeTables) put(k timeTableKey, t *timeTable) {
	t.deltas, t.times = slices.Clone(t.deltas), slices.Clone(t.times) // without the room they grew into
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.mu.entries[k]; ok {
		return
	}
	if c.mu.entries == nil {
		c.mu.entries = map[timeTableKey]*list.Element{}
	}
	entry := &timeTableEntry{key: k, table: t}
	c.mu.entries[k] = c.mu.order.PushFront(entry)
	c.mu.bytes += entry.bytes()
	for c.mu.bytes > maxTimeTableBytes && c.mu.order.Len() > 1 {
		last := c.mu.order.Back()
		old := c.mu.order.Remove(last).(*timeTableEntry)
		delete(c.mu.entries, old.key)
		c.mu.bytes -= old.bytes()
	}
}
