// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"strconv"
	"unicode/utf16"

	"github.com/varve/varve/record"
)

// Coordinator is who owns a shard of the groups and transactional ids. Epoch, the create revision of the shard's key, fences every
// change that the owner makes.
type Coordinator struct {
	Node        record.NodeID
	Incarnation Incarnation
	Epoch       Revision
	Rev         Revision
}

// Coordination is one term of owning a shard: the token of every change of its coordinator. It is a value; it ends when the
// shard's key goes, which every change made under it finds out (ErrFenced).
type Coordination struct {
	Shard int32
	Epoch Revision
}

func (k keyspace) coord(shard int32) string { return k.prefix + kindCoord + itoa(int64(shard)) }

// ShardOf is the shard of a group or transactional id: Kafka's choice of a partition of its offsets topic, which tools compute.
func ShardOf(id string, shards int32) int32 {
	var h int32
	for _, u := range utf16.Encode([]rune(id)) {
		h = 31*h + int32(u)
	}
	if h == math.MinInt32 {
		h = 0
	}
	return max(h, -h) % shards
}

// PreferredCoordinator is the node that should own a shard: the highest of the registered ones that are not to be drained, by a
// hash of shard and node (rendezvous), so that a node that comes or goes moves its own shards only. When all are to be drained
// any of them serves; NoNode when none is registered.
func (i *Image) PreferredCoordinator(shard int32) record.NodeID {
	best, score := record.NoNode, uint64(0)
	for _, draining := range []bool{false, true} {
		for _, b := range i.brokers {
			if i.Draining(b.Node) != draining || len(b.Roles) > 0 && !hasRole(b.Roles, "broker") {
				continue
			}
			if s := rendezvous(shard, b.Node); best == record.NoNode || s > score {
				best, score = b.Node, s
			}
		}
		if best != record.NoNode {
			break
		}
	}
	return best
}

func hasRole(roles []string, role string) bool {
	for _, r := range roles {
		if r == role {
			return true
		}
	}
	return false
}

func rendezvous(shard int32, node record.NodeID) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d/%d", node, shard) // never fails
	// FNV's high bits hardly depend on the last byte: mix them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Shards is the number of coordinator shards, 0 as long as it is not fixed (Store.FixShards does it).
func (i *Image) Shards() int32 { return i.shardCount }

// Coordinator is who owns a shard; false when nobody does.
func (i *Image) Coordinator(shard int32) (Coordinator, bool) {
	c, ok := i.coords[shard]
	return c, ok
}

func (e *edit) coord(rest string, ev *Event) error {
	n, err := strconv.ParseInt(rest, 10, 32)
	if err != nil || n < 0 {
		return fmt.Errorf("%w: %q is no shard", ErrCorrupt, rest)
	}
	if !e.coords {
		e.img.coords, e.coords = maps.Clone(e.img.coords), true
		if e.img.coords == nil {
			e.img.coords = map[int32]Coordinator{}
		}
	}
	if ev.Deleted {
		delete(e.img.coords, int32(n))
		return nil
	}
	var r roleJSON
	if err := decodeJSON("coordinator", ev.Value, &r); err != nil {
		return err
	}
	e.img.coords[int32(n)] = Coordinator{Node: r.Node, Incarnation: r.Incarnation, Epoch: ev.CreateRevision, Rev: ev.ModRevision}
	return nil
}

func (e *edit) shards(ev *Event) error {
	if ev.Deleted {
		e.img.shardCount = 0
		return nil
	}
	n, err := decodeShards(ev.Value)
	e.img.shardCount = n
	return err
}

type shardsJSON struct {
	Shards int32 `json:"shards"`
}

func decodeShards(value []byte) (int32, error) {
	var j shardsJSON
	if err := decodeJSON("cluster/shards", value, &j); err != nil {
		return 0, err
	}
	if j.Shards < 1 {
		return 0, fmt.Errorf("%w: %d coordinator shards", ErrCorrupt, j.Shards)
	}
	return j.Shards, nil
}

// FixShards reads the number of coordinator shards; the first to ask fixes it for ever, as every id's shard follows from it.
func (s *Store) FixShards(ctx context.Context, want int32) (int32, error) {
	key := s.keys.key(keyShards)
	for range maxConflicts {
		found, _, err := s.readKeys(ctx, key)
		if err != nil {
			return 0, err
		}
		if kv, there := found[key]; there {
			return decodeShards(kv.Value)
		}
		c := newChange("fixing the number of coordinator shards to %d", want)
		c.unchanged(key, 0, ErrConflict)
		c.put(key, encodeJSON(shardsJSON{Shards: want}, c.op))
		c.mark = key
		if _, err := s.commit(ctx, c); err != nil && !errors.Is(err, ErrConflict) {
			return 0, err
		}
	}
	return 0, fmt.Errorf("fixing the number of coordinator shards: %w", ErrConflict)
}

// TakeShard makes this node the owner of a shard that nobody owns, for as long as its session lasts. ErrShardTaken when another
// one, or an earlier attempt of this one, has it.
func (s *Store) TakeShard(ctx context.Context, x *Session, shard int32) (Coordination, error) {
	key := s.keys.coord(shard)
	c := newChange("taking coordinator shard %d", shard)
	c.created(key, Equal, 0, ErrShardTaken)
	c.created(x.key, Equal, int64(x.incarnation), ErrSessionLost)
	c.ops = append(c.ops, Op{Kind: OpPut, Key: key, Value: encodeJSON(roleJSON{Node: x.node, Incarnation: x.incarnation}, c.op), Lease: x.lease})
	c.mark = key
	rev, err := s.commit(ctx, c)
	return Coordination{Shard: shard, Epoch: rev}, err
}

// ReleaseShard gives a shard up. That it is another's already is no error.
func (s *Store) ReleaseShard(ctx context.Context, co Coordination) error {
	c := newChange("giving up coordinator shard %d", co.Shard)
	key := s.keys.coord(co.Shard)
	c.created(key, Equal, int64(co.Epoch), ErrFenced)
	c.delete(key)
	if _, err := s.commit(ctx, c); err != nil && !errors.Is(err, ErrFenced) {
		return err
	}
	return nil
}

// EvictShard frees a shard whose owner is not registered any more: a node that came back at once has a new registration, while the
// lease of its earlier run still holds the key. ErrShardTaken when the owner is registered after all.
func (s *Store) EvictShard(ctx context.Context, shard int32, owner Coordinator) error {
	c := newChange("freeing coordinator shard %d of node %d", shard, owner.Node)
	key := s.keys.coord(shard)
	c.created(key, Equal, int64(owner.Epoch), ErrFenced)
	c.created(s.keys.broker(owner.Node), NotEqual, int64(owner.Incarnation), ErrShardTaken)
	c.delete(key)
	if _, err := s.commit(ctx, c); err != nil && !errors.Is(err, ErrFenced) {
		return err
	}
	return nil
}
