// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// offsetForLeaderEpoch tells where leader epochs end, so that clients and followers find where their log diverges. An epoch that
// nobody here knows is no error: the answer is (-1, -1).
func (s *Server) offsetForLeaderEpoch(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	img := s.awaitRoles(ctx, time.Now().Add(roleWait), func(l *roleLook) {
		for i := range req.Topics {
			t := l.img.Topic(req.Topics[i].Topic)
			for j := range req.Topics[i].Partitions {
				p := &req.Topics[i].Partitions[j]
				l.see(t, p.Partition, broker.Need{Epoch: record.Epoch(p.CurrentLeaderEpoch)})
			}
		}
	})
	resp.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic = t.Topic
		ref := s.topicNamed(img, t.Topic)
		out.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p, res := &t.Partitions[j], &out.Partitions[j]
			res.Default()
			res.Partition = p.Partition
			end, code := s.epochEnd(img, ref, p)
			res.LeaderEpoch, res.EndOffset, res.ErrorCode = int32(end.Epoch), int64(end.End), code.int16()
		}
	}
	return resp, nil
}

func (s *Server) epochEnd(img *metadata.Image, ref *topicRef, req *kmsg.OffsetForLeaderEpochRequestTopicPartition) (broker.EpochEnd, Code) {
	none := broker.EpochEnd{Epoch: record.NoEpoch, End: record.NoOffset}
	if ref == nil {
		return none, codeUnknownTopicOrPartition
	}
	p, code := s.partition(img, ref, req.Partition)
	if code != codeNone {
		return none, code
	}
	end, err := p.EndOffsetForEpoch(record.Epoch(req.LeaderEpoch), record.Epoch(req.CurrentLeaderEpoch))
	if err != nil {
		return none, codeOf(err)
	}
	return end, codeNone
}
