// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// TestDiskFullHandsOver: a leader whose disk is full hands over to a replica that has space, and leaves the in-sync set until it has some
// itself.
func TestDiskFullHandsOver(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		p := c.awaitLeader(id, 1)
		c.must(p, "a")
		c.awaitISR(1, id, 1, 2, 3)
		c.peers.full.Store(1)
		want := []string{"a"}
		c.await("produce to be refused", func() bool {
			_, err := c.produce(p, -1, "more")
			if err == nil {
				want = append(want, "more") // it has not looked at the disk again yet
				time.Sleep(time.Second)
			}
			return errors.Is(err, broker.ErrDiskFull) || errors.Is(err, broker.ErrNotLeader)
		})
		next := c.awaitLeader(id, 2, 3)
		c.must(next, "b")
		c.awaitISR(2, id, 2, 3)
		c.peers.full.Store(0)
		c.awaitISR(2, id, 1, 2, 3)
		c.must(next, "c")
		c.awaitHeld(id, append(want, "b", "c"), 1, 2, 3)
	})
}

// TestMoveAwayFromLeader: a leader whose replica is assigned to it no more leads on until one of the assigned does, and only then gives
// its log up.
func TestMoveAwayFromLeader(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		c.must(c.awaitLeader(id, 1), "a")
		c.awaitISR(1, id, 1, 2, 3)
		c.assign(3, id, metadata.Assignment{Replicas: []record.NodeID{2, 3}})
		began := time.Now()
		next := c.awaitLeader(id, 2, 3)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("nobody led for %v; a lease lasts %v", took, c.peers.lease)
		}
		c.must(next, "b")
		c.awaitISR(2, id, 2, 3)
		c.await("node 1 to give its replica up", func() bool {
			return c.nodes[1].log.Count("partition removed") == 1
		})
		c.awaitHeld(id, []string{"a", "b"}, 2, 3)
		if in, _ := c.isr(2, id); slices.Contains(in, 1) {
			t.Errorf("in sync: %v", in)
		}
	})
}

// TestMoveToWhatDrains: a leader whose replica is assigned to it no more hands over to one that drains where there is no other. Else it would
// stay in sync, and a replica that leaves the draining node for it would wait for ever.
func TestMoveToWhatDrains(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		c.must(c.awaitLeader(id, 1), "a")
		c.awaitISR(1, id, 1, 2, 3)
		rev, err := c.nodes[3].meta.Drain(t.Context(), 2)
		check(t, err)
		check(t, c.nodes[1].meta.WaitFor(t.Context(), rev))
		c.assign(3, id, metadata.Assignment{Replicas: []record.NodeID{2}})
		c.must(c.awaitLeader(id, 2), "b")
		c.awaitISR(2, id, 2)
		back := metadata.Assignment{Replicas: []record.NodeID{2, 1}, Move: &metadata.Move{Target: []record.NodeID{1}, Origin: []record.NodeID{2}}}
		c.assign(3, id, back)
		c.awaitISR(2, id, 1, 2)
		c.awaitHeld(id, []string{"a", "b"}, 1, 2)
	})
}

// TestEligibleAndNotAssigned: a replica that was taken away while fewer were in sync than the minimum is eligible, and may be the only one left
// that has everything. It leads when nobody else may, until those that are assigned have caught up, and only then gives its log up.
func TestEligibleAndNotAssigned(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		p := c.awaitLeader(id, 1)
		c.must(p, "a")
		c.awaitISR(1, id, 1, 2, 3)
		c.nodes[3].stop()
		c.awaitISR(1, id, 1, 2)
		c.must(p, "b")
		c.assign(2, id, metadata.Assignment{Replicas: []record.NodeID{1, 3}})
		c.await("node 2 to be eligible only", func() bool {
			in, eligible := c.isr(2, id)
			return slices.Equal(in, []record.NodeID{1}) && slices.Equal(eligible, []record.NodeID{2})
		})
		c.nodes[1].stop()
		c.awaitLeader(id, 2)
		c.start(3)
		p = c.awaitLeader(id, 3)
		c.start(1)
		c.awaitISR(3, id, 1, 3)
		c.must(p, "c")
		c.awaitHeld(id, []string{"a", "b", "c"}, 1, 3)
		c.await("node 2 to give its replica up", func() bool { return c.nodes[2].log.Count("partition removed") == 1 })
	})
}
