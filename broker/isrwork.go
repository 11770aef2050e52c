// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/broker/isr"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// workSet gathers partitions that somebody has to look at. Its size is bounded by the number of partitions.
type workSet struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		ids map[record.PartitionID]struct{}
	}
}

func newWorkSet() *workSet { return &workSet{wake: make(chan struct{}, 1)} }

func (w *workSet) add(id record.PartitionID) {
	w.mu.Lock()
	if w.mu.ids == nil {
		w.mu.ids = map[record.PartitionID]struct{}{}
	}
	w.mu.ids[id] = struct{}{}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *workSet) take() map[record.PartitionID]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := w.mu.ids
	w.mu.ids = nil
	return ids
}

// keepISR changes in-sync sets where the leaders here want it: what fetches and images asked for at once, the slow ones by a look
// at all led partitions twice per replica.lag.time.max.ms.
func (b *Broker) keepISR(ctx context.Context) error {
	for {
		t := time.NewTimer(max(b.Config().ReplicaLagTimeMax/2, minISRInterval))
		select {
		case <-b.isrWork.wake:
		case <-t.C:
			for _, p := range b.Partitions() {
				if p.wantsISRChange() {
					b.isrWork.add(p.id)
				}
			}
		case <-ctx.Done():
			t.Stop()
			return nil
		}
		t.Stop()
		b.changeISRs(ctx)
	}
}

// changeISRs makes the changes that are wanted now. Those of many partitions share transactions: a node that comes or goes is a change of all
// that it has.
func (b *Broker) changeISRs(ctx context.Context) {
	var begun []*isrWork
	for id := range b.isrWork.take() {
		if p, err := b.Partition(id); err == nil {
			if w := p.beginISRChange(); w != nil {
				begun = append(begun, w)
			}
		}
	}
	var g errgroup.Group
	g.SetLimit(isrParallel)
	for batch := range slices.Chunk(begun, isrTogether) {
		g.Go(func() error { b.changeTogether(ctx, batch); return nil })
	}
	_ = g.Wait() // there is nobody to give an error to
}

func (b *Broker) changeTogether(ctx context.Context, batch []*isrWork) {
	all := make([]metadata.LedISRChange, len(batch))
	for i, w := range batch {
		all[i] = metadata.LedISRChange{Leadership: w.lead.Leadership, Change: w.change}
	}
	for i, r := range b.meta.ChangeISRs(ctx, all) {
		w := batch[i]
		if errors.Is(r.Err, metadata.ErrConflict) {
			r.State, r.Err = w.p.resolveISR(ctx, w.lead, &w.change)
		}
		w.p.isrDecided(w.lead, &w.change, r.State, r.Err)
	}
}

func (p *Partition) wantsISRChange() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	lead, err := p.leadingLocked()
	if err != nil || len(p.mu.replicas) < 2 && len(lead.committed.Members) < 2 {
		return false
	}
	if lead.isr.Pending() != nil {
		return true
	}
	_, wanted := p.wantedISRLocked(lead, p.broker.meta.Image(), time.Now())
	return wanted
}

// isrWork is a change on its way to the metadata.
type isrWork struct {
	p      *Partition
	lead   *leadership
	change metadata.ISRChange
}

// beginISRChange begins the change that is wanted now, or goes on with the one whose outcome is not known (I2, rule 0 of protocols §0). Nil:
// there is nothing to be done.
func (p *Partition) beginISRChange() *isrWork {
	p.mu.Lock()
	defer p.mu.Unlock()
	lead, err := p.leadingLocked()
	if err != nil || lead.changing || lead.moving {
		return nil
	}
	if lead.undecided == nil {
		c, wanted := p.wantedISRLocked(lead, p.broker.meta.Image(), time.Now())
		if !wanted {
			return nil
		}
		next := c.Next()
		lead.isr.Propose(isr.Change{Members: members(next.Members), ELR: elr(next.ELR)})
		lead.undecided = &c
	}
	lead.changing = true
	return &isrWork{p, lead, *lead.undecided}
}

// resolveISR finds out what is committed after a change that met a conflict. Only this leader writes the key while it leads. An
// earlier attempt of the same change whose outcome is unknown may still be on its way when the read shows what it compares: then
// the same members are written again, and whatever comes later compares in vain.
func (p *Partition) resolveISR(ctx context.Context, lead *leadership, c *metadata.ISRChange) (metadata.ISRState, error) {
	read, err := p.broker.meta.ReadPartition(ctx, p.id)
	switch {
	case err != nil:
		return metadata.ISRState{}, err
	case read.Leader.Rev != lead.LeaderRev:
		return metadata.ISRState{}, metadata.ErrFenced
	case read.ISR.Rev != c.From.Rev || !lead.unknown:
		return read.ISR, nil
	}
	return p.broker.meta.ChangeISR(ctx, lead.Leadership, metadata.ISRChange{From: c.From, MinISR: c.MinISR, HWFloor: c.HWFloor})
}

// changedLocked notes of a change that was applied what the leader knows of those that went and came. It tells whether the high watermark moved.
func (l *leadership) changedLocked(c *metadata.ISRChange) (moved bool) {
	for _, n := range c.Remove {
		if f := l.followers[n]; f != nil && f.lost {
			// It is no member any more, so what it holds counts as that of any other. It has said that while it was lost, and of an idle
			// partition it does not say it again.
			f.lost = false
			moved = l.isr.Acknowledged(n, f.end) || moved
		}
	}
	for _, m := range c.Add {
		if f := l.followers[m.Node]; f != nil {
			f.caughtUp = time.Now() // what it lacks yet it may lack for replica.lag.time.max.ms from now on
		}
	}
	return moved
}

// isrDecided takes over the outcome of a change; with an error that is not known yet, and it is tried again.
func (p *Partition) isrDecided(lead *leadership, c *metadata.ISRChange, state metadata.ISRState, err error) {
	b := p.broker
	p.mu.Lock()
	lead.changing = false
	if p.mu.lead != lead {
		p.mu.Unlock()
		return
	}
	if err != nil {
		lead.unknown = true
		p.mu.Unlock()
		if errors.Is(err, metadata.ErrFenced) {
			p.endLeading(ErrNotLeader)
			b.dirty.addPartition(p.id)
			b.kick()
			return
		}
		b.log.Warn("the in-sync set cannot be changed yet", "topic", p.name, "partition", p.id.Index, "error", err)
		time.AfterFunc(retryPause, func() { b.isrWork.add(p.id) })
		return
	}
	lead.undecided, lead.unknown, lead.committed = nil, false, state
	applied := state.Rev != c.From.Rev
	in, eligible := members(state.Members), elr(state.ELR)
	moved, chain := lead.isr.Adopt(in, eligible), (*Pending)(nil)
	if applied {
		moved = lead.changedLocked(c) || moved
	}
	if moved {
		chain = p.advanceLocked(lead)
	}
	_, again := p.wantedISRLocked(lead, b.meta.Image(), time.Now())
	p.mu.Unlock()
	if !applied {
		// Refused: the image is behind what the change was compared with.
		p.committed(lead, chain, moved)
		time.AfterFunc(retryPause, func() { b.isrWork.add(p.id) })
		return
	}
	b.log.Info("in-sync set changed", "topic", p.name, "partition", p.id.Index, "members", len(state.Members), "eligible", len(state.ELR),
		"removed", c.Remove, "added", len(c.Add))
	b.shrinks.Add(uint64(len(c.Remove)))
	b.expands.Add(uint64(len(c.Add)))
	p.committed(lead, chain, moved)
	if again {
		b.isrWork.add(p.id)
	}
	if p.wantsToMove() {
		b.moveWork.add(p.id)
	}
}
