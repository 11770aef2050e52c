// SPDX-License-Identifier: Apache-2.0

package metadata_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// The tests of this file run on virtual time with the production's intervals.

type running struct {
	*metadata.Store
	kv   *memory.Client
	done chan error
}

func start(t *testing.T, server *memory.Server, id record.NodeID, w metadata.Witness) *running {
	t.Helper()
	r := &running{kv: server.Client(), done: make(chan error, 1)}
	s, err := metadata.Open(t.Context(), r.kv, metadata.Options{
		NodeID: id, Witness: w, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Store = s
	ctx, cancel := context.WithCancel(context.Background())
	go func() { r.done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil && s.Err() == nil {
			t.Error(err)
		}
	})
	return r
}

func (r *running) topic(t *testing.T, name string) *metadata.Topic {
	t.Helper()
	topic, err := r.CreateTopic(t.Context(), metadata.TopicSpec{Name: name, Partitions: [][]record.NodeID{{1}}})
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

func TestLeaseMargin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.New()
		n, other := start(t, server, 1, nil), start(t, server, 2, nil)
		sess, err := n.Register(t.Context(), metadata.BrokerInfo{StoreID: metadata.UUID{1}, Boots: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sess.Close(context.Background()) }()
		topic := n.topic(t, "t")
		id := []metadata.PartitionID{{Topic: topic.ID}}
		if _, err := n.TakeOver(t.Context(), sess, id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if !sess.Alive() || sess.Age() > 2*time.Second {
			t.Errorf("a kept lease is %s old", sess.Age())
		}
		// Cut off for less than the margin, then for less than the lease.
		for _, cut := range []struct {
			d     time.Duration
			alive bool
		}{{5 * time.Second, true}, {8500 * time.Millisecond, false}} {
			n.kv.SetFaults(memory.Faults{Outage: true})
			time.Sleep(cut.d)
			if sess.Alive() != cut.alive {
				t.Errorf("cut off for %s: alive is %v", cut.d, !cut.alive)
			}
			n.kv.SetFaults(memory.Faults{})
			time.Sleep(2 * time.Second)
			if !sess.Alive() || sess.Err() != nil {
				t.Errorf("after %s: not alive again, %v", cut.d, sess.Err())
			}
		}
		// Cut off for longer: whoever takes over cannot do so while this node thinks that it leads.
		n.kv.SetFaults(memory.Faults{Outage: true})
		for other.Image().Broker(1) != nil {
			time.Sleep(10 * time.Millisecond)
		}
		if sess.Alive() {
			t.Error("the lease ended while the node thought itself alive")
		}
		n.kv.SetFaults(memory.Faults{})
		<-sess.Lost()
		if !errors.Is(sess.Err(), metadata.ErrSessionLost) {
			t.Errorf("lost by %v", sess.Err())
		}
		// The whole store away for long ends no lease, as with etcd.
		sess2, err := n.Register(t.Context(), metadata.BrokerInfo{StoreID: metadata.UUID{1}, Boots: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sess2.Close(context.Background()) }()
		server.SetOutage(true)
		time.Sleep(time.Minute)
		if sess2.Alive() {
			t.Error("alive after a minute without the store")
		}
		server.SetOutage(false)
		time.Sleep(3 * time.Second)
		if !sess2.Alive() {
			t.Error("the session did not come back with the store")
		}
	})
}

func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.New()
		n, other := start(t, server, 1, nil), start(t, server, 2, nil)
		synctest.Wait()
		n.kv.SetFaults(memory.Faults{DeadWatch: true})
		topic := other.topic(t, "t")
		time.Sleep(29 * time.Second)
		if n.Image().Topic("t") != nil {
			t.Fatal("a dead watch gave something: the test tests nothing")
		}
		n.kv.SetFaults(memory.Faults{DeadWatch: true}) // also the next watch hangs: the check must go on
		time.Sleep(2 * time.Minute)
		n.kv.SetFaults(memory.Faults{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := n.WaitFor(ctx, topic.Rev); err != nil || n.Image().Topic("t") == nil {
			t.Errorf("the image did not come back: %v", err)
		}
	})
}

func TestLostEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.New()
		kv := &lossy{Client: server.Client()}
		s, err := metadata.Open(t.Context(), kv, metadata.Options{NodeID: 1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		for _, lost := range []string{"/s/topic/", "/s/name/"} {
			synctest.Wait()
			kv.drop = lost
			topic, err := s.CreateTopic(ctx, metadata.TopicSpec{Name: "t" + lost[3:4], Partitions: [][]record.NodeID{{1}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.WaitFor(ctx, topic.Rev); err != nil || s.Image().Topic(topic.Name) != nil {
				t.Fatalf("nothing was lost: the test tests nothing (%v)", err)
			}
			kv.drop = ""
			time.Sleep(70 * time.Second)
			if s.Image().Topic(topic.Name) == nil {
				t.Errorf("the check did not find the event lost under %s", lost)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// lossy is a client whose watches skip events without an error, as etcd's have done.
type lossy struct {
	*memory.Client
	drop string
}

func (l *lossy) Watch(ctx context.Context, prefix string, from metadata.Revision) metadata.Watcher {
	return &lossyWatch{l.Client.Watch(ctx, prefix, from), l}
}

type lossyWatch struct {
	metadata.Watcher
	l *lossy
}

func (w *lossyWatch) Next(ctx context.Context) (metadata.WatchBatch, error) {
	b, err := w.Watcher.Next(ctx)
	var kept []metadata.Event
	for _, e := range b.Events {
		if w.l.drop == "" || !strings.Contains(e.Key, w.l.drop) {
			kept = append(kept, e)
		}
	}
	b.Events = kept
	return b, err
}

func TestWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.New()
		n := start(t, server, 1, nil)
		backup, newest := server.Snapshot(), (*memory.Snapshot)(nil)
		for _, name := range []string{"a", "b", "c"} {
			n.topic(t, name)
		}
		newest = server.Snapshot()
		synctest.Wait() // the image is there: the next question is the check's, after 30 s
		// An answer from the past that is over within the grace (faults K9) ends nothing.
		server.Restore(backup, server.ClusterID())
		time.Sleep(45 * time.Second)
		server.Restore(newest, server.ClusterID())
		time.Sleep(time.Minute)
		if n.Err() != nil {
			t.Fatalf("stopped by answers from the past of 15 s: %v", n.Err())
		}
		n.topic(t, "d")
		server.Restore(backup, server.ClusterID())
		began := time.Now()
		<-n.Failed()
		if took := time.Since(began); took < 30*time.Second || took > 65*time.Second {
			t.Errorf("believed after %s", took)
		}
		if !errors.Is(n.Err(), metadata.ErrWentBack) {
			t.Errorf("stopped by %v", n.Err())
		}
	})
}

// TestAnotherStoreIsNamed: answers of another store, which need not lie further back, are not called old.
func TestAnotherStoreIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.New()
		var said bytes.Buffer
		s, err := metadata.Open(t.Context(), server.Client(), metadata.Options{NodeID: 1, Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		was := server.ClusterID()
		server.Restore(server.Snapshot(), was+1)
		if err := s.Run(t.Context()); !errors.Is(err, metadata.ErrWentBack) {
			t.Errorf("ended by %v", err)
		}
		want := fmt.Sprintf("another etcd cluster answered than before, asking again\" etcd=%x was=%x", was+1, was)
		if !strings.Contains(said.String(), want) || strings.Contains(said.String(), "older revision") {
			t.Errorf("want %q in:\n%s", want, said.String())
		}
	})
}

// TestHistoryIsCompacted: one node with a session forgets the store's history of more than two minutes ago, and no newer one.
func TestHistoryIsCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.New()
		n := start(t, server, 1, nil)
		sess, err := n.Register(t.Context(), metadata.BrokerInfo{StoreID: metadata.UUID{1}, Boots: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sess.Close(context.Background()) }()
		early := n.topic(t, "early").Rev
		n.topic(t, "then")
		time.Sleep(4 * time.Minute)
		late := n.topic(t, "late").Rev
		time.Sleep(time.Minute)
		for rev, want := range map[metadata.Revision]error{early: metadata.ErrCompacted, late: nil} {
			if _, err := n.kv.Range(t.Context(), metadata.RangeRequest{Key: "/", At: rev}); !errors.Is(err, want) {
				t.Errorf("reading revision %d: %v, want %v", rev, err, want)
			}
		}
	})
}

// TestTopicsRevision: it moves with topics, their partitions and their end, and with nothing else.
func TestTopicsRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, memory.New(), 1, nil)
		topic := n.topic(t, "t")
		var session *metadata.Session
		settled := func() *metadata.Image {
			synctest.Wait()
			return n.Image()
		}
		for _, c := range []struct {
			name  string
			moves bool
			do    func() error
		}{
			{"a node", false, func() error {
				var err error
				session, err = n.Register(t.Context(), metadata.BrokerInfo{})
				return err
			}},
			{"a leader", false, func() error {
				_, err := n.TakeOver(t.Context(), session, []metadata.PartitionID{{Topic: topic.ID}})
				return err
			}},
			{"a config", false, func() error {
				_, err := n.AlterBrokerConfig(t.Context(), "", func(m map[string]string) error {
					m["log.retention.ms"] = "1000"
					return nil
				})
				return err
			}},
			{"a topic", true, func() error { n.topic(t, "u"); return nil }},
			{"partitions", true, func() error {
				_, err := n.CreatePartitions(t.Context(), topic.ID, 1, [][]record.NodeID{{1}})
				return err
			}},
			{"a deletion", true, func() error {
				_, err := n.DeleteTopic(t.Context(), topic.ID)
				return err
			}},
		} {
			before := settled()
			if err := c.do(); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			after := settled()
			if after.Revision == before.Revision || (after.TopicsRevision != before.TopicsRevision) != c.moves {
				t.Errorf("%s: from %d to %d, the topics' from %d to %d", c.name, before.Revision, after.Revision, before.TopicsRevision, after.TopicsRevision)
			}
		}
		if err := session.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestDeletedTopicStandsAgainstLateCreation: the keys of a deleted topic stay longer than a lost CreateTopic can be on its way.
func TestDeletedTopicStandsAgainstLateCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, memory.New(), 1, nil)
		n.kv.SetFaults(memory.Faults{Txn: func(txn metadata.Txn) (o memory.Outcome) {
			if len(txn.If) > 0 {
				n.kv.SetFaults(memory.Faults{}) // the first one only
				o.Late = 20 * time.Second
			}
			return o
		}})
		topic := n.topic(t, "t")
		if _, err := n.DeleteTopic(t.Context(), topic.ID); err != nil {
			t.Fatal(err)
		}
		for want := range 2 {
			more, err := n.DrainDeleting(t.Context(), metadata.DrainOptions{})
			if err != nil || more != (want == 0) {
				t.Errorf("pass %d: more is %v, %v", want, more, err)
			}
			time.Sleep(61 * time.Second)
		}
		if n.Image().Topic("t") != nil || n.Image().TopicCount() != 0 {
			t.Error("a late creation brought the topic back")
		}
	})
}
