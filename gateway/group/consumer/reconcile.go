// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"maps"
	"slices"
	"time"

	"github.com/varve/varve/internal/invariant"
	"github.com/varve/varve/record"
)

// reconcile moves a member as far towards the target as can be. mine is what the member says it has, nil when it does not say.
// changed tells that it reads other topics than before: what it no longer reads it must give up whatever the target says.
func (g *Group) reconcile(now time.Time, m *member, mine *Partitions, changed bool, topics Topics) {
	if !changed && m.state == stable && m.epoch == g.targetEpoch {
		return
	}
	before := *m
	g.disown(m)
	switch {
	case m.state == stable && m.epoch == g.targetEpoch:
		g.strip(m, mine, topics)
	case m.state == unrevoked && holds(mine, m.giving):
		if changed {
			g.strip(m, mine, topics)
		}
	default:
		g.advance(m, mine, topics)
	}
	g.own(m)
	if before.epoch == m.epoch && before.state == m.state && before.assigned.equal(m.assigned) && before.giving.equal(m.giving) {
		return
	}
	g.dirty = true
	m.giveBy = time.Time{}
	if m.state == unrevoked && m.classic == nil {
		m.giveBy = now.Add(m.rebalance)
		g.arm(m.giveBy)
	}
}

// holds tells whether a member may still have any of o: it says so, or says nothing.
func holds(mine *Partitions, o owned) bool { return mine == nil || o.holdsAny(*mine) }

// strip has a member give up what it no longer reads.
func (g *Group) strip(m *member, mine *Partitions, topics Topics) {
	keeps, giving := owned{}, owned{}
	for topic, list := range m.giving {
		giving[topic] = maps.Clone(list)
	}
	lost := false
	for topic, list := range m.assigned {
		if g.readsID(m, topic, topics) {
			keeps[topic] = list
			continue
		}
		lost = true
		for index, epoch := range list {
			giving.put(topic, index, epoch)
		}
	}
	if !lost {
		return
	}
	m.assigned = keeps
	if holds(mine, giving) {
		m.state, m.giving = unrevoked, giving
	}
}

// advance computes a member's next assignment: first it gives up what it is not to have; once it has, it comes to the target's epoch
// with whatever of the target nobody else has.
func (g *Group) advance(m *member, mine *Partitions, topics Topics) {
	keeps, giving, gets := owned{}, owned{}, owned{}
	waits := false
	wanted := func(topic record.TopicID) []int32 {
		if !g.readsID(m, topic, topics) {
			return nil
		}
		return m.target[topic]
	}
	for topic, list := range m.assigned {
		want := wanted(topic)
		for index, epoch := range list {
			if _, ok := slices.BinarySearch(want, index); ok {
				keeps.put(topic, index, epoch)
			} else {
				giving.put(topic, index, epoch)
			}
		}
	}
	for topic := range m.target {
		for _, index := range wanted(topic) {
			if _, ok := keeps.epoch(topic, index); ok {
				continue
			}
			if other := g.owners[Place{topic, index}]; other != nil {
				waits = true
				continue
			}
			gets.put(topic, index, g.targetEpoch)
		}
	}
	m.assigned = keeps
	if len(giving) > 0 && holds(mine, giving) {
		m.state, m.giving = unrevoked, giving
		return
	}
	for topic, list := range gets {
		for index, epoch := range list {
			keeps.put(topic, index, epoch)
		}
	}
	m.giving = owned{}
	m.comeTo(g.targetEpoch)
	m.state = stable
	if waits {
		m.state = unreleased
	}
	invariant.Check(m.epoch <= g.epoch, "N2: a member's epoch is not above the group's")
}

// comeTo gives the member another epoch; the one before stays good for a heartbeat whose answer was lost.
func (m *member) comeTo(epoch int32) {
	if m.epoch != epoch {
		m.previous, m.epoch = m.epoch, epoch
	}
}
