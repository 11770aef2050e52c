// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// Kinds of ElectLeaders.
const (
	electPreferred int8 = 0
	electUnclean   int8 = 1
)

// election is one partition that ElectLeaders is about.
type election struct {
	topic string
	id    record.PartitionID // Topic is zero: there is no such topic
	err   error
	wait  bool // the replica can lead and does not yet
}

// electLeaders answers when the preferred replicas lead. Leaders hand over to them by themselves as soon as they are in sync, so
// there is nothing to be asked for: the request only waits. An unclean election is made here, and waited for.
func (s *Server) electLeaders(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ElectLeadersRequest)
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	ctx, cancel := adminDeadline(ctx, req.TimeoutMillis)
	defer cancel()
	judge := func(_ context.Context, img *metadata.Image, e *election, waited bool) { judgePreferred(img, e, waited) }
	switch req.ElectionType {
	case electPreferred:
	case electUnclean:
		judge = s.judgeUnclean
	default:
		resp.ErrorCode = codeInvalidRequest.int16()
		return resp, nil
	}
	elections := s.elections(ctx, req.Topics)
	s.awaitElections(ctx, elections, func(img *metadata.Image, e *election, waited bool) { judge(ctx, img, e, waited) })
	resp.Topics = []kmsg.ElectLeadersResponseTopic{}
	for i := range elections {
		e := &elections[i]
		code, message := s.adminCode("electing a leader for "+e.topic, e.err)
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != e.topic {
			t := kmsg.NewElectLeadersResponseTopic()
			t.Topic = e.topic
			resp.Topics = append(resp.Topics, t)
		}
		if req.Topics == nil && code == codeElectionNotNeeded {
			continue // of all partitions only those are told that something was to be done for
		}
		p := kmsg.NewElectLeadersResponseTopicPartition()
		p.Partition, p.ErrorCode, p.ErrorMessage = e.id.Index, code.int16(), message
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return resp, nil
}

// elections are the partitions that a request names, all of them for nil.
func (s *Server) elections(ctx context.Context, topics []kmsg.ElectLeadersRequestTopic) (out []election) {
	if topics == nil {
		for t := range s.meta.Image().Topics() {
			for i := range t.Partitions {
				if !t.Deleting {
					out = append(out, election{topic: t.Name, id: record.PartitionID{Topic: t.ID, Index: int32(i)}})
				}
			}
		}
	}
	for i := range topics {
		t, err := s.findTopic(ctx, topics[i].Topic)
		for _, index := range topics[i].Partitions {
			e := election{topic: topics[i].Topic, id: record.PartitionID{Index: index}, err: err}
			if err == nil {
				e.id.Topic = t.ID
			}
			out = append(out, e)
		}
	}
	return out
}

// awaitElections judges each election, and again with every image as long as one of them waits.
func (s *Server) awaitElections(ctx context.Context, elections []election, judge func(*metadata.Image, *election, bool)) {
	again := false
	err := s.awaitImage(ctx, func(img *metadata.Image) bool {
		waiting := false
		for i := range elections {
			e := &elections[i]
			if again && !e.wait || e.err != nil {
				continue
			}
			judge(img, e, again)
			waiting = waiting || e.wait
		}
		again = true
		return !waiting
	})
	for i := range elections {
		if err != nil && elections[i].wait {
			elections[i].err = refuse(codeRequestTimedOut, "the replica to be elected does not lead yet: %v", err)
		}
	}
}

// judgePreferred decides what an election of the preferred replica comes to. waited: it was needed before.
func judgePreferred(img *metadata.Image, e *election, waited bool) {
	e.wait = false
	t := img.TopicByID(e.id.Topic)
	state, ok := img.Partition(e.id)
	if t == nil || t.Deleting || !ok {
		e.err = refuse(codeUnknownTopicOrPartition, "topic %q has no partition %d", e.topic, e.id.Index)
		return
	}
	preferred := t.Partitions[e.id.Index][0]
	leader, b := leaderOf(img, &state), img.Broker(preferred)
	_, inSync := state.ISR.Member(preferred)
	switch {
	case leader != nil && leader.Node == preferred && waited:
	case leader != nil && leader.Node == preferred:
		e.err = refuse(codeElectionNotNeeded, "the preferred replica, node %d, leads", preferred)
	case b == nil || !inSync || img.Draining(preferred):
		e.err = refuse(codePreferredLeaderNotAvailable, "the preferred replica, node %d, cannot lead: registered %v, in sync %v, draining %v",
			preferred, b != nil, inSync, img.Draining(preferred))
	default:
		e.wait = true
	}
}

// judgeUnclean makes an unclean election where there is no leader, or waits for the clean one where a replica is in sync.
func (s *Server) judgeUnclean(ctx context.Context, img *metadata.Image, e *election, waited bool) {
	e.wait = false
	state, ok := img.Partition(e.id)
	switch led := leaderOf(img, &state) != nil; {
	case !ok:
		e.err = refuse(codeUnknownTopicOrPartition, "topic %q has no partition %d", e.topic, e.id.Index)
		return
	case led && waited:
		return
	case led:
		e.err = refuse(codeElectionNotNeeded, "node %d leads", state.Leader.Node)
		return
	case waited:
		e.wait = true
		return
	}
	switch elected, err := s.meta.ElectUnclean(ctx, e.id); {
	case err == nil:
		s.log.Warn("leader elected uncleanly: what it lacks is lost", "topic", e.topic, "partition", e.id.Index, "leader", elected.Node, "epoch", elected.Epoch)
		e.wait = true
	case errors.Is(err, metadata.ErrInSyncAlive):
		e.wait = true
	case errors.Is(err, metadata.ErrLeaderAlive):
		e.err = refuse(codeElectionNotNeeded, "the partition has a leader: %v", err)
	case errors.Is(err, metadata.ErrNotEligible):
		e.err = refuse(codeEligibleLeadersNotAvailable, "%v", err)
	default:
		e.err = err
	}
}
