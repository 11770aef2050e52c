// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"time"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// role is what this node should do about a partition that is assigned to it.
type role int8

const (
	roleKeep role = iota // what it does
	roleLead             // try to take it over
	roleWait             // look again soon
)

// vacancy is a partition without a leader, since this node saw it.
type vacancy struct {
	leader metadata.Revision
	since  time.Time
}

// roleOf applies what the image says about a partition assigned here: it follows whoever leads, and tells whether this node should
// try to lead. An error is one of this node's own disk.
func (b *Broker) roleOf(img *metadata.Image, topic *metadata.Topic, id record.PartitionID) (role, error) {
	state, _ := img.Partition(id)
	b.mu.RLock()
	p := b.mu.partitions[id]
	b.mu.RUnlock()
	if p != nil {
		p.apply(topic, state)
	}
	session := b.session.Load()
	if session == nil {
		return roleKeep, nil
	}
	leader := img.Broker(state.Leader.Node)
	switch {
	case state.Leader.Rev == 0:
		first := topic.Partitions[id.Index][0]
		if first == b.cfg.Node.Node || img.Broker(first) == nil {
			return roleLead, nil
		}
		return roleKeep, nil
	case state.Leader.Node == b.cfg.Node.Node && state.Leader.Incarnation == session.Incarnation():
		// Ours, maybe unknown to this process: the answer was lost, or somebody handed it over. Or taken under a registration that
		// ended before the answer came.
		delete(b.vacant, id)
		if p != nil && p.leadsFor(session, state.Leader.Epoch) {
			return roleKeep, nil
		}
		return roleLead, nil
	case state.Leader.Node != b.cfg.Node.Node && leader != nil && leader.Incarnation == state.Leader.Incarnation:
		delete(b.vacant, id)
		return roleKeep, b.follow(id, p, topic, state)
	}
	b.stopFetching(id)
	return b.stand(img, topic, id, state), nil
}

// stand decides whether this node stands for a leadership that nobody holds. Members of the in-sync set come first, in the order of
// the assignment, then those that are eligible (protocols §2); the order spares conflicts, the transaction decides.
func (b *Broker) stand(img *metadata.Image, topic *metadata.Topic, id record.PartitionID, state metadata.PartitionState) role {
	rank, eligible := b.rank(img, topic.Partitions[id.Index], &state.ISR)
	if !eligible {
		if rank > 0 {
			return roleKeep // somebody who is registered may lead
		}
		return roleLead // it will be refused, and said so
	}
	v, known := b.vacant[id]
	if !known || v.leader != state.Leader.Rev {
		v = vacancy{state.Leader.Rev, time.Now()}
		b.vacant[id] = v
	}
	if img.Draining(b.cfg.Node.Node) {
		rank += len(topic.Partitions[id.Index]) // everybody else first
	}
	if time.Since(v.since) < time.Duration(rank)*electionStep {
		return roleWait
	}
	return roleLead
}

// rank counts the registered nodes that should lead rather than this one, or all that may when this one must not.
func (b *Broker) rank(img *metadata.Image, replicas []record.NodeID, s *metadata.ISRState) (rank int, eligible bool) {
	me := b.cfg.Node
	here := func(n record.NodeID, store metadata.UUID) bool {
		r := img.Broker(n)
		return r != nil && r.StoreID == store
	}
	for _, n := range replicas {
		m, ok := s.Member(n)
		switch {
		case !ok:
		case n == me.Node && m.StoreID == me.StoreID:
			return rank, true
		case here(n, m.StoreID):
			rank++
		}
	}
	for _, m := range s.ELR {
		switch {
		case m.Node == me.Node && m.StoreID == me.StoreID:
			return rank, true
		case here(m.Node, m.StoreID):
			rank++
		}
	}
	if m, ok := s.Member(me.Node); ok && m.StoreID == me.StoreID {
		return rank, true // a member that is not assigned here any more
	}
	return rank, false
}

// follow makes the fetcher of the leading node fetch the partition.
func (b *Broker) follow(id record.PartitionID, p *Partition, topic *metadata.Topic, state metadata.PartitionState) error {
	if b.cfg.Dial == nil {
		return nil // a node that was made to have no peers
	}
	if p == nil {
		var err error
		switch p, err = b.open(id); {
		case errors.Is(err, metadata.ErrUnknownTopic):
			return nil
		case err != nil:
			return err
		}
		p.apply(topic, state)
	}
	if p.LedSince(state.Leader.Epoch) {
		return nil // the image is behind
	}
	f := b.fetchers[state.Leader.Node]
	if f == nil {
		f = newFetcher(b, state.Leader.Node)
		b.fetchers[state.Leader.Node] = f
		b.start(f.run)
	}
	if old := b.sources[id]; old != nil && old != f {
		old.drop(id)
	}
	b.sources[id] = f
	f.follow(p, &state.Leader)
	return nil
}

// LedSince tells whether this process leads in that epoch or a later one.
func (p *Partition) LedSince(e record.Epoch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.lead != nil && p.mu.lead.Epoch >= e
}

// stopFetching ends the fetching of a partition; the replica stays what it is.
func (b *Broker) stopFetching(id record.PartitionID) {
	if f := b.sources[id]; f != nil {
		f.drop(id)
		delete(b.sources, id)
	}
}

// stopFollowing ends the role of a follower.
func (b *Broker) stopFollowing(p *Partition) {
	b.stopFetching(p.id)
	p.endFollowing()
}

// keepEvicted trims the hot logs of followed partitions to what is not in the bucket yet. (Those of led ones the archiver trims, by
// local.retention.ms and local.retention.bytes.)
func (b *Broker) keepEvicted(ctx context.Context) error {
	for {
		select {
		case <-b.evictWork.wake:
		case <-ctx.Done():
			return nil
		}
		for id := range b.evictWork.take() {
			p, err := b.Partition(id)
			if err != nil {
				continue
			}
			if err := p.evictFollowed(); err != nil && !errors.Is(err, hotlog.ErrClosed) {
				b.log.Warn("cannot trim the hot log of a follower", "topic", p.name, "partition", id.Index, "error", err)
			}
		}
	}
}

func (p *Partition) evictFollowed() error {
	p.mu.Lock()
	following := p.mu.lead == nil
	tiered, start := p.mu.head.TieredEnd, p.mu.logStart
	p.mu.Unlock()
	if !following {
		return nil
	}
	return p.Evict(max(tiered, start))
}
