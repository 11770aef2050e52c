// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
)

// deleteGroups deletes groups without members, with their offsets.
func (s *Server) deleteGroups(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DeleteGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, id := range req.Groups {
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group = id
		if err := s.deleteGroup(ctx, id); err != nil {
			message := err.Error()
			g.ErrorCode, g.ErrorMessage = groupCode(err).int16(), &message
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func (s *Server) deleteGroup(ctx context.Context, id string) error {
	sh, err := s.groups.find(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, groupWait)
	defer cancel()
	answer, err := ask(ctx, sh, func(_ time.Time, reply func(error)) {
		e := sh.groups[id]
		switch {
		case e == nil:
			reply(group.ErrNotFound)
		case !e.empty():
			reply(group.ErrNotEmpty)
		default:
			sh.change(e, &offsetChange{wholeGroup: true, reply: reply})
		}
	})
	return errors.Join(err, answer)
}
