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

// TxnVerifier asks the coordinator of a transactional id about its transaction. It may be called concurrently, and blocks no longer
// than its ctx.
type TxnVerifier interface {
	// VerifyTxn gives a verdict on each partition, in their order.
	VerifyTxn(ctx context.Context, q *TxnQuestion) []TxnVerdict
}

// TxnQuestion asks whether partitions are in the transaction that a producer has under way.
type TxnQuestion struct {
	TransactionalID string
	ProducerID      int64
	ProducerEpoch   int16
	Add             bool // those that are not in it are put in; else only looked for
	Partitions      []record.PartitionID
}

// TxnVerdict is the coordinator's answer for one partition. Err is nil when the partition is in the transaction, durably; else one of
// ErrTxnNotAdded, ErrTxnConcurrent, ErrInvalidTxnState, ErrInvalidProducerEpoch, ErrProducerIDMapping, ErrTxnUnavailable.
type TxnVerdict struct {
	Err error
	// Revision of the metadata at which the transaction was under way; with ErrTxnConcurrent that of the decision to end it.
	Revision metadata.Revision
}

// SetTxnVerifier says who is asked about transactions; before Run. Without one transactional batches are refused.
func (b *Broker) SetTxnVerifier(v TxnVerifier) { b.verifier = v }

// VerifyTxn asks the coordinator, once more while it is ending the transaction before: a producer may begin its next one as soon as the
// end is decided, which is before it is complete everywhere.
func (b *Broker) VerifyTxn(ctx context.Context, q *TxnQuestion) []TxnVerdict {
	if b.verifier == nil {
		out := make([]TxnVerdict, len(q.Partitions))
		for i := range out {
			out[i].Err = fmt.Errorf("%w: this node has no transaction coordinator to ask", ErrTxnNotAdded)
		}
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, txnVerifyTimeout)
	defer cancel()
	began := time.Now()
	for {
		out := b.verifier.VerifyTxn(ctx, q)
		again := false
		for i := range out {
			again = again || errors.Is(out[i].Err, ErrTxnConcurrent)
		}
		if !again || time.Since(began) >= txnConcurrentWait || pause(ctx, txnConcurrentPause) != nil {
			return out
		}
	}
}

// TxnGuard stands for one verification: made before the coordinator is asked, void as soon as the transaction ends or the leadership does
// (protocols §10.2). What the coordinator said before a marker says nothing about what comes after it.
type TxnGuard struct {
	lowest int32 // sequence of the producer's first batch that was seen
	used   int64 // ms since the epoch
}

type guardKey struct {
	pid   int64
	epoch int16
}

// GuardTxn tells whether the coordinator has to be asked before the batch is appended: it would begin a transaction here. Nil: not, Append
// decides by itself.
func (p *Partition) GuardTxn(batch record.Batch) *TxnGuard {
	p.mu.Lock()
	defer p.mu.Unlock()
	lead := p.mu.lead
	if lead == nil {
		return nil
	}
	key := guardKey{batch.ProducerID(), batch.ProducerEpoch()}
	known := lead.producers.byID[key.pid]
	if v := judge(known, batch); v.err != nil || v.duplicate != nil || known.open() && batch.ProducerEpoch() <= known.epoch {
		return nil
	}
	g := lead.guards[key]
	if g == nil {
		if len(lead.guards) >= maxTxnGuards {
			clear(lead.guards) // those asked for under them are asked again
		}
		g = &TxnGuard{lowest: batch.BaseSequence()}
		lead.guards[key] = g
	}
	g.lowest, g.used = min(g.lowest, batch.BaseSequence()), time.Now().UnixMilli()
	return g
}

// admitTxn checks a batch against the producer's transaction here.
func (l *leadership) admitTxn(known *producer, batch record.Batch, o *AppendOptions) error {
	switch {
	case known.open() && !batch.IsTransactional():
		return fmt.Errorf("%w: producer %d has one open from offset %d, the batch is not transactional", ErrInvalidTxnState, batch.ProducerID(), known.first)
	case known.open() && batch.ProducerEpoch() > known.epoch:
		return fmt.Errorf("%w: the end of producer %d's transaction of epoch %d is on its way here", ErrTxnUnavailable, batch.ProducerID(), known.epoch)
	case known.open() && batch.ProducerEpoch() != known.epoch:
		return fmt.Errorf("%w: producer %d has one of epoch %d open from offset %d, the batch is of epoch %d", ErrInvalidTxnState, batch.ProducerID(), known.epoch, known.first, batch.ProducerEpoch())
	case known.open() || !batch.IsTransactional():
		return nil
	}
	key := guardKey{batch.ProducerID(), batch.ProducerEpoch()}
	g := l.guards[key]
	switch {
	case g == nil || g != o.Guard:
		return fmt.Errorf("%w: producer %d ended its transaction meanwhile, or the leadership is a new one", ErrTxnUnavailable, key.pid)
	case (known == nil || known.n == 0) && batch.BaseSequence() > g.lowest:
		return fmt.Errorf("%w: producer %d begins with sequence %d, %d was seen", ErrOutOfOrderSequence, key.pid, batch.BaseSequence(), g.lowest)
	}
	return nil
}

// dropGuards forgets guards that were last used before that time.
func (l *leadership) dropGuards(before int64) {
	for key, g := range l.guards {
		if g.used < before {
			delete(l.guards, key)
		}
	}
}

// LateTransactions is how many led partitions have a transaction that is open for twice the longest timeout: its end is not decided, or
// its marker does not come.
func (b *Broker) LateTransactions() (n int) {
	before := time.Now().Add(-lateTxnFactor * b.Config().TransactionMaxTimeout).UnixMilli()
	for _, p := range b.Partitions() {
		p.mu.Lock()
		if lead := p.mu.lead; lead != nil {
			if t := lead.producers.txns.head; t != nil && t.began < before {
				n++
			}
		}
		p.mu.Unlock()
	}
	return n
}
