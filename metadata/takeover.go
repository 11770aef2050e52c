// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/record"
)

// TakeOver makes this node the leader of partitions that have none: their leader's registration is gone, or they never had one.
// A partition that this registration leads already (by an earlier call whose answer was lost, or because it was handed over) is
// answered as it is. Both results may hold something: an error is, or joins, a *PartitionError for each partition not taken.
func (s *Store) TakeOver(ctx context.Context, sess *Session, ids []PartitionID) ([]Leadership, error) {
	batches := slices.Collect(slices.Chunk(ids, takeoverBatch))
	taken, failed := make([][]Leadership, len(batches)), make([]error, len(batches))
	var g errgroup.Group
	g.SetLimit(takeoverParallel)
	for i, batch := range batches {
		g.Go(func() error {
			taken[i], failed[i] = s.takeOrSplit(ctx, sess, batch)
			return nil
		})
	}
	_ = g.Wait() // the errors are in failed
	return slices.Concat(taken...), errors.Join(failed...)
}

func (s *Store) takeOrSplit(ctx context.Context, sess *Session, batch []PartitionID) ([]Leadership, error) {
	got, err := s.takeBatch(ctx, sess, batch)
	if len(batch) == 1 || !errors.Is(err, errSpoiled) {
		return got, err
	}
	// One compare spoils the whole transaction: find out which, one by one.
	got, err = nil, nil
	for _, id := range batch {
		one, oneErr := s.takeBatch(ctx, sess, []PartitionID{id})
		got, err = append(got, one...), errors.Join(err, oneErr)
	}
	return got, err
}

func (s *Store) takeBatch(ctx context.Context, sess *Session, ids []PartitionID) ([]Leadership, error) {
	var err error
	for range maxConflicts {
		var got []Leadership
		if got, err = s.tryTakeBatch(ctx, sess, ids); !errors.Is(err, ErrConflict) {
			return got, err
		}
	}
	return nil, err
}

// takeover is what a taker has read, and what it makes of it.
type takeover struct {
	s       *Store
	sess    *Session
	found   map[string]KeyValue
	brokers map[record.NodeID]*Broker
	topics  map[record.TopicID]*Topic
	c       *change
	guarded map[string]bool // registrations that the change compares already
}

func (s *Store) tryTakeBatch(ctx context.Context, sess *Session, ids []PartitionID) ([]Leadership, error) {
	t := &takeover{
		s: s, sess: sess, brokers: map[record.NodeID]*Broker{}, topics: map[record.TopicID]*Topic{}, guarded: map[string]bool{},
	}
	prefix := s.keys.key(kindBroker)
	if _, err := s.readAll(ctx, prefix, 0, func(kv *KeyValue) error {
		node, err := parseNode(kv.Key[len(prefix):])
		if err != nil {
			return err
		}
		t.brokers[node], err = decodeBroker(node, kv)
		return err
	}); err != nil {
		return nil, t.each(ids, err)
	}
	var keys []string
	for _, id := range ids {
		keys = append(keys, s.keys.leader(id), s.keys.isr(id), s.keys.head(id), s.keys.topic(id.Topic))
	}
	var err error
	if t.found, _, err = s.readKeys(ctx, keys...); err != nil {
		return nil, t.each(ids, err)
	}
	me := t.brokers[sess.node]
	if me == nil || me.Incarnation != sess.incarnation {
		return nil, t.each(ids, ErrSessionLost)
	}
	t.c = newChange("taking over %d partitions, first %s", len(ids), ids[0])
	t.c.created(sess.key, Equal, int64(sess.incarnation), ErrSessionLost)
	t.guarded[sess.key] = true
	var out, fresh []Leadership
	var failed []error
	for _, id := range ids {
		l, mine, err := t.plan(id, me)
		switch {
		case err != nil:
			failed = append(failed, &PartitionError{id, err})
		case mine:
			out = append(out, l)
		default:
			fresh = append(fresh, l)
		}
	}
	if len(fresh) > 0 {
		t.c.mark = s.keys.leader(fresh[0].ID)
		rev, err := s.commit(ctx, t.c)
		if err != nil {
			if len(ids) > 1 && (errors.Is(err, ErrConflict) || errors.Is(err, ErrLeaderAlive)) {
				return nil, errSpoiled
			}
			return nil, t.each(ids, err)
		}
		for i := range fresh {
			fresh[i].LeaderRev, fresh[i].ISR.Rev = rev, rev
			if fresh[i].Head.Rev == 0 {
				fresh[i].Head.Rev = rev
			}
		}
	}
	return append(out, fresh...), errors.Join(failed...)
}

// errSpoiled: one partition of a batch changed meanwhile, so none was taken.
var errSpoiled = errors.New("batch spoiled by one partition")

func (t *takeover) each(ids []PartitionID, err error) error {
	out := make([]error, len(ids))
	for i, id := range ids {
		out[i] = &PartitionError{id, err}
	}
	return errors.Join(out...)
}

// plan adds one partition to the change. mine: this registration leads it already.
func (t *takeover) plan(id PartitionID, me *Broker) (l Leadership, mine bool, err error) {
	k := &t.s.keys
	topic, err := t.topic(id.Topic)
	if err != nil {
		return l, false, err
	}
	if topic == nil || topic.Deleting {
		return l, false, ErrUnknownTopic
	}
	if id.Index < 0 || int(id.Index) >= len(topic.Partitions) {
		return l, false, ErrUnknownPartition
	}
	state, err := decodePartition(k, id, t.found)
	if err != nil {
		return l, false, err
	}
	old := state.Leader
	if old.Rev != 0 && old.Node == me.Node && old.Incarnation == me.Incarnation {
		return Leadership{ID: id, Node: me.Node, Epoch: old.Epoch, LeaderRev: old.Rev, ISR: state.ISR, Head: state.Head, UncleanEpoch: old.UncleanEpoch}, true, nil
	}
	if b := t.brokers[old.Node]; old.Rev != 0 && b != nil && b.Incarnation == old.Incarnation {
		return l, false, fmt.Errorf("%w: node %d", ErrLeaderAlive, old.Node)
	}
	l = Leadership{ID: id, Node: me.Node, Epoch: old.Epoch + 1, Head: state.Head, UncleanEpoch: old.UncleanEpoch}
	replicas := topic.Partitions[id.Index]
	if old.Rev == 0 && state.ISR.Rev == 0 {
		l.Epoch = 0
		l.ISR, err = t.firstISR(replicas, me)
	} else {
		l.ISR, err = nextISR(&state.ISR, &old, me, t.s.minISR(topic, len(replicas)))
	}
	if err != nil {
		return l, false, err
	}
	t.add(id, topic, &state, &l)
	return l, false, nil
}

// topic is a topic as read, nil when there is none. It is decoded once: it may have thousands of partitions.
func (t *takeover) topic(id record.TopicID) (*Topic, error) {
	if topic, ok := t.topics[id]; ok {
		return topic, nil
	}
	kv, ok := t.found[t.s.keys.topic(id)]
	if !ok {
		return nil, nil
	}
	topic, err := decodeTopic(id, &kv)
	if err == nil {
		t.topics[id] = topic
	}
	return topic, err
}

func (t *takeover) add(id PartitionID, topic *Topic, state *PartitionState, l *Leadership) {
	k, c := &t.s.keys, t.c
	old := &state.Leader
	c.unchanged(k.leader(id), old.Rev, ErrConflict)
	c.unchanged(k.isr(id), state.ISR.Rev, ErrConflict)
	c.unchanged(k.head(id), state.Head.Rev, ErrConflict)
	if key := k.topic(id.Topic); !t.guarded[key] {
		t.guarded[key] = true
		c.unchanged(key, topic.Rev, ErrConflict)
	}
	if old.Rev != 0 {
		// Incarnations differ between partitions that one node led in different runs, so the number is part of the mark.
		key := k.broker(old.Node)
		if mark := fmt.Sprintf("%s!=%d", key, old.Incarnation); !t.guarded[mark] && old.Node != t.sess.node {
			t.guarded[mark] = true
			c.created(key, NotEqual, int64(old.Incarnation), ErrLeaderAlive)
		}
	}
	c.put(k.leader(id), encodeLeader(&LeaderState{Node: l.Node, Incarnation: t.sess.incarnation, Epoch: l.Epoch, UncleanEpoch: l.UncleanEpoch}, c.op))
	c.put(k.isr(id), encodeISR(&l.ISR, c.op))
	if state.Head.Rev == 0 {
		c.put(k.head(id), encodeHead(&l.Head, c.op))
	}
}

// firstISR: a partition that never had a leader is empty everywhere, so every registered replica has all of it.
func (t *takeover) firstISR(replicas []record.NodeID, me *Broker) (isr ISRState, err error) {
	if !slices.Contains(replicas, me.Node) {
		return isr, fmt.Errorf("%w: node %d is no replica", ErrNotEligible, me.Node)
	}
	for _, n := range replicas {
		b := t.brokers[n]
		if b == nil {
			continue
		}
		isr.Members = append(isr.Members, ISRMember{Node: n, Incarnation: b.Incarnation, StoreID: b.StoreID})
		if key := t.s.keys.broker(n); !t.guarded[key] {
			t.guarded[key] = true
			t.c.created(key, Equal, int64(b.Incarnation), ErrConflict)
		}
	}
	return isr, nil
}

// nextISR is the in-sync set after a takeover by `me` (protocols §2).
func nextISR(old *ISRState, leader *LeaderState, me *Broker, minISR int) (ISRState, error) {
	self := ISRMember{Node: me.Node, Incarnation: me.Incarnation, StoreID: me.StoreID}
	next := ISRState{HWFloor: old.HWFloor}
	if m, ok := old.Member(me.Node); ok && m.StoreID == me.StoreID {
		var removed []ELRMember
		for _, m := range old.Members {
			switch m.Node {
			case me.Node:
				next.Members = append(next.Members, self)
			case leader.Node:
				removed = append(removed, ELRMember{m.Node, m.StoreID})
			default:
				next.Members = append(next.Members, m)
			}
		}
		next.ELR = withoutNode(old.ELR, me.Node)
		if len(next.Members) < minISR {
			next.ELR = append(next.ELR, removed...)
		}
		return next, nil
	}
	if !slices.Contains(old.ELR, ELRMember{me.Node, me.StoreID}) {
		return next, fmt.Errorf("%w: node %d with store %s is not in sync", ErrNotEligible, me.Node, me.StoreID)
	}
	next.Members = []ISRMember{self}
	next.ELR = withoutNode(old.ELR, me.Node)
	for _, m := range old.Members {
		if m.Node != me.Node {
			next.ELR = append(next.ELR, ELRMember{m.Node, m.StoreID})
		}
	}
	return next, nil
}

func withoutNode(elr []ELRMember, n record.NodeID) []ELRMember {
	var out []ELRMember
	for _, m := range elr {
		if m.Node != n {
			out = append(out, m)
		}
	}
	return out
}

func decodePartition(k *keyspace, id PartitionID, found map[string]KeyValue) (p PartitionState, err error) {
	p = noPartition
	if kv, ok := found[k.leader(id)]; ok {
		if p.Leader, err = decodeLeader(&kv); err != nil {
			return p, err
		}
	}
	if kv, ok := found[k.isr(id)]; ok {
		if p.ISR, err = decodeISR(&kv); err != nil {
			return p, err
		}
	}
	if kv, ok := found[k.head(id)]; ok {
		p.Head, err = decodeHead(&kv)
	}
	return p, err
}

// minISR is the effective minimum of a topic read from the store: its own, or this node's default, never more than the replicas.
func (s *Store) minISR(t *Topic, replicas int) int {
	resolved, _ := config.ResolveStoredTopic(t.Overrides, s.Image().NodeConfig)
	return max(1, min(resolved.MinInSyncReplicas, replicas))
}
