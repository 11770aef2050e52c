// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/varve/varve/record"
)

// Drain marks a node as one that gives up what it holds: its leaderships are handed over, its replicas are moved to other nodes as
// far as there are any, and it gets no new ones. The mark outlives the node. Doing it again changes nothing.
func (s *Store) Drain(ctx context.Context, node record.NodeID) (Revision, error) {
	key := s.keys.drain(node)
	for range maxConflicts {
		found, rev, err := s.readKeys(ctx, key, s.keys.node(node), s.keys.broker(node))
		if err != nil {
			return 0, err
		}
		if _, there := found[key]; there {
			return rev, nil
		}
		if len(found) == 0 {
			return 0, fmt.Errorf("draining node %d: %w", node, ErrUnknownNode)
		}
		c := newChange("draining node %d", node)
		c.unchanged(key, 0, ErrConflict)
		c.put(key, encodeJSON(drainJSON{Since: time.Now().UnixMilli()}, c.op))
		c.mark = key
		if rev, err = s.commit(ctx, c); !errors.Is(err, ErrConflict) {
			return rev, err
		}
	}
	return 0, fmt.Errorf("draining node %d: %w", node, ErrConflict)
}

// Undrain takes the mark away. What was moved stays where it is, until balance brings something back.
func (s *Store) Undrain(ctx context.Context, node record.NodeID) (Revision, error) {
	key := s.keys.drain(node)
	for range maxConflicts {
		found, rev, err := s.readKeys(ctx, key)
		if err != nil {
			return 0, err
		}
		kv, there := found[key]
		if !there {
			return rev, nil
		}
		c := newChange("ending the draining of node %d", node)
		c.unchanged(key, kv.ModRevision, ErrConflict)
		c.delete(key)
		if rev, err = s.commit(ctx, c); !errors.Is(err, ErrConflict) {
			return rev, err
		}
	}
	return 0, fmt.Errorf("ending the draining of node %d: %w", node, ErrConflict)
}

// Drained is a node that is to give up what it holds.
type Drained struct {
	Since time.Time
	Rev   Revision
}

// Draining tells whether a node is to give up what it holds. It need not be registered.
func (i *Image) Draining(n record.NodeID) bool {
	_, ok := i.drains[n]
	return ok
}

// Drains are the nodes that are to give up what they hold. The map must not be changed.
func (i *Image) Drains() map[record.NodeID]Drained { return i.drains }

func (e *edit) drain(rest string, ev *Event) error {
	node, err := parseNode(rest)
	if err != nil {
		return err
	}
	if !e.drains {
		e.img.drains, e.drains = maps.Clone(e.img.drains), true
		if e.img.drains == nil {
			e.img.drains = map[record.NodeID]Drained{}
		}
	}
	if ev.Deleted {
		delete(e.img.drains, node)
		return nil
	}
	var j drainJSON
	if err := decodeJSON("drain", ev.Value, &j); err != nil {
		return err
	}
	e.img.drains[node] = Drained{Since: time.UnixMilli(j.Since), Rev: ev.ModRevision}
	return nil
}
