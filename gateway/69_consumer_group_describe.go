// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/consumer"
)

// Kinds of members in a description.
const (
	classicMember  = 0
	consumerMember = 1
)

// consumerGroupDescribe tells about groups of the consumer protocol that this node coordinates.
func (s *Server) consumerGroupDescribe(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ConsumerGroupDescribeRequest)
	resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	topics := imageTopics{s.meta.Image()}
	for _, id := range req.Groups {
		g := kmsg.NewConsumerGroupDescribeResponseGroup()
		g.Group = id
		if !s.consumerProtocol() {
			g.ErrorCode = codeUnsupportedVersion.int16()
			resp.Groups = append(resp.Groups, g)
			continue
		}
		d, err := s.describeConsumer(ctx, id)
		if err != nil {
			message := err.Error()
			g.ErrorCode, g.ErrorMessage = groupCode(err).int16(), &message
			resp.Groups = append(resp.Groups, g)
			continue
		}
		g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName = d.State.String(), d.Epoch, d.TargetEpoch, d.Assignor
		for i := range d.Members {
			g.Members = append(g.Members, describedMember(&d.Members[i], topics))
		}
		if req.IncludeAuthorizedOperations {
			g.AuthorizedOperations = groupOperations
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func (s *Server) describeConsumer(ctx context.Context, id string) (consumer.Description, error) {
	sh, err := s.groupShard(id)
	if err != nil {
		return consumer.Description{}, err
	}
	type result struct {
		d   consumer.Description
		err error
	}
	out, err := ask(ctx, sh, func(_ time.Time, reply func(result)) {
		switch e := sh.groups[id]; {
		case e == nil:
			reply(result{err: fmt.Errorf("%w: %s", group.ErrNotFound, id)})
		case e.c == nil:
			reply(result{err: fmt.Errorf("%w: %s is a %s group", group.ErrNotFound, id, e.kind())})
		default:
			reply(result{d: e.c.Describe(sh.consumerEnv(id).Config)})
		}
	})
	if err == nil {
		err = out.err
	}
	return out.d, err
}

func describedMember(m *consumer.MemberDescription, topics consumer.Topics) kmsg.ConsumerGroupDescribeResponseGroupMember {
	out := kmsg.NewConsumerGroupDescribeResponseGroupMember()
	out.MemberID, out.InstanceID, out.RackID, out.MemberEpoch = m.ID, m.Instance, m.Rack, m.Epoch
	out.ClientID, out.ClientHost, out.SubscribedTopics = m.ClientID, m.Host, m.Topics
	out.SubscribedTopicRegex = &m.Regex
	has := maps.Clone(m.Assigned)
	for id, list := range m.Giving {
		has[id] = slices.Concat(has[id], list)
		slices.Sort(has[id])
	}
	out.Assignment, out.TargetAssignment = describedAssignment(has, topics), describedAssignment(m.Target, topics)
	out.MemberType = consumerMember
	if m.Classic {
		out.MemberType = classicMember
	}
	return out
}

// describedAssignment leaves out topics that are gone.
func describedAssignment(p consumer.Partitions, topics consumer.Topics) kmsg.Assignment {
	a := kmsg.NewAssignment()
	for id, list := range p {
		if name, ok := topics.Name(id); ok && len(list) > 0 {
			t := kmsg.NewAssignmentTopicPartition()
			t.TopicID, t.Topic, t.Partitions = id, name, list
			a.TopicPartitions = append(a.TopicPartitions, t)
		}
	}
	return a
}
