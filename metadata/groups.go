// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/varve/varve/record"
)

// Groups lie together by shard, so that its owner loads nothing else:
//
//	group/{shard}/{g}                          the group's state, first page
//	gpage/{shard}/{g}/{n}                      its further pages, n from 1
//	goff/{shard}/{g}/{topicId}/{chunk}         committed offsets of OffsetsPerChunk partitions
func (k keyspace) groups(shard int32) string { return k.prefix + kindGroup + itoa(int64(shard)) + "/" }
func (k keyspace) group(shard int32, g string) string {
	return k.groups(shard) + EscapeID(g)
}
func (k keyspace) groupPages(shard int32) string {
	return k.prefix + kindGroupPage + itoa(int64(shard)) + "/"
}
func (k keyspace) groupPage(shard int32, g string, page int) string {
	return fmt.Sprintf("%s%s/%04d", k.groupPages(shard), EscapeID(g), page)
}

// GroupState is a group as stored. Value is opaque here (package gateway/group owns its encoding). Rev is the token of the next
// change.
type GroupState struct {
	ID    string
	Value []byte
	Pages int // how many keys it takes
	Rev   Revision
}

// GroupChange is what happens to one group in a transaction.
type GroupChange struct {
	ID string
	// Rev is the revision of the group's state that this was decided on, 0 for none; Pages how many keys it has.
	Rev   Revision
	Pages int
	// State is the new state; nil leaves it, unless Delete is set.
	State   []byte
	Delete  bool
	Offsets []OffsetsChange
}

// GroupConflict says which group another change came first for. It is ErrConflict.
type GroupConflict struct{ Group string }

func (e *GroupConflict) Error() string { return fmt.Sprintf("group %q changed", e.Group) }

// Is makes every GroupConflict an ErrConflict.
func (e *GroupConflict) Is(target error) bool { return target == ErrConflict }

// GroupPages is how many keys a state of n bytes takes.
func GroupPages(n int) int { return max(1, (n+groupPageBytes-1)/groupPageBytes) }

// Cost is what a change takes of a transaction's operations and compares together, and of its bytes.
func (c *GroupChange) Cost() (ops, bytes int) {
	id := 3*len(c.ID) + groupKeyBytes // escaped it may be three times as long
	ops, bytes = 1, id
	if c.State != nil || c.Delete {
		pages := 0
		if c.State != nil {
			pages = GroupPages(len(c.State))
		}
		ops += max(pages, c.Pages, 1)
		bytes += len(c.State) + ops*id
	}
	for i := range c.Offsets {
		ops++
		bytes += id + c.Offsets[i].size()
	}
	return ops, bytes
}

// ShardChange is what a coordinator changes in a transaction: groups of its shard, all or none.
type ShardChange struct {
	Coordination
	Groups []GroupChange
}

// Cost is what a change takes of a transaction's operations and compares together, and of its bytes.
func (c *ShardChange) Cost() (ops, bytes int) {
	ops = 1
	for i := range c.Groups {
		o, b := c.Groups[i].Cost()
		ops, bytes = ops+o, bytes+b
	}
	return ops, bytes
}

// ShardResult is what became of a ShardChange: the new revision of everything that it put, or why it did not happen. ErrFenced: the shard
// is another's, or nobody's. A *GroupConflict says which group has changed since.
type ShardResult struct {
	Revision Revision
	Err      error
}

// ChangeShards makes changes of different shards in one transaction where it can. One that is refused takes no other with it.
func (s *Store) ChangeShards(ctx context.Context, all []ShardChange) []ShardResult {
	results := make([]ShardResult, len(all))
	var parts []*change
	var at []int // where in all
	for i := range all {
		if c := s.shardChange(&all[i]); len(c.ops) > 0 {
			parts, at = append(parts, c), append(at, i)
		}
	}
	for i, r := range s.commitTogether(ctx, parts) {
		results[at[i]] = r
	}
	return results
}

func (s *Store) shardChange(sc *ShardChange) *change {
	shard := sc.Shard
	c := newChange("changing %d groups of shard %d", len(sc.Groups), shard)
	c.guards, c.ops = make([]guard, 0, 1+2*len(sc.Groups)), make([]Op, 0, len(sc.Groups))
	c.created(s.keys.coord(shard), Equal, int64(sc.Epoch), ErrFenced)
	for i := range sc.Groups {
		g := &sc.Groups[i]
		key, conflict := s.keys.group(shard, g.ID), &GroupConflict{g.ID}
		c.unchanged(key, g.Rev, conflict)
		pages := 0
		if g.State != nil {
			pages = GroupPages(len(g.State))
			s.putState(c, shard, g, pages)
		}
		if g.Delete && g.Rev != 0 {
			c.delete(key)
		}
		if g.State != nil || g.Delete {
			for p := max(pages, 1); p < g.Pages; p++ {
				c.delete(s.keys.groupPage(shard, g.ID, p))
			}
		}
		for k := range g.Offsets {
			s.changeOffsets(c, shard, g.ID, &g.Offsets[k], conflict)
		}
	}
	return c
}

// putState puts a state's pages. The first one's revision stands for all: they only change together.
func (s *Store) putState(c *change, shard int32, g *GroupChange, pages int) {
	rest := g.State
	for p := range pages {
		part := rest[:min(len(rest), groupPageBytes)]
		rest = rest[len(part):]
		key := s.keys.group(shard, g.ID)
		if p > 0 {
			key = s.keys.groupPage(shard, g.ID, p)
		}
		b := begin(c.op, 4+len(part))
		b = binary.AppendVarint(b, int64(pages))
		c.put(key, append(b, part...))
		if p == 0 && c.mark == "" {
			c.mark = key
		}
	}
}

// LoadShard gives everything that a shard holds at one revision, at which it was owned in this term: whatever an earlier owner
// still sends comes after it and fails. ErrFenced when the term has ended.
func (s *Store) LoadShard(ctx context.Context, co Coordination, group func(GroupState) error, offsets func(group string, o Offsets) error) (Revision, error) {
	key := s.keys.coord(co.Shard)
	found, at, err := s.readKeys(ctx, key)
	if err != nil {
		return 0, err
	}
	if kv := found[key]; kv.CreateRevision != co.Epoch {
		return 0, fmt.Errorf("loading shard %d: %w", co.Shard, ErrFenced)
	}
	states := map[string]*statePages{}
	if _, err := s.readAll(ctx, s.keys.groups(co.Shard), at, func(kv *KeyValue) error {
		return addPage(states, kv, kv.Key[len(s.keys.groups(co.Shard)):], 0)
	}); err != nil {
		return 0, err
	}
	prefix := s.keys.groupPages(co.Shard)
	if _, err := s.readAll(ctx, prefix, at, func(kv *KeyValue) error {
		part, number, ok := strings.Cut(kv.Key[len(prefix):], "/")
		page, err := strconv.Atoi(number)
		if !ok || err != nil || page < 1 {
			return fmt.Errorf("%w: key %s names no page of a group", ErrCorrupt, kv.Key)
		}
		return addPage(states, kv, part, page)
	}); err != nil {
		return 0, err
	}
	for _, st := range states {
		g, err := st.join()
		if err == nil {
			err = group(g)
		}
		if err != nil {
			return 0, err
		}
	}
	return at, s.loadOffsets(ctx, co.Shard, s.keys.shardOffsets(co.Shard), at, offsets)
}

// ReadGroup reads one group as LoadShard does. A group without a state has Rev 0.
func (s *Store) ReadGroup(ctx context.Context, co Coordination, id string, offsets func(group string, o Offsets) error) (GroupState, error) {
	key, own := s.keys.group(co.Shard, id), s.keys.coord(co.Shard)
	found, at, err := s.readKeys(ctx, key, own)
	if err != nil {
		return GroupState{}, err
	}
	if kv := found[own]; kv.CreateRevision != co.Epoch {
		return GroupState{}, fmt.Errorf("reading group %q: %w", id, ErrFenced)
	}
	g := GroupState{ID: id}
	if kv, there := found[key]; there {
		states := map[string]*statePages{}
		if err := addPage(states, &kv, EscapeID(id), 0); err != nil {
			return g, err
		}
		prefix := s.keys.groupPages(co.Shard) + EscapeID(id) + "/"
		if _, err := s.readAll(ctx, prefix, at, func(kv *KeyValue) error {
			page, err := strconv.Atoi(kv.Key[len(prefix):])
			if err != nil || page < 1 {
				return fmt.Errorf("%w: key %s names no page of a group", ErrCorrupt, kv.Key)
			}
			return addPage(states, kv, EscapeID(id), page)
		}); err != nil {
			return g, err
		}
		if g, err = states[EscapeID(id)].join(); err != nil {
			return g, err
		}
	}
	return g, s.loadOffsets(ctx, co.Shard, s.keys.offsets(co.Shard, id), at, offsets)
}

// statePages gathers the pages of one state.
type statePages struct {
	id    string
	pages map[int][]byte
	want  int
	rev   Revision
}

func addPage(states map[string]*statePages, kv *KeyValue, part string, page int) error {
	id, err := UnescapeID(part)
	if err != nil {
		return err
	}
	d := decode("group", kv.Value)
	want := int(d.int32())
	if want < 0 || want > MaxTxnOps {
		d.fail("impossible number of pages")
	}
	if d.err != nil {
		return fmt.Errorf("group %q: %w", id, d.err)
	}
	st := states[part]
	if st == nil {
		st = &statePages{id: id, pages: map[int][]byte{}}
		states[part] = st
	}
	st.pages[page] = d.b
	if page == 0 {
		st.want, st.rev = want, kv.ModRevision
	}
	return nil
}

func (st *statePages) join() (GroupState, error) {
	g := GroupState{ID: st.id, Pages: st.want, Rev: st.rev}
	for p := range st.want {
		b, ok := st.pages[p]
		if !ok {
			return g, fmt.Errorf("%w: group %q lacks page %d of %d", ErrCorrupt, st.id, p, st.want)
		}
		g.Value = append(g.Value, b...)
	}
	if st.want < 1 || len(st.pages) != st.want {
		return g, fmt.Errorf("%w: group %q has %d pages, its state says %d", ErrCorrupt, st.id, len(st.pages), st.want)
	}
	return g, nil
}

// ConflictingGroup is the group that a refused ChangeGroups names.
func ConflictingGroup(err error) (string, bool) {
	var c *GroupConflict
	if errors.As(err, &c) {
		return c.Group, true
	}
	return "", false
}

// offsetsOf names the topic and chunk of the rest of an offsets key.
func offsetsOf(part string) (ChunkID, error) {
	hex, number, ok := strings.Cut(part, "/")
	id, err := record.ParseTopicIDHex(hex)
	if !ok || err != nil {
		return ChunkID{}, fmt.Errorf("%w: key part %q names no offsets", ErrCorrupt, part)
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 {
		return ChunkID{}, fmt.Errorf("%w: key part %q names no offsets", ErrCorrupt, part)
	}
	return ChunkID{Topic: id, Chunk: int32(n)}, nil
}
