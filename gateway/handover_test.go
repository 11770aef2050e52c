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
		meta := c.nodes[3].meta
		topic, err := meta.ReadTopic(t.Context(), id.Topic)
		check(t, err)
		state, err := meta.ReadPartition(t.Context(), id)
		check(t, err)
		_, err = meta.AlterAssignments(t.Context(), topic, []metadata.AssignmentChange{{Next: metadata.Assignment{Replicas: []record.NodeID{2, 3}}, ISR: state.ISR.Rev}})
		check(t, err)
		began := time.Now()
		next := c.awaitLeader(id, 2, 3)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("nobody led for %v; a lease lasts %v", took, c.peers.lease)
		}
		c.must(next, "b")
		c.awaitISR(2, id, 2, 3)
		c.await("node 1 to give its replica up", func() bool {
			return c.nodes[1].log.count("partition removed") == 1
		})
		c.awaitHeld(id, []string{"a", "b"}, 2, 3)
		if in, _ := c.isr(2, id); slices.Contains(in, 1) {
			t.Errorf("in sync: %v", in)
		}
	})
}
