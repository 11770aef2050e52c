// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
)

// groupOperations is what a client may do with a group, as Kafka's bit field says it.
const groupOperations int32 = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

// stateDead is what a group that does not exist is called.
const stateDead = "Dead"

// describeGroups tells about groups that this node coordinates.
func (s *Server) describeGroups(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range req.Groups {
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group = id
		d, err := s.describeGroup(ctx, id)
		switch {
		case err != nil:
			g.ErrorCode = groupCode(err).int16()
		case d == nil:
			g.State = stateDead
			if r.Version >= 6 {
				message := fmt.Sprintf("group %s not found", id)
				g.ErrorCode, g.ErrorMessage = codeGroupIDNotFound.int16(), &message
			}
		default:
			g.State, g.ProtocolType, g.Protocol = d.State.String(), d.ProtocolType, d.Protocol
			g.Members = describeMembers(d)
		}
		if req.IncludeAuthorizedOperations && err == nil {
			g.AuthorizedOperations = groupOperations
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func describeMembers(d *group.Description) (out []kmsg.DescribeGroupsResponseGroupMember) {
	for i := range d.Members {
		m := kmsg.NewDescribeGroupsResponseGroupMember()
		from := &d.Members[i]
		m.MemberID, m.InstanceID, m.ClientID, m.ClientHost = from.ID, from.Instance, from.ClientID, from.Host
		m.ProtocolMetadata, m.MemberAssignment = orEmpty(from.Metadata), orEmpty(from.Assignment)
		out = append(out, m)
	}
	return out
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// describeGroup is nil for a group that does not exist.
func (s *Server) describeGroup(ctx context.Context, id string) (*group.Description, error) {
	sh, err := s.groups.find(id)
	if err != nil {
		return nil, err
	}
	return ask(ctx, sh, func(_ time.Time, reply func(*group.Description)) {
		e := sh.groups[id]
		if e == nil || e.c != nil { // clients ask for a consumer group with another request
			reply(nil)
			return
		}
		d := e.g.Describe()
		reply(&d)
	})
}
