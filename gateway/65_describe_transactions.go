// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// describeTransactions tells what transactional ids that this node coordinates have come to.
func (s *Server) describeTransactions(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	img := s.meta.Image()
	for _, id := range req.TransactionalIDs {
		resp.TransactionStates = append(resp.TransactionStates, s.describeTransaction(img, id))
	}
	return resp, nil
}

func (s *Server) describeTransaction(img *metadata.Image, id string) kmsg.DescribeTransactionsResponseTransactionState {
	out := kmsg.NewDescribeTransactionsResponseTransactionState()
	out.TransactionalID, out.StartTimestamp, out.ProducerID, out.ProducerEpoch = id, -1, record.NoProducerID, txn.NoEpoch
	t, err := s.groups.findTxn(id)
	if err != nil {
		out.ErrorCode = txnCode(err).int16()
		return out
	}
	is := t.look(id)
	if is == nil {
		out.ErrorCode = codeTransactionalIDNotFound.int16()
		return out
	}
	out.State, out.TimeoutMillis = is.State.String(), int32(is.Timeout.Milliseconds())
	out.ProducerID, out.ProducerEpoch = is.ID, is.Epoch
	if !is.Started.IsZero() {
		out.StartTimestamp = is.Started.UnixMilli()
	}
	for _, p := range is.Partitions {
		name := topicName(img, p.Topic)
		if name == "" {
			continue // deleted meanwhile
		}
		if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != name {
			topic := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			topic.Topic = name
			out.Topics = append(out.Topics, topic)
		}
		topic := &out.Topics[len(out.Topics)-1]
		topic.Partitions = append(topic.Partitions, p.Index)
	}
	return out
}
