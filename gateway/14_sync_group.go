// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
)

// syncGroup gives a member its assignment. The leader's brings all of them, the others' wait for it.
func (s *Server) syncGroup(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.SyncGroupRequest)
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	resp.MemberAssignment = []byte{}
	out, err := s.sync(ctx, r, req)
	if err == nil {
		err = out.Err
	}
	if err != nil {
		resp.ErrorCode = groupCode(err).int16()
		return resp, nil
	}
	resp.ProtocolType, resp.Protocol = &out.Sync.ProtocolType, &out.Sync.Protocol
	if out.Sync.Assignment != nil {
		resp.MemberAssignment = out.Sync.Assignment
	}
	return resp, nil
}

func (s *Server) sync(ctx context.Context, r *Request, req *kmsg.SyncGroupRequest) (group.Output, error) {
	sh, err := s.groupShard(req.Group)
	if err != nil {
		return group.Output{}, err
	}
	if r.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		return group.Output{Err: group.ErrInconsistentProtocol}, nil // mandatory there (KIP-559)
	}
	sync := &group.SyncRequest{
		MemberID: req.MemberID, Instance: req.InstanceID, Generation: group.Generation(req.Generation),
		ProtocolType: req.ProtocolType, Protocol: req.Protocol, Assignments: map[string][]byte{},
	}
	for i := range req.GroupAssignment {
		sync.Assignments[req.GroupAssignment[i].MemberID] = bytes.Clone(req.GroupAssignment[i].MemberAssignment)
	}
	return ask(ctx, sh, func(now time.Time, reply func(group.Output)) {
		e := sh.groups[req.Group]
		if e == nil {
			reply(group.Output{Err: group.ErrUnknownMember})
			return
		}
		if e.c != nil {
			sh.syncConsumer(now, e, sync, reply)
			return
		}
		sync.Token = sh.wait(reply)
		e.g.Sync(now, sync)
		sh.stepped(e)
	})
}

// syncConsumer tells a member of the classic protocol in a consumer group what it has.
func (sh *shard) syncConsumer(now time.Time, e *groupEntry, r *group.SyncRequest, reply func(group.Output)) {
	env := sh.consumerEnv(e.id)
	p, protocol, err := e.c.Sync(now, r, env)
	if err != nil {
		sh.consumerStepped(e, now, func(error) { reply(group.Output{Err: err}) })
		return
	}
	out := group.Synced{ProtocolType: consumerProtocol, Protocol: protocol.Name, Assignment: classicAssignment(p, env.Topics, subscriptionVersion(protocol.Metadata))}
	sh.consumerStepped(e, now, func(err error) { reply(group.Output{Err: err, Sync: &out}) })
}

// subscriptionVersion is the version that a member writes its metadata in, and reads its assignment in.
func subscriptionVersion(metadata []byte) int16 {
	if len(metadata) < 2 {
		return 0
	}
	return int16(binary.BigEndian.Uint16(metadata))
}
