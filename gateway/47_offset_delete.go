// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// offsetDelete deletes committed offsets of partitions that no member of the group reads.
func (s *Server) offsetDelete(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.OffsetDeleteRequest)
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	var topics []*metadata.Topic
	find := s.offsetTopics(ctx)
	for i := range req.Topics {
		t := kmsg.NewOffsetDeleteResponseTopic()
		t.Topic = req.Topics[i].Topic
		topic, code := find.topic(false, t.Topic, record.TopicID{})
		topics = append(topics, topic)
		for k := range req.Topics[i].Partitions {
			p := kmsg.NewOffsetDeleteResponseTopicPartition()
			p.Partition, p.ErrorCode = req.Topics[i].Partitions[k].Partition, code.int16()
			if code == codeNone && (p.Partition < 0 || int(p.Partition) >= len(topic.Partitions)) {
				p.ErrorCode = codeUnknownTopicOrPartition.int16()
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	var wanted []offsetDeletion
	for i, t := range topics {
		if t == nil {
			continue
		}
		d := offsetDeletion{topic: t.Name, id: t.ID}
		for _, p := range resp.Topics[i].Partitions {
			if p.ErrorCode == 0 {
				d.partitions = append(d.partitions, p.Partition)
				d.edits = append(d.edits, chunkEdit{id: metadata.ChunkOf(t.ID, p.Partition), drop: []int32{p.Partition}})
			}
		}
		wanted = append(wanted, d)
	}
	refused, err := s.deleteOffsets(ctx, req.Group, wanted)
	if err != nil {
		resp.Topics, resp.ErrorCode = nil, groupCode(err).int16()
		return resp, nil
	}
	for i := range resp.Topics {
		for k := range resp.Topics[i].Partitions {
			if p := &resp.Topics[i].Partitions[k]; p.ErrorCode == 0 && refused[resp.Topics[i].Topic] {
				p.ErrorCode = codeGroupSubscribedToTopic.int16()
			}
		}
	}
	return resp, nil
}

// offsetDeletion is what is to be deleted of one topic.
type offsetDeletion struct {
	topic      string
	id         record.TopicID
	partitions []int32
	edits      []chunkEdit
}

// deleteOffsets has the coordinator delete offsets. refused are the topics that members read.
func (s *Server) deleteOffsets(ctx context.Context, id string, wanted []offsetDeletion) (refused map[string]bool, err error) {
	sh, err := s.groups.find(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, groupWait)
	defer cancel()
	type result struct {
		refused map[string]bool
		err     error
	}
	d := &pendingDeletion{group: id, partitions: map[record.TopicID][]int32{}}
	answer, err := ask(ctx, sh, func(now time.Time, reply func(result)) {
		d.until = sh.stamped
		e := sh.groups[id]
		if e == nil {
			reply(result{err: group.ErrNotFound})
			return
		}
		active := !e.empty()
		if active && e.protocolType() != consumerProtocol {
			reply(result{err: group.ErrNotEmpty})
			return
		}
		reads, known := sh.subscribed(e, now)
		refused := map[string]bool{}
		var edits []chunkEdit
		for _, w := range wanted {
			if active && (!known || reads(w.topic)) {
				refused[w.topic] = true
				continue
			}
			edits = append(edits, w.edits...)
		}
		if len(edits) == 0 {
			reply(result{refused: refused})
			return
		}
		sh.change(e, &offsetChange{edits: edits, reply: func(err error) { reply(result{refused, err}) }})
	})
	for _, w := range wanted {
		if !answer.refused[w.topic] {
			d.partitions[w.id] = append(d.partitions[w.id], w.partitions...)
		}
	}
	return answer.refused, sh.deletePending(ctx, d, errors.Join(err, answer.err))
}
