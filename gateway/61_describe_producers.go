// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
)

// describeProducers answers which idempotent producers the leaders of partitions know, and where their open transactions begin.
func (s *Server) describeProducers(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	img := s.awaitRoles(ctx, time.Now().Add(roleWait), func(l *roleLook) {
		for i := range req.Topics {
			t := l.img.Topic(req.Topics[i].Topic)
			for _, index := range req.Topics[i].Partitions {
				l.see(t, index, anyLeader)
			}
		}
	})
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewDescribeProducersResponseTopic()
		out.Topic = t.Topic
		for _, index := range t.Partitions {
			p := kmsg.NewDescribeProducersResponseTopicPartition()
			p.Partition = index
			p.ActiveProducers = []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{}
			err := s.activeProducers(img, t.Topic, &p)
			code, message := s.adminCode("describing producers of "+t.Topic, err)
			p.ErrorCode, p.ErrorMessage = code.int16(), message
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

func (s *Server) activeProducers(img *metadata.Image, topic string, out *kmsg.DescribeProducersResponseTopicPartition) error {
	if err := checkTopicName(topic); err != nil {
		return err
	}
	ref := s.topicNamed(img, topic)
	if ref == nil {
		return refuse(codeUnknownTopicOrPartition, "no topic %q", topic)
	}
	p, code := s.partition(img, ref, out.Partition)
	if code != codeNone {
		return refuse(code, "partition %d of %q is not led here", out.Partition, topic)
	}
	all, err := p.Producers()
	for _, known := range all {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp = known.ID, int32(known.Epoch), known.LastSequence, known.LastUsed
		a.CoordinatorEpoch, a.CurrentTxnStartOffset = known.CoordinatorEpoch, int64(known.TxnStart)
		out.ActiveProducers = append(out.ActiveProducers, a)
	}
	return err
}
