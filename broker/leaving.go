// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"sync"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// This file lets a node end without anybody waiting for it. It says in its fetches that it leaves; the leaders take it out of their in-sync
// sets while it still fetches, and hand nothing over to it.

// leavers are the registrations of which this node has heard that they are about to end. One per node is kept.
type leavers struct {
	mu sync.RWMutex
	of map[record.NodeID]metadata.Incarnation
}

func (l *leavers) has(n record.NodeID, under metadata.Incarnation) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i, ok := l.of[n]
	return ok && i == under
}

// add tells whether that is news.
func (l *leavers) add(n record.NodeID, under metadata.Incarnation) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i, ok := l.of[n]; ok && i >= under {
		return false
	}
	if l.of == nil {
		l.of = map[record.NodeID]metadata.Incarnation{}
	}
	l.of[n] = under
	return true
}

// Heard takes note of what a follower's fetch says of its node, whatever partitions it names.
func (b *Broker) Heard(r *Replica) {
	if !r.Leaving || b.leavers.has(r.Node, r.Incarnation) || !b.leavers.add(r.Node, r.Incarnation) {
		return
	}
	b.log.Info("a follower leaves", "node", r.Node)
	for _, p := range b.Partitions() {
		if p.wantsISRChange() {
			b.isrWork.add(p.id)
		}
	}
}

// awaitOut waits until this node is out of the in-sync sets that can do without it. Nobody need take it out, and then it is waited for in
// vain for a moment. It leaves time to end the registration: others would wait for its lease.
func (b *Broker) awaitOut(ctx context.Context) {
	session := b.session.Load()
	if session == nil || b.cfg.Dial == nil {
		return
	}
	wait := leaveWait
	if until, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(until)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	in, since := -1, time.Now()
	for b.running.Load() && session.Alive() && time.Since(since) < leaveStill {
		n := b.inSets()
		if n == 0 {
			return
		}
		if n != in {
			in, since = n, time.Now()
		}
		if pause(ctx, leavePoll) != nil {
			return
		}
	}
}

// inSets counts the in-sync sets of other leaders that have this node and can do without it.
func (b *Broker) inSets() (n int) {
	img := b.meta.Image()
	for _, p := range b.Partitions() {
		state, ok := img.Partition(p.id)
		topic := img.TopicByID(p.id.Topic)
		if !ok || topic == nil || topic.Deleting || !b.isMember(&state.ISR) {
			continue
		}
		leader := img.Broker(state.Leader.Node)
		if state.Leader.Node == b.cfg.Node.Node || leader == nil || leader.Incarnation != state.Leader.Incarnation {
			continue // nobody is there who could
		}
		least := max(1, min(topic.Config.MinInSyncReplicas, len(topic.Partitions[p.id.Index])))
		if spare(&metadata.ISRChange{From: state.ISR, MinISR: least}) {
			n++
		}
	}
	return n
}

// nudgeAll has every leader that this node follows hear at once what it has to say.
func (b *Broker) nudgeAll() {
	known := map[*fetcher]bool{}
	for _, p := range b.Partitions() {
		p.mu.Lock()
		f := p.mu.follow
		p.mu.Unlock()
		if f != nil && !known[f.fetcher] {
			known[f.fetcher] = true
			f.fetcher.nudge()
		}
	}
}
