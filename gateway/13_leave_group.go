// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
)

// leaveGroup takes members out of the group.
func (s *Server) leaveGroup(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.LeaveGroupRequest)
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	if r.Version < 3 {
		req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: req.MemberID}}
	}
	errs, err := s.leave(ctx, req)
	if err != nil {
		resp.ErrorCode = groupCode(err).int16()
		return resp, nil
	}
	if r.Version < 3 {
		resp.ErrorCode = groupCode(errs[0]).int16()
		return resp, nil
	}
	for i := range req.Members {
		m := kmsg.NewLeaveGroupResponseMember()
		m.MemberID, m.InstanceID, m.ErrorCode = req.Members[i].MemberID, req.Members[i].InstanceID, groupCode(errs[i]).int16()
		resp.Members = append(resp.Members, m)
	}
	return resp, nil
}

func (s *Server) leave(ctx context.Context, req *kmsg.LeaveGroupRequest) ([]error, error) {
	sh, err := s.groupShard(req.Group)
	if err != nil {
		return nil, err
	}
	who := make([]group.Leaving, len(req.Members))
	for i := range who {
		who[i] = group.Leaving{MemberID: req.Members[i].MemberID, Instance: req.Members[i].InstanceID}
	}
	return ask(ctx, sh, func(now time.Time, reply func([]error)) {
		e := sh.groups[req.Group]
		if e == nil {
			errs := make([]error, len(who))
			for i := range errs {
				errs[i] = group.ErrUnknownMember
			}
			reply(errs)
			return
		}
		if e.c != nil {
			errs := e.c.Leave(now, who)
			sh.consumerStepped(e, now, func(stored error) {
				for i := range errs {
					if errs[i] == nil {
						errs[i] = stored
					}
				}
				reply(errs)
			})
			return
		}
		reply(e.g.Leave(now, who, sh.groupConfig()))
		sh.stepped(e)
	})
}
