// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
)

// heartbeat keeps a member's session alive and tells it when the group rebalances.
func (s *Server) heartbeat(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.HeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	sh, err := s.groupShard(req.Group)
	if err == nil {
		var answer error
		answer, err = ask(ctx, sh, func(now time.Time, reply func(error)) {
			e := sh.groups[req.Group]
			if e == nil {
				reply(group.ErrUnknownMember)
				return
			}
			if e.c != nil {
				err := e.c.ClassicHeartbeat(now, req.MemberID, req.InstanceID, group.Generation(req.Generation), sh.consumerEnv(e.id))
				sh.consumerStepped(e, now, func(stored error) {
					if err == nil {
						err = stored
					}
					reply(err)
				})
				return
			}
			reply(e.g.Heartbeat(now, req.MemberID, req.InstanceID, group.Generation(req.Generation)))
			sh.stepped(e)
		})
		err = errors.Join(err, answer)
	}
	code := groupCode(err)
	if code == codeCoordinatorLoadInProgress {
		code = codeNone // as in Kafka: the member is taken as alive until the group is known
	}
	resp.ErrorCode = code.int16()
	return resp, nil
}
