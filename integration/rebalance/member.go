// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	protocolType = "consumer"
	session      = 45 * time.Second
	rebalance    = 5 * time.Minute
)

// member is one member of a group.
type member struct {
	b     *broker
	g     *gathering
	s     *settings
	cl    *kgo.Client
	group string
	leave chan struct{}
	id    string
}

// pause waits for the next heartbeat; left: the member has to go.
func (m *member) pause(ctx context.Context) (left bool) {
	t := time.NewTimer(m.s.heartbeat)
	defer t.Stop()
	select {
	case <-t.C:
	case <-m.leave:
		return true
	case <-ctx.Done():
	}
	return false
}

// again waits a moment where the coordinator is not there yet.
func (m *member) again(ctx context.Context, err error) bool {
	for _, target := range []error{kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress} {
		if errors.Is(err, target) {
			m.pause(ctx)
			return true
		}
	}
	return false
}

// classic is a member of the classic protocol with the range assignor.
func (m *member) classic(ctx context.Context) error {
	for ctx.Err() == nil {
		generation, err := m.join(ctx)
		if err != nil {
			return err
		}
		for err == nil && generation > 0 {
			if m.pause(ctx) {
				req := kmsg.NewPtrLeaveGroupRequest()
				req.Group = m.group
				req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: m.id}}
				req.MemberID = m.id
				_, err := req.RequestWith(ctx, m.cl)
				return err
			}
			req := kmsg.NewPtrHeartbeatRequest()
			req.Group, req.Generation, req.MemberID = m.group, generation, m.id
			var resp *kmsg.HeartbeatResponse
			if resp, err = req.RequestWith(ctx, m.cl); err == nil {
				err = kerr.ErrorForCode(resp.ErrorCode)
			}
			if m.again(ctx, err) {
				err = nil
			}
		}
		if err != nil && !errors.Is(err, kerr.RebalanceInProgress) && !errors.Is(err, kerr.IllegalGeneration) && !errors.Is(err, kerr.UnknownMemberID) {
			return fmt.Errorf("heartbeat: %w", err)
		}
	}
	return nil
}

// join takes part in one rebalance. A generation of 0: another one has begun already.
func (m *member) join(ctx context.Context) (generation int32, err error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.ProtocolType = m.group, protocolType
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(session.Milliseconds()), int32(rebalance.Milliseconds())
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{m.b.topic}
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: meta.AppendTo(nil)}}
	var joined *kmsg.JoinGroupResponse
	for {
		req.MemberID = m.id
		if joined, err = req.RequestWith(ctx, m.cl); err == nil {
			m.id = joined.MemberID
			err = kerr.ErrorForCode(joined.ErrorCode)
		}
		if err == nil {
			break
		}
		if errors.Is(err, kerr.UnknownMemberID) { // it was somebody before this coordinator
			m.id = ""
			continue
		}
		if !errors.Is(err, kerr.MemberIDRequired) && !m.again(ctx, err) {
			return 0, fmt.Errorf("join: %w", err)
		}
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = m.group, m.id, joined.Generation
	sync.ProtocolType, sync.Protocol = kmsg.StringPtr(protocolType), joined.Protocol
	if joined.LeaderID == m.id {
		sync.GroupAssignment = m.assign(joined.Members)
	}
	synced, err := sync.RequestWith(ctx, m.cl)
	if err == nil {
		err = kerr.ErrorForCode(synced.ErrorCode)
	}
	if errors.Is(err, kerr.RebalanceInProgress) || m.again(ctx, err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("sync: %w", err)
	}
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(synced.MemberAssignment); err != nil {
		return 0, fmt.Errorf("assignment: %w", err)
	}
	h := holding{epoch: joined.Generation}
	for i := range a.Topics {
		h.owned = append(h.owned, a.Topics[i].Partitions...)
	}
	m.g.hold(m, h)
	return joined.Generation, nil
}

// assign gives each member a range.
func (m *member) assign(members []kmsg.JoinGroupResponseMember) (out []kmsg.SyncGroupRequestGroupAssignment) {
	slices.SortFunc(members, func(a, b kmsg.JoinGroupResponseMember) int {
		if a.MemberID < b.MemberID {
			return -1
		}
		return 1
	})
	for i := range members {
		a := kmsg.NewConsumerMemberAssignment()
		t := kmsg.ConsumerMemberAssignmentTopic{Topic: m.b.topic}
		from, to := i*m.s.partitions/len(members), (i+1)*m.s.partitions/len(members)
		for p := from; p < to; p++ {
			t.Partitions = append(t.Partitions, int32(p))
		}
		a.Topics = []kmsg.ConsumerMemberAssignmentTopic{t}
		out = append(out, kmsg.SyncGroupRequestGroupAssignment{MemberID: members[i].MemberID, MemberAssignment: a.AppendTo(nil)})
	}
	return out
}

// consumer is a member of the consumer protocol. It gives partitions up, and says so, as soon as it is told.
func (m *member) consumer(ctx context.Context) error {
	m.id = newID()
	var epoch int32
	var owned []int32
	acknowledge := false
	for ctx.Err() == nil {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = m.group, m.id, epoch, -1
		if epoch == 0 {
			req.RebalanceTimeoutMillis, req.SubscribedTopicNames = int32(rebalance.Milliseconds()), []string{m.b.topic}
			req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}
		if acknowledge {
			req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			if len(owned) > 0 {
				req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: m.b.topicID, Partitions: owned})
			}
		}
		resp, err := req.RequestWith(ctx, m.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if m.again(ctx, err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("heartbeat: %w", err)
		}
		epoch, acknowledge = resp.MemberEpoch, resp.Assignment != nil
		if acknowledge {
			owned = nil
			for i := range resp.Assignment.Topics {
				owned = append(owned, resp.Assignment.Topics[i].Partitions...)
			}
		}
		m.g.hold(m, holding{epoch: epoch, owned: owned})
		if !acknowledge && m.pause(ctx) {
			req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = m.group, m.id, -1, -1
			_, err := req.RequestWith(ctx, m.cl)
			return err
		}
	}
	return nil
}

// newID is a random UUID in text, as the protocol wants it.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
