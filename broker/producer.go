// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"math"

	"github.com/varve/varve/record"
)

// sentBatch is one batch of an idempotent producer that this partition stored.
type sentBatch struct {
	firstSeq, lastSeq int32
	base              record.Offset
	timestamp         int64 // log append time in ms, or -1: what the first answer said
}

func (b *sentBatch) records() int32 {
	if b.lastSeq >= b.firstSeq {
		return b.lastSeq - b.firstSeq + 1
	}
	return math.MaxInt32 - b.firstSeq + b.lastSeq + 2 // the sequence wrapped
}

func (b *sentBatch) next() record.Offset { return b.base + record.Offset(b.records()) }

// noCoordinator is the coordinator epoch of a producer that no marker came for.
const noCoordinator int32 = -1

// producer is what a partition remembers of one idempotent producer.
type producer struct {
	epoch    int16
	n        int8                      // batches known, oldest first
	fresh    bool                      // a marker told of the epoch: its sequences begin at 0
	lastUsed int64                     // ms since the epoch
	batches  [producerWindow]sentBatch // of this epoch

	coordinatorEpoch int32         // of the last marker
	at               record.Offset // the last batch, of a producer that ever was transactional
	first, marker    record.Offset // of its last transaction; marker is NoOffset while it is open
	txnEpoch         int16         // of that transaction's batches
	aborted          record.Offset // its last abort marker here; not stored
	txn              *txn          // in the partition's list while it is not over; not stored
}

// newProducer is one of whom nothing is known but that it exists.
func newProducer(epoch int16, now int64) producer {
	return producer{
		epoch: epoch, lastUsed: now, coordinatorEpoch: noCoordinator,
		at: record.NoOffset, first: record.NoOffset, marker: record.NoOffset, aborted: record.NoOffset,
	}
}

// open tells whether the producer has a transaction under way here.
func (p *producer) open() bool { return p != nil && p.first >= 0 && p.marker < 0 }

// transactional tells whether there is more to store than the window.
func (p *producer) transactional() bool { return p.coordinatorEpoch != noCoordinator || p.first >= 0 }

// verdict is what the producer window says about a batch.
type verdict struct {
	duplicate *sentBatch // stored already: answer this
	err       error
}

// nextSequence is the sequence after s; Kafka's sequences wrap from MaxInt32 to 0.
func nextSequence(s int32) int32 {
	if s == math.MaxInt32 {
		return 0
	}
	return s + 1
}

// lastSequence is the sequence of a batch's last record.
func lastSequence(first, lastDelta int32) int32 {
	return int32((int64(first) + int64(lastDelta)) & math.MaxInt32)
}

// judge decides about a batch of producer p (nil: unknown, any sequence is accepted).
func judge(p *producer, b record.Batch) verdict {
	if p == nil {
		return verdict{}
	}
	epoch, first := b.ProducerEpoch(), b.BaseSequence()
	last := lastSequence(first, b.LastOffsetDelta())
	if epoch == p.epoch {
		for i := range p.batches[:p.n] {
			if known := &p.batches[i]; known.firstSeq == first && known.lastSeq == last {
				return verdict{duplicate: known}
			}
		}
	}
	switch {
	case epoch < p.epoch:
		return verdict{err: fmt.Errorf("%w: producer %d sent epoch %d, %d is known", ErrInvalidProducerEpoch, b.ProducerID(), epoch, p.epoch)}
	case epoch > p.epoch, p.fresh:
		if first != 0 {
			return verdict{err: fmt.Errorf("%w: producer %d begins epoch %d with sequence %d instead of 0", ErrOutOfOrderSequence, b.ProducerID(), epoch, first)}
		}
	case p.n > 0:
		if want := nextSequence(p.batches[p.n-1].lastSeq); first != want {
			return verdict{err: fmt.Errorf("%w: producer %d sent sequence %d, %d expected", ErrOutOfOrderSequence, b.ProducerID(), first, want)}
		}
	}
	return verdict{}
}

// with returns the producer's entry after it stored b, which is not a control batch.
func (p *producer) with(b record.Batch, logAppendTime, now int64) producer {
	next := newProducer(b.ProducerEpoch(), now)
	if p != nil {
		next.coordinatorEpoch, next.aborted, next.txn = p.coordinatorEpoch, p.aborted, p.txn
		next.first, next.marker, next.txnEpoch = p.first, p.marker, p.txnEpoch
		if p.epoch == next.epoch {
			next.n, next.batches = p.n, p.batches
		}
	}
	if next.n == producerWindow {
		copy(next.batches[:], next.batches[1:])
		next.n--
	}
	next.batches[next.n] = sentBatch{
		firstSeq: b.BaseSequence(), lastSeq: lastSequence(b.BaseSequence(), b.LastOffsetDelta()),
		base: b.BaseOffset(), timestamp: logAppendTime,
	}
	next.n++
	next.at = b.BaseOffset()
	if b.IsTransactional() && !p.open() {
		next.first, next.marker, next.txnEpoch, next.txn = b.BaseOffset(), record.NoOffset, next.epoch, nil
	}
	return next
}

// withMarker returns the producer's entry after the marker in b ended its transaction. A newer epoch begins its sequences anew.
func (p *producer) withMarker(b record.Batch, m record.Marker, now int64) producer {
	next := newProducer(b.ProducerEpoch(), now)
	if p != nil {
		next.first, next.marker, next.txnEpoch, next.aborted, next.txn = p.first, p.marker, p.txnEpoch, p.aborted, p.txn
		if next.fresh = true; p.epoch == next.epoch {
			next.n, next.batches, next.fresh = p.n, p.batches, p.fresh
		}
	}
	next.at, next.coordinatorEpoch = b.BaseOffset(), max(m.CoordinatorEpoch, 0)
	if p.open() {
		next.marker = next.at
		if !m.Commit {
			next.aborted = next.at
		}
	}
	return next
}

// below is the entry as it was at end: without the batches at or above it, and with the transaction that was open there. across is that
// one if it was aborted, which the entry itself may not tell any more. ok is false when nothing is known of the producer as it was:
// its epoch, above all, must not be one that only a batch above end told of, since that may not be committed.
func (p *producer) below(end record.Offset, across *abortedTxn) (out producer, ok bool) {
	out = *p
	for out.n > 0 && out.batches[out.n-1].base >= end {
		out.n--
	}
	switch {
	case across != nil:
		out.first, out.marker, out.txnEpoch = across.First, record.NoOffset, across.epoch
	case out.first >= end:
		out.first, out.marker = record.NoOffset, record.NoOffset
	case out.marker >= end:
		out.marker = record.NoOffset
	}
	if out.at < end {
		return out, out.n > 0 || out.transactional()
	}
	out.at, out.fresh = end-1, false
	if out.n == 0 && out.open() {
		out.epoch = out.txnEpoch
	}
	return out, out.n > 0 || out.open()
}
