// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/varve/varve/record"
)

// CreateTopic creates a topic, whole or not at all. Nodes that create one name at the same time race on the name alone: the
// others get ErrTopicExists. The topic in the answer has no Config: that comes with an image (WaitFor its Rev).
func (s *Store) CreateTopic(ctx context.Context, spec TopicSpec) (*Topic, error) {
	if spec.Name == "" || len(spec.Name) > maxTopicName || len(spec.Partitions) == 0 {
		return nil, fmt.Errorf("creating topic %q with %d partitions: %w: name of 1 to %d bytes and at least one partition needed",
			spec.Name, len(spec.Partitions), ErrRefused, maxTopicName)
	}
	t := &Topic{ID: spec.ID, Name: spec.Name, Partitions: spec.Partitions, Overrides: maps.Clone(spec.Overrides), AutoRF: spec.AutoRF}
	if t.ID == (record.TopicID{}) {
		t.ID = record.TopicID(newUUID())
	}
	nameKey, topicKey := s.keys.name(t.Name), s.keys.topic(t.ID)
	c := newChange("creating topic %s", t.Name)
	c.unchanged(nameKey, 0, ErrTopicExists)
	c.unchanged(topicKey, 0, ErrTopicExists)
	c.unchanged(s.keys.deleting(t.ID), 0, ErrTopicExists)
	c.put(nameKey, encodeName(t.ID, c.op))
	c.put(topicKey, encodeTopic(t, c.op))
	c.mark = topicKey
	rev, err := s.commit(ctx, c)
	if err != nil {
		return nil, err
	}
	t.Rev, t.Created = rev, rev
	return t, nil
}

// ReadTopic reads a topic linearizably. ErrUnknownTopic when there is none or it is being deleted.
func (s *Store) ReadTopic(ctx context.Context, id record.TopicID) (*Topic, error) {
	key := s.keys.topic(id)
	found, _, err := s.readKeys(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading topic %s: %w", id, err)
	}
	kv, ok := found[key]
	if !ok {
		return nil, fmt.Errorf("topic %s: %w", id, ErrUnknownTopic)
	}
	t, err := decodeTopic(id, &kv)
	if err != nil {
		return nil, err
	}
	if t.Deleting {
		return nil, fmt.Errorf("topic %s (%s) is being deleted: %w", id, t.Name, ErrUnknownTopic)
	}
	return t, nil
}

// ReadTopicByName reads a topic linearizably. Only this, never an image, decides that a name does not exist (P6).
func (s *Store) ReadTopicByName(ctx context.Context, name string) (*Topic, error) {
	key := s.keys.name(name)
	found, _, err := s.readKeys(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading topic %s: %w", name, err)
	}
	kv, ok := found[key]
	if !ok {
		return nil, fmt.Errorf("topic %s: %w", name, ErrUnknownTopic)
	}
	id, err := decodeName(kv.Value)
	if err != nil {
		return nil, err
	}
	return s.ReadTopic(ctx, id)
}

// alterTopic changes a topic's value by fn until no other change comes between.
func (s *Store) alterTopic(ctx context.Context, id record.TopicID, what string, fn func(*Topic) error) (*Topic, error) {
	for range maxConflicts {
		t, err := s.ReadTopic(ctx, id)
		if err != nil {
			return nil, err
		}
		next := *t
		if err := fn(&next); err != nil {
			return nil, err
		}
		c := newChange("%s topic %s", what, t.Name)
		c.mark = s.keys.topic(id)
		c.unchanged(c.mark, t.Rev, ErrConflict)
		c.put(c.mark, encodeTopic(&next, c.op))
		next.Rev, err = s.commit(ctx, c)
		if err == nil {
			return &next, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s topic %s: %w", what, id, ErrConflict)
}

// CreatePartitions adds partitions to a topic that has `have` of them. ErrConflict when it has another number by now.
func (s *Store) CreatePartitions(ctx context.Context, id record.TopicID, have int, add [][]record.NodeID) (*Topic, error) {
	return s.alterTopic(ctx, id, "adding partitions to", func(t *Topic) error {
		if len(t.Partitions) != have {
			return fmt.Errorf("topic %s has %d partitions, not %d: %w", t.Name, len(t.Partitions), have, ErrConflict)
		}
		t.Partitions = slices.Concat(t.Partitions, add)
		return nil
	})
}

// AlterTopicConfig changes a topic's overrides by fn, which gets a copy and may be called more than once.
func (s *Store) AlterTopicConfig(ctx context.Context, id record.TopicID, fn func(overrides map[string]string) error) (*Topic, error) {
	return s.alterTopic(ctx, id, "configuring", func(t *Topic) error {
		t.Overrides = maps.Clone(t.Overrides)
		if t.Overrides == nil {
			t.Overrides = map[string]string{}
		}
		return fn(t.Overrides)
	})
}

// AlterBrokerConfig changes the dynamic configuration of one node ("1"), or of all nodes (""), by fn, which gets a copy and may
// be called more than once.
func (s *Store) AlterBrokerConfig(ctx context.Context, entity string, fn func(map[string]string) error) (Revision, error) {
	return s.AlterConfig(ctx, ConfigBroker, entity, fn)
}

// AlterConfig is AlterBrokerConfig for any kind.
func (s *Store) AlterConfig(ctx context.Context, kind ConfigKind, entity string, fn func(map[string]string) error) (Revision, error) {
	key := s.keys.config(configName(kind, entity))
	for range maxConflicts {
		found, _, err := s.readKeys(ctx, key)
		if err != nil {
			return 0, err
		}
		values := map[string]string{}
		kv, there := found[key]
		if there {
			if values, err = decodeConfig(kv.Value); err != nil {
				return 0, err
			}
		}
		if err := fn(values); err != nil {
			return 0, err
		}
		c := newChange("configuring %s %q", kind, entity)
		c.unchanged(key, kv.ModRevision, ErrConflict)
		c.put(key, encodeConfig(values, c.op))
		c.mark = key
		rev, err := s.commit(ctx, c)
		if !errors.Is(err, ErrConflict) {
			return rev, err
		}
	}
	return 0, fmt.Errorf("configuring %s %q: %w", kind, entity, ErrConflict)
}

// DeleteTopic takes a topic away from the clients at once. What it leaves is cleared away by DrainDeleting; its name is free, and
// a topic made under it is another one.
func (s *Store) DeleteTopic(ctx context.Context, id record.TopicID) (Revision, error) {
	for range maxConflicts {
		t, err := s.ReadTopic(ctx, id)
		if err != nil {
			return 0, err
		}
		gone := *t
		gone.Deleting = true
		c := newChange("deleting topic %s", t.Name)
		c.mark = s.keys.topic(id)
		c.unchanged(c.mark, t.Rev, ErrConflict)
		c.created(s.keys.name(t.Name), NotEqual, 0, ErrConflict)
		c.delete(s.keys.name(t.Name))
		c.put(s.keys.deleting(id), encodeJSON(deletingJSON{Name: t.Name, Since: time.Now().UnixMilli()}, c.op))
		c.put(c.mark, encodeTopic(&gone, c.op))
		rev, err := s.commit(ctx, c)
		if !errors.Is(err, ErrConflict) {
			return rev, err
		}
	}
	return 0, fmt.Errorf("deleting topic %s: %w", id, ErrConflict)
}

// AllocateProducerIDs takes a block of n producer ids for this node. It is durable before anybody uses one, so no id is ever given
// out twice; what is left of a block when the node ends is never used.
func (s *Store) AllocateProducerIDs(ctx context.Context) (first, n int64, err error) {
	key := s.keys.key(keyPIDBlock)
	for range maxConflicts {
		found, _, err := s.readKeys(ctx, key)
		if err != nil {
			return 0, 0, err
		}
		var block pidBlockJSON
		kv, there := found[key]
		if there {
			if err := decodeJSON("producer id block", kv.Value, &block); err != nil {
				return 0, 0, err
			}
		}
		first := block.Next
		block.Next += producerIDBlock
		c := newChange("allocating producer ids")
		c.unchanged(key, kv.ModRevision, ErrConflict)
		c.put(key, encodeJSON(block, c.op))
		c.mark = key
		if _, err = s.commit(ctx, c); err == nil {
			return first, producerIDBlock, nil
		}
		if !errors.Is(err, ErrConflict) {
			return 0, 0, err
		}
	}
	return 0, 0, fmt.Errorf("allocating producer ids: %w", ErrConflict)
}
