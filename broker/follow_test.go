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

// TestAcknowledgedBeforeAssignedAnew: a replica that goes and comes back within an epoch has removed what it held: the leader must not take
// it for in sync by what it acknowledged before.
func TestAcknowledgedBeforeAssignedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		p.must(t, built(t, nobody, 1, 2, 3))
		ctx, cancel := context.WithCancel(context.Background())
		store, err := metadata.Open(ctx, n.kv, metadata.Options{NodeID: 2, CompactEvery: -1, DataClusterID: n.meta.ClusterID(), DataNode: 2})
		check(t, err)
		ended := make(chan error, 1)
		go func() { ended <- store.Run(ctx) }()
		me := metadata.BrokerInfo{Node: 2, StoreID: metadata.NewUUID()}
		session, err := store.Register(ctx, me)
		check(t, err)
		defer func() {
			check(t, session.Close(ctx))
			cancel()
			<-ended
		}()
		state := func() metadata.PartitionState { s, _ := n.meta.Image().Partition(p.id); return s }
		assign := func(nodes ...record.NodeID) metadata.Revision {
			topic, err := n.meta.AlterAssignments(ctx, n.meta.Image().TopicByID(p.id.Topic), []metadata.AssignmentChange{{Next: metadata.Assignment{Replicas: nodes}, ISR: state().ISR.Rev}})
			check(t, err)
			check(t, n.meta.WaitFor(ctx, topic.Rev))
			return topic.Rev
		}
		old := false
		acknowledge := func(assigned metadata.Revision) {
			p.Acknowledge(&ReadRequest{Replica: &Replica{Node: 2, Incarnation: session.Incarnation(), Store: me.StoreID, Assigns: !old}, Offset: 3, CurrentEpoch: 0, LastFetchedEpoch: 0, Assigned: assigned})
		}
		inSync := func(members int) func() bool { return func() bool { return len(state().ISR.Members) == members } }
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
