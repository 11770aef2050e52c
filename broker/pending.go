// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync/atomic"

	"github.com/varve/varve/record"
)

// Wait joins the appends of one produce request. Init before the first Append.
type Wait struct {
	left atomic.Int32
	done chan struct{}
}

// Init makes w wait for n appends; n must be at least 1.
func (w *Wait) Init(n int) {
	w.left.Store(int32(n))
	w.done = make(chan struct{})
}

// C is closed once every append is decided.
func (w *Wait) C() <-chan struct{} { return w.done }

func (w *Wait) decided() {
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
}

// Pending is one append that waits for its acknowledgement. The caller owns the memory, usually one slice per request, and
// reads the exported fields only after Wait.C is closed.
type Pending struct {
	Base          record.Offset // offset of the batch's first record, -1 with an error
	LogStart      record.Offset
	LogAppendTime int64 // ms; -1 with CreateTime
	Duplicate     bool  // the batch was stored earlier; Base is where
	Err           error

	wait       *Wait
	need       record.Offset // decided once the end it waits for is at least this
	prev, next *Pending
	queue      *pendingQueue // where it waits; nil once decided

	// Of one that is held back while its partition is handed over: what is to be appended if that comes to nothing.
	batch   record.Batch
	options AppendOptions
}

func (p *Pending) decide(err error) {
	p.Err = err
	if err != nil {
		p.Base = record.NoOffset
	}
	p.wait.decided()
}

// pendingQueue holds pendings in the order of the end they need. It is guarded by the partition's mutex.
type pendingQueue struct{ head, tail *Pending }

// add puts p where its end belongs. Appends come in order, so that is the tail; only a duplicate, which joins the wait of its
// original, walks.
func (q *pendingQueue) add(p *Pending) {
	p.queue = q
	after := q.tail
	for after != nil && after.need > p.need {
		after = after.prev
	}
	p.prev = after
	if after == nil {
		p.next, q.head = q.head, p
	} else {
		p.next, after.next = after.next, p
	}
	if p.next == nil {
		q.tail = p
	} else {
		p.next.prev = p
	}
}

func (q *pendingQueue) remove(p *Pending) {
	if p.prev == nil {
		q.head = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		q.tail = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next, p.queue = nil, nil, nil
}

// take cuts off and returns the chain of those that need no more than end, linked by next.
func (q *pendingQueue) take(end record.Offset) *Pending {
	first := q.head
	if first == nil || first.need > end {
		return nil
	}
	last := first
	for {
		last.queue = nil
		if last.next == nil || last.next.need > end {
			break
		}
		last = last.next
	}
	q.head = last.next
	if q.head == nil {
		q.tail = nil
	} else {
		q.head.prev = nil
	}
	last.next = nil
	return first
}

// takeAll empties the queue.
func (q *pendingQueue) takeAll() *Pending { return q.take(1<<63 - 1) }

// decideAll decides a chain that take returned. Call it without locks.
func decideAll(chain *Pending, err error) {
	for p := chain; p != nil; {
		next := p.next
		p.prev, p.next = nil, nil
		p.decide(err)
		p = next
	}
}
