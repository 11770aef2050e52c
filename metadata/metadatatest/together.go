// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// shardsTogether are two nodes of which one changes groups of several shards.
type shardsTogether struct {
	n, other *node
	prefix   string
	co       [3]metadata.Coordination
	sent     atomic.Int32 // transactions
}

func newShardsTogether(t *testing.T, h Harness) *shardsTogether {
	p := prefix(t)
	x := &shardsTogether{n: startNode(t, h, p, 1).register(1), other: startNode(t, h, p, 2).register(1), prefix: p}
	for i := range x.co {
		x.co[i] = x.n.takeShard(int32(i))
	}
	x.fate(func(int) Fate { return Well })
	return x
}

// fate decides about the next transactions by their number, from 1.
func (x *shardsTogether) fate(of func(n int) Fate) {
	x.sent.Store(0)
	x.n.kv.SetDecide(func(metadata.Txn) Fate { return of(int(x.sent.Add(1))) })
}

// lose gives a shard to the other node, under which it gets a group of its own.
func (x *shardsTogether) lose(shard int) {
	x.n.t.Helper()
	must(x.n.t, x.other.kv, del(strings.TrimSuffix(x.prefix, "/")+fmt.Sprintf("/s/coord/%d", shard)))
	x.other.changeGroups(x.other.takeShard(int32(shard)), metadata.GroupChange{ID: "theirs", State: []byte("x")})
}

// change puts one offset of group g of every shard.
func (x *shardsTogether) change(revs [3]metadata.Revision, offset record.Offset) []metadata.ShardResult {
	changes := make([]metadata.ShardChange, len(x.co))
	for i, co := range x.co {
		changes[i] = metadata.ShardChange{Coordination: co, Groups: []metadata.GroupChange{{ID: "g", Offsets: []metadata.OffsetsChange{
			{ChunkID: metadata.ChunkOf(record.TopicID{1}, 0), Rev: revs[i], List: []metadata.CommittedOffset{committed(0, offset)}},
		}}}}
	}
	return x.n.ChangeShards(testContext(x.n.t), changes)
}

// stored is the offset that a shard of this node's holds.
func (x *shardsTogether) stored(shard int) record.Offset {
	x.n.t.Helper()
	c := x.n.load(x.co[shard])
	if len(c.offsets["g"]) == 0 {
		return record.NoOffset
	}
	return c.offsets["g"][0].List[0].Offset
}

// testShardsTogether: changes of several shards share a transaction, and one that is refused takes no other with it, whatever is known of
// the transaction.
func testShardsTogether(t *testing.T, h Harness) {
	t.Run("judged", func(t *testing.T) { testShardsJudged(t, h) })
	t.Run("in doubt", func(t *testing.T) { testShardsInDoubt(t, h) })
}

func testShardsJudged(t *testing.T, h Harness) {
	t.Run("well", func(t *testing.T) {
		x := newShardsTogether(t, h)
		got := x.change([3]metadata.Revision{}, 1)
		for i, r := range got {
			if r.Err != nil || r.Revision != got[0].Revision || x.stored(i) != 1 {
				t.Errorf("shard %d: %+v, %d stored", i, r, x.stored(i))
			}
		}
		if x.sent.Load() != 1 {
			t.Errorf("%d transactions", x.sent.Load())
		}
		if got := x.n.ChangeShards(testContext(t), []metadata.ShardChange{{Coordination: x.co[0]}}); got[0] != (metadata.ShardResult{}) || x.sent.Load() != 1 {
			t.Errorf("nothing to change: %+v", got)
		}
	})
	t.Run("fenced", func(t *testing.T) {
		x := newShardsTogether(t, h)
		x.lose(1)
		x.fate(func(int) Fate { return Well })
		x.check(t, x.change([3]metadata.Revision{}, 1), 3) // it failed, for that reason, and without the one
	})
	t.Run("conflict", func(t *testing.T) {
		x := newShardsTogether(t, h)
		got := x.change([3]metadata.Revision{0, 7, 0}, 1)
		if id, ok := metadata.ConflictingGroup(got[1].Err); !ok || id != "g" || got[0].Err != nil || got[2].Err != nil {
			t.Errorf("%+v", got)
		}
		for i, want := range []record.Offset{1, record.NoOffset, 1} {
			if x.stored(i) != want {
				t.Errorf("shard %d holds %d", i, x.stored(i))
			}
		}
	})
	t.Run("too much for one", func(t *testing.T) {
		x := newShardsTogether(t, h)
		var changes []metadata.ShardChange
		for i, co := range x.co {
			sc := metadata.ShardChange{Coordination: co}
			for k := range 45 {
				sc.Groups = append(sc.Groups, metadata.GroupChange{ID: fmt.Sprint("g", k), State: []byte{byte(i)}})
			}
			changes = append(changes, sc)
		}
		for i, r := range x.n.ChangeShards(testContext(t), changes) {
			if r.Err != nil || len(x.n.load(x.co[i]).groups) != 45 {
				t.Errorf("shard %d: %+v", i, r)
			}
		}
	})
}

func testShardsInDoubt(t *testing.T, h Harness) {
	t.Run("never came", func(t *testing.T) {
		x := newShardsTogether(t, h)
		x.fate(func(n int) Fate {
			if n == 1 {
				x.lose(1)
				return LostRequest
			}
			return Well
		})
		x.check(t, x.change([3]metadata.Revision{}, 1), 3)
	})
	t.Run("happened unseen", func(t *testing.T) {
		x := newShardsTogether(t, h)
		x.fate(func(n int) Fate {
			if n == 1 {
				return LostReply
			}
			x.lose(1) // after it had happened
			return Well
		})
		got := x.change([3]metadata.Revision{}, 1)
		for i, r := range got {
			if r.Err != nil || r.Revision == 0 || r.Revision != got[0].Revision {
				t.Errorf("shard %d: %+v", i, r)
			}
		}
		if x.sent.Load() != 2 {
			t.Errorf("%d transactions", x.sent.Load())
		}
		// They go on from there.
		x.fate(func(int) Fate { return Well })
		x.check(t, x.change([3]metadata.Revision{got[0].Revision, got[1].Revision, got[2].Revision}, 2), 3)
	})
}

// check wants shard 1 to be fenced and the others to have what was put, after so many transactions.
func (x *shardsTogether) check(t *testing.T, got []metadata.ShardResult, sent int32) {
	t.Helper()
	if !errors.Is(got[1].Err, metadata.ErrFenced) || got[0].Err != nil || got[2].Err != nil || got[0].Revision != got[2].Revision {
		t.Errorf("%+v", got)
	}
	if x.stored(0) < 1 || x.stored(2) != x.stored(0) {
		t.Errorf("%d and %d are stored", x.stored(0), x.stored(2))
	}
	if x.sent.Load() != sent {
		t.Errorf("%d transactions, want %d", x.sent.Load(), sent)
	}
}
