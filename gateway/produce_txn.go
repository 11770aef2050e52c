// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"strings"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/record"
)

// verifyTxns asks the coordinator about the partitions on which the request would begin a transaction, all of them at once, and refuses the
// batches that it does not confirm. The connection reads nothing meanwhile: what its producer sends next comes after.
func (s *Server) verifyTxns(ctx context.Context, c *call) {
	pc := c.produce
	var asked []*producePart
	for i := range pc.parts {
		part := &pc.parts[i]
		if part.superseded || part.code != codeNone || !part.batch.IsTransactional() {
			continue
		}
		if part.guard = part.p.GuardTxn(part.batch); part.guard != nil {
			asked = append(asked, part)
		}
	}
	if len(asked) == 0 {
		return
	}
	began := c.clock()
	for len(asked) > 0 {
		asked = s.verifyEpoch(ctx, c, asked)
	}
	c.busy -= c.since(began)
}

// verifyEpoch asks about the batches of one producer epoch, that of the first, and returns the others: there are none but of broken clients.
func (s *Server) verifyEpoch(ctx context.Context, c *call, asked []*producePart) (others []*producePart) {
	first := asked[0].batch
	q := &broker.TxnQuestion{
		TransactionalID: strings.Clone(c.produce.txnID), ProducerID: first.ProducerID(), ProducerEpoch: first.ProducerEpoch(),
		Add: c.Version >= produceAdds, Partitions: make([]record.PartitionID, 0, len(asked)),
	}
	same := asked[:0:0]
	for _, part := range asked {
		if part.batch.ProducerEpoch() != q.ProducerEpoch {
			others = append(others, part)
			continue
		}
		same = append(same, part)
		q.Partitions = append(q.Partitions, part.p.ID())
	}
	verdicts := s.broker.VerifyTxn(ctx, q)
	for i, part := range same {
		err := broker.ErrTxnUnavailable
		if i < len(verdicts) {
			err = verdicts[i].Err
			part.verified = verdicts[i].Revision
		}
		part.code = verifyCode(err, c.Version)
	}
	return others
}

// verifyCode is what a coordinator's refusal is to a producer. Whatever is not a verdict on the transaction it sends again.
func verifyCode(err error, version int16) Code {
	switch code := produceCode(err, version); code {
	case codeNone, codeInvalidTxnState, codeTransactionAbortable, codeInvalidProducerEpoch, codeInvalidProducerIDMapping:
		return code
	default:
		return codeNotEnoughReplicas
	}
}
