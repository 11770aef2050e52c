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

// beginOffsetCommit hands offsets of a group to its coordinator, for its members or, while it has none, for whoever names it. Commits of
// a connection reach it in their order, and it does not wait for one before it takes the next.
func (s *Server) beginOffsetCommit(ctx context.Context, r *Request) *begun {
	req := r.Body.(*kmsg.OffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	c := commitRequest{maxMetadata: s.broker.Config().OffsetMetadataMaxBytes}
	find := s.offsetTopics(ctx)
	if r.Version <= 4 && req.RetentionTimeMillis >= 0 {
		c.expires = metadata.MillisOf(time.Now().Add(time.Duration(req.RetentionTimeMillis) * time.Millisecond))
	}
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t := &resp.Topics[i]
		t.Topic, t.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		topic, code := find.topic(r.Version >= 10, t.Topic, t.TopicID)
		t.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(req.Topics[i].Partitions))
		for k := range t.Partitions {
			p := &t.Partitions[k]
			p.Partition = req.Topics[i].Partitions[k].Partition
			p.ErrorCode = code.int16()
			if code == codeNone {
				p.ErrorCode = c.add(topic, &req.Topics[i].Partitions[k], len(t.Partitions)-k).int16()
			}
		}
	}
	who := group.Committer{MemberID: req.MemberID, Instance: req.InstanceID, Generation: group.Generation(req.Generation), OldVersion: r.Version < 9}
	outcome, ready := s.beginCommit(ctx, req.Group, who, c.edits)
	return &begun{ready, func() (kmsg.Response, error) {
		code := groupCode(outcome())
		if code == codeGroupIDNotFound && r.Version < 9 {
			code = codeIllegalGeneration // what clients of that time know
		}
		if code != codeNone {
			failCommit(resp, code)
		}
		return resp, nil
	}}
}

// failCommit gives the code to every partition that has none.
func failCommit(resp *kmsg.OffsetCommitResponse, code Code) {
	for i := range resp.Topics {
		for k := range resp.Topics[i].Partitions {
			if p := &resp.Topics[i].Partitions[k]; p.ErrorCode == 0 {
				p.ErrorCode = code.int16()
			}
		}
	}
}

// offsetTopics finds the topics of one OffsetCommit, OffsetFetch or OffsetDelete. The image tells most; for what it does not show the
// store is asked, but not for any number of names that do not exist.
type offsetTopics struct {
	s    *Server
	ctx  context.Context
	img  *metadata.Image
	left int
}

func (s *Server) offsetTopics(ctx context.Context) *offsetTopics {
	return &offsetTopics{s: s, ctx: ctx, img: s.meta.Image(), left: maxOffsetLookups}
}

func (o *offsetTopics) topic(byID bool, name string, id record.TopicID) (*metadata.Topic, Code) {
	var t *metadata.Topic
	unknown := codeUnknownTopicOrPartition
	if byID {
		t, unknown = o.img.TopicByID(id), codeUnknownTopicID
	} else {
		t = o.img.Topic(name)
	}
	if t != nil && !t.Deleting {
		return t, codeNone
	}
	if o.left--; o.left < 0 {
		return nil, unknown
	}
	var err error
	if byID {
		t, err = o.s.findTopicByID(o.ctx, id)
	} else {
		t, err = o.s.findTopic(o.ctx, name)
	}
	if err != nil {
		code, _ := o.s.adminCode("finding a topic", err)
		if code == codeRequestTimedOut {
			code = codeCoordinatorNotAvailable // what clients of these requests retry
		}
		return nil, code
	}
	return t, codeNone
}

// commitRequest gathers what a request commits, by key.
type commitRequest struct {
	expires     metadata.UnixMillis // 0: none
	maxMetadata int
	partitions  int
	edits       []chunkEdit
	at          map[metadata.ChunkID]int // where in edits, when there are several
}

// add takes a partition; left counts it and those of its topic that follow.
func (c *commitRequest) add(t *metadata.Topic, p *kmsg.OffsetCommitRequestTopicPartition, left int) Code {
	o := metadata.CommittedOffset{
		Partition: p.Partition, Offset: record.Offset(p.Offset), LeaderEpoch: record.Epoch(p.LeaderEpoch),
		Expires: c.expires,
	}
	if p.Metadata != nil {
		o.Metadata = *p.Metadata
	}
	if c.partitions++; c.partitions > maxCommitPartitions {
		return codeInvalidRequest
	}
	switch {
	case p.Partition < 0 || int(p.Partition) >= len(t.Partitions):
		return codeUnknownTopicOrPartition
	case len(o.Metadata) > c.maxMetadata:
		return codeOffsetMetadataTooLarge
	}
	edit := c.edit(metadata.ChunkOf(t.ID, p.Partition), min(left, metadata.OffsetsPerChunk))
	edit.set = append(edit.set, o)
	return codeNone
}

// edit is that of a key, with room for so many offsets when it is new. Partitions of a request usually come key by key.
func (c *commitRequest) edit(id metadata.ChunkID, room int) *chunkEdit {
	if n := len(c.edits); n > 0 && c.edits[n-1].id == id {
		return &c.edits[n-1]
	}
	i, ok := c.at[id]
	if !ok {
		i = len(c.edits)
		if i > 0 && c.at == nil {
			c.at = map[metadata.ChunkID]int{c.edits[0].id: 0}
		}
		if c.at != nil {
			c.at[id] = i
		}
		c.edits = append(c.edits, chunkEdit{id: id, set: make([]metadata.CommittedOffset, 0, room)})
	}
	return &c.edits[i]
}

// beginCommit hands a commit to the group's coordinator, which checks and stores it. outcome waits for that, ready tells
// that it is known.
func (s *Server) beginCommit(ctx context.Context, id string, who group.Committer, edits []chunkEdit) (outcome func() error, ready func() bool) {
	sh, err := s.groups.find(id)
	if err != nil {
		return func() error { return err }, func() bool { return true }
	}
	deadline := time.Now().Add(groupWait)
	answer, err := tell(sh, func(now time.Time, reply func(error)) {
		e := sh.groups[id]
		if e == nil && who.Generation >= 0 {
			reply(group.ErrNotFound)
			return
		}
		if e == nil {
			e = sh.entry(id, now)
		}
		at := sh.stamp(now, false)
		for i := range edits {
			for k := range edits[i].set {
				edits[i].set[k].Committed = at
			}
		}
		c := &offsetChange{who: &who, edits: edits, reply: reply}
		if err := e.allows(c); err != nil || len(edits) == 0 {
			reply(err)
			sh.forget(e)
			return
		}
		if e.c == nil {
			e.g.Commit(now, who)
		}
		sh.change(e, c)
	})
	return func() error {
		if err != nil {
			return err
		}
		said, err := hear(ctx, deadline, sh, answer)
		return errors.Join(err, said)
	}, func() bool { return err != nil || len(answer) > 0 }
}
