// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/record"
)

// endTxnBumps is the version from which on the end of a transaction moves the producer's epoch (KIP-890).
const endTxnBumps = 5

// endTxn commits or aborts a transaction. It is answered when the decision is stored; the partitions hear of it afterwards.
func (s *Server) endTxn(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.EndTxnRequest)
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ProducerID, resp.ProducerEpoch = record.NoProducerID, txn.NoEpoch
	version := txn.Classic
	if r.Version >= endTxnBumps {
		version = txn.Bumping
	}
	who := txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	fresh := s.freshProducerID(ctx)
	outcome, err := s.stepTxn(ctx, req.TransactionalID, existing(func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
		id, err := fresh(version >= txn.Bumping && cur.Exhausted())
		if err != nil {
			return nil, err
		}
		return cur.End(now, who, req.Commit, version, id)
	}))
	if err == nil {
		err = outcome.reason
	}
	if err == nil {
		is := outcome.txn.Answer()
		resp.ProducerID, resp.ProducerEpoch = is.ID, is.Epoch
		s.txnMetrics.ended(req.Commit)
	}
	resp.ErrorCode = txnCode(err).fencedBefore(r.Version, 2).int16()
	return resp, nil
}
