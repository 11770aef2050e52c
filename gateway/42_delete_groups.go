// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
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
	var asked metadata.UnixMillis
	answer, err := ask(ctx, sh, func(_ time.Time, reply func(error)) {
		asked = sh.stamped
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
	return sh.deletePending(ctx, &pendingDeletion{group: id, until: asked}, errors.Join(err, answer))
}

// pendingDeletion is what is to be deleted of what transactions would commit for a group.
type pendingDeletion struct {
	group      string
	partitions map[record.TopicID][]int32 // nil: all
	// until is the newest time that an offset was written with when the deletion was asked for. What comes after it may be of who has joined
	// since.
	until metadata.UnixMillis
}

// deletePending deletes what open transactions would commit for a group as well, which Kafka does, unless the deletion of what is committed
// was refused. It gives the outcome of both: a group of which nothing is known but that is one.
func (sh *shard) deletePending(ctx context.Context, d *pendingDeletion, outcome error) error {
	if outcome != nil && !errors.Is(outcome, group.ErrNotFound) {
		return outcome
	}
	found, err := sh.c.s.meta.DropPending(ctx, sh.co, d.group, d.partitions, d.until)
	switch {
	case err != nil:
		return err
	case found:
		return nil
	}
	return outcome
}
