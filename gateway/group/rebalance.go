// SPDX-License-Identifier: Apache-2.0

package group

import (
	"math"
	"slices"
	"time"
)

// rebalance begins a rebalance, or sees whether the one under way is complete.
func (g *Group) rebalance(now time.Time, c Config) {
	if g.state == Preparing {
		g.tryComplete(now)
		return
	}
	was := g.state
	if was == Completing {
		for _, m := range g.members {
			m.assignment = nil
			g.answerSync(m, Output{Err: ErrRebalance})
		}
	}
	g.syncBy = time.Time{}
	g.enter(Preparing, now)
	g.initial = was == Empty
	if g.initial {
		// More members are likely to come: one generation for all of them.
		g.grown, g.delay = false, c.InitialDelay
		g.left = max(g.rebalanceTimeout()-g.delay, 0)
		g.deadline = now.Add(g.delay)
		g.arm(g.deadline)
		return
	}
	g.dirty = true
	g.deadline = now.Add(g.rebalanceTimeout())
	g.arm(g.deadline)
	g.tryComplete(now)
}

// tryComplete ends the gathering when everybody is there. The first gathering of an empty group lasts its time.
func (g *Group) tryComplete(now time.Time) {
	if g.state == Preparing && !g.initial && g.joining == len(g.members) && len(g.pending) == 0 {
		g.complete(now)
	}
}

// gathered is the end of the time for joining.
func (g *Group) gathered(now time.Time) {
	if g.initial && g.grown && g.left > 0 {
		d := min(g.delay, g.left)
		g.grown, g.left = false, g.left-d
		g.deadline = now.Add(d)
		g.arm(g.deadline)
		return
	}
	g.complete(now)
}

// complete makes the next generation of those who have joined. Static members that have not are kept: they keep their place
// until their session ends.
func (g *Group) complete(now time.Time) {
	for _, m := range slices.Clone(g.members) {
		if m.join == 0 && !m.static() {
			g.remove(m, ErrUnknownMember)
		}
	}
	if len(g.members) == 0 {
		g.nextGeneration()
		g.protocol, g.leader, g.initial = "", "", false
		g.enter(Empty, now)
		g.dirty = true
		return
	}
	if leader := g.byID[g.leader]; leader == nil || leader.join == 0 {
		first := slices.IndexFunc(g.members, func(m *member) bool { return m.join != 0 })
		if first < 0 {
			// Only absent static members: nobody could lead.
			g.deadline = now.Add(g.rebalanceTimeout())
			g.arm(g.deadline)
			return
		}
		g.leader = g.members[first].id
	}
	g.nextGeneration()
	g.protocol, g.initial = g.choose(), false
	g.enter(Completing, now)
	g.dirty = true
	for _, m := range g.members {
		m.fresh, m.pendingSync = false, true
		g.touch(m, now)
		g.answerJoin(m, Output{Join: g.joined(m), Durable: true})
	}
	g.syncBy = now.Add(g.rebalanceTimeout())
	g.arm(g.syncBy)
}

func (g *Group) nextGeneration() {
	if g.generation == math.MaxInt32 {
		g.generation = 0
	}
	g.generation++
}

// Tick is the passing of time.
func (g *Group) Tick(now time.Time, c Config) {
	if g.next.IsZero() || now.Before(g.next) {
		return
	}
	for id, until := range g.pending {
		if !now.Before(until) {
			delete(g.pending, id)
		}
	}
	gone := false
	for _, m := range slices.Clone(g.members) {
		if now.Before(m.expires) {
			continue
		}
		if !m.fresh && (m.join != 0 || m.sync != 0) {
			g.touch(m, now) // it waits for us (Q3)
			continue
		}
		g.remove(m, ErrUnknownMember)
		gone = true
	}
	if g.syncOverdue(now) {
		gone = true
	}
	if gone {
		g.rebalance(now, c)
	}
	g.settle(now)
}

// syncOverdue removes who has joined the generation and never asked for its assignment.
func (g *Group) syncOverdue(now time.Time) (gone bool) {
	if g.syncBy.IsZero() || now.Before(g.syncBy) {
		return false
	}
	g.syncBy = time.Time{}
	for _, m := range slices.Clone(g.members) {
		if m.pendingSync {
			g.remove(m, ErrUnknownMember)
			gone = true
		}
	}
	return gone
}

// settle ends every step: what is complete or due is done, and the next deadline known.
func (g *Group) settle(now time.Time) {
	g.tryComplete(now)
	for g.state == Preparing && !now.Before(g.deadline) {
		before := g.deadline
		g.gathered(now)
		if g.state == Preparing && g.deadline.Equal(before) {
			break // timeouts of zero
		}
	}
	if !g.next.IsZero() && !now.Before(g.next) {
		g.rearm()
	}
}

func (g *Group) rearm() {
	g.next = time.Time{}
	for _, until := range g.pending {
		g.arm(until)
	}
	for _, m := range g.members {
		g.arm(m.expires)
	}
	if g.state == Preparing {
		g.arm(g.deadline)
	}
	if !g.syncBy.IsZero() {
		g.arm(g.syncBy)
	}
}
