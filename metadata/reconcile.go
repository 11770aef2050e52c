// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varve/varve/record"
)

// Frozen is what the store holds of a cluster that stands still: what a reconcile is planned on.
type Frozen struct {
	Registered []record.NodeID // nodes that are running, or whose registrations have not expired yet
	Nodes      []record.NodeID // every node that ever was
	Topics     []*Topic        // those that are being deleted included
	Partitions map[PartitionID]*FrozenPartition
	Garbage    []GCRecord
	NextPID    int64
	pidRev     Revision
}

// FrozenPartition is one partition of it.
type FrozenPartition struct {
	PartitionState
	Segments []SegmentValue
	Intents  []Intent
}

// Partition is a partition's state, an empty one for a partition that has none.
func (f *Frozen) Partition(id PartitionID) *FrozenPartition {
	p := f.Partitions[id]
	if p == nil {
		p = &FrozenPartition{PartitionState: noPartition}
		f.Partitions[id] = p
	}
	return p
}

// Freeze reads everything that a reconcile looks at. Nothing may change meanwhile: Reconcile compares what it replaces.
func (s *Store) Freeze(ctx context.Context) (*Frozen, error) {
	f := &Frozen{Partitions: map[PartitionID]*FrozenPartition{}}
	for _, kind := range []struct {
		prefix string
		take   func(f *Frozen, rest string, kv *KeyValue) error
	}{
		{kindBroker, freezeRegistered}, {kindNode, freezeNode}, {kindTopic, freezeTopic}, {kindLeader, freezeLeader}, {kindISR, freezeISR},
		{kindHead, freezeHead}, {kindSegment, freezeSegment}, {kindIntent, freezeIntent}, {kindGC, freezeGarbage},
	} {
		prefix := s.keys.key(kind.prefix)
		if _, err := s.readAll(ctx, prefix, 0, func(kv *KeyValue) error { return kind.take(f, kv.Key[len(prefix):], kv) }); err != nil {
			return nil, err
		}
	}
	key := s.keys.key(keyPIDBlock)
	found, _, err := s.readKeys(ctx, key)
	if err != nil {
		return nil, err
	}
	if kv, there := found[key]; there {
		var block pidBlockJSON
		if err := decodeJSON("producer id block", kv.Value, &block); err != nil {
			return nil, err
		}
		f.NextPID, f.pidRev = block.Next, kv.ModRevision
	}
	return f, nil
}

func freezeRegistered(f *Frozen, rest string, _ *KeyValue) error {
	node, err := parseNode(rest)
	f.Registered = append(f.Registered, node)
	return err
}

func freezeNode(f *Frozen, rest string, _ *KeyValue) error {
	node, err := parseNode(rest)
	f.Nodes = append(f.Nodes, node)
	return err
}

func freezeTopic(f *Frozen, rest string, kv *KeyValue) error {
	id, err := record.ParseTopicIDHex(rest)
	if err != nil {
		return fmt.Errorf("%w: key %s: %w", ErrCorrupt, kv.Key, err)
	}
	t, err := decodeTopic(id, kv)
	f.Topics = append(f.Topics, t)
	return err
}

func freezeLeader(f *Frozen, rest string, kv *KeyValue) error {
	id, err := parsePartition(rest)
	if err == nil {
		f.Partition(id).Leader, err = decodeLeader(kv)
	}
	return err
}

func freezeISR(f *Frozen, rest string, kv *KeyValue) error {
	id, err := parsePartition(rest)
	if err == nil {
		f.Partition(id).ISR, err = decodeISR(kv)
	}
	return err
}

func freezeHead(f *Frozen, rest string, kv *KeyValue) error {
	id, err := parsePartition(rest)
	if err == nil {
		f.Partition(id).Head, err = decodeHead(kv)
	}
	return err
}

// cutLast splits "{topicId}/{n}/{rest}".
func cutLast(rest string) (PartitionID, string, error) {
	for i := len(rest) - 1; i >= 0; i-- {
		if rest[i] == '/' {
			id, err := parsePartition(rest[:i])
			return id, rest[i+1:], err
		}
	}
	return PartitionID{}, "", fmt.Errorf("%w: key %q names no partition", ErrCorrupt, rest)
}

func freezeSegment(f *Frozen, rest string, kv *KeyValue) error {
	id, part, err := cutLast(rest)
	if err != nil {
		return err
	}
	base, err := parseOffset(part)
	p := f.Partition(id)
	p.Segments = append(p.Segments, SegmentValue{Base: base, Rev: kv.ModRevision, Value: kv.Value})
	return err
}

func freezeIntent(f *Frozen, rest string, kv *KeyValue) error {
	id, part, err := cutLast(rest)
	if err != nil {
		return err
	}
	attempt, err := parseUUID(part)
	if err != nil {
		return err
	}
	i, err := decodeIntent(attempt, kv)
	p := f.Partition(id)
	p.Intents = append(p.Intents, i)
	return err
}

func freezeGarbage(f *Frozen, rest string, kv *KeyValue) error {
	attempt, err := parseUUID(rest)
	if err != nil {
		return err
	}
	g, err := decodeGC(attempt, kv)
	f.Garbage = append(f.Garbage, g)
	return err
}

// Reconciled is a partition's new state. The revisions in it are those that it was planned on.
type Reconciled struct {
	ID PartitionID
	PartitionState
	Put     []SegmentValue // entries; Rev: of the entry there is, 0 for none
	Drop    []SegmentValue // entries that are dead; what they name stays where it is
	Intents []Intent       // to be taken away: what they announced is in the manifest
}

// Reconciliation is what a reconcile changes.
type Reconciliation struct {
	Topics     []*Topic // Rev 0: a new one
	Partitions []Reconciled
	NextPID    int64
	Stores     []UUID // the data directories that were looked at
	Met        int64  // the highest generation that one of them has met
}

// errRunning: a reconcile needs a cluster that stands still.
var errRunning = errors.New("nodes are registered: stop them first")

// Reconcile makes a plan true and then raises the generation, which fences whoever has met the one before. Until the generation is
// raised no node that has seen the store before it went back starts; a reconcile that was cut short is run again.
func (s *Store) Reconcile(ctx context.Context, f *Frozen, r *Reconciliation) error {
	for _, t := range r.Topics {
		if err := s.reconcileTopic(ctx, t); err != nil {
			return err
		}
	}
	for i := range r.Partitions {
		if err := s.reconcilePartition(ctx, &r.Partitions[i]); err != nil {
			return err
		}
	}
	found, _, err := s.readKeys(ctx, s.keys.key(keyGen))
	if err != nil {
		return err
	}
	next := genJSON{ClusterID: s.clusterID, Gen: max(s.gen, r.Met) + 1}
	for _, id := range r.Stores {
		next.Stores = append(next.Stores, id.String())
	}
	slices.Sort(next.Stores)
	c := s.stillChange("raising the cluster's generation to %d", next.Gen)
	c.mark = s.keys.key(keyGen)
	c.unchanged(c.mark, found[c.mark].ModRevision, ErrConflict)
	c.put(c.mark, encodeJSON(next, c.op))
	if r.NextPID > f.NextPID {
		c.unchanged(s.keys.key(keyPIDBlock), f.pidRev, ErrConflict)
		c.put(s.keys.key(keyPIDBlock), encodeJSON(pidBlockJSON{Next: r.NextPID}, c.op))
	}
	_, err = s.commit(ctx, c)
	return err
}

// stillChange begins a change that requires that nobody is registered.
func (s *Store) stillChange(format string, args ...any) *change {
	c := newChange(format, args...)
	prefix := s.keys.key(kindBroker)
	c.require(Compare{Key: prefix, End: prefixEnd(prefix), Target: TargetCreateRevision, Relation: Equal, Number: 0}, errRunning)
	return c
}

func (s *Store) reconcileTopic(ctx context.Context, t *Topic) error {
	c := s.stillChange("restoring topic %s", t.Name)
	c.mark = s.keys.topic(t.ID)
	c.unchanged(c.mark, t.Rev, ErrConflict)
	c.put(c.mark, encodeTopic(t, c.op))
	if t.Rev == 0 {
		c.unchanged(s.keys.name(t.Name), 0, ErrTopicExists)
		c.unchanged(s.keys.deleting(t.ID), 0, ErrConflict)
		c.put(s.keys.name(t.Name), encodeName(t.ID, c.op))
	}
	_, err := s.commit(ctx, c)
	return err
}

// reconcilePartition puts the entries first: above the tiered end they are dead to every reader until the head follows.
func (s *Store) reconcilePartition(ctx context.Context, p *Reconciled) error {
	for part := range slices.Chunk(p.Put, dropBatch) {
		c := s.stillChange("restoring segments of %s", p.ID)
		c.unchanged(s.keys.head(p.ID), p.Head.Rev, ErrConflict)
		for i := range part {
			key := s.keys.segment(p.ID, part[i].Base)
			c.unchanged(key, part[i].Rev, ErrConflict)
			c.put(key, part[i].Value)
		}
		// Entries carry no operation id: what is read back decides.
		if _, err := s.commit(ctx, c); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(p.Drop, dropBatch) {
		c := s.stillChange("dropping dead segments of %s", p.ID)
		c.unchanged(s.keys.head(p.ID), p.Head.Rev, ErrConflict)
		for i := range part {
			key := s.keys.segment(p.ID, part[i].Base)
			c.unchanged(key, part[i].Rev, ErrConflict)
			c.delete(key)
		}
		if _, err := s.commit(ctx, c); err != nil {
			return err
		}
	}
	c := s.stillChange("reconciling %s", p.ID)
	c.mark = s.keys.leader(p.ID)
	c.unchanged(c.mark, p.Leader.Rev, ErrConflict)
	c.unchanged(s.keys.isr(p.ID), p.ISR.Rev, ErrConflict)
	c.unchanged(s.keys.head(p.ID), p.Head.Rev, ErrConflict)
	c.put(c.mark, encodeLeader(&p.Leader, c.op))
	c.put(s.keys.isr(p.ID), encodeISR(&p.ISR, c.op))
	c.put(s.keys.head(p.ID), encodeHead(&p.Head, c.op))
	if _, err := s.commit(ctx, c); err != nil {
		return err
	}
	for part := range slices.Chunk(p.Intents, dropBatch) {
		c := s.stillChange("taking the intents of %s away", p.ID)
		for i := range part {
			key := s.keys.intent(p.ID, part[i].Attempt)
			c.unchanged(key, part[i].Rev, ErrConflict)
			c.delete(key)
		}
		if _, err := s.commit(ctx, c); err != nil {
			return err
		}
	}
	return nil
}
