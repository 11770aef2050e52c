// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// listGroups lists the groups that this node coordinates; clients ask every node.
func (s *Server) listGroups(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ListGroupsRequest)
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	shards, err := s.groups.all()
	for _, sh := range shards {
		var list []kmsg.ListGroupsResponseGroup
		if list, err = ask(ctx, sh, func(_ time.Time, reply func([]kmsg.ListGroupsResponseGroup)) { reply(sh.list()) }); err != nil {
			break
		}
		for i := range list {
			if named(req.StatesFilter, list[i].GroupState) && named(req.TypesFilter, list[i].GroupType) {
				resp.Groups = append(resp.Groups, list[i])
			}
		}
	}
	if err != nil {
		resp.Groups, resp.ErrorCode = nil, groupCode(err).int16()
	}
	slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return cmp.Compare(a.Group, b.Group) })
	return resp, nil
}

// named tells whether a filter lets a name pass. Case does not count.
func named(filter []string, name string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, name) })
}

func (sh *shard) list() []kmsg.ListGroupsResponseGroup {
	list := make([]kmsg.ListGroupsResponseGroup, 0, len(sh.groups))
	for id, e := range sh.groups {
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = id, e.protocolType(), e.state(), e.kind()
		list = append(list, g)
	}
	return list
}
