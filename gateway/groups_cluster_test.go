// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// coordinator waits for the one node that serves a group.
func (c *cluster) coordinator(id string, not ...record.NodeID) *node {
	c.t.Helper()
	var found *node
	c.await("a coordinator of group "+id, func() bool {
		found = nil
		serving := 0
		for _, n := range c.nodes {
			if _, err := n.server.groups.find(id); err == nil {
				found = n
				serving++
			}
		}
		if serving > 1 {
			c.t.Fatalf("%d nodes coordinate group %s", serving, id)
		}
		for _, other := range not {
			if found != nil && found.server.cfg.NodeID == other {
				return false
			}
		}
		return found != nil
	})
	return found
}

// joinOne makes a group of one.
func joinOne(t *testing.T, n *node, id string) group.Committer {
	t.Helper()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = id, 60_000, 60_000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	join.Protocols = append(join.Protocols, p)
	from := Request{Version: 3, ClientID: "c", Peer: "host:1", Listener: testListener}
	r := from
	r.Body = join
	resp, err := n.server.joinGroup(context.Background(), &r)
	check(t, err)
	joined := resp.(*kmsg.JoinGroupResponse)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = id, joined.MemberID, joined.Generation
	r = from
	r.Body = sync
	resp, err = n.server.syncGroup(context.Background(), &r)
	check(t, err)
	if code := resp.(*kmsg.SyncGroupResponse).ErrorCode; joined.ErrorCode != 0 || code != 0 {
		t.Fatalf("joining: %d, %d", joined.ErrorCode, code)
	}
	return group.Committer{MemberID: joined.MemberID, Generation: group.Generation(joined.Generation)}
}

// TestShardsMove: shards are spread over the nodes, leave one that is drained or stops, and a group goes on in its generation wherever it
// is; what the old coordinator was asked does not take effect.
func TestShardsMove(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		owned := func() map[record.NodeID]int {
			img, count := c.nodes[1].meta.Image(), map[record.NodeID]int{}
			for i := range img.Shards() {
				if o, ok := img.Coordinator(i); ok && o.Node == img.PreferredCoordinator(i) {
					count[o.Node]++
				}
			}
			return count
		}
		c.await("every shard to be where it belongs", func() bool {
			o := owned()
			return o[1]+o[2]+o[3] == 50 && min(o[1], o[2], o[3]) > 5
		})
		first := c.coordinator("g")
		who := joinOne(t, first, "g")
		commit := func(n *node, offset record.Offset, who group.Committer) error {
			return n.server.commitOffsets(context.Background(), "g", who, []chunkEdit{
				{id: metadata.ChunkOf(id.Topic, 0), set: []metadata.CommittedOffset{{Offset: offset, LeaderEpoch: 1, Committed: metadata.MillisOf(time.Now())}}},
			})
		}
		holds := func(n *node, want record.Offset) {
			t.Helper()
			found, err := n.server.readOffsets(context.Background(), "g", []record.TopicID{id.Topic})
			if err != nil || len(found[id.Topic]) != 1 || found[id.Topic][0].Offset != want {
				t.Errorf("%+v, %v; want offset %d", found, err, want)
			}
		}
		check(t, commit(first, 5, who))
		old, err := first.server.groups.find("g")
		check(t, err)

		_, err = first.meta.Drain(context.Background(), first.server.cfg.NodeID)
		check(t, err)
		second := c.coordinator("g", first.server.cfg.NodeID)
		if err := commit(first, 6, who); !errors.Is(err, errNotCoordinator) {
			t.Errorf("a commit at the old coordinator: %v", err)
		}
		if got := first.meta.ChangeShards(context.Background(), []metadata.ShardChange{{Coordination: old.co, Groups: []metadata.GroupChange{{ID: "g", State: []byte{1}}}}}); !errors.Is(got[0].Err, metadata.ErrFenced) {
			t.Errorf("a late change of the old coordinator: %v", got[0].Err)
		}
		holds(second, 5)
		check(t, commit(second, 7, who))
		if err := commit(second, 8, group.Committer{MemberID: who.MemberID, Generation: who.Generation - 1}); !errors.Is(err, group.ErrIllegalGeneration) {
			t.Errorf("a commit of an old generation: %v", err)
		}

		second.stop()
		delete(c.nodes, second.server.cfg.NodeID)
		third := c.coordinator("g")
		holds(third, 7)
		check(t, commit(third, 9, who))
		holds(third, 9)
		c.await("every shard to be served", func() bool {
			img, n := third.meta.Image(), 0
			for i := range img.Shards() {
				if o, ok := img.Coordinator(i); ok && img.Broker(o.Node) != nil {
					n++
				}
			}
			return n == 50
		})
	})
}
