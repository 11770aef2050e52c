// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/gateway/txn"
)

// txnVerifier asks coordinators for the partitions that this node leads. It is the broker's TxnVerifier.
type txnVerifier struct{ s *Server }

// VerifyTxn is broker.TxnVerifier's.
func (v txnVerifier) VerifyTxn(ctx context.Context, q *broker.TxnQuestion) []broker.TxnVerdict {
	codes, at := v.s.addToTxn(ctx, &txnAdd{
		id: q.TransactionalID, producer: txn.Producer{ID: q.ProducerID, Epoch: q.ProducerEpoch}, partitions: q.Partitions, verifyOnly: !q.Add,
	})
	out := make([]broker.TxnVerdict, len(codes))
	for i, code := range codes {
		out[i] = broker.TxnVerdict{Err: verdictOf(code), Revision: at}
	}
	return out
}

// verdictOf is the broker's word for a coordinator's code. Whatever is no verdict on the transaction makes the producer send again.
func verdictOf(code Code) error {
	switch code {
	case codeNone:
		return nil
	case codeTransactionAbortable:
		return broker.ErrTxnNotAdded
	case codeConcurrentTransactions:
		return broker.ErrTxnConcurrent
	case codeProducerFenced, codeInvalidProducerEpoch:
		return broker.ErrInvalidProducerEpoch
	case codeInvalidProducerIDMapping:
		return broker.ErrProducerIDMapping
	case codeInvalidTxnState:
		return broker.ErrInvalidTxnState
	}
	return broker.ErrTxnUnavailable
}
