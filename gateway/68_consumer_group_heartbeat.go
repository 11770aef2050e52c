// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group/consumer"
	"github.com/varve/varve/metadata"
)

// consumerGroupHeartbeat is all that a member of the consumer protocol says to its group: that it joins, is there, has given up what it
// must, leaves. The answer says what it is to have.
func (s *Server) consumerGroupHeartbeat(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ConsumerGroupHeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	if !s.consumerProtocol() {
		resp.ErrorCode = codeUnsupportedVersion.int16()
		return resp, nil
	}
	answer, err := s.heartbeatConsumer(ctx, r, req)
	if err != nil {
		message := err.Error()
		resp.ErrorCode, resp.ErrorMessage = groupCode(err).int16(), &message
		return resp, nil
	}
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = &answer.MemberID, answer.Epoch, int32(answer.Interval.Milliseconds())
	if answer.Assignment == nil {
		return resp, nil
	}
	a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	a.Topics = []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}
	for id, list := range *answer.Assignment {
		a.Topics = append(a.Topics, kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{TopicID: id, Partitions: list})
	}
	resp.Assignment = &a
	return resp, nil
}

// consumerProtocol tells whether groups of the consumer protocol are served.
func (s *Server) consumerProtocol() bool {
	return slices.Contains(s.broker.Config().List("group.coordinator.rebalance.protocols"), consumerType)
}

func (s *Server) heartbeatConsumer(ctx context.Context, r *Request, req *kmsg.ConsumerGroupHeartbeatRequest) (consumer.Answer, error) {
	sh, err := s.groups.find(req.Group)
	if err == nil && req.Group == "" {
		return consumer.Answer{}, fmt.Errorf("%w: the group id is missing", consumer.ErrInvalidRequest)
	}
	if err != nil {
		return consumer.Answer{}, err
	}
	type result struct {
		answer consumer.Answer
		err    error
	}
	heartbeat := consumerHeartbeat(r, req)
	ctx, cancel := context.WithTimeout(ctx, groupWait)
	defer cancel()
	out, err := ask(ctx, sh, func(now time.Time, reply func(result)) {
		sh.heartbeatConsumer(now, req.Group, heartbeat, func(a consumer.Answer, err error) { reply(result{a, err}) })
	})
	if err == nil {
		err = out.err
	}
	return out.answer, err
}

// consumerHeartbeat takes over what the request says.
func consumerHeartbeat(r *Request, req *kmsg.ConsumerGroupHeartbeatRequest) *consumer.Heartbeat {
	h := &consumer.Heartbeat{
		MemberID: req.MemberID, NewID: metadata.NewUUID().String(), Epoch: req.MemberEpoch, Instance: req.InstanceID, Rack: req.RackID,
		Rebalance: time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond, Regex: req.SubscribedTopicRegex, Assignor: req.ServerAssignor,
		ClientID: r.ClientID, Host: clientHost(r.Peer), NeedsID: r.Version >= 1,
	}
	if req.SubscribedTopicNames != nil {
		h.Topics = &req.SubscribedTopicNames
	}
	if req.Topics != nil {
		owned := consumer.Partitions{}
		for i := range req.Topics {
			for _, index := range req.Topics[i].Partitions {
				owned[req.Topics[i].TopicID] = append(owned[req.Topics[i].TopicID], index)
			}
		}
		for id, list := range owned {
			slices.Sort(list)
			owned[id] = slices.Compact(list)
		}
		h.Owned = &owned
	}
	return h
}
