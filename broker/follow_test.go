// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// TestForgottenAndNamed: a replica that begins anew within a session is forgotten and named in one request. Else the leader would not
// repeat the high watermark that it had told the earlier role.
func TestForgottenAndNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		f := newFetcher(n.broker, 2)
		w := &followed{p: p, role: &following{}, inFetch: true}
		f.parts[p.id] = w
		f.session.id, f.session.epoch = 1, 3
		f.leave(w)
		req := f.request(Replica{Node: testNode})
		if len(req.Topics) != 1 || len(req.ForgottenTopics) != 1 || record.TopicID(req.ForgottenTopics[0].TopicID) != p.id.Topic {
			t.Errorf("named %+v, forgotten %+v", req.Topics, req.ForgottenTopics)
		}
	})
}

// TestAcknowledgedBeforeAssigned: a follower may know of its assignment before its leader does, and of an idle partition it does not
// say the same twice.
func TestAcknowledgedBeforeAssigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		p.Acknowledge(&ReadRequest{Replica: &Replica{Node: 2, Incarnation: 9, Store: metadata.NewUUID()}, CurrentEpoch: 0, LastFetchedEpoch: record.NoEpoch})
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.mu.lead.followers[2] == nil {
			t.Error("the leader forgot what a node that it does not know as a replica yet has")
		}
		if _, wanted := p.wantedISRLocked(p.mu.lead, n.meta.Image(), p.mu.lead.began); wanted {
			t.Error("a node that is not assigned would enter the in-sync set")
		}
	})
}

// other is a second node as the metadata knows it, which says of a partition what a test has it say.
type other struct {
	t       testing.TB
	n       *node
	p       *Partition
	meta    *metadata.Store
	session *metadata.Session
	disk    metadata.UUID
	stop    func()
}

func startOther(t testing.TB, n *node, p *Partition) *other {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	meta, err := metadata.Open(ctx, n.kv, metadata.Options{NodeID: 2, CompactEvery: -1, DataClusterID: n.meta.ClusterID(), DataNode: 2})
	check(t, err)
	o := &other{t: t, n: n, p: p, meta: meta}
	ended := make(chan error, 1)
	go func() { ended <- meta.Run(ctx) }()
	o.stop = func() {
		check(t, o.session.Close(ctx))
		cancel()
		<-ended
	}
	o.register()
	return o
}

// register begins a registration with a disk of its own.
func (o *other) register() {
	o.t.Helper()
	o.disk = metadata.NewUUID()
	session, err := o.meta.Register(o.t.Context(), metadata.BrokerInfo{Node: 2, StoreID: o.disk})
	check(o.t, err)
	o.session = session
}

func (o *other) replica(assigns bool) *Replica {
	return &Replica{Node: 2, Incarnation: o.session.Incarnation(), Store: o.disk, Assigns: assigns}
}

func (o *other) state() metadata.PartitionState {
	s, _ := o.n.meta.Image().Partition(o.p.id)
	return s
}

// assign gives the partition to nodes and waits until the leader has heard of it.
func (o *other) assign(nodes ...record.NodeID) metadata.Revision {
	o.t.Helper()
	ctx, meta := o.t.Context(), o.n.meta
	topic, err := meta.AlterAssignments(ctx, meta.Image().TopicByID(o.p.id.Topic), []metadata.AssignmentChange{{Next: metadata.Assignment{Replicas: nodes}, ISR: o.state().ISR.Rev}})
	check(o.t, err)
	check(o.t, meta.WaitFor(ctx, topic.Rev))
	return topic.Rev
}

// TestAcknowledgedBeforeAssignedAnew: a replica that goes and comes back within an epoch has removed what it held: the leader must not take
// it for in sync by what it acknowledged before.
func TestAcknowledgedBeforeAssignedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		p.must(t, built(t, nobody, 1, 2, 3))
		o := startOther(t, n, p)
		defer o.stop()
		assign, old := o.assign, false
		acknowledge := func(assigned metadata.Revision) {
			p.Acknowledge(&ReadRequest{Replica: o.replica(!old), Offset: 3, LastFetchedEpoch: 0, Assigned: assigned})
		}
		inSync := func(members int) func() bool { return func() bool { return len(o.state().ISR.Members) == members } }
		first := assign(1, 2)
		acknowledge(first)
		n.await("node 2 to be in sync", inSync(2))
		assign(1)
		n.await("node 2 to be out of the in-sync set", inSync(1))
		acknowledge(first)
		second := assign(1, 2)
		acknowledge(first) // late
		time.Sleep(time.Minute)
		if !inSync(1)() {
			t.Fatal("a replica is taken for in sync by what it acknowledged before it was assigned anew")
		}
		acknowledge(second)
		n.await("node 2 to be in sync again", inSync(2))
		assign(1)
		n.await("node 2 to be out of the in-sync set again", inSync(1))
		assign(1, 2)
		old = true
		acknowledge(0) // of a build that does not say it
		n.await("node 2 of an older build to be in sync", inSync(2))
	})
}

// TestLostDiskAcknowledgesOnce: a member that lost its disk and has fetched everything again says so once, while the in-sync set still counts on the old
// disk. That has to count when it is let in anew, as an idle replica says nothing twice; and what the old disk held must not.
func TestLostDiskAcknowledgesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		p.must(t, built(t, nobody, 1, 2, 3))
		o := startOther(t, n, p)
		defer o.stop()
		assigned := o.assign(1, 2)
		acknowledge := func(end record.Offset) {
			p.Acknowledge(&ReadRequest{Replica: o.replica(true), Offset: end, LastFetchedEpoch: 0, Assigned: assigned})
		}
		inSync := func() bool { s := o.state(); m, ok := s.ISR.Member(2); return ok && m.StoreID == o.disk }
		acknowledge(3)
		n.await("node 2 to be in sync", inSync)
		check(t, p.append(t, built(t, nobody, 4, 5), 1).Err)

		check(t, o.session.Close(t.Context()))
		o.register()
		acknowledge(5)
		n.await("node 2 to be in sync with its new disk", inSync)
		n.await("the high watermark to be at the end", func() bool { return p.Marks().HW == 5 })
	})
}
