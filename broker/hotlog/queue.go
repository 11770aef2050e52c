// SPDX-License-Identifier: Apache-2.0

package hotlog

import "github.com/varve/varve/record"

type opKind uint8

const (
	opAppend opKind = iota
	opCreate
	opEpoch
	opAdopt
	opDropProducers
	opReplaceProducers
	opTrim
	opTruncate
	opReset
	opDrop
	opMove  // the reclaimer's: batches get another place
	opStore // a change of the store's own keys; its log is DB.store, which has no records
)

// structural changes look at what earlier changes of the same log left in Pebble, so these must be applied, not only queued.
func (k opKind) structural() bool { return k >= opTruncate && k <= opDrop }

// op is one queued change of one log. Ops are recycled: whoever queues one may not keep it.
type op struct {
	nextOp *op
	log    *Log
	kind   opKind
	// newEpoch: the batch begins a leader epoch.
	newEpoch bool
	size     int
	batch    record.Batch
	pid      int64
	// state is the op's own memory, kept across uses.
	state []byte
	rest  *opRest
}

// opRest is what changes other than an append carry. The queuer waits on done (if it waits) and reads err after it.
type opRest struct {
	done chan struct{}
	err  error

	offset     record.Offset
	epoch      record.Epoch
	at         dataKey // trim: the batch that holds offset, or where it would be
	generation uint64  // trim: Log.generation when at was looked up
	epochs     []record.EpochStart
	producers  []Producer
	pids       []int64
	apply      func(c *commit) error // opStore
	moves      []move                // opMove, with their bytes one behind the other in data
	data       []byte
}

// logList is a first-in-first-out list of logs that have queued ops.
type logList struct{ head, tail *Log }

func (q *logList) push(l *Log) {
	l.q.nextLog = nil
	if q.tail == nil {
		q.head = l
	} else {
		q.tail.q.nextLog = l
	}
	q.tail = l
}

func (q *logList) pop() *Log {
	l := q.head
	if l == nil {
		return nil
	}
	q.head = l.q.nextLog
	if q.head == nil {
		q.tail = nil
	}
	l.q.nextLog = nil
	return l
}

// newOpLocked takes a recycled op or makes one.
func (d *DB) newOpLocked(l *Log, kind opKind, size int) *op {
	o := d.mu.freeOps
	if o == nil {
		o = &op{}
	} else {
		d.mu.freeOps = o.nextOp
		d.mu.freeCount--
	}
	state := o.state[:0]
	*o = op{log: l, kind: kind, size: size, state: state}
	return o
}

// enqueueLocked puts an op behind the log's others, lists the log, and tells whether the committer must be woken.
func (d *DB) enqueueLocked(o *op) (wake bool) {
	l := o.log
	if l.q.tail == nil {
		l.q.head = o
		d.listLocked(l)
	} else {
		l.q.tail.nextOp = o
	}
	l.q.tail = o
	d.mu.queuedBytes += int64(o.size)
	d.mu.queuedOps++
	wake = d.mu.idle
	d.mu.idle = false
	return wake
}

// listLocked lists a log by the size of its first op, so that one large request never stands between two small ones of others.
func (d *DB) listLocked(l *Log) {
	if l.q.head.size > d.o.MaxBatchBytes {
		d.mu.large.push(l)
	} else {
		d.mu.small.push(l)
	}
}

func (d *DB) wakeCommitter() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// takeLocked moves the next Pebble batch's ops from the queue to c: one large op alone, or small ones up to the batch limit, log
// by log, each at most a quantum while others wait. Large and small take turns, so that a small op waits for one large op at
// most, whatever is queued of them.
func (d *DB) takeLocked(c *commit) {
	if d.mu.large.head != nil && (d.mu.small.head == nil || !d.mu.largeLast) {
		d.mu.largeLast = true
		l := d.mu.large.pop()
		d.takeOneLocked(c, l)
		if l.q.head != nil {
			d.listLocked(l)
		}
		return
	}
	d.mu.largeLast = false
	var again logList
	for misfits := 0; c.bytes < d.o.MaxBatchBytes && misfits < maxMisfits; {
		l := d.mu.small.pop()
		if l == nil {
			break
		}
		if !d.takeSomeLocked(c, l) {
			again.push(l)
			misfits++
		} else if l.q.head != nil {
			d.listLocked(l)
		}
	}
	// Logs whose next op must wait for this batch, or did not fit, go first next time.
	if again.head != nil {
		again.tail.q.nextLog = d.mu.small.head
		if d.mu.small.tail == nil {
			d.mu.small.tail = again.tail
		}
		d.mu.small.head = again.head
	}
}

// takeSomeLocked takes ops of one log up to the quantum and the batch limit. It returns false if the log's next op has to wait
// for the next batch.
func (d *DB) takeSomeLocked(c *commit, l *Log) bool {
	taken := 0
	for o := l.q.head; o != nil && taken < quantumBytes; o = l.q.head {
		if o.size > d.o.MaxBatchBytes {
			return true // to be listed as large
		}
		if c.bytes > 0 && c.bytes+o.size > d.o.MaxBatchBytes {
			return false
		}
		if o.kind.structural() && l.q.inCommit == c.sequence {
			return false
		}
		d.takeOneLocked(c, l)
		taken += o.size
	}
	return true
}

func (d *DB) takeOneLocked(c *commit, l *Log) {
	o := l.q.head
	l.q.head = o.nextOp
	if l.q.head == nil {
		l.q.tail = nil
	}
	o.nextOp = nil
	l.q.inCommit = c.sequence
	c.ops = append(c.ops, o)
	c.bytes += o.size
	d.mu.queuedBytes -= int64(o.size)
	d.mu.queuedOps--
}

// recycleLocked gives ops back.
func (d *DB) recycleLocked(ops []*op) {
	for _, o := range ops {
		if d.mu.freeCount >= maxFreeOps {
			return
		}
		state := o.state
		if cap(state) > maxFreeState {
			state = nil
		}
		*o = op{state: state[:0], nextOp: d.mu.freeOps}
		d.mu.freeOps = o
		d.mu.freeCount++
	}
}
