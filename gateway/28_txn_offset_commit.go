// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// Versions of TxnOffsetCommit that change what a code means, or what is done.
const (
	txnCommitAbortable = 4
	txnCommitAdds      = 5 // the client does not make the group part of the transaction itself
	txnCommitTopicIDs  = 6
)

// txnOffsetCommit stores offsets that a transaction commits, until it ends.
func (s *Server) txnOffsetCommit(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.TxnOffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	c := txnCommit{
		id: req.TransactionalID, who: txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}, group: req.Group, addGroup: r.Version >= txnCommitAdds,
		member: group.Committer{MemberID: req.MemberID, Instance: req.InstanceID, Generation: group.Generation(req.Generation)},
	}
	if r.Version < 3 {
		c.member = group.Committer{Generation: -1}
	}
	resp.Topics = s.gatherTxnOffsets(ctx, r.Version, req, &c)
	code := codeNone
	switch {
	case c.group == "":
		code = codeInvalidGroupID
	case c.id == "" || len(c.id) > maxTxnID:
		code = codeInvalidRequest
	case len(c.topics) > 0:
		code = txnCommitCode(s.pendOffsets(ctx, &c), r.Version)
	}
	for i := range resp.Topics {
		for k := range resp.Topics[i].Partitions {
			if p := &resp.Topics[i].Partitions[k]; p.ErrorCode == 0 {
				p.ErrorCode = code.int16()
			}
		}
	}
	return resp, nil
}

// txnCommitCode is the code of a commit's error, in the words that clients of the version know.
func txnCommitCode(err error, version int16) Code {
	var refused *refusal
	code := txnCode(err)
	if errors.As(err, &refused) {
		code = refused.code
	}
	switch {
	case code == codeProducerFenced:
		return codeInvalidProducerEpoch
	case code == codeTransactionAbortable && version < txnCommitAbortable:
		return codeInvalidTxnState
	case code == codeGroupIDNotFound && version < txnCommitTopicIDs:
		return codeIllegalGeneration // what clients of that time know
	case code == codeCoordinatorLoadInProgress && version < 2:
		return codeCoordinatorNotAvailable // producers before 2.0 end on the other one
	}
	return code
}

// gatherTxnOffsets finds what is to be committed, and answers for what cannot be.
func (s *Server) gatherTxnOffsets(ctx context.Context, version int16, req *kmsg.TxnOffsetCommitRequest, c *txnCommit) (out []kmsg.TxnOffsetCommitResponseTopic) {
	now := metadata.MillisOf(time.Now())
	maxMetadata, partitions := s.broker.Config().OffsetMetadataMaxBytes, 0
	find := s.offsetTopics(ctx)
	for i := range req.Topics {
		t := kmsg.NewTxnOffsetCommitResponseTopic()
		t.Topic, t.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		topic, code := find.topic(version >= txnCommitTopicIDs, t.Topic, t.TopicID)
		var list []metadata.CommittedOffset
		for k := range req.Topics[i].Partitions {
			in := &req.Topics[i].Partitions[k]
			p := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			o := metadata.CommittedOffset{Partition: in.Partition, Offset: record.Offset(in.Offset), LeaderEpoch: record.Epoch(in.LeaderEpoch), Committed: now}
			if in.Metadata != nil {
				o.Metadata = *in.Metadata
			}
			why := code
			partitions++
			switch {
			case why != codeNone:
			case partitions > maxCommitPartitions:
				why = codeInvalidRequest
			case o.Partition < 0 || int(o.Partition) >= len(topic.Partitions):
				why = codeUnknownTopicOrPartition
			case len(o.Metadata) > maxMetadata:
				why = codeOffsetMetadataTooLarge
			default:
				list = append(list, o)
			}
			p.Partition, p.ErrorCode = in.Partition, why.int16()
			t.Partitions = append(t.Partitions, p)
		}
		if len(list) > 0 {
			slices.SortStableFunc(list, func(a, b metadata.CommittedOffset) int { return cmp.Compare(a.Partition, b.Partition) })
			c.topics = append(c.topics, metadata.TopicOffsets{Topic: topic.ID, List: list})
		}
		out = append(out, t)
	}
	return out
}
