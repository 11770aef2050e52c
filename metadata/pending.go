// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/varve/varve/record"
)

// PendingOffsets is what an open transaction of a producer will commit for a group, by topic and partition, ascending.
type PendingOffsets struct {
	Group    string
	Producer int64
	Topics   []TopicOffsets
	Rev      Revision // 0: nothing
}

// TopicOffsets are offsets of one topic.
type TopicOffsets struct {
	Topic record.TopicID
	List  []CommittedOffset
}

// PendingChange puts what a transaction will commit for a group.
type PendingChange struct {
	PendingOffsets
	// GroupRev is the revision of the group's state that it was decided on, 0 for none; Txn and TxnRev the transaction and its.
	GroupRev Revision
	Txn      string
	TxnRev   Revision
}

// OffsetsMove takes what a transaction of a producer would commit for a group away, and puts what the offsets become.
type OffsetsMove struct {
	Group    string
	Producer int64
	Rev      Revision // of the pending offsets; 0: there must be none
	Offsets  []OffsetsChange
	// Rest stays pending.
	Rest []TopicOffsets
}

func (k keyspace) pendings(shard int32, g string) string {
	return k.prefix + kindGroupPending + itoa(int64(shard)) + "/" + EscapeID(g) + "/"
}

func (k keyspace) pending(shard int32, g string, producer int64) string {
	return k.pendings(shard, g) + itoa(producer)
}

// PendOffsets stores what a transaction will commit for a group of the coordinator's. ErrFenced: the shard is another's, or nobody's. A
// *GroupConflict: the group changed; ErrTxnChanged: the transaction did; ErrConflict: what it will commit did.
func (s *Store) PendOffsets(ctx context.Context, co Coordination, p *PendingChange) (Revision, error) {
	c := newChange("offsets of group %q in transaction %q", p.Group, p.Txn)
	c.created(s.keys.coord(co.Shard), Equal, int64(co.Epoch), ErrFenced)
	c.unchanged(s.keys.group(co.Shard, p.Group), p.GroupRev, &GroupConflict{p.Group})
	c.unchanged(s.keys.txn(ShardOf(p.Txn, s.Image().Shards()), p.Txn), p.TxnRev, ErrTxnChanged)
	key := s.keys.pending(co.Shard, p.Group, p.Producer)
	c.unchanged(key, p.Rev, ErrConflict)
	c.put(key, encodePending(p.Topics, c.op))
	c.mark = key
	return s.commit(ctx, c)
}

// ReadPending reads what open transactions will commit for a group, linearizably and only while the shard is this coordinator's (ErrFenced).
func (s *Store) ReadPending(ctx context.Context, co Coordination, group string) (list []PendingOffsets, err error) {
	prefix := s.keys.pendings(co.Shard, group)
	err = s.fencedKeys(ctx, co, prefix, func(kv *KeyValue) error {
		producer, err := strconv.ParseInt(kv.Key[len(prefix):], 10, 64)
		if err != nil {
			return fmt.Errorf("%w: key %s names no producer", ErrCorrupt, kv.Key)
		}
		p, err := decodePending(kv)
		p.Group, p.Producer = group, producer
		list = append(list, p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading pending offsets of group %q: %w", group, err)
	}
	return list, nil
}

// PendingGroups are the groups of a shard that open transactions will commit offsets for, and when the newest of those was written.
func (s *Store) PendingGroups(ctx context.Context, co Coordination) (groups []string, newest UnixMillis, err error) {
	prefix := s.keys.prefix + kindGroupPending + itoa(int64(co.Shard)) + "/"
	err = s.fencedKeys(ctx, co, prefix, func(kv *KeyValue) error {
		part, _, _ := strings.Cut(kv.Key[len(prefix):], "/")
		g, err := UnescapeID(part)
		if err != nil {
			return err
		}
		if n := len(groups); n == 0 || groups[n-1] != g {
			groups = append(groups, g)
		}
		p, err := decodePending(kv)
		for i := range p.Topics {
			for k := range p.Topics[i].List {
				newest = max(newest, p.Topics[i].List[k].Committed)
			}
		}
		return err
	})
	if err != nil {
		return nil, newest, fmt.Errorf("reading pending offsets of shard %d: %w", co.Shard, err)
	}
	return groups, newest, nil
}

// DropPending takes away what transactions would commit for a group of the coordinator's: of these partitions, or everything for nil. What was
// written after until stays. found tells whether there was anything to take. ErrFenced: the shard is another's.
func (s *Store) DropPending(ctx context.Context, co Coordination, group string, partitions map[record.TopicID][]int32, until UnixMillis) (found bool, err error) {
	for tries := 0; ; tries++ {
		list, err := s.ReadPending(ctx, co, group)
		if err != nil {
			return found, err
		}
		again := false
		for i := range list {
			rest, drops := list[i].without(partitions, until)
			if !drops {
				continue
			}
			found = true
			c := newChange("pending offsets of group %q", group)
			c.created(s.keys.coord(co.Shard), Equal, int64(co.Epoch), ErrFenced)
			key := s.keys.pending(co.Shard, group, list[i].Producer)
			c.unchanged(key, list[i].Rev, ErrConflict)
			if len(rest) == 0 {
				c.delete(key)
			} else {
				c.put(key, encodePending(rest, c.op))
			}
			switch _, err := s.commit(ctx, c); {
			case IsConflict(err) && tries < maxConflicts:
				again = true
			case err != nil:
				return found, err
			}
		}
		if !again {
			return found, nil
		}
	}
}

// without is what is left of the pending offsets without those of some partitions, or of all for nil, that were written until then.
func (p *PendingOffsets) without(partitions map[record.TopicID][]int32, until UnixMillis) (rest []TopicOffsets, drops bool) {
	for _, t := range p.Topics {
		list := slices.DeleteFunc(slices.Clone(t.List), func(o CommittedOffset) bool {
			return o.Committed <= until && (partitions == nil || slices.Contains(partitions[t.Topic], o.Partition))
		})
		drops = drops || len(list) < len(t.List)
		if len(list) > 0 {
			rest = append(rest, TopicOffsets{Topic: t.Topic, List: list})
		}
	}
	return rest, drops
}

// fencedKeys reads all keys with a prefix while the shard is the coordinator's; each page is fenced by itself.
func (s *Store) fencedKeys(ctx context.Context, co Coordination, prefix string, fn func(*KeyValue) error) error {
	own := Compare{Key: s.keys.coord(co.Shard), Target: TargetCreateRevision, Relation: Equal, Number: int64(co.Epoch)}
	next := Op{Kind: OpGet, Key: prefix, End: prefixEnd(prefix), Limit: offsetKeysPerRead}
	for {
		res, err := s.readFenced(ctx, Txn{If: []Compare{own}, Then: []Op{next}})
		if err != nil {
			return err
		}
		if !res.Succeeded {
			return ErrFenced
		}
		kvs := res.Reads[0]
		for i := range kvs {
			if err := fn(&kvs[i]); err != nil {
				return err
			}
		}
		if len(kvs) < offsetKeysPerRead {
			return nil
		}
		next.Key = kvs[len(kvs)-1].Key + "\x00"
	}
}

// ReadPendingOf reads what a producer's transaction will commit for each of the groups; any node may.
func (s *Store) ReadPendingOf(ctx context.Context, producer int64, groups []string) ([]PendingOffsets, error) {
	shards := s.Image().Shards()
	out := make([]PendingOffsets, 0, len(groups))
	for some := range slices.Chunk(groups, moveRoom) {
		keys := make([]string, len(some))
		for i, g := range some {
			keys[i] = s.keys.pending(ShardOf(g, shards), g, producer)
		}
		found, _, err := s.readKeys(ctx, keys...)
		if err != nil {
			return nil, fmt.Errorf("reading pending offsets: %w", err)
		}
		for i, g := range some {
			var p PendingOffsets
			if kv, there := found[keys[i]]; there {
				if p, err = decodePending(&kv); err != nil {
					return nil, fmt.Errorf("pending offsets of group %q: %w", g, err)
				}
			}
			p.Group, p.Producer = g, producer
			out = append(out, p)
		}
	}
	return out, nil
}

// NextMoves makes moves of pending offsets, into what the groups' offsets are now for a commit, as many as one change has room for. What was
// committed after a pending offset was written stays, as in Kafka: the last to come wins, not the last to end. all: none is left then.
func (s *Store) NextMoves(ctx context.Context, pending []PendingOffsets, commit bool) (moves []OffsetsMove, all bool, err error) {
	ops, bytes := 0, 0
	for i := range pending {
		p := &pending[i]
		if ops >= moveRoom {
			return moves, false, nil
		}
		ops++
		m := OffsetsMove{Group: p.Group, Producer: p.Producer, Rev: p.Rev}
		if !commit {
			moves = append(moves, m)
			continue
		}
		chunks := p.chunks()
		taken := chunks[:min(len(chunks), moveRoom-ops)]
		if err := s.mergeChunks(ctx, p.Group, taken); err != nil {
			return nil, false, err
		}
		for len(m.Offsets) < len(taken) {
			size := taken[len(m.Offsets)].size()
			if bytes+size > moveBytes && bytes > 0 {
				break
			}
			ops, bytes = ops+1, bytes+size
			m.Offsets = append(m.Offsets, taken[len(m.Offsets)])
		}
		if len(m.Offsets) < len(chunks) {
			m.Rest = topicsOf(p.chunks()[len(m.Offsets):])
			if len(m.Offsets) > 0 {
				moves = append(moves, m)
			}
			return moves, false, nil
		}
		moves = append(moves, m)
	}
	return moves, true, nil
}

// mergeChunks adds to each change what is committed for the group already.
func (s *Store) mergeChunks(ctx context.Context, group string, chunks []OffsetsChange) error {
	if len(chunks) == 0 {
		return nil
	}
	shard := ShardOf(group, s.Image().Shards())
	keys := make([]string, len(chunks))
	for k := range chunks {
		keys[k] = s.keys.offsetChunk(shard, group, chunks[k].ChunkID)
	}
	found, _, err := s.readKeys(ctx, keys...)
	if err != nil {
		return fmt.Errorf("reading offsets of group %q: %w", group, err)
	}
	for k := range chunks {
		kv, there := found[keys[k]]
		if !there {
			continue
		}
		old, err := decodeOffsets(kv.Value)
		if err != nil {
			return fmt.Errorf("key %s: %w", kv.Key, err)
		}
		c := &chunks[k]
		added := newerThan(old, c.List)
		c.Rev, c.List = kv.ModRevision, mergeOffsets(old, added)
		if c.size() > MaxValueBytes { // a commit that is decided cannot be refused: what it says beside the offsets goes
			plain := slices.Clone(added)
			for i := range plain {
				plain[i].Metadata = ""
			}
			c.List = mergeOffsets(old, plain)
		}
	}
	return nil
}

// topicsOf puts chunks together by topic again.
func topicsOf(chunks []OffsetsChange) (out []TopicOffsets) {
	for i := range chunks {
		if n := len(out); n == 0 || out[n-1].Topic != chunks[i].Topic {
			out = append(out, TopicOffsets{Topic: chunks[i].Topic})
		}
		last := &out[len(out)-1]
		last.List = append(last.List, chunks[i].List...)
	}
	return out
}

// chunks are the pending offsets by key.
func (p *PendingOffsets) chunks() (out []OffsetsChange) {
	for i := range p.Topics {
		for _, o := range p.Topics[i].List {
			id := ChunkOf(p.Topics[i].Topic, o.Partition)
			if n := len(out); n == 0 || out[n-1].ChunkID != id {
				out = append(out, OffsetsChange{ChunkID: id})
			}
			last := &out[len(out)-1]
			last.List = append(last.List, o)
		}
	}
	return out
}

// Merge adds offsets to what is pending: those of a partition that has some take their place.
func (p *PendingOffsets) Merge(topics []TopicOffsets) {
	p.Topics = slices.Clone(p.Topics)
	for i := range topics {
		at, found := slices.BinarySearchFunc(p.Topics, topics[i].Topic, func(t TopicOffsets, id record.TopicID) int { return slices.Compare(t.Topic[:], id[:]) })
		if !found {
			p.Topics = slices.Insert(p.Topics, at, TopicOffsets{Topic: topics[i].Topic})
		}
		p.Topics[at].List = mergeOffsets(p.Topics[at].List, topics[i].List)
	}
}

// Size bounds what the pending offsets take in their value.
func (p *PendingOffsets) Size() int {
	n := headerBytes + 8
	for i := range p.Topics {
		n += 24
		for k := range p.Topics[i].List {
			n += p.Topics[i].List[k].Size()
		}
	}
	return n
}

// Has tells whether an offset of the partition is pending.
func (p *PendingOffsets) Has(topic record.TopicID, partition int32) bool {
	for i := range p.Topics {
		if p.Topics[i].Topic == topic {
			_, found := slices.BinarySearchFunc(p.Topics[i].List, partition, comparePartition)
			return found
		}
	}
	return false
}

func comparePartition(o CommittedOffset, partition int32) int {
	return int(o.Partition) - int(partition)
}

// mergeOffsets gives old with those of list in the place of theirs.
func mergeOffsets(old, list []CommittedOffset) []CommittedOffset {
	out := slices.Clone(old)
	for _, o := range list {
		at, found := slices.BinarySearchFunc(out, o.Partition, comparePartition)
		if found {
			out[at] = o
		} else {
			out = slices.Insert(out, at, o)
		}
	}
	return out
}

// newerThan are those of list that were written after what old has of their partition. Who coordinates a group writes them with times that say
// in which order they came.
func newerThan(old, list []CommittedOffset) []CommittedOffset {
	return slices.DeleteFunc(slices.Clone(list), func(o CommittedOffset) bool {
		at, found := slices.BinarySearchFunc(old, o.Partition, comparePartition)
		return found && o.Committed <= old[at].Committed
	})
}

func encodePending(topics []TopicOffsets, op UUID) []byte {
	b := begin(op, 64)
	b = binary.AppendVarint(b, int64(len(topics)))
	for i := range topics {
		b = append(b, topics[i].Topic[:]...)
		b = appendOffsets(b, topics[i].List)
	}
	return b
}

func decodePending(kv *KeyValue) (PendingOffsets, error) {
	d := decode("pending offsets", kv.Value)
	p := PendingOffsets{Rev: kv.ModRevision, Topics: make([]TopicOffsets, d.count(17))}
	for i := range p.Topics {
		p.Topics[i].Topic = record.TopicID(d.uuid())
		p.Topics[i].List = d.offsets()
	}
	return p, d.end()
}

// IsConflict tells that a change lost a race that it can be decided again after.
func IsConflict(err error) bool { return errors.Is(err, ErrConflict) || errors.Is(err, ErrTxnChanged) }
