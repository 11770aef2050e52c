// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// node is a Store with its image running and, once registered, a session.
type node struct {
	*metadata.Store
	t       *testing.T
	kv      *Faulty
	id      record.NodeID
	storeID metadata.UUID
	session *metadata.Session
	stop    func() error // ends Run and gives its error
}

func startNode(t *testing.T, h Harness, prefix string, id record.NodeID, change ...func(*metadata.Options)) *node {
	t.Helper()
	n := &node{t: t, id: id, kv: &Faulty{KV: client(t, h)}, storeID: metadata.NewUUID()}
	o := metadata.Options{
		NodeID: id, Prefix: prefix, Logger: quiet(), Silence: 200 * time.Millisecond, WentBackGrace: 300 * time.Millisecond,
		DeletingMinAge: time.Nanosecond, CompactEvery: -1,
	}
	for _, fn := range change {
		fn(&o)
	}
	s, err := metadata.Open(testContext(t), n.kv, o)
	if err != nil {
		t.Fatalf("opening node %d: %v", id, err)
	}
	n.Store = s
	n.run()
	t.Cleanup(func() {
		if n.session != nil {
			_ = n.session.Close(testContext(t)) // the store may be gone: its lease ends by itself
		}
		if err := n.stop(); err != nil && s.Err() == nil {
			t.Errorf("Run of node %d: %v", id, err)
		}
	})
	return n
}

// run starts Run; stop may be called more than once.
func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() {
		err = n.Run(ctx)
		close(done)
	}()
	n.stop = func() error { cancel(); <-done; return err }
}

func (n *node) register(boots uint64) *node {
	n.t.Helper()
	s, err := n.Register(testContext(n.t), metadata.BrokerInfo{
		StoreID: n.storeID, Boots: boots, Endpoints: []metadata.Endpoint{{Listener: "PLAINTEXT", Host: "127.0.0.1", Port: 9092}},
	})
	if err != nil {
		n.t.Fatalf("registering node %d: %v", n.id, err)
	}
	n.session = s
	return n
}

func (n *node) create(name string, replicas ...[]record.NodeID) *metadata.Topic {
	n.t.Helper()
	topic, err := n.CreateTopic(testContext(n.t), metadata.TopicSpec{Name: name, Partitions: replicas})
	if err != nil {
		n.t.Fatal(err)
	}
	n.wait(topic.Rev)
	return topic
}

func (n *node) wait(rev metadata.Revision) {
	n.t.Helper()
	if err := n.WaitFor(testContext(n.t), rev); err != nil {
		n.t.Fatalf("node %d: %v", n.id, err)
	}
}

func (n *node) take(id metadata.PartitionID) metadata.Leadership {
	n.t.Helper()
	l, err := n.TakeOver(testContext(n.t), n.session, []metadata.PartitionID{id})
	if err != nil || len(l) != 1 {
		n.t.Fatalf("node %d taking over %s: %v, %v", n.id, id, l, err)
	}
	return l[0]
}

// seal puts one segment into the manifest as an archiver does.
func (n *node) seal(l metadata.Leadership, r metadata.OffsetRange, bytes int64) (metadata.UUID, metadata.Head) {
	n.t.Helper()
	attempt := metadata.NewUUID()
	head, err := seal(testContext(n.t), n.Store, l, attempt, r, bytes)
	if err != nil {
		n.t.Fatal(err)
	}
	return attempt, head
}

func seal(ctx context.Context, s *metadata.Store, l metadata.Leadership, attempt metadata.UUID, r metadata.OffsetRange, bytes int64) (metadata.Head, error) {
	rev, err := s.PutIntent(ctx, l, metadata.Intent{
		Attempt: attempt, Kind: metadata.IntentSeal, Keys: []string{"seg/" + attempt.String()}, Range: r, Started: time.UnixMilli(1),
	})
	if err != nil {
		return metadata.Head{}, err
	}
	return s.CommitSegment(ctx, l, metadata.SegmentCommit{
		IntentRev: rev, Attempt: attempt, Range: r, Bytes: bytes, Entry: entry(attempt),
		Epochs: []record.EpochStart{{Epoch: l.Epoch, Start: r.Base}},
	})
}

// entry stands for a manifest entry, which is opaque here.
func entry(attempt metadata.UUID) []byte { return append([]byte{1}, attempt[:]...) }

func drainOptions() metadata.DrainOptions {
	return metadata.DrainOptions{
		Segment: func(_ metadata.PartitionID, _ record.Offset, e []byte) (metadata.GCRecord, error) {
			if len(e) != 17 {
				return metadata.GCRecord{}, errors.New("not an entry of this suite")
			}
			a := metadata.UUID(e[1:])
			return metadata.GCRecord{Attempt: a, Keys: []string{"seg/" + a.String()}}, nil
		},
		Page: func(_ context.Context, _ metadata.PartitionID, p []byte) ([]metadata.GCRecord, error) {
			a := metadata.UUID(p[:16])
			return []metadata.GCRecord{{Attempt: a, Keys: []string{"page/" + a.String()}}}, nil
		},
	}
}

func eventually(t *testing.T, what string, fn func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !fn() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
