// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// This file hands leaderships over to replicas that have everything (protocols §2, graceful transfer): to the preferred replica, or
// away from a node that leaves, drains, holds no assigned replica any more, or has no space for what is produced.

// successorLocked finds who should lead instead of this node now; soon: somebody should, but a little later.
func (p *Partition) successorLocked(lead *leadership, img *metadata.Image, now time.Time) (to metadata.ISRMember, found bool, soon time.Duration) {
	me := lead.Node
	assigned := slices.Contains(p.mu.replicas, me)
	away := p.broker.leaving.Load() || img.Draining(me) || !assigned || p.db.DiskFull()
	if !away && (len(p.mu.replicas) == 0 || p.mu.replicas[0] == me || !p.broker.Config().AutoLeaderRebalance) {
		return to, false, 0
	}
	candidates := p.mu.replicas
	if !away {
		candidates = candidates[:1] // only the preferred one
	}
	if !assigned {
		// One that drains will do where there is no other: its replica may be about to come here again, and waits until this node, which
		// is in sync by an earlier assignment, is not.
		candidates = slices.SortedStableFunc(slices.Values(candidates), func(a, b record.NodeID) int {
			return cmp.Compare(drainsLast(img, a), drainsLast(img, b))
		})
	}
	for _, n := range candidates {
		m, member := lead.committed.Member(n)
		f, b := lead.followers[n], img.Broker(n)
		if n == me || !member || b == nil || img.Draining(n) && (assigned || soon > 0) {
			continue
		}
		if p.broker.leavers.has(n, m.Incarnation) {
			continue // it would have to hand over again
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

func drainsLast(img *metadata.Image, n record.NodeID) int {
	if img.Draining(n) {
		return 1
	}
	return 0
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
		var list []*Partition
		for id := range b.moveWork.take() {
			if p, err := b.Partition(id); err == nil && p.wantsToMove() {
				list = append(list, p)
			}
		}
		b.moveAll(ctx, list)
	}
}

// handOverAll gives up every leadership for which there is a successor. One that is on its way already is waited for.
func (b *Broker) handOverAll(ctx context.Context) {
	for try := 0; ctx.Err() == nil && try < handOverTries; try++ {
		var list []*Partition
		moving := false
		for _, p := range b.Partitions() {
			if p.wantsToMove() {
				list = append(list, p)
			}
			moving = moving || p.isMoving()
		}
		if len(list) == 0 && !moving {
			return
		}
		if b.moveAll(ctx, list); pause(ctx, retryPause) != nil {
			return
		}
	}
}

func (p *Partition) isMoving() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.lead != nil && p.mu.lead.moving
}

// moveAll hands over, a few at a time: the records of a partition that moves have to wait, and of all records few should. A group is over when
// its successors serve, and the next one comes after as much time again. Where all of it would take too long so, it comes at once; and then the
// groups are larger.
func (b *Broker) moveAll(ctx context.Context, list []*Partition) {
	pace, all := newPace(ctx), len(list)
	if all > handOverLeast {
		defer func() {
			b.log.Info("leaderships were handed over, or tried to", "partitions", all, "groups", pace.groups, "took", time.Since(pace.began))
		}()
	}
	for len(list) > 0 && ctx.Err() == nil {
		select {
		case b.moveTurn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		list = b.moveSome(ctx, list, pace.most(len(list)))
		<-b.moveTurn
		if rest := pace.rest(len(list), time.Since(began)); rest > 0 && pause(ctx, rest) != nil {
			return
		}
	}
}

// handover is one leadership on its way to a successor.
type handover struct {
	p    *Partition
	lead *leadership
	to   metadata.ISRMember
}

// moveSome hands over up to so many of the list, and returns the rest.
func (b *Broker) moveSome(ctx context.Context, list []*Partition, most int) (rest []*Partition) {
	news := make(chan struct{}, 1)
	var group []*handover
	for len(list) > 0 && len(group) < most {
		if h := list[0].beginHandOver(news); h != nil {
			group = append(group, h)
		}
		list = list[1:]
	}
	if len(group) == 0 {
		return list
	}
	// With the metadata store away it may take long. What came so far is refused then, and what comes; where nothing is on its way to the store,
	// because others are, this node leads on.
	patience := time.AfterFunc(handOverHold, func() {
		for _, h := range group {
			h.giveUp()
		}
	})
	defer patience.Stop()
	deadline := time.Now().Add(handOverWait)
	var moved []*handover
	for waiting := group; len(waiting) > 0; {
		var ready []*handover
		ready, waiting = awaitSuccessors(ctx, waiting, news, deadline)
		moved = append(moved, b.transfer(ctx, ready)...)
	}
	b.awaitServed(ctx, moved)
	return list
}

// beginHandOver begins to give the leadership to its successor, if there is one that is likely to have everything within a moment. Nil: not
// now. Nothing more is appended from here on.
func (p *Partition) beginHandOver(news chan<- struct{}) *handover {
	p.mu.Lock()
	defer p.mu.Unlock()
	lead, err := p.leadingLocked()
	if err != nil || lead.moving || lead.changing || lead.undecided != nil {
		return nil
	}
	to, found, _ := p.successorLocked(lead, p.broker.meta.Image(), time.Now())
	if !found {
		return nil
	}
	lead.moving, lead.holds, lead.news = true, true, news
	return &handover{p, lead, to}
}

// awaitSuccessors waits until successors have everything. It returns those that have, with their leaderships sealed, soon after the first
// of them; and those that lack something yet.
func awaitSuccessors(ctx context.Context, group []*handover, news <-chan struct{}, deadline time.Time) (ready, waiting []*handover) {
	until := deadline
	for waiting = group; ; {
		late := !time.Now().Before(deadline) || ctx.Err() != nil
		var still []*handover
		for _, h := range waiting {
			switch sealed, over := h.seal(late); {
			case sealed:
				ready = append(ready, h)
			case over || late:
				h.p.leadOn(h.lead)
			default:
				still = append(still, h)
			}
		}
		if waiting = still; len(ready) > 0 {
			if soon := time.Now().Add(handOverTogether); until == deadline && soon.Before(until) {
				until = soon
			}
		}
		if len(waiting) == 0 || !time.Now().Before(until) {
			return ready, waiting
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-news:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// seal seals the leadership, so that nobody is answered any more, if the successor has everything and what was appended is committed, or
// that has taken too long. over: there is nothing to be handed over any more.
func (h *handover) seal(late bool) (sealed, over bool) {
	p, lead, to := h.p, h.lead, h.to
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.lead != lead || lead.changing || !lead.moving {
		return false, true
	}
	f := lead.followers[to.Node]
	caughtUp := f != nil && f.Incarnation == to.Incarnation && f.Store == to.StoreID && f.end == p.mu.end
	all := p.mu.hw == p.mu.end || !lead.isr.Enough()
	if !caughtUp || !all && !late {
		return false, false
	}
	lead.sealed = true
	return true, false
}

// transfer has the metadata name the successors, all in one transaction if it can be, and returns those that are named.
func (b *Broker) transfer(ctx context.Context, sealed []*handover) (moved []*handover) {
	for len(sealed) > 0 {
		all := make([]metadata.Transfer, len(sealed))
		for i, h := range sealed {
			all[i] = metadata.Transfer{Leadership: h.lead.Leadership, ISR: h.lead.committed, To: h.to}
		}
		var unknown, done []*handover
		var rev metadata.Revision
		for i, r := range b.meta.TransferLeaderships(ctx, all) {
			h := sealed[i]
			switch {
			case r.Err == nil, errors.Is(r.Err, metadata.ErrFenced):
				b.log.Info("leadership handed over", "topic", h.p.name, "partition", h.p.id.Index, "to", h.to.Node, "epoch", h.lead.Epoch+1)
				done, rev = append(done, h), max(rev, r.Next.Rev)
			case errors.Is(r.Err, metadata.ErrConflict) && h.stands(ctx), errors.Is(r.Err, metadata.ErrNotEligible) && h.stands(ctx):
			default:
				// Not known: nobody may be answered as the leader until it is (S6).
				unknown = append(unknown, h)
			}
		}
		b.handedOver(ctx, done, rev)
		moved, sealed = append(moved, done...), unknown
		if len(sealed) > 0 && pause(ctx, retryPause) != nil {
			for _, h := range sealed {
				h.p.endLeadership(h.lead, ErrNotLeader)
			}
			return moved
		}
	}
	return moved
}

// stands finds out about a transfer that met a conflict: the target registered anew, and no attempt can apply any more; or an earlier attempt
// was applied, which a read shows. false: that is not known.
func (h *handover) stands(ctx context.Context) bool {
	state, err := h.p.broker.meta.ReadPartition(ctx, h.p.id)
	switch {
	case err != nil:
		return false
	case state.Leader.Rev == h.lead.LeaderRev:
		h.p.leadOn(h.lead)
	default:
		h.handedOver()
	}
	return true
}

// handedOver ends leaderships that others have. Those who are told of it look for the next leader at once, and learn from this node's
// image who that is.
func (b *Broker) handedOver(ctx context.Context, done []*handover, rev metadata.Revision) {
	if len(done) == 0 {
		return
	}
	known, cancel := context.WithTimeout(ctx, handOverHold)
	_ = b.meta.WaitFor(known, rev) // in vain or not: it is over
	cancel()
	for _, h := range done {
		h.handedOver()
	}
}

// handedOver ends the leadership, and no later one: with the store away for long this node may have registered anew, and lead again.
func (h *handover) handedOver() {
	h.p.endLeadership(h.lead, ErrNotLeader)
	h.p.broker.dirty.addPartition(h.p.id)
	h.p.broker.kick()
}

// awaitServed waits a moment for the successors to serve, which this node hears as their follower.
func (b *Broker) awaitServed(ctx context.Context, moved []*handover) {
	if b.cfg.Dial == nil {
		return
	}
	t := time.NewTimer(handOverServed)
	defer t.Stop()
	for {
		heard := b.heard.wait()
		if !slices.ContainsFunc(moved, (*handover).unheard) {
			return
		}
		select {
		case <-heard:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// unheard tells that this node is to follow the successor, and has not heard of it yet.
func (h *handover) unheard() bool {
	p := h.p
	p.mu.Lock()
	defer p.mu.Unlock()
	switch f := p.mu.follow; {
	case p.mu.closed, p.mu.lead != nil, !slices.Contains(p.mu.replicas, h.lead.Node):
		return false
	default:
		return f == nil || f.epoch <= h.lead.Epoch || !f.heard
	}
}

// giveUp ends the holding back of a handover that takes long. One that is sealed may have happened: what was held back is refused, and what
// comes. From one that is not this node leads on; that is one step, since it must not be sealed in between.
func (h *handover) giveUp() {
	p, lead := h.p, h.lead
	p.mu.Lock()
	if !lead.sealed {
		over := p.leadOnLocked(lead)
		p.mu.Unlock()
		p.ledOn(over)
		return
	}
	lead.holds = false
	held := lead.held.takeAll()
	p.mu.Unlock()
	decideAll(held, ErrNotLeader)
	p.broker.roles.ring()
}

// leadOn goes on leading after a handover that is known not to have happened, or was not begun. What was held back is appended, in the order
// in which it came.
func (p *Partition) leadOn(lead *leadership) {
	p.mu.Lock()
	over := p.leadOnLocked(lead)
	p.mu.Unlock()
	p.ledOn(over)
}

// decision is what is to be said of an append that waits no longer.
type decision struct {
	pend *Pending
	err  error
}

// leadOnLocked is the first half of leadOn; ledOn, without the lock, the second.
func (p *Partition) leadOnLocked(lead *leadership) (over []decision) {
	lead.moving, lead.holds, lead.sealed, lead.news = false, false, false, nil
	for pend := lead.held.takeAll(); pend != nil; {
		next := pend.next
		pend.prev, pend.next = nil, nil
		if wait, err := p.appendLocked(pend.batch, pend.options, pend); !wait {
			over = append(over, decision{pend, err})
		}
		pend = next
	}
	return over
}

func (p *Partition) ledOn(over []decision) {
	for _, d := range over {
		d.pend.decide(d.err)
	}
	p.notify()
	p.broker.roles.ring()
	if p.wantsISRChange() {
		p.broker.isrWork.add(p.id)
	}
	time.AfterFunc(retryPause, func() { p.broker.moveWork.add(p.id) })
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
