// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
)

// describeTopicPartitions answers topics in the order of their names, at most so many partitions at a time, and where to go on.
func (s *Server) describeTopicPartitions(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	img := s.meta.Image()
	names := askedTopics(img, req)
	from := int32(0)
	if c := req.Cursor; c != nil {
		at, found := slices.BinarySearch(names, c.Topic)
		if c.Partition < 0 || (!found && len(req.Topics) > 0) {
			for _, name := range names {
				resp.Topics = append(resp.Topics, failedTopic(name, codeInvalidRequest, operationsNotAsked))
			}
			return resp, nil
		}
		if names = names[at:]; found {
			from = c.Partition
		}
	}
	left := max(1, min(int(req.ResponsePartitionLimit), s.broker.Config().MaxPartitionsPerDescribe))
	for _, name := range names {
		t := img.Topic(name)
		if t == nil || t.Deleting {
			code := codeUnknownTopicOrPartition
			if checkTopicName(name) != nil {
				code = codeInvalidTopic
			}
			resp.Topics = append(resp.Topics, failedTopic(name, code, topicOperations))
			from = 0
			continue
		}
		if left == 0 {
			resp.NextCursor = cursorAt(name, from)
			break
		}
		end := min(int64(len(t.Partitions)), int64(from)+int64(left))
		resp.Topics = append(resp.Topics, describedTopic(img, t, from, int32(end), r.Listener))
		left -= max(0, int(end)-int(from))
		if int(end) < len(t.Partitions) {
			resp.NextCursor = cursorAt(name, int32(end))
			break
		}
		from = 0
	}
	return resp, nil
}

// askedTopics are the names asked for, all when none is, sorted and each once.
func askedTopics(img *metadata.Image, req *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	for i := range req.Topics {
		names = append(names, req.Topics[i].Topic)
	}
	if len(req.Topics) == 0 {
		for t := range img.Topics() {
			if !t.Deleting {
				names = append(names, t.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func cursorAt(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}

func failedTopic(name string, code Code, operations int32) kmsg.DescribeTopicPartitionsResponseTopic {
	t := kmsg.NewDescribeTopicPartitionsResponseTopic()
	t.Topic, t.ErrorCode, t.IsInternal, t.AuthorizedOperations = &name, code.int16(), internalTopics[name], operations
	t.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	return t
}

// describedTopic is a topic with its partitions in [from, end).
func describedTopic(img *metadata.Image, t *metadata.Topic, from, end int32, listener string) kmsg.DescribeTopicPartitionsResponseTopic {
	out := failedTopic(t.Name, codeNone, topicOperations)
	out.TopicID = t.ID
	for i := from; i < end; i++ {
		d := describePartition(img, t, i, listener)
		p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		p.Partition, p.ErrorCode, p.LeaderID, p.LeaderEpoch = i, d.code.int16(), int32(d.leader), int32(d.epoch)
		p.Replicas, p.ISR, p.OfflineReplicas = d.replicas, d.isr, d.offline
		p.EligibleLeaderReplicas, p.LastKnownELR = d.elr, []int32{}
		out.Partitions = append(out.Partitions, p)
	}
	return out
}
