// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// offsetFetch reads committed offsets, always from the store: this node may have lost the group and not know it.
func (s *Server) offsetFetch(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.OffsetFetchRequest)
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if r.Version < 8 {
		s.oldOffsetFetch(ctx, r.Version, req, resp)
		return resp, nil
	}
	resp.Groups = make([]kmsg.OffsetFetchResponseGroup, len(req.Groups))
	var g errgroup.Group
	g.SetLimit(maxFetchGroups)
	for i := range req.Groups {
		g.Go(func() error {
			resp.Groups[i] = s.fetchGroup(ctx, r.Version, req.RequireStable, &req.Groups[i])
			return nil
		})
	}
	_ = g.Wait()
	return resp, nil
}

// oldOffsetFetch answers the versions for one group. Those before 2 say what is wrong per partition only.
func (s *Server) oldOffsetFetch(ctx context.Context, version int16, req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse) {
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group = req.Group
	if req.Topics != nil {
		one.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for i := range req.Topics {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = req.Topics[i].Topic, req.Topics[i].Partitions
		one.Topics = append(one.Topics, t)
	}
	got := s.fetchGroup(ctx, version, req.RequireStable, &one)
	resp.ErrorCode = got.ErrorCode
	if got.ErrorCode != 0 && version < 2 {
		for i := range one.Topics {
			t := kmsg.NewOffsetFetchResponseGroupTopic()
			t.Topic = one.Topics[i].Topic
			for _, index := range one.Topics[i].Partitions {
				p := noOffset(index)
				p.ErrorCode = got.ErrorCode
				t.Partitions = append(t.Partitions, p)
			}
			got.Topics = append(got.Topics, t)
		}
	}
	for i := range got.Topics {
		t := kmsg.NewOffsetFetchResponseTopic()
		t.Topic = got.Topics[i].Topic
		for _, p := range got.Topics[i].Partitions {
			t.Partitions = append(t.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		resp.Topics = append(resp.Topics, t)
	}
}

// noOffset is the answer for a partition of which nothing is committed.
func noOffset(partition int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = partition, -1, -1, kmsg.StringPtr("")
	return p
}

func (s *Server) fetchGroup(ctx context.Context, version int16, stable bool, req *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = req.Group
	var topics []record.TopicID
	if req.Topics != nil {
		topics = []record.TopicID{}
	}
	find, asked := s.offsetTopics(ctx), map[record.TopicID]bool{}
	codes := make([]Code, len(req.Topics))
	ids := make([]record.TopicID, len(req.Topics))
	for i := range req.Topics {
		t, code := find.topic(version >= 10, req.Topics[i].Topic, req.Topics[i].TopicID)
		switch {
		case t != nil:
			ids[i] = t.ID
			if !asked[t.ID] {
				asked[t.ID] = true
				topics = append(topics, t.ID)
			}
		case code != codeUnknownTopicOrPartition: // nothing is committed for a name that does not exist, which is no error
			codes[i] = code
		}
	}
	err := s.mayFetch(ctx, version, req)
	// What is pending first: what is not stable now may be when the offsets are read, and those are the newer ones then.
	var unstable []metadata.PendingOffsets
	if err == nil && stable {
		unstable, err = s.readPending(ctx, req.Group)
	}
	var found map[record.TopicID][]metadata.CommittedOffset
	if err == nil {
		found, err = s.readOffsets(ctx, req.Group, topics)
	}
	if err != nil {
		code := groupCode(err)
		if code == codeCoordinatorNotAvailable {
			code = codeCoordinatorLoadInProgress // the one that every client retries here
		}
		resp.ErrorCode = code.int16()
		return resp
	}
	if req.Topics == nil {
		resp.Topics = s.allOffsets(found, unstable)
		return resp
	}
	for i := range req.Topics {
		t := kmsg.NewOffsetFetchResponseGroupTopic()
		t.Topic, t.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		for _, index := range req.Topics[i].Partitions {
			p := noOffset(index)
			p.ErrorCode = codes[i].int16()
			if o := offsetOf(found[ids[i]], index); o != nil && codes[i] == codeNone {
				p = offsetAnswer(o)
			}
			if codes[i] == codeNone && isPending(unstable, ids[i], index) {
				p = unstableOffset(index)
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// mayFetch asks the coordinator about who says that it is a member: offsets for an epoch that is over would be taken for the newest.
func (s *Server) mayFetch(ctx context.Context, version int16, req *kmsg.OffsetFetchRequestGroup) error {
	if version < 9 || req.MemberID == nil && req.MemberEpoch < 0 {
		return nil
	}
	sh, err := s.groups.find(req.Group)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, groupWait)
	defer cancel()
	answer, err := ask(ctx, sh, func(_ time.Time, reply func(error)) {
		if e := sh.groups[req.Group]; e != nil && e.c != nil {
			reply(e.c.MayFetch(req.MemberID, req.MemberEpoch))
			return
		}
		reply(nil)
	})
	return errors.Join(err, answer)
}

func (s *Server) readOffsets(ctx context.Context, id string, topics []record.TopicID) (map[record.TopicID][]metadata.CommittedOffset, error) {
	sh, err := s.groups.find(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, groupWait)
	defer cancel()
	if err := s.groups.reads.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.groups.reads.Release(1)
	chunks, err := s.meta.ReadOffsets(ctx, sh.co, id, topics)
	if err != nil {
		return nil, err
	}
	found := map[record.TopicID][]metadata.CommittedOffset{}
	for i := range chunks {
		found[chunks[i].Topic] = append(found[chunks[i].Topic], chunks[i].List...)
	}
	for _, list := range found {
		slices.SortFunc(list, func(a, b metadata.CommittedOffset) int { return cmp.Compare(a.Partition, b.Partition) })
	}
	return found, nil
}

func offsetOf(list []metadata.CommittedOffset, partition int32) *metadata.CommittedOffset {
	i, ok := slices.BinarySearchFunc(list, partition, func(o metadata.CommittedOffset, p int32) int { return cmp.Compare(o.Partition, p) })
	if !ok {
		return nil
	}
	return &list[i]
}

func offsetAnswer(o *metadata.CommittedOffset) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = o.Partition, int64(o.Offset), int32(o.LeaderEpoch), &o.Metadata
	return p
}

// allOffsets answers for every topic that the group has offsets of, as far as it still exists.
func (s *Server) allOffsets(found map[record.TopicID][]metadata.CommittedOffset, unstable []metadata.PendingOffsets) (out []kmsg.OffsetFetchResponseGroupTopic) {
	img := s.meta.Image()
	for i := range unstable { // what a group commits first may be pending
		for k := range unstable[i].Topics {
			topic := &unstable[i].Topics[k]
			for _, o := range topic.List {
				if offsetOf(found[topic.Topic], o.Partition) == nil {
					at, _ := slices.BinarySearchFunc(found[topic.Topic], o.Partition, func(a metadata.CommittedOffset, p int32) int { return cmp.Compare(a.Partition, p) })
					found[topic.Topic] = slices.Insert(found[topic.Topic], at, o)
				}
			}
		}
	}
	for id, list := range found {
		topic := img.TopicByID(id)
		if topic == nil || topic.Deleting {
			continue
		}
		t := kmsg.NewOffsetFetchResponseGroupTopic()
		t.Topic, t.TopicID = topic.Name, id
		for i := range list {
			p := offsetAnswer(&list[i])
			if isPending(unstable, id, p.Partition) {
				p = unstableOffset(p.Partition)
			}
			t.Partitions = append(t.Partitions, p)
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b kmsg.OffsetFetchResponseGroupTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return out
}
