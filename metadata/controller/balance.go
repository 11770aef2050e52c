// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	"github.com/varve/varve/record"
)

// scale weighs partitions by what leading them costs: bytes that come in, or one each where nothing does.
type scale struct {
	idle   bool
	weight func(*Partition) float64
	light  float64 // what weighs less does not count as load
	load   map[record.NodeID]float64
	led    map[record.NodeID][]*Partition // by the node that will lead them
}

// balance evens out leaders, by their order first, then by other replicas, then the number of replicas. It rests while a node
// with replicas is away: it will come back, and had its share.
func (x *Planner) balance(p *plan) {
	if len(p.placeable) < 2 || p.lacking() {
		x.even = p.now // what is seen afterwards has to hold anew
		return
	}
	s := p.scale()
	if x.even.IsZero() || !s.uneven(p.placeable) {
		x.even = p.now
	}
	if s.uneven(p.placeable) && (p.now.Sub(x.even) >= skewHolds || x.newNode(p)) {
		x.swapLeaders(p, s)
		if s.uneven(p.placeable) {
			x.moveLeaders(p, s)
		}
	}
	x.evenReplicas(p)
}

// lacking tells whether a node that holds replicas, and does not drain, is not registered.
func (p *plan) lacking() bool {
	for n, holds := range p.holds {
		if _, here := p.live[n]; !here && !p.Drains[n] && holds > 0 {
			return true
		}
	}
	return false
}

// newNode tells whether a node has just come: what it is to take over is not waited with.
func (x *Planner) newNode(p *plan) bool {
	return slices.ContainsFunc(p.placeable, func(n Node) bool { return p.now.Sub(x.nodes[n.ID]) < nodeIsNew })
}

// settles is the node that will lead a partition once all is done that is decided: its preferred replica if that is in sync, or on its
// way to be; else who leads now. None: that node takes no part in balance.
func (p *plan) settles(t *Partition) (record.NodeID, bool) {
	n := t.Goal()[0]
	node, here := p.live[n]
	_, inSync := t.ISR.Member(n)
	if !here || node.Draining || !inSync && t.Move == nil {
		n = t.Leader
		node, here = p.live[n]
	}
	return n, here && !node.Draining
}

func (p *plan) scale() *scale {
	s := &scale{load: map[record.NodeID]float64{}, led: map[record.NodeID][]*Partition{}}
	total := int64(0)
	for i := range p.Partitions {
		total += p.Partitions[i].Rate
	}
	s.idle = total < idleRate
	base := idleShare * float64(total) / float64(max(1, len(p.Partitions)))
	s.weight = func(t *Partition) float64 {
		if s.idle {
			return 1
		}
		return float64(t.Rate) + base
	}
	for i := range p.Partitions {
		t := &p.Partitions[i]
		s.light += lightShare * s.weight(t) / float64(len(p.Partitions))
		if n, ok := p.settles(t); ok {
			s.load[n] += s.weight(t)
			s.led[n] = append(s.led[n], t)
		}
	}
	return s
}

// spread is the least, mean and greatest load of nodes.
func (s *scale) spread(nodes []Node) (least, mean, most float64) {
	least = s.load[nodes[0].ID]
	for _, n := range nodes {
		l := s.load[n.ID]
		least, most, mean = min(least, l), max(most, l), mean+l
	}
	return least, mean / float64(len(nodes)), most
}

// uneven tells whether something has to be done.
func (s *scale) uneven(nodes []Node) bool {
	least, mean, most := s.spread(nodes)
	if s.idle {
		return unevenCounts(least, mean, most)
	}
	return most > skewBegins*mean && (most-mean > leastSkew || s.leaderless(nodes))
}

// leaderless tells whether a node leads nothing while others lead several: however little comes in, it is to have its share before it gets
// replicas to follow, since these rest then.
func (s *scale) leaderless(nodes []Node) bool {
	led, none := 0, false
	for _, n := range nodes {
		led += len(s.led[n.ID])
		none = none || len(s.led[n.ID]) == 0
	}
	return none && led >= countSlack*len(nodes)
}

func unevenCounts(least, mean, most float64) bool {
	slack := countRatio*mean + countSlack
	return most > mean+slack || least < mean-slack || least == 0 && mean >= countSlack
}

// even tells whether enough was done.
func (s *scale) even(nodes []Node) bool {
	least, mean, most := s.spread(nodes)
	if s.idle {
		return most-least <= 1
	}
	return most <= skewEnds*mean
}

// gain is what the sum of the squares of all loads falls by, halved, when a partition's weight goes from one node to another; 0 when
// that is next to nothing: a swap of two nodes' loads must not look like a gain, or it would be made for ever.
func (s *scale) gain(t *Partition, from, to record.NodeID) float64 {
	w := s.weight(t)
	nearer := s.load[from] - s.load[to] - w
	if nearer < leastGain*s.load[from] {
		return 0
	}
	if w < s.light && len(s.led[from]) <= len(s.led[to]) {
		return 0 // hundreds of idle partitions do not make up for a busy one, they only gather on one node
	}
	return w * nearer
}

func (s *scale) shift(t *Partition, from, to record.NodeID) {
	w := s.weight(t)
	s.load[from] -= w
	s.load[to] += w
	s.led[from] = slices.DeleteFunc(s.led[from], func(o *Partition) bool { return o == t })
	s.led[to] = append(s.led[to], t)
}

// gives and takes tell whether a node takes part in evening out: only what is above the mean gives, and only to what is below it.
// Otherwise one partition that is too much for any node would keep all others moving.
func (s *scale) gives(nodes []Node, n record.NodeID) bool {
	_, mean, _ := s.spread(nodes)
	return s.load[n] > mean && (s.idle || s.load[n] > skewEnds*mean)
}

func (s *scale) takes(nodes []Node, n record.NodeID) bool {
	_, mean, _ := s.spread(nodes)
	return s.load[n] < mean
}

// swapLeaders changes the order of replicas that are in sync (C1), the greatest gain first.
func (x *Planner) swapLeaders(p *plan, s *scale) {
	for n := 0; n < swapsPerPlan && !s.even(p.placeable); n++ {
		var found *Partition
		var from, to record.NodeID
		most := 0.0
		for _, node := range p.placeable {
			if !s.gives(p.placeable, node.ID) {
				continue
			}
			for _, t := range s.led[node.ID] {
				if !x.movable(p, t) {
					continue
				}
				for _, r := range t.Replicas {
					if g := s.gain(t, node.ID, r); g > most && p.canLead(t, r) && s.takes(p.placeable, r) {
						found, from, to, most = t, node.ID, r, g
					}
				}
			}
		}
		if found == nil {
			return
		}
		next := append([]record.NodeID{to}, slices.DeleteFunc(slices.Clone(found.Replicas), func(r record.NodeID) bool { return r == to })...)
		p.begin(found, next, WhyLeaderLoad)
		s.shift(found, from, to)
	}
}

func (x *Planner) movable(p *plan, t *Partition) bool {
	return t.Move == nil && !p.stepped[t.ID] && x.rested(p.now, t.ID)
}

// canLead tells whether a replica could lead at once.
func (p *plan) canLead(t *Partition, n record.NodeID) bool {
	return p.inSync(t, n) && !p.live[n].Draining
}

// moveLeaders brings replicas to the nodes with the least load, and makes them lead, where no order of the replicas there are
// would do.
func (x *Planner) moveLeaders(p *plan, s *scale) {
	for n := 0; n < swapsPerPlan && !s.even(p.placeable); n++ {
		var found *Partition
		var from, to, drop record.NodeID
		most := 0.0
		for _, dst := range p.placeable {
			if p.bringing[dst.ID] >= movesPerNode || !s.takes(p.placeable, dst.ID) {
				continue
			}
			for _, src := range p.placeable {
				if !s.gives(p.placeable, src.ID) {
					continue
				}
				for _, t := range s.led[src.ID] {
					if g := s.gain(t, src.ID, dst.ID); g > most && x.movable(p, t) && !slices.Contains(t.Replicas, dst.ID) {
						if out, ok := p.exchange(t.Replicas, dst, t.Replicas); ok {
							found, from, to, drop, most = t, src.ID, dst.ID, out, g
						}
					}
				}
			}
		}
		if found == nil {
			return
		}
		target := append([]record.NodeID{to}, slices.DeleteFunc(slices.Clone(found.Replicas), func(r record.NodeID) bool { return r == drop })...)
		p.begin(found, target, WhyReplicaLoad)
		s.shift(found, from, to)
	}
}

// exchange finds the replica, of those that may go, that a node takes the place of: the one on the node with the most replicas
// that leaves no more replicas sharing racks than there were (C5).
func (p *plan) exchange(replicas []record.NodeID, in Node, mayGo []record.NodeID) (out record.NodeID, ok bool) {
	for _, n := range mayGo {
		stay := p.nodesOf(slices.DeleteFunc(slices.Clone(replicas), func(r record.NodeID) bool { return r == n }))
		if shared(stay, in) > shared(stay, Node{ID: n, Rack: p.live[n].Rack}) {
			continue
		}
		if !ok || p.holds[n] > p.holds[out] {
			out, ok = n, true
		}
	}
	return out, ok
}

// evenReplicas evens out the number of replicas by moving followers.
func (x *Planner) evenReplicas(p *plan) {
	least, mean, most := p.holdSpread()
	if !unevenCounts(least, mean, most) {
		return
	}
	for i := range p.Partitions {
		t := &p.Partitions[i]
		if !x.movable(p, t) || len(t.Replicas) < 2 {
			continue
		}
		least, _, most := p.holdSpread()
		if most-least <= 1 {
			return
		}
		var to Node
		found := false
		for _, n := range p.placeable {
			if p.bringing[n.ID] < movesPerNode && !slices.Contains(t.Replicas, n.ID) && (!found || p.holds[n.ID] < p.holds[to.ID]) {
				to, found = n, true
			}
		}
		if !found {
			continue
		}
		out, ok := p.exchange(t.Replicas, to, t.Replicas[1:])
		if !ok || p.holds[out]-p.holds[to.ID] < 2 {
			continue
		}
		target := slices.Clone(t.Replicas)
		target[slices.Index(target, out)] = to.ID
		p.begin(t, target, WhyReplicas)
	}
}

func (p *plan) holdSpread() (least, mean, most float64) {
	s := scale{load: map[record.NodeID]float64{}}
	for _, n := range p.placeable {
		s.load[n.ID] = float64(p.holds[n.ID])
	}
	return s.spread(p.placeable)
}
