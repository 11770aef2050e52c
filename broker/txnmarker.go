// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// TxnMarker ends the transaction of a producer on a partition.
type TxnMarker struct {
	ProducerID int64
	// ProducerEpoch is that of the transaction; with Bumped a newer one, which fences the transaction's from here on.
	ProducerEpoch    int16
	Bumped           bool
	Commit           bool
	CoordinatorEpoch int32
	// Decision is the metadata revision of the decision, TransactionalID whose it is; 0 and "" from tools.
	Decision        metadata.Revision
	TransactionalID string
}

// AppendMarker appends the control batch that ends a transaction here. pend is decided without an error once the batch is committed, in the
// epoch in which it was appended. It is appended also when the transaction has ended here or never was: whether another replica
// that led before knew it is not to be told from here (protocols §10.4). It may ask the coordinator, up to ctx.
func (p *Partition) AppendMarker(ctx context.Context, m *TxnMarker, w *Wait, pend *Pending) {
	pend.wait, pend.LogAppendTime = w, -1
	if err := p.resolveDoubt(ctx, m); err != nil {
		pend.decide(err)
		return
	}
	p.mu.Lock()
	wait, err := p.appendMarkerLocked(m, pend)
	p.mu.Unlock()
	if !wait {
		pend.decide(err)
	}
}

func (p *Partition) appendMarkerLocked(m *TxnMarker, pend *Pending) (wait bool, err error) {
	lead, err := p.acceptingLocked(-1)
	if err != nil {
		return false, err
	}
	known := lead.producers.byID[m.ProducerID]
	if err := judgeMarker(known, m); err != nil {
		return false, err
	}
	marker := record.Marker{Commit: m.Commit, CoordinatorEpoch: m.CoordinatorEpoch}
	batch, err := marker.Batch(record.Producer{ID: m.ProducerID, Epoch: m.ProducerEpoch}, time.Now().UnixMilli())
	if err != nil {
		return false, err
	}
	batch.Stamp(p.mu.end, lead.Epoch)
	if err := p.storeLocked(lead, batch, -1, 0); err != nil {
		return false, err
	}
	if !m.Bumped {
		// What the coordinator confirmed before may have been this transaction. With a newer epoch the old one is fenced by that.
		delete(lead.guards, guardKey{m.ProducerID, m.ProducerEpoch})
	}
	pend.LogStart, pend.Base = p.mu.logStart, batch.BaseOffset()
	return p.queueLocked(lead, AppendOptions{Acks: -1}, pend, p.mu.end), nil
}

// judgeMarker refuses what must not end the transaction that is open here: a marker of an earlier one that comes late, and one of a
// coordinator that has a successor.
func judgeMarker(known *producer, m *TxnMarker) error {
	switch {
	case known == nil:
		return nil
	case m.CoordinatorEpoch < known.coordinatorEpoch:
		return fmt.Errorf("%w: %d, %d is known for producer %d", ErrCoordinatorFenced, m.CoordinatorEpoch, known.coordinatorEpoch, m.ProducerID)
	case m.ProducerEpoch < known.epoch:
		return fmt.Errorf("%w: a marker of epoch %d for producer %d, %d is known", ErrInvalidProducerEpoch, m.ProducerEpoch, m.ProducerID, known.epoch)
	case !known.open() || m.ProducerEpoch > known.epoch:
		return nil
	case m.Bumped:
		return fmt.Errorf("%w: the transaction of producer %d that is open here began with epoch %d, the marker's", ErrInvalidProducerEpoch, m.ProducerID, known.epoch)
	case m.Decision > 0 && m.Decision <= known.txn.revision:
		return fmt.Errorf("%w: the marker for producer %d is of a decision at revision %d, what is open here was under way at %d", ErrInvalidProducerEpoch, m.ProducerID, m.Decision, known.txn.revision)
	}
	return nil
}

// resolveDoubt asks the coordinator about a transaction that was open here when this leadership began, before a marker of the same epoch
// may end it. Producers of old clients keep their epoch, so that of such a transaction nothing here tells whether the marker is its
// own or a late one of the transaction before; the revision at which it was under way does.
func (p *Partition) resolveDoubt(ctx context.Context, m *TxnMarker) error {
	if m.Bumped || m.Decision == 0 || m.TransactionalID == "" || p.broker.verifier == nil {
		return nil
	}
	t := p.doubtful(m)
	if t == nil {
		return nil
	}
	q := &TxnQuestion{TransactionalID: m.TransactionalID, ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, Partitions: []record.PartitionID{p.id}}
	ctx, cancel := context.WithTimeout(ctx, txnVerifyTimeout)
	defer cancel()
	v := p.broker.verifier.VerifyTxn(ctx, q)[0]
	switch {
	case v.Err == nil:
	case errors.Is(v.Err, ErrTxnConcurrent) && v.Revision > 0:
		v.Revision-- // the decision itself may end it
	case errors.Is(v.Err, ErrTxnNotAdded), errors.Is(v.Err, ErrInvalidTxnState), errors.Is(v.Err, ErrInvalidProducerEpoch), errors.Is(v.Err, ErrProducerIDMapping):
		return fmt.Errorf("%w: the coordinator is not ending a transaction of producer %d here: %v", ErrInvalidProducerEpoch, m.ProducerID, v.Err)
	default:
		return fmt.Errorf("%w: whether the marker for producer %d is of the transaction that is open here: %v", ErrTxnUnavailable, m.ProducerID, v.Err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.revision = max(t.revision, v.Revision)
	return nil
}

// doubtful is the open transaction that a marker would end, if nobody has asked about it in this leadership.
func (p *Partition) doubtful(m *TxnMarker) *txn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.lead == nil {
		return nil
	}
	known := p.mu.lead.producers.byID[m.ProducerID]
	if !known.open() || known.epoch != m.ProducerEpoch || known.txn.revision > 0 {
		return nil
	}
	return known.txn
}
