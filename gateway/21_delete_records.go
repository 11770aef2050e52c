// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// deleteRecords moves the log start of partitions that this node leads. An answer without error is durable.
func (s *Server) deleteRecords(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	ctx, cancel := adminDeadline(ctx, req.TimeoutMillis)
	defer cancel()
	by, _ := ctx.Deadline()
	if wait := time.Now().Add(roleWait); wait.Before(by) {
		by = wait
	}
	img := s.awaitRoles(ctx, by, func(l *roleLook) {
		for i := range req.Topics {
			t := l.img.Topic(req.Topics[i].Topic)
			for j := range req.Topics[i].Partitions {
				l.see(t, req.Topics[i].Partitions[j].Partition, broker.Need{Epoch: record.NoEpoch, Latest: true})
			}
		}
	})
	var g errgroup.Group
	g.SetLimit(maxParallelChanges)
	resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(in.Partitions))
		for j := range in.Partitions {
			p, res := &in.Partitions[j], &out.Partitions[j]
			res.Default()
			res.Partition = p.Partition
			g.Go(func() error {
				low, err := s.deletePartitionRecords(ctx, img, in.Topic, p)
				code, _ := s.adminCode("deleting records of "+in.Topic, err)
				res.LowWatermark, res.ErrorCode = int64(low), code.int16()
				return nil
			})
		}
	}
	_ = g.Wait()
	return resp, nil
}

func (s *Server) deletePartitionRecords(ctx context.Context, img *metadata.Image, topic string, p *kmsg.DeleteRecordsRequestTopicPartition) (record.Offset, error) {
	t := s.topicNamed(img, topic)
	if t == nil {
		return record.NoOffset, refuse(codeUnknownTopicOrPartition, "no topic %q", topic)
	}
	part, code := s.partition(img, t, p.Partition)
	if code != codeNone {
		return record.NoOffset, refuse(code, "partition %d of topic %q is not led here", p.Partition, topic)
	}
	if p.Offset < -1 {
		return record.NoOffset, refuse(codeOffsetOutOfRange, "offset %d: it must be at least 0, or -1 for the high watermark", p.Offset)
	}
	low, err := part.DeleteRecords(ctx, record.Offset(p.Offset))
	if err != nil {
		return record.NoOffset, err
	}
	return low, nil
}
