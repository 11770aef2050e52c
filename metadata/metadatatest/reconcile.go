// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"errors"
	"strings"
	"testing"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// memoryWitness stands for a data directory.
type memoryWitness struct {
	cluster  uint64
	rev, gen int64
}

func (w *memoryWitness) Witness() (cluster uint64, rev int64) { return w.cluster, w.rev }
func (w *memoryWitness) Generation() int64                    { return w.gen }
func (w *memoryWitness) SetGeneration(gen int64) error        { w.gen = gen; return nil }
func (w *memoryWitness) SetWitness(cluster uint64, rev int64) error {
	w.cluster, w.rev = cluster, rev
	return nil
}

// testReconcile: a reconcile needs a cluster that stands still, puts what it is told, and fences everybody who has met the generation
// before; data directories that it has seen begin a new history, others are refused.
func testReconcile(t *testing.T, h Harness) {
	p, ctx := prefix(t), testContext(t)
	a, tool := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2)
	topic := a.create("t", replicas{1, 2})
	id := metadata.PartitionID{Topic: topic.ID}
	l := a.take(id)
	a.seal(l, metadata.OffsetRange{Base: 0, End: 10}, 100)
	attempt := metadata.NewUUID()
	if _, err := a.PutIntent(ctx, l, metadata.Intent{Attempt: attempt, Kind: metadata.IntentSeal, Keys: []string{"o"}, Range: metadata.OffsetRange{Base: 10, End: 20}}); err != nil {
		t.Fatal(err)
	}
	f, err := tool.Freeze(ctx)
	if err != nil || len(f.Registered) != 1 || len(f.Topics) != 1 || len(f.Partition(id).Segments) != 1 || len(f.Partition(id).Intents) != 1 || f.Partition(id).Leader.Rev != l.LeaderRev {
		t.Fatalf("frozen: %+v, %v", f, err)
	}
	store := metadata.NewUUID()
	next := metadata.Reconciled{ID: id, PartitionState: f.Partition(id).PartitionState, Intents: f.Partition(id).Intents,
		Put: []metadata.SegmentValue{{Base: 10, Value: entry(attempt)}}}
	next.Head.TieredEnd, next.Head.Count = 20, 2
	next.Leader = metadata.LeaderState{Node: record.NoNode, Incarnation: -1, Epoch: 7, UncleanEpoch: 8, Rev: next.Leader.Rev}
	next.ISR = metadata.ISRState{Members: []metadata.ISRMember{{Node: 2, StoreID: store}}, HWFloor: 15, Rev: next.ISR.Rev}
	young := &metadata.Topic{ID: record.TopicID(metadata.NewUUID()), Name: "young", Partitions: [][]record.NodeID{{2}}}
	r := &metadata.Reconciliation{Partitions: []metadata.Reconciled{next}, Topics: []*metadata.Topic{young}, NextPID: 5000, Stores: []metadata.UUID{store}, Met: 3}
	if err := tool.Reconcile(ctx, f, r); err == nil || !strings.Contains(err.Error(), "nodes are registered") {
		t.Errorf("with a node registered: %v", err)
	}
	if err := a.session.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := tool.Reconcile(ctx, f, r); err != nil {
		t.Fatal(err)
	}
	if _, err := a.CreateTopic(ctx, metadata.TopicSpec{Name: "late", Partitions: [][]record.NodeID{{1}}}); !errors.Is(err, metadata.ErrGeneration) {
		t.Errorf("a node of the generation before makes a topic: %v", err)
	}
	testReconciled(t, h, p, id, store)
	testGenerations(t, h, p, store)
}

// testReconciled looks at what came of it.
func testReconciled(t *testing.T, h Harness, p string, id metadata.PartitionID, store metadata.UUID) {
	ctx := testContext(t)
	b := startNode(t, h, p, 2)
	b.storeID = store
	b.register(1)
	if _, err := b.ReadTopicByName(ctx, "young"); err != nil {
		t.Error(err)
	}
	won := b.take(id)
	if won.Epoch != 8 || won.UncleanEpoch != 8 || won.Head.TieredEnd != 20 || won.ISR.HWFloor != 15 || len(won.ISR.Members) != 1 {
		t.Errorf("leads as %+v", won)
	}
	segments, _, err := b.Segments(ctx, id, 0)
	if err != nil || len(segments) != 2 {
		t.Errorf("segments %v, %v", segments, err)
	}
	if intents, err := b.Intents(ctx, id); err != nil || len(intents) != 0 {
		t.Errorf("intents %v, %v", intents, err)
	}
	if first, _, err := b.AllocateProducerIDs(ctx); err != nil || first != 5000 {
		t.Errorf("producer ids from %d, %v", first, err)
	}
	if b.Gen() != 4 { // above the one that a directory had met
		t.Errorf("generation %d", b.Gen())
	}
}

// testGenerations: who may begin a new history.
func testGenerations(t *testing.T, h Harness, p string, store metadata.UUID) {
	const far = 1 << 40 // a revision that the store has not reached
	for _, c := range []struct {
		name  string
		gen   int64
		store metadata.UUID
		want  error
	}{
		{"a directory that was looked at", 0, store, nil},
		{"one that was not", 1, metadata.NewUUID(), metadata.ErrDataOfOther},
		{"one that has met this generation", 4, store, metadata.ErrWentBack},
		{"one that has met a later one", 5, store, metadata.ErrWentBack},
	} {
		w := &memoryWitness{cluster: 1, rev: far, gen: c.gen}
		s, err := metadata.Open(testContext(t), client(t, h), metadata.Options{NodeID: 5, Prefix: p, Logger: quiet(), CompactEvery: -1, WentBackGrace: 1,
			Witness: w, StoreID: c.store})
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil && (w.gen != 4 || w.rev == far || w.rev == 0 || s.Gen() != 4) {
			t.Errorf("%s: remembers %+v", c.name, w)
		}
		if err != nil && w.rev != far {
			t.Errorf("%s: forgets what it has seen", c.name)
		}
	}
}
