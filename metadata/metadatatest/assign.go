// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"errors"
	"slices"
	"testing"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

type replicas = []record.NodeID

// join brings a node into the in-sync set as its leader does.
func (n *node) join(l metadata.Leadership, from metadata.ISRState, m *node) metadata.ISRState {
	n.t.Helper()
	next, err := n.ChangeISR(testContext(n.t), l, metadata.ISRChange{
		From: from, MinISR: 1, Add: []metadata.ISRMember{{Node: m.id, Incarnation: m.session.Incarnation(), StoreID: m.storeID}},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return next
}

// reassign asks for one partition and gives the answer for it.
func (n *node) reassign(id metadata.PartitionID, o metadata.ReassignOptions, target replicas) error {
	n.t.Helper()
	results, _, err := n.Reassign(testContext(n.t), id.Topic, []metadata.Reassignment{{Partition: id.Index, Target: target}}, o)
	if err != nil || len(results) != 1 {
		n.t.Fatalf("reassigning %s: %v, %v", id, results, err)
	}
	return results[0]
}

func (n *node) assignment(id metadata.PartitionID) metadata.Assignment {
	n.t.Helper()
	topic, err := n.ReadTopic(testContext(n.t), id.Topic)
	if err != nil {
		n.t.Fatal(err)
	}
	return topic.Assignment(id.Index)
}

// expect compares an assignment: replicas, then target and origin of a move (nil: none).
func expect(t *testing.T, what string, a metadata.Assignment, want ...replicas) {
	t.Helper()
	got := []replicas{a.Replicas}
	if a.Move != nil {
		got = append(got, a.Move.Target, a.Move.Origin)
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// testReassign walks a move through: one replica at a time, the origin goes when the whole target is in sync.
func testReassign(t *testing.T, h Harness) {
	p := prefix(t)
	a, b, c := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1), startNode(t, h, p, 3).register(1)
	topic := a.create("t", replicas{1}, replicas{1})
	id := metadata.PartitionID{Topic: topic.ID}
	l := a.take(id)
	if err := a.reassign(id, metadata.ReassignOptions{}, replicas{2, 3}); err != nil {
		t.Fatal(err)
	}
	expect(t, "begun", a.assignment(id), replicas{1, 2}, replicas{2, 3}, replicas{1})
	step := func(isr metadata.ISRState) bool {
		t.Helper()
		topic, err := a.ReadTopic(testContext(t), id.Topic)
		if err != nil {
			t.Fatal(err)
		}
		next, ok := topic.Assignment(0).Step(&isr, 1)
		if !ok {
			return false
		}
		next2, err := a.AlterAssignments(testContext(t), topic, []metadata.AssignmentChange{{Next: next, ISR: isr.Rev}})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []*node{a, b} {
			n.wait(next2.Rev)
			if got := n.Image().TopicByID(id.Topic).Assignment(0); !slices.Equal(got.Replicas, next.Replicas) || (got.Move == nil) != (next.Move == nil) {
				t.Errorf("image of node %d has %+v", n.id, got)
			}
		}
		return true
	}
	isr := l.ISR
	if step(isr) {
		t.Error("a second replica came before the first was in sync")
	}
	isr = a.join(l, isr, b)
	if !step(isr) {
		t.Fatal("no step although the first replica is in sync")
	}
	expect(t, "second replica", a.assignment(id), replicas{1, 2, 3}, replicas{2, 3}, replicas{1})
	if step(isr) {
		t.Error("the origin went before the whole target was in sync")
	}
	stale := isr
	isr = a.join(l, isr, c)
	done := metadata.Assignment{Replicas: replicas{2, 3}}
	now, err := a.ReadTopic(testContext(t), id.Topic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.AlterAssignments(testContext(t), now, []metadata.AssignmentChange{{Next: done, ISR: stale.Rev}}); !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("replicas dropped by an in-sync set that is over: %v", err)
	}
	if !step(isr) {
		t.Fatal("no step although the target is in sync")
	}
	expect(t, "done", a.assignment(id), replicas{2, 3})
	if _, err := a.AlterAssignments(testContext(t), now, []metadata.AssignmentChange{{Next: done, ISR: isr.Rev}}); !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("a change of a topic that changed: %v", err)
	}
	expect(t, "other partition", a.assignment(metadata.PartitionID{Topic: topic.ID, Index: 1}), replicas{1})
}

func testReassignRequests(t *testing.T, h Harness) {
	p := prefix(t)
	a, b := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1)
	topic, err := a.CreateTopic(testContext(t), metadata.TopicSpec{Name: "t", Partitions: []replicas{{1, 2}, {1, 2}}, AutoRF: true})
	if err != nil {
		t.Fatal(err)
	}
	id, empty := metadata.PartitionID{Topic: topic.ID}, metadata.PartitionID{Topic: topic.ID, Index: 1}
	l := a.take(id)
	keep := metadata.ReassignOptions{KeepReplicationFactor: true}
	for _, c := range []struct {
		what   string
		id     metadata.PartitionID
		o      metadata.ReassignOptions
		target replicas
		want   error
	}{
		{"no such partition", metadata.PartitionID{Topic: topic.ID, Index: 2}, keep, replicas{1, 2}, metadata.ErrUnknownPartition},
		{"nothing to cancel", id, keep, nil, metadata.ErrNoMove},
		{"another replication factor", id, keep, replicas{1, 2, 3}, metadata.ErrReplicationFactor},
	} {
		if err := a.reassign(c.id, c.o, c.target); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if err := a.reassign(id, keep, replicas{2, 1}); err != nil {
		t.Fatal(err)
	}
	expect(t, "another order", a.assignment(id), replicas{2, 1})
	if err := a.reassign(empty, keep, replicas{3, 4}); err != nil {
		t.Fatal(err)
	}
	expect(t, "a partition that never had a leader", a.assignment(empty), replicas{3, 4})
	if got, _ := a.ReadTopic(testContext(t), topic.ID); got == nil || !got.AutoRF {
		t.Error("the automatic replication factor ended although no number of replicas changed")
	}
	if err := a.reassign(id, metadata.ReassignOptions{}, replicas{2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	expect(t, "begun", a.assignment(id), replicas{2, 1, 3}, replicas{2, 3, 4}, replicas{2, 1})
	if got, _ := a.ReadTopic(testContext(t), topic.ID); got == nil || got.AutoRF {
		t.Error("the replication factor is still automatic although it was set")
	}
	if err := a.reassign(id, metadata.ReassignOptions{}, replicas{4, 1}); err != nil {
		t.Fatal(err)
	}
	expect(t, "another target", a.assignment(id), replicas{2, 1}, replicas{4, 1}, replicas{2, 1})
	if err := a.reassign(id, metadata.ReassignOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	expect(t, "cancelled", a.assignment(id), replicas{2, 1})
	// Only what is in sync may be left alone: here node 1, the leader, is.
	if _, err := a.ChangeISR(testContext(t), l, metadata.ISRChange{From: l.ISR, MinISR: 1, Remove: replicas{2}}); err != nil {
		t.Fatal(err)
	}
	if err := a.reassign(id, metadata.ReassignOptions{}, replicas{2}); err != nil {
		t.Fatal(err)
	}
	expect(t, "waits for the one that stays", a.assignment(id), replicas{2, 1}, replicas{2}, replicas{2, 1})
	_ = b
}

// testReassignBack: a replica that was taken away and is in the in-sync set still is not assigned again before its leader has
// dropped it.
func testReassignBack(t *testing.T, h Harness) {
	p := prefix(t)
	a, b := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1)
	topic := a.create("t", replicas{1, 2})
	id := metadata.PartitionID{Topic: topic.ID}
	eventually(t, "both nodes", func() bool { return len(a.Image().Brokers()) == 2 })
	l := a.take(id)
	if len(l.ISR.Members) != 2 || b.id != 2 {
		t.Fatalf("in-sync set %+v", l.ISR)
	}
	for _, target := range []replicas{{1}, {1, 2}} {
		if err := a.reassign(id, metadata.ReassignOptions{}, target); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "not dropped yet", a.assignment(id), replicas{1}, replicas{1, 2}, replicas{1})
	before, err := a.ReadTopic(testContext(t), topic.ID)
	if err != nil {
		t.Fatal(err)
	}
	add := before.Assignment(0)
	add.Replicas = replicas{1, 2}
	isr, err := a.ChangeISR(testContext(t), l, metadata.ISRChange{From: l.ISR, MinISR: 1, Remove: replicas{2}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.AlterAssignments(testContext(t), before, []metadata.AssignmentChange{{Next: add, ISR: l.ISR.Rev}}); !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("added by an in-sync set that is over: %v", err)
	}
	next, ok := before.Assignment(0).Step(&isr, 1)
	if !ok || !slices.Equal(next.Replicas, add.Replicas) {
		t.Errorf("dropped, next is %+v, %v", next, ok)
	}
}

// testReassignBelowMinimum: who asks again for a move that is under way does not end it below the topic's minimum, which is 2.
func testReassignBelowMinimum(t *testing.T, h Harness) {
	p := prefix(t)
	a, c := startNode(t, h, p, 1).register(1), startNode(t, h, p, 3).register(1)
	topic := a.create("t", replicas{1, 2})
	id := metadata.PartitionID{Topic: topic.ID}
	l := a.take(id)
	again := func(what string, target replicas, want ...replicas) {
		t.Helper()
		if err := a.reassign(id, metadata.ReassignOptions{}, target); err != nil {
			t.Fatal(err)
		}
		expect(t, what, a.assignment(id), want...)
	}
	again("begun", replicas{2, 3}, replicas{1, 2, 3}, replicas{2, 3}, replicas{1, 2})
	a.join(l, l.ISR, c)
	again("node 2 is away", replicas{2, 3}, replicas{1, 2, 3}, replicas{2, 3}, replicas{1, 2})
	again("one replica", replicas{3}, replicas{3})
}

// testCancelWithoutInSync: a move is not given up when only what it added is in sync.
func testCancelWithoutInSync(t *testing.T, h Harness) {
	p := prefix(t)
	a, b := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1)
	topic := a.create("t", replicas{1})
	id := metadata.PartitionID{Topic: topic.ID}
	l := a.take(id)
	if err := a.reassign(id, metadata.ReassignOptions{}, replicas{2, 3}); err != nil {
		t.Fatal(err)
	}
	isr := a.join(l, l.ISR, b)
	if err := a.session.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	lb := b.take(id)
	if _, there := lb.ISR.Member(1); there || len(isr.Members) != 2 {
		t.Fatalf("in-sync set %+v after %+v", lb.ISR, isr)
	}
	if err := b.reassign(id, metadata.ReassignOptions{}, nil); !errors.Is(err, metadata.ErrNotInSync) {
		t.Errorf("given up to a replica that is not in sync: %v", err)
	}
	expect(t, "goes on", b.assignment(id), replicas{1, 2}, replicas{2, 3}, replicas{1})
}

func testDraining(t *testing.T, h Harness) {
	p := prefix(t)
	a, b := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2)
	a.wait(a.session.Revision())
	ctx := testContext(t)
	if _, err := a.Drain(ctx, 7); !errors.Is(err, metadata.ErrUnknownNode) {
		t.Errorf("draining a node that never was: %v", err)
	}
	if _, err := b.Undrain(ctx, 7); err != nil {
		t.Errorf("ending what never began: %v", err)
	}
	for range 2 { // again changes nothing
		rev, err := b.Drain(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []*node{a, b} {
			n.wait(rev)
			if img := n.Image(); !img.Draining(1) || img.Draining(2) || len(img.Drains()) != 1 || img.Drains()[1].Since.IsZero() {
				t.Errorf("node %d sees %v", n.id, img.Drains())
			}
		}
	}
	before := b.Image()
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b.run() // loads it
	if err := a.session.Close(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is gone", func() bool { return b.Image().Broker(1) == nil })
	if !b.Image().Draining(1) {
		t.Error("the mark went with the node")
	}
	rev, err := b.Undrain(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	b.wait(rev)
	if b.Image().Draining(1) || !before.Draining(1) {
		t.Error("the mark is still there, or an older image changed")
	}
}

func testLoads(t *testing.T, h Harness) {
	p := prefix(t)
	a, b := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1)
	ctx := testContext(t)
	id := metadata.PartitionID{Topic: record.TopicID(metadata.NewUUID()), Index: 7}
	for _, rate := range []int64{5, 1 << 40} {
		if err := a.PutLoad(ctx, a.session, []metadata.PartitionLoad{{ID: id, Rate: rate}, {ID: metadata.PartitionID{Topic: id.Topic}, Rate: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.PutLoad(ctx, b.Session(), nil); err != nil {
		t.Fatal(err)
	}
	got, err := b.ReadLoads(ctx)
	if err != nil || len(got) != 2 || got[0].Node != 1 || len(got[0].Loads) != 2 || got[0].Loads[0] != (metadata.PartitionLoad{ID: id, Rate: 1 << 40}) ||
		got[1].Node != 2 || len(got[1].Loads) != 0 || got[1].Rev <= got[0].Rev {
		t.Errorf("read %+v, %v", got, err)
	}
	old := a.session
	if err := old.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := b.ReadLoads(ctx); err != nil || len(got) != 1 || got[0].Node != 2 {
		t.Errorf("after node 1 left: %+v, %v", got, err)
	}
	if err := a.PutLoad(ctx, old, nil); !errors.Is(err, metadata.ErrSessionLost) {
		t.Errorf("report under a registration that ended: %v", err)
	}
}

// testUnclean: a replica that is not in sync leads only when it is asked for, only once nobody else is left, and under a mark.
func testUnclean(t *testing.T, h Harness) {
	p := prefix(t)
	a, b := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2)
	ctx := testContext(t)
	topic := a.create("t", replicas{1, 2})
	id := metadata.PartitionID{Topic: topic.ID}
	if _, err := a.ElectUnclean(ctx, id); !errors.Is(err, metadata.ErrInSyncAlive) {
		t.Errorf("before the first leader: %v", err)
	}
	l := a.take(id) // alone in sync: node 2 is not registered
	if _, err := a.ChangeISR(ctx, l, metadata.ISRChange{From: l.ISR, Add: l.ISR.Members, MinISR: 1, HWFloor: 33}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ElectUnclean(ctx, id); !errors.Is(err, metadata.ErrLeaderAlive) {
		t.Errorf("with a leader: %v", err)
	}
	if err := a.session.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ElectUnclean(ctx, id); !errors.Is(err, metadata.ErrNotEligible) {
		t.Errorf("with no replica at all: %v", err)
	}
	b.register(1)
	if _, err := b.TakeOver(ctx, b.session, []metadata.PartitionID{id}); !errors.Is(err, metadata.ErrNotEligible) {
		t.Errorf("taking over without being in sync: %v", err)
	}
	before, err := b.ReadPartition(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.ElectUnclean(ctx, id)
	if err != nil || got.Node != 2 || got.Incarnation != b.session.Incarnation() || got.Epoch != l.Epoch+1 || got.UncleanEpoch != got.Epoch {
		t.Fatalf("elected %+v, %v", got, err)
	}
	won := b.take(id) // finds that it leads
	if won.Epoch != got.Epoch || won.UncleanEpoch != got.Epoch || won.LeaderRev != got.Rev || len(won.ISR.Members) != 1 || won.ISR.Members[0].StoreID != b.storeID ||
		len(won.ISR.ELR) != 0 || won.ISR.HWFloor != 0 || won.Head.Rev != before.Head.Rev {
		t.Errorf("leads as %+v", won)
	}
	if _, err := b.ElectUnclean(ctx, id); !errors.Is(err, metadata.ErrLeaderAlive) {
		t.Errorf("once more: %v", err)
	}
	// With its disk the former leader comes back as one that is not in sync.
	a.register(2)
	if _, err := a.TakeOver(ctx, a.session, []metadata.PartitionID{id}); !errors.Is(err, metadata.ErrLeaderAlive) {
		t.Errorf("the former leader takes over: %v", err)
	}
	if err := b.session.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.TakeOver(ctx, a.session, []metadata.PartitionID{id}); !errors.Is(err, metadata.ErrNotEligible) {
		t.Errorf("the former leader takes over with its old log: %v", err)
	}
}
