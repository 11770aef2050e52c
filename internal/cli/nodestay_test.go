// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/ops"
	"github.com/varve/varve/record"
)

// startNodes registers nodes 1 to n with one store; the first one's is returned.
func startNodes(t *testing.T, n int) *metadata.Store {
	t.Helper()
	server := memory.New()
	var first *metadata.Store
	for id := range n {
		meta, err := metadata.Open(t.Context(), server.Client(), metadata.Options{
			NodeID: record.NodeID(id + 1), CompactEvery: -1, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = meta.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-ended })
		if _, err := meta.RegisterNode(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := meta.Register(ctx, metadata.BrokerInfo{}); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = meta
		}
	}
	return first
}

// TestStaying: what stays on nodes that drain is counted, and `varve why` tells of each replica there what becomes of it, by the rule after
// which the controller plans.
func TestStaying(t *testing.T) {
	meta := startNodes(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := func(rev metadata.Revision, err error) {
		t.Helper()
		if err == nil {
			err = meta.WaitFor(ctx, rev)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	type nodes = []record.NodeID
	topics := map[string]*metadata.Topic{}
	for name, spec := range map[string]metadata.TopicSpec{
		"auto":  {Partitions: []nodes{{1, 2, 3}}, AutoRF: true},
		"two":   {Partitions: []nodes{{2, 1}, {1, 3}}},
		"three": {Partitions: []nodes{{1, 2, 3}, {2, 3, 1}}},
	} {
		spec.Name = name
		topic, err := meta.CreateTopic(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		at(topic.Rev, nil)
		topics[name] = topic
	}
	of := func(id int32) (ops.Nodes, ops.NodeState) {
		t.Helper()
		n, err := opsNode{&node{meta: meta}}.Nodes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return n, nodeOf(n.Nodes, id)
	}
	why := func(topic string, index int32, want ...string) {
		t.Helper()
		got := whyDraining(controller.Around(meta.Image()), meta.Image().Topic(topic), index)
		if len(got) != len(want) {
			t.Fatalf("%s:%d: %q", topic, index, got)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("%s:%d: %q does not say %q", topic, index, got[i], want[i])
			}
		}
	}

	alone := &node{meta: meta, broker: &broker.Broker{}, options: &nodeOptions{nodeID: 5}}
	if n, err := (opsNode{alone}).Nodes(ctx); err != nil || n.Unsure != "node 5 is not registered, or not sure of its lease" {
		t.Errorf("asked of a node without a registration: %v %+v", err, n)
	}
	why("three", 0)
	at(meta.Drain(ctx, 2))
	if n, two := of(2); two.Staying != 2 || !slices.Equal(two.StayingIn, []string{"three"}) || !slices.Equal(n.Takers, []int32{1, 3}) {
		t.Errorf("one drains: %+v", n)
	}
	why("three", 1, "node 2 is being drained: its replica stays: the replication factor is explicit")
	why("auto", 0, "node 2 is being drained: its replica is about to go: the replication factor is automatic")
	why("two", 0, "node 2 is being drained: its replica is about to move to another node")
	why("two", 1)

	move := metadata.Assignment{Replicas: nodes{2, 1}, Move: &metadata.Move{Target: nodes{3, 1}, Origin: nodes{2, 1}}}
	topic, err := meta.AlterAssignments(ctx, topics["two"], []metadata.AssignmentChange{{Partition: 0, Next: move}})
	if err != nil {
		t.Fatal(err)
	}
	at(topic.Rev, nil)
	why("two", 0, "node 2 is being drained: a move takes its replica away")
	if _, two := of(2); two.Leaving != 1 || two.Staying != 2 {
		t.Errorf("one leaves: %+v", two)
	}

	at(meta.Drain(ctx, 1))
	why("two", 0, "node 2 is being drained: a move takes its replica away", "node 1 is being drained: its replica stays")
	if _, one := of(1); one.Staying != 4 || !slices.Equal(one.StayingIn, []string{"three", "two"}) {
		t.Errorf("two drain: %+v", one)
	}
	at(meta.Drain(ctx, 3))
	why("auto", 0, "node 1 is being drained: its replica stays: no node is left", "node 2", "node 3")
	if n, one := of(1); one.Staying != one.Replicas-one.Leaving || n.Takers == nil || len(n.Takers) != 0 {
		t.Errorf("all drain: %+v", n)
	}
	at(meta.Undrain(ctx, 2))
	if n, two := of(2); two.Staying != 0 || two.StayingIn != nil || !slices.Equal(n.Takers, []int32{2}) {
		t.Errorf("one drains no more: %+v", n)
	}
}

// TestCountedOn: what a move took away is leaving as long as it is in sync.
func TestCountedOn(t *testing.T) {
	meta := startNodes(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	topic, err := meta.CreateTopic(ctx, metadata.TopicSpec{Name: "t", Partitions: [][]record.NodeID{{1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	taken, err := meta.TakeOver(ctx, meta.Session(), []record.PartitionID{{Topic: topic.ID}})
	if err != nil {
		t.Fatal(err)
	}
	next := metadata.Assignment{Replicas: []record.NodeID{1, 3}}
	topic, err = meta.AlterAssignments(ctx, topic, []metadata.AssignmentChange{{Next: next, ISR: taken[0].ISR.Rev}})
	if err == nil {
		err = meta.WaitFor(ctx, topic.Rev)
	}
	if err != nil {
		t.Fatal(err)
	}
	n, err := opsNode{&node{meta: meta}}.Nodes(ctx)
	if two := nodeOf(n.Nodes, 2); err != nil || two.Leaving != 1 || two.Replicas != 0 || nodeOf(n.Nodes, 1).Leaving != 0 {
		t.Errorf("%+v, %v", n, err)
	}
}
