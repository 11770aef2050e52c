// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// TestTakenAwayWhileEntering: a replica is taken away from the assignment while the change that takes it into the in-sync set is under way, and
// removes its log, since nobody counts on it. The change must not arrive after that: it would lead, when the others are away, without what they
// have acknowledged.
func TestTakenAwayWhileEntering(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topicOn("t", nil, 1, 2)
		p := c.awaitLeader(id, 1)
		c.awaitISR(1, id, 1, 2)
		caught, arrives := make(chan struct{}), make(chan struct{})
		arrive := sync.OnceFunc(func() { close(arrives) })
		defer arrive()
		var once sync.Once
		hold := func(t metadata.Txn) memory.Outcome {
			if slices.ContainsFunc(t.Then, func(op metadata.Op) bool { return op.Kind == metadata.OpPut && strings.Contains(op.Key, "/isr/") }) {
				once.Do(func() { close(caught) })
				return memory.Outcome{Held: arrives}
			}
			return memory.Outcome{}
		}
		c.nodes[1].kv.SetFaults(memory.Faults{Txn: hold})
		// Node 2 lacks the record for a while, so it is not committed as node 3 enters.
		c.peers.net.Partition("node1", "node2")
		acked := make(chan error, 1)
		go func() {
			_, err := c.produce(p, -1, "kept")
			acked <- err
		}()
		c.assign(1, id, metadata.Assignment{Replicas: []record.NodeID{1, 2, 3}})
		<-caught
		c.await("node 3 to hold the record", func() bool {
			p, err := c.nodes[3].broker.Partition(id)
			return err == nil && p.Marks().LogEnd == 1
		})
		time.Sleep(time.Second) // and to tell so
		c.assign(1, id, metadata.Assignment{Replicas: []record.NodeID{1, 2}})
		c.await("node 3 to remove its log", func() bool {
			_, err := c.nodes[3].broker.Partition(id)
			return err != nil && c.nodes[3].log.Count("partition removed") > 0
		})
		c.peers.net.Heal("node1", "node2")
		if err := <-acked; err != nil {
			t.Fatalf("the record is not acknowledged: %v", err)
		}
		// The leader ends without having heard what became of the change, and so does the other one that has the record.
		for _, n := range []record.NodeID{1, 2} {
			c.nodes[n].kv.SetFaults(memory.Faults{Outage: true})
		}
		c.isolate(3, true)
		arrive()
		time.Sleep(20 * time.Second)
		for _, n := range []record.NodeID{1, 2} {
			c.nodes[n].kv.SetFaults(memory.Faults{})
		}
		c.isolate(3, false)
		var led *broker.Partition
		c.await("somebody to lead", func() bool {
			for _, n := range c.nodes {
				if p, err := n.broker.Partition(id); err == nil && p.Marks().Leading {
					led = p
				}
			}
			return led != nil
		})
		c.await("the record", func() bool { return led.Marks().HW == 1 })
		c.awaitHeld(id, []string{"kept"}, 1, 2)
	})
}
