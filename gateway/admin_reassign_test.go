// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// target is a partition with the replicas asked for, nil for none.
type target struct {
	partition int32
	replicas  []int32
}

func reassignRequest(topic string, targets ...target) *kmsg.AlterPartitionAssignmentsRequest {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 10000
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = topic
	for _, w := range targets {
		p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		p.Partition, p.Replicas = w.partition, w.replicas
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func movesRequest(topic string, partitions ...int32) *kmsg.ListPartitionReassignmentsRequest {
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	if topic != "" {
		t := kmsg.NewListPartitionReassignmentsRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	return req
}

func electRequest(kind int8, topic string, partitions ...int32) *kmsg.ElectLeadersRequest {
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType, req.TimeoutMillis = kind, 2000
	if topic != "" {
		t := kmsg.NewElectLeadersRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	return req
}

// TestReassignments: what a cluster of one node answers, every code but those of moves under way.
func TestReassignments(t *testing.T) {
	x := newAdminScript(t)
	x.makeTopic("t", 2)
	tt, no := x.topic("t"), x.topic("no")
	for v := int16(0); v <= 1; v++ {
		x.do("where it is", v, reassignRequest(tt, target{0, []int32{1}}))
		x.do("cancel nothing", v, reassignRequest(tt, target{0, nil}))
		x.do("unknown broker", v, reassignRequest(tt, target{0, []int32{1, 77}}))
		x.do("twice one broker", v, reassignRequest(tt, target{0, []int32{1, 1}}))
		x.do("to nobody", v, reassignRequest(tt, target{0, []int32{}}))
		x.do("unknown partition", v, reassignRequest(tt, target{9, []int32{1}}, target{-1, []int32{1}}, target{1, []int32{1}}))
		x.do("unknown partition, cancel", v, reassignRequest(tt, target{9, nil}))
		x.do("unknown topic", v, reassignRequest(no, target{0, []int32{1}}, target{1, nil}))
		x.do("bad name", v, reassignRequest("a b", target{0, []int32{1}}))
		x.do("no partitions", v, reassignRequest(tt))
	}
	keep := reassignRequest(tt, target{0, []int32{1}})
	keep.AllowReplicationFactorChange = false
	x.do("keep the factor", 1, keep)
	x.do("all moves", 0, movesRequest(""))
	x.do("moves of one", 0, movesRequest(tt, 0, 1, 9))
	x.do("moves of unknown", 0, movesRequest(no, 0))
	x.golden("45_alter_partition_reassignments")
}

func TestElectLeaders(t *testing.T) {
	x := newAdminScript(t)
	x.makeTopic("t", 2)
	tt, no := x.topic("t"), x.topic("no")
	for v := int16(0); v <= 2; v++ {
		x.all(v, electRequest(0, ""))
		x.do("not needed", v, electRequest(0, tt, 0, 1))
		x.do("unknown", v, electRequest(0, tt, 9))
		x.do("unknown topic", v, electRequest(0, no, 0))
		if v > 0 {
			x.all(v, electRequest(1, ""))
			x.do("unclean, not needed", v, electRequest(1, tt, 0))
			x.do("unclean, unknown", v, electRequest(1, no, 0))
		}
	}
	x.golden("43_elect_leaders")
}

// all notes what an election of everything says about our topic: there may be others.
func (x *adminScript) all(v int16, req *kmsg.ElectLeadersRequest) {
	x.t.Helper()
	r := x.quiet(v, req).(*kmsg.ElectLeadersResponse)
	for _, t := range r.Topics {
		if t.Topic == x.topic("t") {
			x.note("v%d all, kind %d: error %d, partitions told of: %d", v, req.ElectionType, r.ErrorCode, len(t.Partitions))
		}
	}
}

// reassign gives the error codes of an answer's partitions.
func (c *client) reassign(v int16, req *kmsg.AlterPartitionAssignmentsRequest) (codes []int16) {
	for _, p := range c.do(v, req).(*kmsg.AlterPartitionAssignmentsResponse).Topics[0].Partitions {
		codes = append(codes, p.ErrorCode)
	}
	return codes
}

// moves shows the moves under way as "partition: replicas +adding -removing".
func (c *client) moves(req *kmsg.ListPartitionReassignmentsRequest) (out []string) {
	for _, t := range c.do(0, req).(*kmsg.ListPartitionReassignmentsResponse).Topics {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%s/%d: %v +%v -%v", t.Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas))
		}
	}
	return out
}

// TestMoveUnderWay: a move to a node that never comes into sync, as the tools see it, changed, refused and given up.
func TestMoveUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		c := n.dial()
		n.topic("t", 2, nil)
		secondNode(t, n, 2, testListener, "r2")
		look := func(what string, want ...string) {
			t.Helper()
			if got := c.moves(movesRequest("")); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		replicas := func() []int32 {
			return c.do(12, metadataRequest(false, false, "t")).(*kmsg.MetadataResponse).Topics[0].Partitions[0].Replicas
		}
		if got := c.reassign(1, reassignRequest("t", target{0, []int32{2}}, target{1, nil}, target{0, []int32{1}})); !slices.Equal(got, []int16{42, 85, 42}) {
			t.Errorf("one partition twice, one that does not move: %v", got)
		}
		look("nothing was done")
		if got := c.reassign(0, reassignRequest("t", target{0, []int32{2}}, target{1, nil})); !slices.Equal(got, []int16{0, 85}) {
			t.Errorf("begun: %v", got)
		}
		look("under way", "t/0: [2 1] +[2] -[1]")
		if got := replicas(); !slices.Equal(got, []int32{1, 2}) {
			t.Errorf("replicas under way: %v", got)
		}
		keep := reassignRequest("t", target{0, []int32{2, 1}})
		keep.AllowReplicationFactorChange = false
		if got := c.reassign(1, keep); !slices.Equal(got, []int16{38}) {
			t.Errorf("another factor, not allowed: %v", got)
		}
		if got := c.reassign(1, reassignRequest("t", target{0, []int32{2, 1}})); !slices.Equal(got, []int16{0}) {
			t.Errorf("another target: %v", got)
		}
		look("changed", "t/0: [2 1] +[2] -[]")
		if got := c.moves(movesRequest("t", 1, 0)); len(got) != 1 {
			t.Errorf("moves of the topic: %v", got)
		}
		if got := c.moves(movesRequest("t", 1)); got != nil {
			t.Errorf("moves of what does not move: %v", got)
		}
		if got := c.reassign(1, reassignRequest("t", target{0, nil})); !slices.Equal(got, []int16{0}) {
			t.Errorf("given up: %v", got)
		}
		look("given up")
		if got := replicas(); !slices.Equal(got, []int32{1}) {
			t.Errorf("replicas afterwards: %v", got)
		}
	})
}

// TestElections: the request waits until the preferred replica leads, and says why it cannot.
func TestElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic, c := n.topic("t", 1, nil), n.dial()
		elect := func(kind int8) (int16, time.Duration) {
			t.Helper()
			began := time.Now()
			r := c.do(2, electRequest(kind, "t", 0)).(*kmsg.ElectLeadersResponse)
			if r.ErrorCode != 0 {
				return r.ErrorCode, time.Since(began)
			}
			return r.Topics[0].Partitions[0].ErrorCode, time.Since(began)
		}
		if code, _ := elect(7); code != 42 {
			t.Errorf("no such kind of election: %d", code)
		}
		// Node 2 is preferred, but not in sync, and then in sync without taking over.
		secondNode(t, n, 2, testListener, "r2")
		if got := c.reassign(1, reassignRequest("t", target{0, []int32{1, 2}})); !slices.Equal(got, []int16{0}) {
			t.Fatalf("second replica: %v", got)
		}
		ctx := context.Background()
		assign := func(replicas ...record.NodeID) {
			t.Helper()
			now, err := n.meta.ReadTopic(ctx, topic.ID)
			check(t, err)
			next, err := n.meta.AlterAssignments(ctx, now, []metadata.AssignmentChange{{Next: metadata.Assignment{Replicas: replicas}}})
			check(t, err)
			check(t, n.meta.WaitFor(ctx, next.Rev))
		}
		assign(2, 1)
		if code, took := elect(electPreferred); code != 80 || took >= time.Second {
			t.Errorf("preferred replica not in sync: %d after %s", code, took)
		}
		if code, _ := elect(electUnclean); code != 84 {
			t.Errorf("unclean with a leader: %d", code)
		}
		if r := c.do(2, electRequest(0, "")).(*kmsg.ElectLeadersResponse); len(r.Topics) != 1 || r.Topics[0].Partitions[0].ErrorCode != 80 {
			t.Errorf("all: %+v", r.Topics)
		}
	})
}

// TestDrainingGetsNothing: no replica is placed on a node that drains, and none can be assigned to it.
func TestDrainingGetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		c := n.dial()
		n.topic("t", 1, nil)
		secondNode(t, n, 2, testListener, "r2")
		rev, err := n.meta.Drain(context.Background(), 2)
		check(t, err)
		check(t, n.meta.WaitFor(context.Background(), rev))
		r := c.do(7, createRequest(false, newTopic{name: "auto", partitions: 6, rf: -1}, newTopic{name: "two", partitions: 1, rf: 2},
			newTopic{name: "there", partitions: -1, rf: -1, assign: map[int32][]int32{0: {2}}})).(*kmsg.CreateTopicsResponse).Topics
		if r[0].ErrorCode != 0 || r[0].ReplicationFactor != 1 || r[1].ErrorCode != 38 || r[2].ErrorCode != 39 {
			t.Errorf("%+v", r)
		}
		const says = "1 broker takes new replicas (node 2 drains)"
		if m := r[1].ErrorMessage; m == nil || !strings.Contains(*m, says) {
			t.Errorf("too many replicas while node 2 drains: %v", m)
		}
		for i, replicas := range n.meta.Image().Topic("auto").Partitions {
			if !slices.Equal(replicas, []record.NodeID{1}) {
				t.Errorf("partition %d is on %v", i, replicas)
			}
		}
		if got := c.reassign(1, reassignRequest("t", target{0, []int32{1, 2}})); !slices.Equal(got, []int16{39}) {
			t.Errorf("moved to a node that drains: %v", got)
		}
		if m := r[2].ErrorMessage; m == nil || !strings.Contains(*m, "`varve node undrain 2`") {
			t.Errorf("assigned to a node that drains: %v", m)
		}
		grow := kmsg.NewPtrCreatePartitionsRequest()
		grow.TimeoutMillis = 5000
		g := kmsg.NewCreatePartitionsRequestTopic()
		g.Topic, g.Count = "auto", 8
		grow.Topics = append(grow.Topics, g)
		if r := c.do(3, grow).(*kmsg.CreatePartitionsResponse).Topics[0]; r.ErrorCode != 0 || len(n.meta.Image().Topic("auto").Partitions) != 8 {
			t.Errorf("grown: %+v", r)
		}
	})
}

// TestUncleanElection: of a partition whose in-sync replicas are away another one leads when it is asked for.
func TestUncleanElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic, c := n.topic("t", 1, nil), n.dial()
		ctx := context.Background()
		store, session := secondNode(t, n, 2, testListener, "r2")
		elect := func() int16 {
			return c.do(2, electRequest(electUnclean, "t", 1)).(*kmsg.ElectLeadersResponse).Topics[0].Partitions[0].ErrorCode
		}
		grown, err := n.meta.CreatePartitions(ctx, topic.ID, 1, [][]record.NodeID{{2, 1}})
		check(t, err)
		check(t, store.WaitFor(ctx, grown.Rev))
		id := record.PartitionID{Topic: topic.ID, Index: 1}
		led, err := store.TakeOver(ctx, session, []record.PartitionID{id})
		if err != nil || len(led) != 1 {
			t.Fatalf("takeover: %v, %v", led, err)
		}
		// Node 2 stays alone in sync, and goes.
		_, err = store.ChangeISR(ctx, led[0], metadata.ISRChange{From: led[0].ISR, MinISR: 1, Remove: []record.NodeID{1}})
		check(t, err)
		check(t, n.meta.WaitFor(ctx, led[0].LeaderRev))
		if code := elect(); code != 84 {
			t.Errorf("with a leader: %d", code)
		}
		check(t, session.Close(ctx))
		n.await("node 2 to be gone", func() bool { return len(n.meta.Image().Brokers()) == 1 })
		time.Sleep(time.Minute)
		if state, _ := n.meta.Image().Partition(id); state.Leader.Node != 2 {
			t.Fatalf("node 1 took over without being in sync: %+v", state)
		}
		if code := elect(); code != 0 {
			t.Errorf("unclean election: %d", code)
		}
		if state, _ := n.meta.Image().Partition(id); state.Leader.Node != 1 || state.Leader.UncleanEpoch != state.Leader.Epoch || len(state.ISR.Members) != 1 {
			t.Errorf("elected: %+v", state)
		}
		n.await("node 1 to serve it", func() bool {
			p, err := n.broker.Partition(id)
			return err == nil && p.Marks().Leading
		})
	})
}
