// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

func (n *node) takeShard(shard int32) metadata.Coordination {
	n.t.Helper()
	co, err := n.TakeShard(testContext(n.t), n.session, shard)
	if err != nil {
		n.t.Fatalf("node %d taking shard %d: %v", n.id, shard, err)
	}
	return co
}

func (n *node) changeGroups(co metadata.Coordination, changes ...metadata.GroupChange) metadata.Revision {
	n.t.Helper()
	rev, err := n.tryGroups(testContext(n.t), co, changes)
	if err != nil {
		n.t.Fatal(err)
	}
	return rev
}

// tryGroups changes groups of one shard.
func (n *node) tryGroups(ctx context.Context, co metadata.Coordination, changes []metadata.GroupChange) (metadata.Revision, error) {
	r := n.ChangeShards(ctx, []metadata.ShardChange{{Coordination: co, Groups: changes}})[0]
	return r.Revision, r.Err
}

// shardContent is all that a shard holds.
type shardContent struct {
	groups  map[string]metadata.GroupState
	offsets map[string][]metadata.Offsets
}

func newContent() shardContent {
	return shardContent{map[string]metadata.GroupState{}, map[string][]metadata.Offsets{}}
}

func (c *shardContent) group(g metadata.GroupState) error {
	c.groups[g.ID] = g
	return nil
}

func (c *shardContent) offset(g string, o metadata.Offsets) error {
	c.offsets[g] = append(c.offsets[g], o)
	return nil
}

func (n *node) load(co metadata.Coordination) shardContent {
	n.t.Helper()
	c := newContent()
	if _, err := n.LoadShard(testContext(n.t), co, c.group, c.offset); err != nil {
		n.t.Fatal(err)
	}
	return c
}

func committed(partition int32, offset record.Offset) metadata.CommittedOffset {
	return metadata.CommittedOffset{Partition: partition, Offset: offset, LeaderEpoch: 3, Metadata: "m", Committed: 1700000000000}
}

func testShards(t *testing.T, h Harness) {
	p := prefix(t)
	a, b := startNode(t, h, p, 1).register(1), startNode(t, h, p, 2).register(1)
	var wg sync.WaitGroup
	counts := make([]int32, 2)
	for i, n := range []*node{a, b} {
		wg.Go(func() { counts[i], _ = n.FixShards(testContext(t), int32(50+i)) })
	}
	wg.Wait()
	if counts[0] != counts[1] || counts[0] < 50 {
		t.Fatalf("numbers of shards: %v", counts)
	}
	co := a.takeShard(7)
	if _, err := b.TakeShard(testContext(t), b.session, 7); !errors.Is(err, metadata.ErrShardTaken) {
		t.Errorf("taking what another owns: %v", err)
	}
	if _, err := a.TakeShard(testContext(t), a.session, 7); !errors.Is(err, metadata.ErrShardTaken) {
		t.Errorf("taking twice: %v", err)
	}
	for _, n := range []*node{a, b} {
		n.wait(co.Epoch)
		if got, ok := n.Image().Coordinator(7); !ok || got.Node != 1 || got.Epoch != co.Epoch || got.Incarnation != a.session.Incarnation() {
			t.Errorf("image of node %d: %+v, %v", n.id, got, ok)
		}
		if n.Image().Shards() != counts[0] {
			t.Errorf("image of node %d has %d shards", n.id, n.Image().Shards())
		}
	}
	a.changeGroups(co, metadata.GroupChange{ID: "g", State: []byte("one")})
	if err := a.ReleaseShard(testContext(t), co); err != nil {
		t.Fatal(err)
	}
	next := b.takeShard(7)
	if next.Epoch <= co.Epoch {
		t.Errorf("epoch %d after %d", next.Epoch, co.Epoch)
	}
	if err := a.ReleaseShard(testContext(t), co); err != nil {
		t.Errorf("giving up again: %v", err)
	}
	// The old owner can neither change nor read anything.
	_, err := a.tryGroups(testContext(t), co, []metadata.GroupChange{{ID: "h", State: []byte("late")}})
	_, rerr := a.ReadOffsets(testContext(t), co, "g", nil)
	c := newContent()
	_, lerr := a.LoadShard(testContext(t), co, c.group, c.offset)
	_, gerr := a.ReadGroup(testContext(t), co, "g", c.offset)
	for what, err := range map[string]error{"change": err, "read": rerr, "load": lerr, "read of a group": gerr} {
		if !errors.Is(err, metadata.ErrFenced) {
			t.Errorf("%s by the old owner: %v", what, err)
		}
	}
	if got := b.load(next); len(got.groups) != 1 || string(got.groups["g"].Value) != "one" {
		t.Errorf("the next owner finds %+v", got)
	}
	testShardsOfTheGone(t, p, a, b)
}

// testShardsOfTheGone: b, which owns shard 7, ends its registration; later a's is another one.
func testShardsOfTheGone(t *testing.T, p string, a, b *node) {
	if err := b.session.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shard is free", func() bool { _, held := a.Image().Coordinator(7); return !held })
	last := a.takeShard(7)
	a.wait(last.Epoch)
	owner, _ := a.Image().Coordinator(7)
	if err := a.EvictShard(testContext(t), 7, owner); !errors.Is(err, metadata.ErrShardTaken) {
		t.Errorf("freeing the shard of a registered owner: %v", err)
	}
	// The node comes back at once: a new registration, while the lease of the old one still holds the shard.
	must(t, a.kv, del(strings.TrimSuffix(p, "/")+"/s/broker/1"))
	a.register(2)
	if err := a.EvictShard(testContext(t), 7, owner); err != nil {
		t.Errorf("freeing what an earlier run holds: %v", err)
	}
	if again := a.takeShard(7); again.Epoch <= last.Epoch {
		t.Errorf("epoch %d after %d", again.Epoch, last.Epoch)
	}
	if _, err := b.TakeShard(testContext(t), b.session, 8); !errors.Is(err, metadata.ErrSessionLost) {
		t.Errorf("taking without a session: %v", err)
	}
}

func testGroups(t *testing.T, h Harness) {
	n := startNode(t, h, prefix(t), 1).register(1)
	ctx := testContext(t)
	co, other := n.takeShard(1), n.takeShard(11)
	big := bytes.Repeat([]byte("0123456789abcdef"), 40<<10) // several pages
	topic := record.TopicID{1}
	ids := []string{"g", "", "g/x", "g%2Fx", "ü"}
	for i, id := range ids {
		n.changeGroups(co, metadata.GroupChange{ID: id, State: fmt.Append(nil, i), Offsets: []metadata.OffsetsChange{
			{ChunkID: metadata.ChunkOf(topic, 3), List: []metadata.CommittedOffset{committed(3, record.Offset(i))}},
		}})
	}
	n.changeGroups(other, metadata.GroupChange{ID: "elsewhere", State: []byte("x")})
	got := n.load(co)
	if len(got.groups) != len(ids) || len(got.offsets) != len(ids) {
		t.Fatalf("loaded %d groups, offsets of %d", len(got.groups), len(got.offsets))
	}
	for i, id := range ids {
		if string(got.groups[id].Value) != fmt.Sprint(i) || len(got.offsets[id]) != 1 || got.offsets[id][0].List[0] != committed(3, record.Offset(i)) {
			t.Errorf("group %q: %+v, %+v", id, got.groups[id], got.offsets[id])
		}
		c := newContent()
		g, err := n.ReadGroup(ctx, co, id, c.offset)
		if err != nil || !reflect.DeepEqual(g, got.groups[id]) || !reflect.DeepEqual(c.offsets[id], got.offsets[id]) || len(c.offsets) != 1 {
			t.Errorf("ReadGroup(%q): %+v, %+v, %v", id, g, c.offsets, err)
		}
	}
	g := got.groups["g"]
	rev := n.changeGroups(co, metadata.GroupChange{ID: "g", Rev: g.Rev, Pages: g.Pages, State: big})
	if g = n.load(co).groups["g"]; g.Rev != rev || g.Pages < 3 || !bytes.Equal(g.Value, big) {
		t.Fatalf("%d bytes in %d pages, revision %d", len(g.Value), g.Pages, g.Rev)
	}
	rev = n.changeGroups(co, metadata.GroupChange{ID: "g", Rev: g.Rev, Pages: g.Pages, State: []byte("small")})
	if g = n.load(co).groups["g"]; g.Rev != rev || g.Pages != 1 || string(g.Value) != "small" {
		t.Fatalf("after shrinking: %+v", g)
	}
	// All or nothing, and the answer names the group that stands in the way.
	_, err := n.tryGroups(ctx, co, []metadata.GroupChange{{ID: "new", State: []byte("x")}, {ID: "g", Rev: g.Rev - 1, State: []byte("y")}})
	if id, ok := metadata.ConflictingGroup(err); !ok || id != "g" || !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("a change of an old state: %v", err)
	}
	if _, there := n.load(co).groups["new"]; there {
		t.Error("half a change was made")
	}
	n.changeGroups(co, metadata.GroupChange{ID: "g", Rev: g.Rev, Pages: 1, Delete: true})
	if _, there := n.load(co).groups["g"]; there {
		t.Error("a deleted group is there")
	}
	if _, err := n.tryGroups(ctx, co, []metadata.GroupChange{{ID: "huge", State: make([]byte, 2*metadata.MaxTxnBytes)}}); !errors.Is(err, metadata.ErrTooLarge) {
		t.Errorf("a state beyond the limit: %v", err)
	}
}

func testOffsets(t *testing.T, h Harness) {
	n := startNode(t, h, prefix(t), 1).register(1)
	ctx := testContext(t)
	co := n.takeShard(3)
	one, two := record.TopicID{1}, record.TopicID{2}
	read := func(topics ...record.TopicID) (out []metadata.Offsets) {
		t.Helper()
		out, err := n.ReadOffsets(ctx, co, "g", topics)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := read(one); len(got) != 0 {
		t.Errorf("offsets of nothing: %+v", got)
	}
	const far = 10 * metadata.OffsetsPerChunk
	put := func(topic record.TopicID, rev metadata.Revision, list ...metadata.CommittedOffset) (metadata.Revision, error) {
		return n.tryGroups(ctx, co, []metadata.GroupChange{{ID: "g", Offsets: []metadata.OffsetsChange{
			{ChunkID: metadata.ChunkOf(topic, list[0].Partition), Rev: rev, List: list},
		}}})
	}
	expiring := committed(1, 11)
	expiring.Expires = 1800000000000
	rev, err := put(one, 0, committed(0, 10), expiring)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put(one, 0, committed(far, 99)); err != nil {
		t.Fatal(err)
	}
	if _, err := put(two, 0, committed(0, 20)); err != nil {
		t.Fatal(err)
	}
	if got := read(one); len(got) != 2 || !slices.Equal(got[0].List, []metadata.CommittedOffset{committed(0, 10), expiring}) || got[0].Rev != rev {
		t.Errorf("offsets of one topic: %+v", got)
	}
	if got, err := n.ReadOffsets(ctx, co, "g", nil); err != nil || len(got) != 3 {
		t.Errorf("all offsets: %+v, %v", got, err)
	}
	// A commit that was decided on an older value does not take effect: it would lose partitions of the other's.
	if _, err := put(one, 0, committed(0, 5)); !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("a commit over a newer one: %v", err)
	}
	// A group whose state changed fences the commits that were validated before.
	n.changeGroups(co, metadata.GroupChange{ID: "g", State: []byte("generation 2")})
	if _, err := put(one, rev, committed(0, 5)); !errors.Is(err, metadata.ErrConflict) {
		t.Errorf("a commit of an old generation: %v", err)
	}
	state := n.load(co).groups["g"]
	n.changeGroups(co, metadata.GroupChange{ID: "g", Rev: state.Rev, Offsets: []metadata.OffsetsChange{{ChunkID: metadata.ChunkOf(one, 0), Rev: rev}}})
	if got := read(one); len(got) != 1 || got[0].List[0] != committed(far, 99) {
		t.Errorf("after a deletion: %+v", got)
	}
	testManyOffsets(t, n, co)
}

// testManyOffsets: a group has more keys than one read gives.
func testManyOffsets(t *testing.T, n *node, co metadata.Coordination) {
	var many []metadata.GroupChange
	for i := range 450 {
		many = append(many, metadata.GroupChange{ID: "many", Offsets: []metadata.OffsetsChange{
			{ChunkID: metadata.ChunkOf(record.TopicID{byte(i / 250), byte(i % 250)}, 0), List: []metadata.CommittedOffset{committed(0, record.Offset(i))}},
		}})
	}
	for chunk := range slices.Chunk(many, 40) {
		for i := range chunk[1:] { // one change per group
			chunk[0].Offsets = append(chunk[0].Offsets, chunk[i+1].Offsets...)
		}
		n.changeGroups(co, chunk[0])
	}
	if got, err := n.ReadOffsets(testContext(t), co, "many", nil); err != nil || len(got) != 450 {
		t.Errorf("%d keys of offsets, %v", len(got), err)
	}
}
