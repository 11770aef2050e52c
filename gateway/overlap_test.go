// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// TestSyncsOverlap: followers are woken by the append, so that they sync what the leader syncs at the same time. An acknowledgement by all
// takes one sync then and not the two of a follower that waits for the leader's, of which three quarters are the limit here.
func TestSyncsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, batches = 2 * time.Millisecond, 100
		var slow atomic.Bool
		peers := newPeers()
		peers.sync = func() {
			if slow.Load() {
				time.Sleep(takes)
			}
		}
		c := startClusterOf(t, peers)
		topic, err := c.nodes[1].meta.CreateTopic(t.Context(), metadata.TopicSpec{Name: "t", Overrides: map[string]string{"min.insync.replicas": "3"}, Partitions: [][]record.NodeID{{1, 2, 3}}})
		check(t, err)
		id := record.PartitionID{Topic: topic.ID}
		p := c.awaitLeader(id, 1)
		c.awaitISR(1, id, 1, 2, 3)
		c.must(p, "first")
		slow.Store(true)
		began := time.Now()
		for range batches {
			c.must(p, "x")
		}
		each := time.Since(began) / batches
		slow.Store(false)
		t.Logf("%s for each acknowledgement, with syncs of %s", each, takes)
		if each < takes || each > 2*takes*3/4 {
			t.Errorf("%s for each acknowledgement, with syncs of %s", each, takes)
		}
	})
}
