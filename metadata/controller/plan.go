// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// Partition is what a plan needs to know of one.
type Partition struct {
	metadata.Assignment
	ID     metadata.PartitionID
	ISR    metadata.ISRState
	Leader record.NodeID // registered, else record.NoNode
	AutoRF bool
	MinISR int   // min.insync.replicas of its topic
	Rate   int64 // bytes per second that come in
}

// Cluster is what a plan is made from.
type Cluster struct {
	Nodes []Node // registered, by id
	// Drains are the nodes that drain, registered or not.
	Drains     map[record.NodeID]bool
	Partitions []Partition // by topic and number
}

// Step gives one partition another assignment.
type Step struct {
	ID   metadata.PartitionID
	Next metadata.Assignment
	ISR  metadata.Revision // that the step was decided on
	Why  Reason
}

// Reason is what a step is for.
type Reason string

// The reasons.
const (
	WhyStep        Reason = "move goes on"
	WhyGiveUp      Reason = "node of the move is gone"
	WhyLeads       Reason = "node of the move leads by an earlier assignment"
	WhyDrain       Reason = "node drains"
	WhyFactor      Reason = "automatic replication factor"
	WhyLeaderLoad  Reason = "balance of leaders"
	WhyReplicaLoad Reason = "balance of leaders, by another replica"
	WhyReplicas    Reason = "balance of replicas"
)

// Planner remembers what balance needs to know of the past. It is used by one goroutine.
type Planner struct {
	known map[metadata.PartitionID]past
	even  time.Time                   // when load was even last, or nothing could be said; zero: before the first plan
	nodes map[record.NodeID]time.Time // since when each has been there and not draining
}

type past struct {
	goal  []record.NodeID
	moved time.Time // zero: not since the planner began
}

// NewPlanner makes a planner that knows nothing.
func NewPlanner() *Planner {
	return &Planner{known: map[metadata.PartitionID]past{}}
}

// plan is one plan in the making.
type plan struct {
	*Cluster
	now       time.Time
	live      map[record.NodeID]Node // registered, whether draining or not
	placeable []Node
	bringing  map[record.NodeID]int // moves under way to a node that nobody asked for
	holds     map[record.NodeID]int // replicas, when all moves are done
	stepped   map[metadata.PartitionID]bool
	steps     []Step
}

func newPlan(now time.Time, c *Cluster) *plan {
	p := &plan{
		Cluster: c, now: now, live: map[record.NodeID]Node{}, placeable: Placeable(c.Nodes), bringing: map[record.NodeID]int{},
		holds: map[record.NodeID]int{}, stepped: map[metadata.PartitionID]bool{},
	}
	for _, n := range c.Nodes {
		p.live[n.ID] = n
	}
	for i := range c.Partitions {
		t := &c.Partitions[i]
		for _, n := range t.Goal() {
			p.holds[n]++
		}
		if t.Move != nil && t.Move.Auto {
			for _, n := range t.Move.Adding() {
				p.bringing[n]++
			}
		}
	}
	return p
}

// Plan decides what to do next, at most one thing per partition (C2). What it decides for balance it expects to be done.
func (x *Planner) Plan(now time.Time, c *Cluster) []Step {
	p := newPlan(now, c)
	x.remember(now, c)
	for i := range c.Partitions {
		t := &c.Partitions[i]
		if t.Move != nil {
			p.goOn(t)
		} else if !p.drain(t) {
			p.raise(t)
		}
	}
	// What drain and factor change is no reason for balance to leave a partition alone: nodes that come back have nothing.
	for _, s := range p.steps {
		m := x.known[s.ID]
		m.goal = s.Next.Goal()
		x.known[s.ID] = m
	}
	x.balance(p)
	return p.steps
}

// remember notes what came, went and moved.
func (x *Planner) remember(now time.Time, c *Cluster) {
	first := x.nodes == nil
	if first {
		x.nodes = map[record.NodeID]time.Time{}
	}
	here := map[record.NodeID]bool{}
	for _, n := range Placeable(c.Nodes) { // one that drains no more comes like a new one
		here[n.ID] = true
		if _, known := x.nodes[n.ID]; !known {
			since := now
			if first {
				since = time.Time{} // it was there before this planner
			}
			x.nodes[n.ID] = since
		}
	}
	for n := range x.nodes {
		if !here[n] {
			delete(x.nodes, n)
		}
	}
	for i := range c.Partitions {
		t := &c.Partitions[i]
		switch m, known := x.known[t.ID]; {
		case !known:
			x.known[t.ID] = past{goal: t.Goal()}
		case !slices.Equal(m.goal, t.Goal()):
			x.known[t.ID] = past{goal: t.Goal(), moved: now}
		}
	}
	if len(x.known) > len(c.Partitions) {
		there := make(map[metadata.PartitionID]bool, len(c.Partitions))
		for i := range c.Partitions {
			there[c.Partitions[i].ID] = true
		}
		maps.DeleteFunc(x.known, func(id metadata.PartitionID, _ past) bool { return !there[id] })
	}
}

// rested tells whether balance may move a partition.
func (x *Planner) rested(now time.Time, id metadata.PartitionID) bool {
	m := x.known[id]
	return m.moved.IsZero() || now.Sub(m.moved) >= restAfterMove
}

func (p *plan) step(t *Partition, next metadata.Assignment, why Reason) {
	p.stepped[t.ID] = true
	p.steps = append(p.steps, Step{ID: t.ID, Next: next, ISR: t.ISR.Rev, Why: why})
}

// goOn does the next step of a move. One that nobody asked for is given up when a node that it is to bring is gone or drains, unless that node
// is needed meanwhile, and gets another target when a node of its target drains: that may be away for good, and the move would wait for it.
func (p *plan) goOn(t *Partition) {
	if t.Move.Auto {
		back, gone := t.Cancel(), func(n record.NodeID) bool { node, here := p.live[n]; return !here || node.Draining }
		if slices.ContainsFunc(t.Move.Adding(), gone) && back.Keeps(&t.ISR) && t.LeavesEnough(back, &t.ISR, t.MinISR) {
			p.step(t, back, WhyGiveUp)
			return
		}
		if p.drain(t); p.stepped[t.ID] {
			return
		}
	}
	if next, ok := p.next(t, t.Assignment); ok {
		p.step(t, next, WhyStep)
	} else if t.Move.Auto {
		p.sidestep(t)
	}
}

// sidestep gives another target to a move that waits for the leader to leave the in-sync set, where that is by an earlier assignment, when the
// leader has nobody to hand over to.
func (p *plan) sidestep(t *Partition) {
	_, leave := t.Awaits(&t.ISR, t.MinISR)
	if !slices.Contains(leave, t.Leader) || slices.ContainsFunc(t.Replicas, func(n record.NodeID) bool { return p.inSync(t, n) }) {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(t.Goal()), func(n record.NodeID) bool { return n == t.Leader })
	if to, ok := p.free(t.Goal(), rest); ok {
		p.begin(t, append(rest, to), WhyLeads)
	}
}

// inSync tells whether a node is there and in sync.
func (p *plan) inSync(t *Partition, n record.NodeID) bool {
	_, here := p.live[n]
	_, member := t.ISR.Member(n)
	return here && member
}

// next is the next step of a move of t, if there is one to do: a replica that a node is to get waits until that is there.
func (p *plan) next(t *Partition, a metadata.Assignment) (metadata.Assignment, bool) {
	next, ok := a.Step(&t.ISR, t.MinISR)
	if !ok || slices.ContainsFunc(next.Replicas, func(n record.NodeID) bool { _, here := p.live[n]; return !here && !slices.Contains(t.Replicas, n) }) {
		return a, false
	}
	return next, true
}

// begin starts a move that nobody asked for, or gives one another target, with its first step where one is possible.
func (p *plan) begin(t *Partition, target []record.NodeID, why Reason) bool {
	next := t.Reassign(target)
	if next.Move != nil {
		next.Move.Auto = true
		if !t.LeavesEnough(next, &t.ISR, t.MinISR) {
			next.Replicas = t.Replicas // what the move had brought is needed until the end
		}
		if slices.Equal(next.Replicas, t.Replicas) { // else what the move had brought and is wanted no more goes: one thing at a time (C2)
			next, _ = p.next(t, next)
		}
	}
	if t.Drops(next) && !(next.Keeps(&t.ISR) && t.LeavesEnough(next, &t.ISR, t.MinISR)) {
		return false
	}
	for _, n := range target {
		if !slices.Contains(t.Goal(), n) {
			p.bringing[n]++
			p.holds[n]++
		}
	}
	for _, n := range t.Goal() {
		if !slices.Contains(target, n) {
			p.holds[n]--
		}
	}
	p.step(t, next, why)
	return true
}

// Fate is what becomes of a replica on a node that drains.
type Fate int

// The fates.
const (
	ReplicaMoves Fate = iota // another node can take it
	FactorFalls              // none can, and the replication factor is automatic
	ReplicaStays             // none can, and the factor is explicit, or no node is left that does not drain
)

// FateOf tells what becomes of the replica that node n, which drains, has or is to have of a partition. Of that the assignment is looked at,
// and whether its factor is automatic.
func FateOf(c *Cluster, t *Partition, n record.NodeID) Fate {
	goal := t.Goal()
	switch {
	case slices.ContainsFunc(c.Nodes, func(o Node) bool { return !o.Draining && !slices.Contains(goal, o.ID) }):
		return ReplicaMoves
	case t.AutoRF && slices.ContainsFunc(goal, func(o record.NodeID) bool { return o != n && !c.Drains[o] }):
		return FactorFalls
	}
	return ReplicaStays
}

// drain takes a replica off a node that drains, where that is its fate. It tells whether there is such a node.
func (p *plan) drain(t *Partition) (found bool) {
	for _, n := range t.Goal() {
		if !p.Drains[n] {
			continue
		}
		found = true
		rest := slices.DeleteFunc(slices.Clone(t.Goal()), func(o record.NodeID) bool { return o == n })
		switch FateOf(p.Cluster, t, n) {
		case ReplicaStays:
			continue
		case ReplicaMoves:
			to, ok := p.free(t.Goal(), rest)
			if !ok {
				continue // later: each has enough moves under way
			}
			rest = append(rest, to)
		}
		if p.begin(t, rest, WhyDrain) {
			break
		}
		// One that a move has brought may be the only one in sync: then another one that drains goes first.
	}
	return found
}

// raise adds a replica to a partition whose replication factor is automatic.
func (p *plan) raise(t *Partition) {
	if !t.AutoRF || len(t.Replicas) >= min(maxAutoFactor, len(p.placeable)) {
		return
	}
	if to, ok := p.free(t.Replicas, t.Replicas); ok {
		p.begin(t, append(slices.Clone(t.Replicas), to), WhyFactor)
	}
}

// free finds a node for a new replica of a partition that has some and keeps others: of another rack than those, with the fewest
// replicas. None: there is no other, or each has enough moves under way.
func (p *plan) free(has, keeps []record.NodeID) (to record.NodeID, ok bool) {
	stay := p.nodesOf(keeps)
	var least []int
	for _, n := range p.placeable {
		if slices.Contains(has, n.ID) || p.bringing[n.ID] >= movesPerNode {
			continue
		}
		if c := []int{shared(stay, n), p.holds[n.ID]}; least == nil || slices.Compare(c, least) < 0 {
			least, to, ok = c, n.ID, true
		}
	}
	return to, ok
}

// nodesOf are the nodes with those ids; of one that is not registered no rack is known.
func (p *plan) nodesOf(ids []record.NodeID) []Node {
	out := make([]Node, len(ids))
	for i, id := range ids {
		out[i] = Node{ID: id, Rack: p.live[id].Rack}
	}
	return out
}

// compareIDs orders partitions as a Cluster has them.
func compareIDs(a, b metadata.PartitionID) int {
	return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Index, b.Index))
}
