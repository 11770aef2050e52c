// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// replaceLost replaces, while this member leads, others that say that they have no directory. Until ctx ends.
func (s *Server) replaceLost(ctx context.Context) {
	told := map[string]string{} // what was last said of a peer, which fails every two seconds
	tick := time.NewTicker(replaceEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, name := range slices.Sorted(maps.Keys(s.options.Peers)) {
			if name == s.options.Name || s.etcd.Server.Leader() != s.etcd.Server.MemberID() {
				continue
			}
			why := s.replace(ctx, name)
			if why != "" && why != told[name] {
				s.options.log().Warn("an etcd member without a directory cannot be replaced yet", "member", name, "because", why)
			}
			told[name] = why
		}
	}
}

// replace makes the member that a peer wants to be, if it says that it is none. It returns why that was not done, "" where there was nothing to do.
func (s *Server) replace(ctx context.Context, name string) (why string) {
	o, etcd := &s.options, s.etcd.Server
	e, err := askEmpty(ctx, o.Peers[name])
	if err != nil {
		return "" // it runs, or is away
	}
	if !o.fits(e, name) {
		return "it was started with another --cluster or --etcd-peers than this one, or with a --node-id that is not the one it has there"
	}
	wants, err := types.IDFromString(e.Wants)
	if err != nil || wants == 0 {
		return "it answers nonsense"
	}
	log := o.log().With("member", name, "url", o.Peers[name], "id", wants)
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if old := memberAt(etcd.Cluster().Members(), o.Peers[name]); old != nil {
		if old.ID == wants || old.Name != "" && len(old.ClientURLs) == 0 {
			return "" // it is about to join, or the cluster is just being made
		}
		if _, err := etcd.RemoveMember(ctx, uint64(old.ID)); err != nil {
			return "removing the member that lost its directory: " + err.Error()
		}
		log.Warn("removed the etcd member that lost its directory", "removed", old.ID)
	}
	m := membership.Member{ID: wants, RaftAttributes: membership.RaftAttributes{PeerURLs: []string{o.Peers[name]}}}
	if _, err := etcd.AddMember(ctx, m); err != nil {
		return "adding a member in its place: " + err.Error()
	}
	log.Warn("added an etcd member in its place")
	return ""
}
