// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"fmt"

	"github.com/varve/varve/record"
)

// ElectUnclean makes the first registered replica the leader of a partition that nobody in sync is left for, and the only member of its
// in-sync set: what it lacks is lost, but for what is in the bucket: a log that ends below that begins anew where the bucket ends. ErrLeaderAlive: the partition has a
// leader; ErrInSyncAlive: it will have one without that; ErrNotEligible: no replica is registered.
func (s *Store) ElectUnclean(ctx context.Context, id PartitionID) (LeaderState, error) {
	next, err := s.electUnclean(ctx, id)
	if err != nil {
		return LeaderState{}, fmt.Errorf("electing a leader of %s uncleanly: %w", id, err)
	}
	return next, nil
}

func (s *Store) electUnclean(ctx context.Context, id PartitionID) (next LeaderState, err error) {
	topic, err := s.ReadTopic(ctx, id.Topic)
	if err != nil {
		return next, err
	}
	if id.Index < 0 || int(id.Index) >= len(topic.Partitions) {
		return next, ErrUnknownPartition
	}
	brokers := map[record.NodeID]*Broker{}
	prefix := s.keys.key(kindBroker)
	if _, err := s.readAll(ctx, prefix, 0, func(kv *KeyValue) error {
		node, err := parseNode(kv.Key[len(prefix):])
		if err != nil {
			return err
		}
		brokers[node], err = decodeBroker(node, kv)
		return err
	}); err != nil {
		return next, err
	}
	state, err := s.ReadPartition(ctx, id)
	if err != nil {
		return next, err
	}
	chosen, err := uncleanLeader(topic.Partitions[id.Index], &state, brokers)
	if err != nil {
		return next, err
	}
	epoch := state.Leader.Epoch + 1
	next = LeaderState{Node: chosen.Node, Incarnation: chosen.Incarnation, Epoch: epoch, UncleanEpoch: epoch}
	isr := ISRState{Members: []ISRMember{{Node: chosen.Node, Incarnation: chosen.Incarnation, StoreID: chosen.StoreID}}}
	c := newChange("putting node %d", chosen.Node)
	c.mark = s.keys.leader(id)
	c.unchanged(c.mark, state.Leader.Rev, ErrConflict)
	c.unchanged(s.keys.isr(id), state.ISR.Rev, ErrConflict)
	c.unchanged(s.keys.head(id), state.Head.Rev, ErrConflict)
	c.unchanged(s.keys.topic(id.Topic), topic.Rev, ErrConflict)
	c.created(s.keys.broker(chosen.Node), Equal, int64(chosen.Incarnation), ErrConflict)
	if state.Leader.Node != chosen.Node {
		c.created(s.keys.broker(state.Leader.Node), NotEqual, int64(state.Leader.Incarnation), ErrLeaderAlive)
	}
	// Those that were in sync must be away still: whoever came back in between leads without a loss.
	for _, m := range state.ISR.Members {
		s.awayStill(c, m.Node, chosen, brokers)
	}
	for _, m := range state.ISR.ELR {
		s.awayStill(c, m.Node, chosen, brokers)
	}
	c.put(c.mark, encodeLeader(&next, c.op))
	c.put(s.keys.isr(id), encodeISR(&isr, c.op))
	next.Rev, err = s.commit(ctx, c)
	return next, err
}

// awayStill requires that a node's registration is what it was: none, or one with another disk.
func (s *Store) awayStill(c *change, n record.NodeID, chosen *Broker, brokers map[record.NodeID]*Broker) {
	if n == chosen.Node {
		return // compared already
	}
	was := int64(0)
	if b := brokers[n]; b != nil {
		was = int64(b.Incarnation)
	}
	c.created(s.keys.broker(n), Equal, was, ErrInSyncAlive)
}

// uncleanLeader is the first registered replica, if nobody leads and nobody who could lead cleanly is registered.
func uncleanLeader(replicas []record.NodeID, state *PartitionState, brokers map[record.NodeID]*Broker) (*Broker, error) {
	if state.Leader.Rev == 0 {
		return nil, ErrInSyncAlive // it is empty everywhere: any replica takes it over
	}
	if b := brokers[state.Leader.Node]; b != nil && b.Incarnation == state.Leader.Incarnation {
		return nil, fmt.Errorf("%w: node %d", ErrLeaderAlive, b.Node)
	}
	for _, m := range state.ISR.Members {
		if b := brokers[m.Node]; b != nil && b.StoreID == m.StoreID {
			return nil, fmt.Errorf("%w: node %d", ErrInSyncAlive, b.Node)
		}
	}
	for _, m := range state.ISR.ELR {
		if b := brokers[m.Node]; b != nil && b.StoreID == m.StoreID {
			return nil, fmt.Errorf("%w: node %d", ErrInSyncAlive, b.Node)
		}
	}
	for _, n := range replicas {
		if b := brokers[n]; b != nil {
			return b, nil
		}
	}
	return nil, fmt.Errorf("%w: no replica is registered", ErrNotEligible)
}
