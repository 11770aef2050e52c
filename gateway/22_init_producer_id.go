// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// producerIDs hands out ids from a block that belongs to this process alone. What is left of a block at the end is lost: ids are
// never given twice.
type producerIDs struct {
	// turn is held while a block is fetched: all who need one wait for the same. It is no mutex, so that a wait for the metadata
	// store ends with the request.
	turn chan struct{}
	next int64
	left int64
}

func newProducerIDs() producerIDs { return producerIDs{turn: make(chan struct{}, 1)} }

func (p *producerIDs) take(ctx context.Context, meta *metadata.Store) (int64, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if p.left == 0 {
		first, n, err := meta.AllocateProducerIDs(ctx)
		if err != nil {
			return 0, err
		}
		p.next, p.left = first, n
	}
	id := p.next
	p.next++
	p.left--
	return id, nil
}

// freshProducerID takes a producer id when it is first needed.
func (s *Server) freshProducerID(ctx context.Context) func(needed bool) (int64, error) {
	id := record.NoProducerID
	return func(needed bool) (_ int64, err error) {
		if needed && id == record.NoProducerID {
			id, err = s.producerIDs.take(ctx, s.meta)
		}
		return id, err
	}
}

// initProducerID gives an idempotent producer an id, and a transactional one that of its transactional id, which it then has for itself.
func (s *Server) initProducerID(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	code := codeNone
	switch {
	case (req.ProducerID == -1) != (req.ProducerEpoch == -1):
		code = codeInvalidRequest // KIP-360: both or neither
	case req.TransactionalID == nil:
		// Whatever id it had, an idempotent producer gets a fresh one: nothing ties its old sequences to it.
		id, err := s.producerIDs.take(ctx, s.meta)
		if err != nil {
			code = codeCoordinatorLoadInProgress // as Kafka without a block: the client asks again
			break
		}
		resp.ProducerID, resp.ProducerEpoch = id, 0
	case *req.TransactionalID == "":
		code = codeInvalidRequest
	case req.TransactionTimeoutMillis <= 0 || int64(req.TransactionTimeoutMillis) > s.broker.Config().TransactionMaxTimeout.Milliseconds():
		code = codeInvalidTransactionTimeout
	default:
		var is txn.Producer
		is, code = s.initTransactional(ctx, req)
		resp.ProducerID, resp.ProducerEpoch = is.ID, is.Epoch
		code = code.fencedBefore(r.Version, 4)
	}
	resp.ErrorCode = code.int16()
	return resp, nil
}

func (s *Server) initTransactional(ctx context.Context, req *kmsg.InitProducerIDRequest) (txn.Producer, Code) {
	who := txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	timeout := time.Duration(req.TransactionTimeoutMillis) * time.Millisecond
	fresh := s.freshProducerID(ctx)
	outcome, err := s.stepTxn(ctx, *req.TransactionalID, func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
		id, err := fresh(cur == nil || cur.Exhausted())
		switch {
		case err != nil:
			return nil, err
		case cur == nil:
			return txn.New(now, id, timeout), nil
		}
		return cur.Init(now, who, timeout, id)
	})
	if err == nil {
		err = outcome.reason
	}
	if err != nil {
		return txn.Nobody, txnCode(err)
	}
	return outcome.txn.Answer(), codeNone
}
