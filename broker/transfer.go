// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// This file hands leaderships over to replicas that have everything (protocols §2, graceful transfer): to the preferred replica, or
// away from a node that leaves, drains, holds no assigned replica any more, or has no space for what is produced.

// successorLocked finds who should lead instead of this node now; soon: somebody should, but a little later.
func (p *Partition) successorLocked(lead *leadership, img *metadata.Image, now time.Time) (to metadata.ISRMember, found bool, soon time.Duration) {
	me := lead.Node
	away := p.broker.leaving.Load() || img.Draining(me) || !slices.Contains(p.mu.replicas, me) || p.db.DiskFull()
	if !away && (len(p.mu.replicas) == 0 || p.mu.replicas[0] == me || !p.broker.Config().AutoLeaderRebalance) {
		return to, false, 0
	}
	candidates := p.mu.replicas
	if !away {
		candidates = candidates[:1] // only the preferred one
	}
	for _, n := range candidates {
		m, member := lead.committed.Member(n)
		f, b := lead.followers[n], img.Broker(n)
		if n == me || !member || b == nil || img.Draining(n) {
			continue
		}
		if f == nil || f.lost || f.unable || b.Incarnation != m.Incarnation || f.Incarnation != m.Incarnation || f.Store != m.StoreID ||
			p.laggingLocked(lead, n, now, preferredLag) {
			soon = preferredLag // it may be able to in a moment
			continue
		}
		// A node that comes and goes should not take its leaderships along each time.
		if wait := preferredAfter - now.Sub(lead.began); !away && wait > 0 {
			return to, false, wait
		}
		return m, true, 0
	}
	return to, false, soon
}

// wantsToMove tells whether the leadership should go to another node, and has the question asked again when it is too early.
func (p *Partition) wantsToMove() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	lead, err := p.leadingLocked()
	if err != nil || lead.moving {
		return false
	}
	_, found, soon := p.successorLocked(lead, p.broker.meta.Image(), time.Now())
	if soon > 0 && !lead.asked {
		lead.asked = true
		time.AfterFunc(soon, func() {
			p.mu.Lock()
			lead.asked = false
			p.mu.Unlock()
			p.broker.moveWork.add(p.id)
		})
	}
	return found
}

// keepMoving hands over what should be led elsewhere.
func (b *Broker) keepMoving(ctx context.Context) error {
	for {
		select {
		case <-b.moveWork.wake:
		case <-ctx.Done():
			return nil
		}
		var g errgroup.Group
		g.SetLimit(moveParallel)
		for id := range b.moveWork.take() {
			if p, err := b.Partition(id); err == nil && p.wantsToMove() {
				g.Go(func() error { p.handOver(ctx); return nil })
			}
		}
		_ = g.Wait() // handOver has nobody to give an error to
	}
}

// handOver gives the leadership to its successor, if there is one that has everything within a moment.
func (p *Partition) handOver(ctx context.Context) {
	p.mu.Lock()
	lead, err := p.leadingLocked()
	if err != nil || lead.moving || lead.changing || lead.undecided != nil {
		p.mu.Unlock()
		return
	}
	to, found, _ := p.successorLocked(lead, p.broker.meta.Image(), time.Now())
	if !found {
		p.mu.Unlock()
		return
	}
	lead.moving = true // nothing more is accepted
	p.mu.Unlock()
	if !p.awaitSuccessor(ctx, lead, to) {
		p.leadOn(lead)
		return
	}
	for {
		_, err := p.broker.meta.TransferLeadership(ctx, lead.Leadership, lead.committed, to)
		switch {
		case err == nil, errors.Is(err, metadata.ErrFenced):
			p.broker.log.Info("leadership handed over", "topic", p.name, "partition", p.id.Index, "to", to.Node, "epoch", lead.Epoch+1)
			p.endLeading(ErrNotLeader)
			p.broker.dirty.addPartition(p.id)
			p.broker.kick()
			return
		case errors.Is(err, metadata.ErrConflict), errors.Is(err, metadata.ErrNotEligible):
			// The target registered anew: no attempt can apply any more. Or an earlier attempt was applied, which a read shows.
			if state, readErr := p.broker.meta.ReadPartition(ctx, p.id); readErr == nil {
				if state.Leader.Rev == lead.LeaderRev {
					p.leadOn(lead)
				} else {
					p.endLeading(ErrNotLeader)
					p.broker.dirty.addPartition(p.id)
					p.broker.kick()
				}
				return
			}
		}
		// Not known: nobody may be answered as the leader until it is (S6).
		if pause(ctx, retryPause) != nil {
			p.endLeading(ErrNotLeader)
			return
		}
	}
}

// leadOn goes on leading after a handover that is known not to have happened, or was not begun.
func (p *Partition) leadOn(lead *leadership) {
	p.mu.Lock()
	lead.moving, lead.sealed = false, false
	p.mu.Unlock()
	p.notify()
	if p.wantsISRChange() {
		p.broker.isrWork.add(p.id)
	}
	time.AfterFunc(retryPause, func() { p.broker.moveWork.add(p.id) })
}

// awaitSuccessor waits a moment for the successor to have everything, and what was appended to be committed. Then the leadership is
// sealed: nobody is answered any more.
func (p *Partition) awaitSuccessor(ctx context.Context, lead *leadership, to metadata.ISRMember) bool {
	deadline := time.Now().Add(handOverWait)
	for {
		p.mu.Lock()
		if p.mu.lead != lead || lead.changing {
			p.mu.Unlock()
			return false
		}
		f := lead.followers[to.Node]
		caughtUp := f != nil && f.Incarnation == to.Incarnation && f.Store == to.StoreID && f.end == p.mu.end
		all := p.mu.hw == p.mu.end || !lead.isr.Enough()
		if caughtUp && (all || time.Now().After(deadline)) {
			lead.sealed = true
			p.mu.Unlock()
			return true
		}
		p.mu.Unlock()
		if time.Now().After(deadline) || pause(ctx, handOverPoll) != nil {
			return false
		}
	}
}

// handOverAll gives up every leadership for which there is a successor.
func (b *Broker) handOverAll(ctx context.Context) {
	for try := 0; ctx.Err() == nil && try < handOverTries; try++ {
		var g errgroup.Group
		g.SetLimit(moveParallel)
		moved := false
		for _, p := range b.Partitions() {
			if p.wantsToMove() {
				moved = true
				g.Go(func() error { p.handOver(ctx); return nil })
			}
		}
		_ = g.Wait() // handOver has nobody to give an error to
		if !moved || pause(ctx, retryPause) != nil {
			return
		}
	}
}

// Led are the partitions that this node leads.
func (b *Broker) Led() (ids []record.PartitionID) {
	for _, p := range b.Partitions() {
		p.mu.Lock()
		if p.mu.lead != nil {
			ids = append(ids, p.id)
		}
		p.mu.Unlock()
	}
	return ids
}
