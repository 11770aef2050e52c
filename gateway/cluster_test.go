// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// cluster is three nodes in this process.
type cluster struct {
	t     *testing.T
	peers *peers
	nodes map[record.NodeID]*node
}

func startCluster(t *testing.T) *cluster { return startClusterOf(t, newPeers()) }

func startClusterOf(t *testing.T, peers *peers) *cluster {
	c := &cluster{t: t, peers: peers, nodes: map[record.NodeID]*node{}}
	c.peers.lease = 3 * time.Second
	for id := range record.NodeID(3) {
		c.start(id + 1)
	}
	return c
}

// start starts a node on what its disk holds.
func (c *cluster) start(id record.NodeID) *node {
	c.t.Helper()
	n := startNode(c.t, nodeOptions{
		peers: c.peers, id: id, rack: fmt.Sprintf("rack%d", id), static: map[string]string{"replica.lag.time.max.ms": "5000", "auto.leader.rebalance.enable": "false"},
	})
	c.nodes[id] = n
	return n
}

// topic makes a topic of one partition on all nodes, led by the first.
func (c *cluster) topic(name string, overrides map[string]string) record.PartitionID {
	c.t.Helper()
	return c.topicOn(name, overrides, 1, 2, 3)
}

// topicOn makes a topic of one partition on those nodes, led by the first.
func (c *cluster) topicOn(name string, overrides map[string]string, replicas ...record.NodeID) record.PartitionID {
	c.t.Helper()
	topic, err := c.nodes[1].meta.CreateTopic(c.t.Context(), metadata.TopicSpec{Name: name, Overrides: overrides, Partitions: [][]record.NodeID{replicas}})
	check(c.t, err)
	id := record.PartitionID{Topic: topic.ID}
	c.awaitLeader(id, replicas[0])
	return id
}

// assign gives a partition other replicas, and a move or none, as one node knows it.
func (c *cluster) assign(by record.NodeID, id record.PartitionID, next metadata.Assignment) {
	c.t.Helper()
	m := c.nodes[by].meta
	topic, err := m.ReadTopic(c.t.Context(), id.Topic)
	check(c.t, err)
	state, err := m.ReadPartition(c.t.Context(), id)
	check(c.t, err)
	_, err = m.AlterAssignments(c.t.Context(), topic, []metadata.AssignmentChange{{Next: next, ISR: state.ISR.Rev}})
	check(c.t, err)
}

func (c *cluster) awaitLeader(id record.PartitionID, want ...record.NodeID) *broker.Partition {
	c.t.Helper()
	var led *broker.Partition
	c.await(fmt.Sprintf("one of %v to lead", want), func() bool {
		for _, n := range want {
			if p, err := c.nodes[n].broker.Partition(id); err == nil && p.Marks().Leading {
				led = p
				return true
			}
		}
		return false
	})
	return led
}

func (c *cluster) await(what string, cond func() bool) {
	c.t.Helper()
	for range 4000 {
		if cond() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	for id, n := range c.nodes {
		c.t.Logf("node %d:\n%s", id, n.log)
	}
	c.t.Fatalf("waited in vain for %s", what)
}

// isr is the committed in-sync set, as a node sees it.
func (c *cluster) isr(n record.NodeID, id record.PartitionID) (members, eligible []record.NodeID) {
	state, _ := c.nodes[n].meta.Image().Partition(id)
	for _, m := range state.ISR.Members {
		members = append(members, m.Node)
	}
	for _, m := range state.ISR.ELR {
		eligible = append(eligible, m.Node)
	}
	slices.Sort(members)
	slices.Sort(eligible)
	return members, eligible
}

// awaitISR waits until a node's image, and the leader itself, have that in-sync set: the image may show a change before the leader has its outcome.
func (c *cluster) awaitISR(n record.NodeID, id record.PartitionID, want ...record.NodeID) {
	c.t.Helper()
	c.await(fmt.Sprintf("%v to be in sync", want), func() bool {
		if in, _ := c.isr(n, id); !slices.Equal(in, want) {
			return false
		}
		state, _ := c.nodes[n].meta.Image().Partition(id)
		leader := c.nodes[state.Leader.Node]
		if leader == nil {
			return true
		}
		p, err := leader.broker.Partition(id)
		return err != nil || !p.Marks().Leading || p.Marks().InSync == len(want)
	})
}

// awaitStamped waits until a node that registered anew is in sync under that registration: a leader may take it out in between.
func (c *cluster) awaitStamped(n record.NodeID, id record.PartitionID, member record.NodeID, before metadata.Incarnation) {
	c.t.Helper()
	c.await(fmt.Sprintf("node %d to be in sync anew", member), func() bool {
		state, _ := c.nodes[n].meta.Image().Partition(id)
		m, in := state.ISR.Member(member)
		return in && m.Incarnation > before
	})
}

// produce appends one batch and waits for its acknowledgement.
func (c *cluster) produce(p *broker.Partition, acks int16, value ...string) (record.Offset, error) {
	c.t.Helper()
	b, rejected := record.Validate(values(c.t, value...), &record.Rules{MaxBytes: 1 << 20, MaxDecompressed: 1 << 20, AllowZstd: true, BeforeMax: -1, AfterMax: -1})
	if rejected != nil {
		c.t.Fatal(rejected)
	}
	var w broker.Wait
	w.Init(1)
	var pend broker.Pending
	p.Append(b, broker.AppendOptions{Acks: acks}, &w, &pend)
	select {
	case <-w.C():
	case <-time.After(4 * time.Second):
		p.Expire(&pend)
		<-w.C()
	}
	return pend.Base, pend.Err
}

func (c *cluster) must(p *broker.Partition, value ...string) {
	c.t.Helper()
	if _, err := c.produce(p, -1, value...); err != nil {
		c.t.Fatalf("produce %q: %v", value, err)
	}
}

// held is what a node's replica holds below its high watermark, whatever its role.
func (c *cluster) held(n record.NodeID, id record.PartitionID) []string {
	c.t.Helper()
	p, err := c.nodes[n].broker.Partition(id)
	if err != nil {
		return nil
	}
	var res broker.ReadResult
	req := broker.ReadRequest{MaxBytes: 1 << 20, FirstWhole: true, CurrentEpoch: record.NoEpoch, LastFetchedEpoch: record.NoEpoch, AnyReplica: true}
	err = p.Read(&req, &res)
	if res.Cold && err == nil {
		err = p.ReadCold(c.t.Context(), &req, &res)
	}
	if err != nil {
		return []string{err.Error()}
	}
	return contents(c.t, res.Data)
}

func (c *cluster) awaitHeld(id record.PartitionID, want []string, nodes ...record.NodeID) {
	c.t.Helper()
	for _, n := range nodes {
		c.await(fmt.Sprintf("node %d to hold %d records", n, len(want)), func() bool { return slices.Equal(c.held(n, id), want) })
	}
}

// isolate keeps a node from all others.
func (c *cluster) isolate(id record.NodeID, apart bool) {
	for other := range record.NodeID(3) {
		if other+1 == id {
			continue
		}
		a, b := fmt.Sprintf("node%d", id), fmt.Sprintf("node%d", other+1)
		if apart {
			c.peers.net.Partition(a, b)
		} else {
			c.peers.net.Heal(a, b)
		}
	}
}

func inCluster(t *testing.T, test func(t *testing.T, c *cluster)) {
	synctest.Test(t, func(t *testing.T) { test(t, startCluster(t)) })
}

// unregister deletes a node's registration behind its back.
func (c *cluster) unregister(id record.NodeID) {
	c.t.Helper()
	kv := c.peers.etcd.Client()
	defer kv.Close()
	all, err := kv.Range(c.t.Context(), metadata.RangeRequest{Key: "\x00", End: "\xff"})
	check(c.t, err)
	for _, e := range all.KVs {
		if strings.HasSuffix(e.Key, fmt.Sprintf("/broker/%d", id)) {
			_, err := kv.Txn(c.t.Context(), metadata.Txn{Then: []metadata.Op{{Kind: metadata.OpDelete, Key: e.Key}}})
			check(c.t, err)
			return
		}
	}
	c.t.Fatalf("node %d is not registered", id)
}
