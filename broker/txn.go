// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"slices"
	"sort"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/segment"
)

// txn is a transaction of one producer on one partition that is not over: open, or its marker not yet below the high watermark.
type txn struct {
	pid      int64
	first    record.Offset
	marker   record.Offset     // NoOffset while it is open
	began    int64             // ms since the epoch
	revision metadata.Revision // of the metadata in which the coordinator had it under way; 0: not asked in this leadership

	prev, next *txn
}

// txnList holds the transactions that are not over by their first offset. They begin in the order of the log, so it is a list.
type txnList struct{ head, tail *txn }

func (l *txnList) add(t *txn) {
	if t.prev = l.tail; t.prev == nil {
		l.head = t
	} else {
		t.prev.next = t
	}
	l.tail = t
}

func (l *txnList) remove(t *txn) {
	if t.prev == nil {
		l.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}

// earliestOpen is where the first transaction begins that has no marker, or beyond if there is none.
func (l *txnList) earliestOpen(beyond record.Offset) record.Offset {
	for t := l.head; t != nil; t = t.next {
		if t.marker == record.NoOffset {
			return min(t.first, beyond)
		}
	}
	return beyond
}

// abortedTxn is an aborted transaction in the hot log.
type abortedTxn struct {
	segment.Aborted
	epoch int16 // of its batches
	// rest: no transaction that was aborted later begins below it, so a search that needs nothing above ends here.
	rest record.Offset
}

// abortedIndex is what was aborted in the hot log, by marker. It has every one whose marker is at or above floor.
type abortedIndex struct {
	list  []abortedTxn
	floor record.Offset
}

// from is the position of the first whose marker is at or above o.
func (x *abortedIndex) from(o record.Offset) int {
	return sort.Search(len(x.list), func(i int) bool { return x.list[i].Marker >= o })
}

// within appends those that a reader of [from, to) has to know: begun below to, marker at or above from.
func (x *abortedIndex) within(from, to record.Offset, dst []segment.Aborted) []segment.Aborted {
	for i := x.from(from); i < len(x.list); i++ {
		if x.list[i].First < to {
			dst = append(dst, x.list[i].Aborted)
		}
		if x.list[i].rest >= to {
			break
		}
	}
	return dst
}

// trim forgets those whose marker is below the new floor.
func (x *abortedIndex) trim(floor record.Offset) {
	if floor <= x.floor {
		return
	}
	x.floor = floor
	if n := x.from(floor); n > 0 {
		x.list = append(x.list[:0:0], x.list[n:]...)
	}
}

// settle brings a list that was read from the disk in order. open is where the first transaction begins that is still open.
func (x *abortedIndex) settle(open record.Offset) {
	slices.SortFunc(x.list, func(a, b abortedTxn) int { return cmp.Compare(a.Marker, b.Marker) })
	for i := len(x.list) - 1; i >= 0; i-- {
		a := &x.list[i]
		a.rest = min(open, a.Marker+1)
		open = min(open, a.First)
	}
}

// byFirst is the order in which a reader gets aborted transactions.
func byFirst(a, b segment.Aborted) int {
	return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Marker, b.Marker))
}
