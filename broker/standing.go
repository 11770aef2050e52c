// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// This file tells requests whether to wait for a role. The metadata names a leader before that node has begun its epoch, and a node's
// image may be behind the one that a client was answered from: a client that does not try again must not fail for either.

// Standing is how this node stands to a partition, for a request that would be answered by its leader.
type Standing int8

// The standings.
const (
	// Elsewhere: another node leads, or nobody, or this node must not act or is about to leave.
	Elsewhere Standing = iota
	// Serving: what is to be said is said at once.
	Serving
	// Late: by the metadata this node leads, and it does not serve, or not yet.
	Late
	// Behind: this node may have become the leader meanwhile, and its image does not tell.
	Behind
)

// Need is what a request needs of a leader.
type Need struct {
	Epoch  record.Epoch // that the client knows; NoEpoch: none
	Latest bool         // the high watermark is known to be current
}

// Standing tells whether a request for a partition should wait, and for a late role until when at most.
func (b *Broker) Standing(id record.PartitionID, n Need) (Standing, time.Time) {
	session := b.session.Load()
	if session == nil || !session.Alive() {
		return Elsewhere, time.Time{}
	}
	b.mu.RLock()
	p := b.mu.partitions[id]
	b.mu.RUnlock()
	img := b.meta.Image()
	state, known := img.Partition(id)
	if p != nil {
		if standing, until, ok := p.standing(session, state.Leader.Epoch, n); ok {
			return standing, until
		}
	}
	if b.leaving.Load() {
		return Elsewhere, time.Time{} // it gets nothing any more
	}
	topic := img.TopicByID(id.Topic)
	switch {
	case !known:
		return Behind, time.Time{}
	case !b.assigned(topic, id.Index):
		return Elsewhere, time.Time{}
	case state.Leader.Node == b.cfg.Node.Node, state.Leader.Rev == 0 && topic.Partitions[id.Index][0] == b.cfg.Node.Node:
		// Led by this node, or last led by it before it was started anew; or a new partition, for which it stands first.
		return Late, b.late.until(id, state.Leader.Rev)
	}
	return Behind, time.Time{}
}

// standing is Standing where the replica itself tells, of a leader of that epoch or a later one; ok: it does.
func (p *Partition) standing(session *metadata.Session, epoch record.Epoch, n Need) (standing Standing, until time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch lead := p.mu.lead; {
	case p.mu.closed:
		return Elsewhere, time.Time{}, true
	case lead == nil || lead.session != session || lead.Epoch < epoch:
		return Elsewhere, time.Time{}, false
	case n.Epoch > lead.Epoch:
		return Behind, time.Time{}, true
	case lead.sealed && lead.holds:
		return Late, time.Now().Add(handOverHold), true // in a moment it is known who leads
	case n.Latest && !lead.isr.Known():
		return Late, lead.began.Add(lateRole), true
	}
	return Serving, time.Time{}, true
}

// RolesChanged returns a channel that is closed when Standing may say something else than before the call.
func (b *Broker) RolesChanged() <-chan struct{} { return b.roles.wait() }

// bell wakes everybody who waits, without a list of them.
type bell struct{ waiting atomic.Pointer[chan struct{}] }

func (b *bell) wait() <-chan struct{} {
	for {
		if c := b.waiting.Load(); c != nil {
			return *c
		}
		if c := make(chan struct{}); b.waiting.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

func (b *bell) ring() {
	if c := b.waiting.Swap(nil); c != nil {
		close(*c)
	}
}

// lateRoles remembers when the first request came for a partition that this node leads and does not serve. It holds partitions only that
// this node was named the leader of, and each until it is served or gone.
type lateRoles struct {
	mu sync.Mutex
	of map[record.PartitionID]vacancy
}

func (l *lateRoles) until(id record.PartitionID, leader metadata.Revision) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.of[id]
	if !ok || v.leader != leader {
		if l.of == nil {
			l.of = map[record.PartitionID]vacancy{}
		}
		v = vacancy{leader: leader, since: time.Now()}
		l.of[id] = v
	}
	return v.since.Add(lateRole)
}

func (l *lateRoles) forget(id record.PartitionID) {
	l.mu.Lock()
	delete(l.of, id)
	l.mu.Unlock()
}

func (l *lateRoles) forgetTopic(id record.TopicID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.of {
		if p.Topic == id {
			delete(l.of, p)
		}
	}
}
