// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// addPartitionsBatched is the version from which on the request is one of a partition's leader, for several transactions.
const addPartitionsBatched = 4

// addPartitionsToTxn makes partitions part of transactions. Clients send it before they produce; later ones leave it to the partitions' leaders.
func (s *Server) addPartitionsToTxn(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AddPartitionsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if r.Version < addPartitionsBatched {
		resp.Topics = s.addClientPartitions(ctx, r.Version, req)
		return resp, nil
	}
	if !s.fromPeer(r) {
		resp.ErrorCode = codeClusterAuthorizationFailed.int16()
		return resp, nil
	}
	resp.Transactions = make([]kmsg.AddPartitionsToTxnResponseTransaction, len(req.Transactions))
	var g errgroup.Group
	g.SetLimit(maxTxnBatch)
	for i := range req.Transactions {
		g.Go(func() error {
			resp.Transactions[i] = s.addLeaderPartitions(ctx, &req.Transactions[i])
			return nil
		})
	}
	return resp, g.Wait()
}

// addClientPartitions is the request as clients send it: all or nothing.
func (s *Server) addClientPartitions(ctx context.Context, version int16, req *kmsg.AddPartitionsToTxnRequest) (out []kmsg.AddPartitionsToTxnResponseTopic) {
	partitions, refused := s.txnPartitions(ctx, req)
	code := codeOperationNotAttempted
	if len(refused) == 0 {
		who := txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
		outcome, err := s.stepTxn(ctx, req.TransactionalID, existing(func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
			return cur.Add(now, who, txn.Classic, partitions)
		}))
		if err == nil {
			err = outcome.reason
		}
		code = txnCode(err).fencedBefore(version, 2)
	}
	for i := range req.Topics {
		t := kmsg.NewAddPartitionsToTxnResponseTopic()
		t.Topic = req.Topics[i].Topic
		for _, index := range req.Topics[i].Partitions {
			p := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			p.Partition, p.ErrorCode = index, code.int16()
			if why, ok := refused[namedPartition{t.Topic, index}]; ok {
				p.ErrorCode = why.int16()
			}
			t.Partitions = append(t.Partitions, p)
		}
		out = append(out, t)
	}
	return out
}

type namedPartition struct {
	topic string
	index int32
}

// txnPartitions finds the partitions that a client names, and those that there are not.
func (s *Server) txnPartitions(ctx context.Context, req *kmsg.AddPartitionsToTxnRequest) (list []record.PartitionID, refused map[namedPartition]Code) {
	refused = map[namedPartition]Code{}
	find := s.offsetTopics(ctx)
	for i := range req.Topics {
		name := req.Topics[i].Topic
		topic, code := find.topic(false, name, record.TopicID{})
		if code == codeNone && internalTopics[name] {
			code = codeTopicAuthorizationFailed
		}
		for _, index := range req.Topics[i].Partitions {
			switch {
			case code != codeNone:
				refused[namedPartition{name, index}] = code
			case index < 0 || int(index) >= len(topic.Partitions):
				refused[namedPartition{name, index}] = codeUnknownTopicOrPartition
			case len(list) >= maxTxnPartitions:
				refused[namedPartition{name, index}] = codeInvalidRequest
			default:
				list = append(list, record.PartitionID{Topic: topic.ID, Index: index})
			}
		}
	}
	return list, refused
}

// addLeaderPartitions is what the leader of partitions asks for: a code for each.
func (s *Server) addLeaderPartitions(ctx context.Context, req *kmsg.AddPartitionsToTxnRequestTransaction) kmsg.AddPartitionsToTxnResponseTransaction {
	out := kmsg.NewAddPartitionsToTxnResponseTransaction()
	out.TransactionalID = req.TransactionalID
	who := txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	var list []record.PartitionID
	for i := range req.Topics {
		for _, index := range req.Topics[i].Partitions {
			list = append(list, record.PartitionID{Topic: topicTagOf(&req.Topics[i].UnknownTags), Index: index})
		}
	}
	var verdicts []error
	outcome, err := s.stepTxn(ctx, req.TransactionalID, existing(func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
		if !req.VerifyOnly {
			return cur.Add(now, who, txn.Bumping, list)
		}
		verdicts = verdicts[:0]
		for _, p := range list {
			verdicts = append(verdicts, cur.Verify(who, p))
		}
		return nil, nil
	}))
	if err == nil {
		err = outcome.reason
	}
	n := 0
	for i := range req.Topics {
		t := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
		t.Topic = req.Topics[i].Topic
		for _, index := range req.Topics[i].Partitions {
			p := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
			verdict := err
			if err == nil && n < len(verdicts) {
				verdict = verdicts[n]
			}
			n++
			p.Partition, p.ErrorCode = index, txnCode(verdict).int16()
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	if at := confirmed(&outcome); at != 0 {
		out.UnknownTags.Set(revisionTag, appendRevision(at))
	}
	return out
}

// confirmed is the revision that a leader is told: at which its partitions were part of the open transaction, or of the decision that ended it.
func confirmed(o *txnOutcome) metadata.Revision {
	if o.txn != nil && o.txn.State.Prepared() {
		return o.rev
	}
	return o.at
}
