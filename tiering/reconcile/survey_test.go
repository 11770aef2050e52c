// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/mem"
	"github.com/varve/varve/tiering/segment"
)

type oneBatch record.Batch

func (b oneBatch) Scan(_, _ record.Offset, fn func(record.Batch) error) error {
	return fn(record.Batch(b))
}

// upload puts a segment of one batch of three records into the store.
func upload(t *testing.T, store objstore.Store, key string, id segment.Identity, base record.Offset) *segment.Object {
	t.Helper()
	builder := record.Builder{BaseOffset: base, LeaderEpoch: id.LeaderEpoch}
	for i := range 3 {
		builder.Add(int64(i), nil, []byte("v"))
	}
	b, err := builder.Build()
	if err != nil {
		t.Fatal(err)
	}
	o, err := segment.Build(id, oneBatch(b), segment.Range{Base: base, End: base + 3}, 1<<20, func(record.Offset) (segment.Extra, error) {
		return segment.Extra{Epochs: []record.EpochStart{{Epoch: id.LeaderEpoch, Start: 0}}, FirstUnstable: record.NoOffset, Producers: []segment.Producer{{ID: 77, State: []byte("s")}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, key, o)
	return o
}

func put(t *testing.T, store objstore.Store, key string, body objstore.Body) {
	t.Helper()
	if err := store.Create(t.Context(), key, body, objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestSurvey: segments that the manifest does not name are read, whatever else lies there is not taken for one.
func TestSurvey(t *testing.T) {
	store := mem.NewStore()
	defer store.Close()
	known, gone, other := record.TopicID{1}, record.TopicID{2}, record.TopicID{3}
	key := func(topic record.TopicID, name string) string { return fmt.Sprintf("c/log/%s/0/%s", topic.Hex(), name) }
	id := segment.Identity{ClusterID: "c", Gen: 1, Topic: known, TopicName: "t", LeaderEpoch: 4, Attempt: segment.Attempt{9}}
	listed := upload(t, store, key(known, "0.seg"), id, 0)
	found := upload(t, store, key(known, "3.seg"), id, 3)
	upload(t, store, key(known, "of-another.seg"), segment.Identity{ClusterID: "x", Topic: known, TopicName: "t"}, 3)
	put(t, store, key(known, "cut.seg"), objstore.Bytes([]byte("not a segment")))
	upload(t, store, key(gone, "0.seg"), segment.Identity{ClusterID: "c", Topic: gone, TopicName: "gone"}, 0)
	upload(t, store, key(other, "0.seg"), segment.Identity{ClusterID: "c", Topic: other, TopicName: "other"}, 0)
	put(t, store, key(known, "p.page"), objstore.Bytes([]byte("page")))
	e := manifest.FromInfo(&listed.Info, key(known, "0.seg"), listed.CRC32C())
	state := &metadata.Frozen{Topics: []*metadata.Topic{{ID: known, Name: "t"}}, Partitions: map[record.PartitionID]*metadata.FrozenPartition{
		{Topic: known}: {PartitionState: metadata.PartitionState{Head: metadata.Head{TieredEnd: 3}}, Segments: []metadata.SegmentValue{{Value: manifest.AppendEntry(nil, &e)}}},
	}}
	nodes := []Node{{Logs: []Log{{ID: record.PartitionID{Topic: other}}}}}
	b, err := Survey(t.Context(), store, "c", state, nodes)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Present) != 7 {
		t.Errorf("present: %v", b.Present)
	}
	if got := b.Found[record.PartitionID{Topic: known}]; len(got) != 1 || got[0].TopicName != "t" || got[0].LeaderEpoch != 4 || got[0].MaxPID != 77 ||
		got[0].Entry.Base != 3 || got[0].Entry.End != 6 || got[0].Entry.CRC != found.CRC32C() || got[0].Entry.Object != key(known, "3.seg") {
		t.Errorf("found: %+v", got)
	}
	if n := len(b.Found[record.PartitionID{Topic: other}]); n != 1 {
		t.Errorf("%d segments of a topic that a data directory holds", n)
	}
	if n := len(b.Found[record.PartitionID{Topic: gone}]); n != 0 {
		t.Errorf("%d segments of a topic that nobody knows", n)
	}
	if broken := strings.Join(b.Broken, "\n"); len(b.Broken) != 3 || !strings.Contains(broken, "of-another.seg is left out") || !strings.Contains(broken, "cut.seg is left out") ||
		!strings.Contains(broken, gone.String()+": 1 segments are left out") {
		t.Errorf("broken: %q", b.Broken)
	}
}

// TestCutShort: a reconcile that ended behind the entries and before the head is run again, and comes to the same.
func TestCutShort(t *testing.T) {
	store := mem.NewStore()
	defer store.Close()
	key := func(name string) string { return fmt.Sprintf("c/log/%s/0/%s", topicID.Hex(), name) }
	id := segment.Identity{ClusterID: "c", Gen: 1, Topic: topicID, TopicName: "t", LeaderEpoch: 1, Attempt: segment.Attempt{9}}
	listed := upload(t, store, key("0.seg"), id, 0)
	id.Attempt = segment.Attempt{10}
	upload(t, store, key("3.seg"), id, 3)
	e := manifest.FromInfo(&listed.Info, key("0.seg"), listed.CRC32C())
	since := []record.EpochStart{{Epoch: 1, Start: 0}}
	was := &metadata.FrozenPartition{
		PartitionState: metadata.PartitionState{Leader: metadata.LeaderState{Node: 1, Incarnation: 9, Epoch: 1, Rev: 11},
			ISR: metadata.ISRState{Members: []metadata.ISRMember{{Node: 1}}, Rev: 12}, Head: metadata.Head{Rev: 13, TieredEnd: 3, Count: 1, EpochChain: since}},
		Segments: []metadata.SegmentValue{{Base: 0, Rev: 14, Value: manifest.AppendEntry(nil, &e)}},
	}
	state := &metadata.Frozen{Nodes: []record.NodeID{1}, Topics: []*metadata.Topic{{ID: topicID, Name: "t", Partitions: [][]record.NodeID{{1}}, Rev: 10}},
		Partitions: map[record.PartitionID]*metadata.FrozenPartition{partitionID(): was}}
	nodes := []Node{{ID: 1, Store: metadata.UUID{1}, Logs: []Log{{ID: partitionID(), Start: 6, End: 10, HighWatermark: 10, CurrentEpoch: 1, Epochs: since}}}}
	for _, round := range []string{"first", "again"} {
		b, err := Survey(t.Context(), store, "c", state, nodes)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Plan(&Input{State: state, Bucket: b, Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		next := r.Partitions[0]
		if next.Head.LogStart != 0 || next.Head.TieredEnd != 6 || len(next.Put) != 1 || next.Put[0].Base != 3 || len(next.Drop) != 0 {
			t.Fatalf("%s: %s", round, describe(&next))
		}
		put := next.Put[0]
		put.Rev = 20
		was.Segments = append(was.Segments, put)
	}
}

// TestSurveyAway: a bucket that does not answer is not an empty one.
func TestSurveyAway(t *testing.T) {
	store := objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
	defer store.Close()
	id := segment.Identity{ClusterID: "c", Topic: topicID, TopicName: "t"}
	upload(t, store, "c/log/"+topicID.Hex()+"/0/0.seg", id, 0)
	for _, op := range []objstore.Op{objstore.OpList, objstore.OpGet, objstore.OpStat} {
		store.Add(objstore.Rule{Op: op, Effect: objstore.Unavailable, Times: 1})
		_, err := Survey(t.Context(), store, "c", &metadata.Frozen{Topics: []*metadata.Topic{{ID: topicID}}}, nil)
		if !errors.Is(err, objstore.ErrUnavailable) {
			t.Errorf("%s fails: %v", op, err)
		}
	}
}
