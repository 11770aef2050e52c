// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// noIncarnation is one that no registration has: the next leader takes over from nobody.
const noIncarnation metadata.Incarnation = -1

// planLeader leaves the partition without a leader, in the highest epoch that anybody has seen: the next one is above (R4).
func (p *partition) planLeader(found []Segment) {
	l := &p.next.Leader
	highest := max(l.Epoch, 0)
	note := func(epochs []record.EpochStart) {
		if n := len(epochs); n > 0 {
			highest = max(highest, epochs[n-1].Epoch)
		}
	}
	note(p.next.Head.EpochChain)
	for i := range found {
		highest = max(highest, found[i].LeaderEpoch)
		note(found[i].Entry.Epochs)
	}
	for i := range p.logs {
		highest = max(highest, p.logs[i].CurrentEpoch)
		note(p.logs[i].Epochs)
	}
	if highest != l.Epoch {
		p.change(p.label, "the next leader epoch is %d, not %d: later leaders have been", highest+1, l.Epoch+1)
	}
	l.Node, l.Incarnation, l.Epoch = record.NoNode, noIncarnation, highest
	if p.mayHaveLost() {
		l.UncleanEpoch = highest + 1
	}
}

// mayHaveLost tells whether somebody may hold, or come back with, committed records that the next leader does not have: then they are
// given up as after an unclean election.
func (p *partition) mayHaveLost() bool {
	lost := p.best == nil || p.best.End < p.next.Head.TieredEnd
	for _, n := range p.in.Without {
		lost = lost || slices.Contains(p.topic.Partitions[p.id.Index], n)
	}
	missing := 0
	for _, n := range p.topic.Partitions[p.id.Index] {
		if !slices.ContainsFunc(p.logs, func(h held) bool { return h.node == n }) {
			missing++
		}
	}
	if p.best == nil || missing > 1 {
		p.warn("%s: no log of %d of its %d replicas is left: what was acknowledged and only those held, above %d in the bucket, is lost", p.label, missing,
			len(p.topic.Partitions[p.id.Index]), p.next.Head.TieredEnd)
	}
	for i := range p.logs {
		h := &p.logs[i]
		if p.best != nil && h.HighWatermark > p.best.End {
			p.warn("%s: node %d holds committed records up to %d, and later ones replaced those above %d", p.label, h.node, h.HighWatermark, p.best.End)
			lost = true
		} else if p.best != nil && h.CurrentEpoch > p.best.CurrentEpoch && h.End > p.best.End {
			p.warn("%s: node %d has followed a later leader than node %d and holds records up to %d; those above %d, which may have been committed, are given up",
				p.label, h.node, p.best.node, h.End, p.best.End)
			lost = true
		}
	}
	if end := p.next.Head.TieredEnd; p.best != nil && end > p.best.Start && end > 0 && end <= p.best.End {
		here, there := record.EpochAt(p.best.Epochs, end-1), record.EpochAt(p.next.Head.EpochChain, end-1)
		lost = lost || here != there && there != record.NoEpoch
	}
	return lost
}

// planISR makes those the in-sync set that hold all of the newest log. The others come back into it by fetching. It tells whether
// somebody has to be assigned for that.
func (p *partition) planISR() (reassigned bool) {
	s := metadata.ISRState{Rev: p.was.ISR.Rev}
	if p.best == nil {
		for _, n := range p.in.Nodes {
			if slices.Contains(p.topic.Partitions[p.id.Index], n.ID) && len(s.Members) == 0 {
				s.Members = []metadata.ISRMember{{Node: n.ID, StoreID: n.Store}}
			}
		}
		if len(s.Members) == 0 {
			p.warn("%s: no node that is left is assigned to it: reassign it, and run `varve elect --unclean`", p.label)
		} else if p.next.Head.TieredEnd > 0 {
			p.change(p.label, "node %d goes on where the bucket ends, at %d: no data directory holds any of it", s.Members[0].Node, p.next.Head.TieredEnd)
		}
		p.next.ISR = s
		return false
	}
	for i := range p.logs {
		h := &p.logs[i]
		s.HWFloor = max(s.HWFloor, min(h.HighWatermark, p.best.End))
		if h.End != p.best.End || h.lastEpoch() != p.best.lastEpoch() {
			continue
		}
		if len(s.Members) > 0 && p.best.End < p.next.Head.TieredEnd {
			continue // one begins where the bucket ends; what the others hold counts as little
		}
		s.Members = append(s.Members, metadata.ISRMember{Node: h.node, StoreID: h.store})
		if replicas := p.topic.Partitions[p.id.Index]; !slices.Contains(replicas, h.node) {
			p.topic.Partitions[p.id.Index] = append(slices.Clone(replicas), h.node)
			p.change(p.label, "node %d is assigned to it: it holds all of it, and the backup did not know", h.node)
			reassigned = true
		}
	}
	var nodes []record.NodeID
	for _, m := range s.Members {
		nodes = append(nodes, m.Node)
	}
	p.change(p.label, "nodes %v are in sync: they hold it up to %d", nodes, p.best.End)
	p.next.ISR = s
	return reassigned
}
