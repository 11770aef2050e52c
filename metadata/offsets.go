// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varve/varve/record"
)

// CommittedOffset is what a group has committed for one partition.
type CommittedOffset struct {
	Partition   int32
	LeaderEpoch record.Epoch // record.NoEpoch: the client named none
	Offset      record.Offset
	Metadata    string
	Committed   UnixMillis
	Expires     UnixMillis // 0: the broker's retention decides
}

// UnixMillis is a time in milliseconds since 1970. A coordinator holds two of them for each partition that a group has committed: a third of
// what times take.
type UnixMillis int64

// MillisOf is a time to the millisecond.
func MillisOf(t time.Time) UnixMillis { return UnixMillis(t.UnixMilli()) }

// Time is the time in question.
func (m UnixMillis) Time() time.Time { return time.UnixMilli(int64(m)) }

// ChunkID names one key of committed offsets: those of a topic's partitions [Chunk*OffsetsPerChunk, (Chunk+1)*OffsetsPerChunk).
type ChunkID struct {
	Topic record.TopicID
	Chunk int32
}

// ChunkOf is where a partition's committed offset is kept.
func ChunkOf(topic record.TopicID, partition int32) ChunkID {
	return ChunkID{Topic: topic, Chunk: partition / OffsetsPerChunk}
}

// Offsets are the committed offsets of one key, by partition, ascending. Rev is the token of the next change.
type Offsets struct {
	ChunkID
	List []CommittedOffset
	Rev  Revision
}

// OffsetsChange replaces the offsets of one key; an empty list deletes it. Rev is the revision that it was decided on, 0 for none.
type OffsetsChange Offsets

func (c *OffsetsChange) size() int {
	n := headerBytes + 8
	for i := range c.List {
		n += c.List[i].Size()
	}
	return n
}

// Size bounds what an offset takes in its value.
func (o *CommittedOffset) Size() int { return 32 + len(o.Metadata) }

func (k keyspace) shardOffsets(shard int32) string {
	return k.prefix + kindGroupOffsets + itoa(int64(shard)) + "/"
}

// offsets is the prefix of a group's. The empty group id has an empty part.
func (k keyspace) offsets(shard int32, g string) string {
	return k.shardOffsets(shard) + EscapeID(g) + "/"
}

func (k keyspace) offsetChunk(shard int32, g string, id ChunkID) string {
	return k.prefix + kindGroupOffsets + itoa(int64(shard)) + "/" + EscapeID(g) + "/" + id.Topic.Hex() + "/" + itoa(int64(id.Chunk))
}

func (s *Store) changeOffsets(c *change, shard int32, group string, o *OffsetsChange, conflict error) {
	key := s.keys.offsetChunk(shard, group, o.ChunkID)
	c.unchanged(key, o.Rev, conflict)
	if len(o.List) == 0 {
		if o.Rev != 0 {
			c.delete(key)
		}
		return
	}
	c.put(key, encodeOffsets(o.List, c.op))
	if c.mark == "" {
		c.mark = key
	}
}

func encodeOffsets(list []CommittedOffset, op UUID) []byte {
	return appendOffsets(begin(op, 32*len(list)), list)
}

func appendOffsets(b []byte, list []CommittedOffset) []byte {
	b = binary.AppendVarint(b, int64(len(list)))
	for i := range list {
		o := &list[i]
		b = binary.AppendVarint(b, int64(o.Partition))
		b = binary.AppendVarint(b, int64(o.Offset))
		b = binary.AppendVarint(b, int64(o.LeaderEpoch))
		b = binary.AppendVarint(b, int64(o.Committed))
		expires := int64(-1)
		if o.Expires != 0 {
			expires = int64(o.Expires)
		}
		b = binary.AppendVarint(b, expires)
		b = binary.AppendVarint(b, int64(len(o.Metadata)))
		b = append(b, o.Metadata...)
	}
	return b
}

func decodeOffsets(value []byte) ([]CommittedOffset, error) {
	d := decode("committed offsets", value)
	return d.offsets(), d.end()
}

func (d *decoder) offsets() []CommittedOffset {
	list := make([]CommittedOffset, d.count(6))
	for i := range list {
		o := CommittedOffset{Partition: d.int32(), Offset: record.Offset(d.varint()), LeaderEpoch: record.Epoch(d.int32())}
		o.Committed = UnixMillis(d.varint())
		if at := d.varint(); at >= 0 {
			o.Expires = UnixMillis(at)
		}
		o.Metadata = string(d.bytes())
		list[i] = o
	}
	return list
}

// loadOffsets reads the offsets of a shard or of one of its groups.
func (s *Store) loadOffsets(ctx context.Context, shard int32, prefix string, at Revision, fn func(group string, o Offsets) error) error {
	all := s.keys.shardOffsets(shard)
	_, err := s.readAll(ctx, prefix, at, func(kv *KeyValue) error {
		part, rest, _ := strings.Cut(kv.Key[len(all):], "/")
		id, err := UnescapeID(part)
		if err != nil {
			return err
		}
		o, err := decodeChunk(rest, kv)
		if err != nil {
			return fmt.Errorf("key %s: %w", kv.Key, err)
		}
		return fn(id, o)
	})
	return err
}

func decodeChunk(rest string, kv *KeyValue) (o Offsets, err error) {
	if o.ChunkID, err = offsetsOf(rest); err != nil {
		return o, err
	}
	o.List, err = decodeOffsets(kv.Value)
	o.Rev = kv.ModRevision
	return o, err
}

// ReadOffsets reads what a group has committed, linearizably and only while the shard is this coordinator's (ErrFenced): of the
// given topics, or everything for nil.
func (s *Store) ReadOffsets(ctx context.Context, co Coordination, group string, topics []record.TopicID) ([]Offsets, error) {
	prefix := s.keys.offsets(co.Shard, group)
	var out []Offsets
	if topics == nil {
		return out, s.readChunks(ctx, co, group, []string{prefix}, &out)
	}
	for batch := range slices.Chunk(topics, offsetTopicsPerRead) {
		prefixes := make([]string, len(batch))
		for i, id := range batch {
			prefixes[i] = prefix + id.Hex() + "/"
		}
		if err := s.readChunks(ctx, co, group, prefixes, &out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readChunks reads all keys under the prefixes, page by page; each page is fenced by itself.
func (s *Store) readChunks(ctx context.Context, co Coordination, group string, prefixes []string, out *[]Offsets) error {
	own := s.keys.coord(co.Shard)
	base := len(s.keys.offsets(co.Shard, group))
	var next []Op
	for _, p := range prefixes {
		next = append(next, Op{Kind: OpGet, Key: p, End: prefixEnd(p), Limit: offsetKeysPerRead})
	}
	for len(next) > 0 {
		res, err := s.readFenced(ctx, Txn{
			If:   []Compare{{Key: own, Target: TargetCreateRevision, Relation: Equal, Number: int64(co.Epoch)}},
			Then: next,
		})
		if err != nil {
			return fmt.Errorf("reading offsets of group %q: %w", group, err)
		}
		if !res.Succeeded {
			return fmt.Errorf("reading offsets of group %q: %w", group, ErrFenced)
		}
		var again []Op
		for i, kvs := range res.Reads {
			for k := range kvs {
				o, err := decodeChunk(kvs[k].Key[base:], &kvs[k])
				if err != nil {
					return fmt.Errorf("key %s: %w", kvs[k].Key, err)
				}
				*out = append(*out, o)
			}
			if len(kvs) == offsetKeysPerRead {
				again = append(again, Op{Kind: OpGet, Key: kvs[len(kvs)-1].Key + "\x00", End: next[i].End, Limit: offsetKeysPerRead})
			}
		}
		next = again
	}
	return nil
}

// readFenced is a transaction that only reads, tried again while the store is away.
func (s *Store) readFenced(ctx context.Context, t Txn) (TxnResult, error) {
	began := time.Now()
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		if err := s.Err(); err != nil {
			return TxnResult{}, err
		}
		floor := s.history.floor()
		res, err := s.txnOnce(ctx, t)
		if err == nil {
			return res, s.observe(ctx, res.Header, floor)
		}
		if !isRetriable(err) || time.Since(began) > unavailableWait {
			return res, fmt.Errorf("%w: %w", ErrUnavailable, err) // a read changes nothing: never unknown
		}
		if sleep(ctx, jitter(pause)) != nil {
			return res, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
	}
}
