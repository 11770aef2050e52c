// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/varve/varve/record"
)

// FuzzDecodeOffsets: no value makes the decoder panic, ask for unbacked memory or accept what it would not write.
func FuzzDecodeOffsets(f *testing.F) {
	f.Add(encodeOffsets([]CommittedOffset{
		{Partition: 3, Offset: 1 << 40, LeaderEpoch: -1, Metadata: "m", Committed: 5},
		{Partition: 4, Offset: 0, LeaderEpoch: 7, Committed: 5, Expires: 9},
	}, UUID{1}))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, value []byte) {
		list, err := decodeOffsets(value)
		if err != nil {
			return
		}
		again, err := decodeOffsets(encodeOffsets(list, opOf(value)))
		if err != nil || !reflect.DeepEqual(again, list) {
			t.Errorf("%+v becomes %+v, %v", list, again, err)
		}
	})
}

// TestGroupKeys: no group's keys begin with another's, whatever the ids and shards, so that reading or deleting one never touches
// another.
func TestGroupKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := newKeyspace("/p/")
		shards := rapid.SliceOfN(rapid.Int32Range(0, 200), 2, 2).Draw(t, "shards")
		ids := rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.StringMatching(`[a/%0-9]{0,4}`)), 2, 2).Draw(t, "ids")
		if shards[0] == shards[1] && ids[0] == ids[1] {
			return
		}
		chunk := ChunkOf(record.TopicID{1}, 7)
		if a, b := k.group(shards[0], ids[0]), k.group(shards[1], ids[1]); a == b {
			t.Fatalf("groups %q and %q of shards %v have one key", ids[0], ids[1], shards)
		}
		if strings.HasPrefix(k.offsetChunk(shards[0], ids[0], chunk), k.offsets(shards[1], ids[1])) ||
			strings.HasPrefix(k.groupPage(shards[0], ids[0], 1), k.groupPages(shards[1])+EscapeID(ids[1])+"/") {
			t.Fatalf("a key of group %q, shard %d lies under group %q, shard %d", ids[0], shards[0], ids[1], shards[1])
		}
	})
}

// TestShardOf compares with what Kafka's tools compute: the hash of a Java string.
func TestShardOf(t *testing.T) {
	for id, want := range map[string]int32{"": 0, "a": 47, "my-group": 12, "console-consumer-12345": 6, "ü€": 26, "polygenelubricants": 0, "😀": 49} {
		if got := ShardOf(id, 50); got != want {
			t.Errorf("ShardOf(%q) = %d, want %d", id, got, want)
		}
	}
}

func TestPreferredCoordinator(t *testing.T) {
	img := &Image{drains: map[record.NodeID]Drained{}}
	for _, n := range []record.NodeID{1, 2, 3} {
		img.brokers = append(img.brokers, &Broker{BrokerInfo: BrokerInfo{Node: n}})
	}
	before, count := map[int32]record.NodeID{}, map[record.NodeID]int{}
	for shard := range int32(300) {
		before[shard] = img.PreferredCoordinator(shard)
		count[before[shard]]++
	}
	for n, c := range count {
		if c < 60 || c > 140 {
			t.Errorf("node %d has %d shards of 300", n, c)
		}
	}
	img.drains[2] = Drained{}
	for shard, was := range before {
		now := img.PreferredCoordinator(shard)
		if now == 2 || was != 2 && now != was {
			t.Errorf("shard %d goes from node %d to %d when node 2 is drained", shard, was, now)
		}
	}
	img.drains[1], img.drains[3] = Drained{}, Drained{}
	if img.PreferredCoordinator(0) != before[0] {
		t.Error("nobody serves when all are to be drained")
	}
}

// TestGroupChangeCost: what Cost promises is what the transaction takes, so that a batch of changes within the bounds never is too
// large.
func TestGroupChangeCost(t *testing.T) {
	s := &Store{keys: newKeyspace("/varve/x/")}
	for _, g := range []GroupChange{
		{ID: "g", State: make([]byte, 3*groupPageBytes+1)},
		{ID: strings.Repeat("/", 300), Rev: 7, Pages: 3, Delete: true},
		{ID: "g", Rev: 7, Pages: 5, State: []byte{1}},
		{ID: "g", Offsets: []OffsetsChange{{Rev: 3}, {List: []CommittedOffset{{Metadata: "mmmm", Committed: MillisOf(time.Now()), Offset: 1 << 60}}}}},
	} {
		ops, size := g.Cost()
		c := newChange("test")
		key := s.keys.group(1, g.ID)
		c.unchanged(key, g.Rev, nil)
		if g.State != nil {
			s.putState(c, 1, &g, GroupPages(len(g.State)))
		}
		for k := range g.Offsets {
			s.changeOffsets(c, 1, g.ID, &g.Offsets[k], nil)
		}
		bytes := 0
		for _, op := range c.ops {
			bytes += len(op.Key) + len(op.Value)
		}
		if len(c.ops) > ops || len(c.guards) > ops || bytes > size {
			t.Errorf("%d operations, %d compares, %d bytes; Cost said %d and %d", len(c.ops), len(c.guards), bytes, ops, size)
		}
	}
	if got := GroupPages(groupPageBytes); got != 1 || GroupPages(groupPageBytes+1) != 2 || GroupPages(0) != 1 {
		t.Error("GroupPages")
	}
}
