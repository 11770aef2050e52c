// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/consumer"
	"github.com/varve/varve/metadata"
)

// groupShard finds who serves a request of a group's member.
func (s *Server) groupShard(id string) (*shard, error) {
	if id == "" {
		return nil, errInvalidGroupID
	}
	return s.groups.find(id)
}

// joinGroup makes the sender a member of the group's next generation. The answer waits for that generation.
func (s *Server) joinGroup(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.JoinGroupRequest)
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.Generation, resp.MemberID = int32(group.NoGeneration), req.MemberID
	out, err := s.join(ctx, r, req)
	if err == nil {
		err = out.Err
		resp.MemberID = out.MemberID
	}
	if err != nil {
		resp.ErrorCode = groupCode(err).int16()
		return resp, nil
	}
	j := out.Join
	resp.Generation, resp.LeaderID, resp.MemberID, resp.SkipAssignment = int32(j.Generation), j.Leader, j.MemberID, j.SkipAssignment
	resp.Protocol = &j.Protocol
	if r.Version >= 7 {
		resp.ProtocolType = &j.ProtocolType
	}
	for i := range j.Members {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.InstanceID, m.ProtocolMetadata = j.Members[i].ID, j.Members[i].Instance, j.Members[i].Metadata
		resp.Members = append(resp.Members, m)
	}
	return resp, nil
}

func (s *Server) join(ctx context.Context, r *Request, req *kmsg.JoinGroupRequest) (group.Output, error) {
	sh, err := s.groupShard(req.Group)
	if err != nil {
		return group.Output{}, err
	}
	join := joinRequest(r, req)
	c := sh.groupConfig()
	if join.Session < c.MinSession || join.Session > c.MaxSession {
		return group.Output{Err: group.ErrSessionTimeout, MemberID: req.MemberID}, nil
	}
	return ask(ctx, sh, func(now time.Time, reply func(group.Output)) {
		if _, there := sh.groups[req.Group]; !there && req.MemberID != "" {
			reply(group.Output{Err: group.ErrUnknownMember, MemberID: req.MemberID})
			return
		}
		e := sh.entry(req.Group, now)
		if e.c != nil && !e.empty() {
			sh.joinConsumer(now, e, join, reply)
			return
		}
		if e.c != nil && req.MemberID != "" {
			reply(group.Output{Err: group.ErrUnknownMember, MemberID: req.MemberID})
			return
		}
		join.Token = sh.wait(reply)
		e.g.Join(now, join, sh.groupConfig())
		e.becomesClassic() // an empty group is of the kind of who joins it
		sh.stepped(e)
	})
}

// joinConsumer lets a member of the classic protocol into a consumer group.
func (sh *shard) joinConsumer(now time.Time, e *groupEntry, r *group.JoinRequest, reply func(group.Output)) {
	if len(r.Protocols) == 0 {
		reply(group.Output{Err: group.ErrInconsistentProtocol, MemberID: r.MemberID})
		return
	}
	env := sh.consumerEnv(e.id)
	said, err := readSubscription(r.Protocols[0].Metadata, env.Topics)
	if err != nil {
		reply(group.Output{Err: group.ErrInconsistentProtocol, MemberID: r.MemberID})
		return
	}
	j, err := e.c.Join(now, &consumer.Join{
		MemberID: r.MemberID, NewID: r.NewID, Instance: r.Instance, Rack: said.rack, ClientID: r.ClientID, Host: r.Host, Session: r.Session, Rebalance: r.Rebalance,
		ProtocolType: r.ProtocolType, Protocols: r.Protocols, RequireID: r.RequireID, Topics: said.topics, Owned: said.owned,
	}, env)
	if err != nil {
		reply(group.Output{Err: err, MemberID: j.MemberID})
		return
	}
	sh.consumerStepped(e, now, func(err error) {
		if err != nil {
			reply(group.Output{Err: err, MemberID: j.MemberID})
			return
		}
		reply(group.Output{MemberID: j.MemberID, Join: &group.Joined{
			Generation: group.Generation(j.Generation), ProtocolType: consumerProtocol, Protocol: j.Protocol, MemberID: j.MemberID,
		}})
	})
}

// joinRequest takes over what outlives the request: its bytes lie in the request's frame.
func joinRequest(r *Request, req *kmsg.JoinGroupRequest) *group.JoinRequest {
	j := &group.JoinRequest{
		MemberID: req.MemberID, Instance: req.InstanceID, ClientID: r.ClientID, Host: clientHost(r.Peer),
		Session: time.Duration(req.SessionTimeoutMillis) * time.Millisecond, Rebalance: time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		ProtocolType: req.ProtocolType, RequireID: r.Version >= 4, CanSkip: r.Version >= 9,
	}
	if r.Version < 1 || j.Rebalance <= 0 {
		j.Rebalance = j.Session
	}
	prefix := r.ClientID
	if req.InstanceID != nil {
		prefix = *req.InstanceID
	}
	j.NewID = prefix + "-" + uuidText(metadata.NewUUID())
	for i := range req.Protocols {
		j.Protocols = append(j.Protocols, group.Protocol{Name: req.Protocols[i].Name, Metadata: bytes.Clone(req.Protocols[i].Metadata)})
	}
	return j
}

// uuidText is the usual form with dashes.
func uuidText(u metadata.UUID) string {
	s := u.String()
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// clientHost is a member's host as Kafka's tools show it.
func clientHost(peer string) string {
	host, _, err := net.SplitHostPort(peer)
	if err != nil {
		return "/" + peer
	}
	return "/" + host
}
