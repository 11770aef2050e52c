// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// world is a cluster whose brokers do at once what they do in time: replicas that can come into sync, and leaders hand over.
type world struct {
	now        time.Time
	planner    *Planner
	nodes      map[record.NodeID]*worldNode
	partitions []*Partition
	rev        metadata.Revision
	frozen     bool // nothing comes into sync
}

type worldNode struct {
	rack           string
	live, draining bool
}

func newWorld() *world {
	return &world{now: time.Unix(1_000_000, 0), planner: NewPlanner(), nodes: map[record.NodeID]*worldNode{}}
}

func (w *world) cluster() *Cluster {
	c := &Cluster{Drains: map[record.NodeID]bool{}}
	for id, n := range w.nodes {
		if n.live {
			c.Nodes = append(c.Nodes, Node{ID: id, Rack: n.rack, Draining: n.draining})
		}
		if n.draining {
			c.Drains[id] = true
		}
	}
	slices.SortFunc(c.Nodes, func(a, b Node) int { return int(a.ID - b.ID) })
	for _, p := range w.partitions {
		c.Partitions = append(c.Partitions, *p)
	}
	return c
}

func (w *world) id(topic byte, index int32) metadata.PartitionID {
	return metadata.PartitionID{Topic: record.TopicID{topic}, Index: index}
}

// add makes a partition that all of its live replicas are in sync with.
func (w *world) add(topic byte, index int32, replicas []record.NodeID, auto bool, rate int64) *Partition {
	p := &Partition{
		ID: w.id(topic, index), Assignment: metadata.Assignment{Replicas: replicas},
		AutoRF: auto, MinISR: 1, Rate: rate, Leader: record.NoNode,
	}
	w.partitions = append(w.partitions, p)
	slices.SortFunc(w.partitions, func(a, b *Partition) int { return compareIDs(a.ID, b.ID) })
	w.settle()
	return p
}

func (w *world) live(n record.NodeID) bool { return w.nodes[n] != nil && w.nodes[n].live }

// settle brings in-sync sets and leaders to where the assignments and nodes want them. Only who is in sync leads and has what others copy; one
// that is in sync and not assigned any more leads as long as nobody else can.
func (w *world) settle() {
	for _, p := range w.partitions {
		member := func(n record.NodeID) bool { _, ok := p.ISR.Member(n); return ok }
		if p.Leader = w.leader(p); p.Leader == record.NoNode && p.ISR.Rev != 0 {
			continue // the last ones in sync stay in the set
		}
		var isr []metadata.ISRMember
		for _, n := range p.Replicas {
			if w.live(n) && (member(n) || !w.frozen || p.ISR.Rev == 0) {
				isr = append(isr, metadata.ISRMember{Node: n})
			}
		}
		if p.Leader != record.NoNode && !slices.Contains(p.Replicas, p.Leader) {
			isr = append(isr, metadata.ISRMember{Node: p.Leader})
		}
		if len(isr) > 0 && !slices.Equal(isr, p.ISR.Members) {
			w.rev++
			p.ISR = metadata.ISRState{Members: isr, Rev: w.rev}
		}
		if p.Leader = w.leader(p); p.Leader != record.NoNode && slices.Contains(p.Replicas, p.Leader) {
			p.ISR.Members = slices.DeleteFunc(slices.Clone(p.ISR.Members), func(m metadata.ISRMember) bool { return !slices.Contains(p.Replicas, m.Node) })
		}
	}
}

// leader is who leads a partition once leaders have handed over: of those in sync one that is assigned and does not drain, else one that is
// assigned.
func (w *world) leader(p *Partition) record.NodeID {
	best, least := record.NoNode, 3
	for _, n := range append(slices.Clone(p.Replicas), nodesOf(p.ISR.Members)...) {
		if _, ok := p.ISR.Member(n); !ok || !w.live(n) {
			continue
		}
		class := 0
		switch {
		case !slices.Contains(p.Replicas, n):
			class = 2
		case w.nodes[n].draining:
			class = 1
		}
		if class < least {
			best, least = n, class
		}
	}
	return best
}

func nodesOf(members []metadata.ISRMember) (out []record.NodeID) {
	for _, m := range members {
		out = append(out, m.Node)
	}
	return out
}

// plan makes one plan, checks each step and carries it out.
func (w *world) plan() ([]Step, error) {
	before := w.cluster()
	steps := w.planner.Plan(w.now, before)
	done := map[metadata.PartitionID]bool{}
	for _, s := range steps {
		at := slices.IndexFunc(w.partitions, func(p *Partition) bool { return p.ID == s.ID })
		p := w.partitions[at]
		if done[s.ID] {
			return steps, fmt.Errorf("C2: %s is changed twice in one plan", name(s.ID))
		}
		done[s.ID] = true
		if err := w.check(p, &s); err != nil {
			return steps, fmt.Errorf("%s: %w, by %s", name(s.ID), err, describe(p, &s))
		}
	}
	for _, s := range steps {
		at := slices.IndexFunc(w.partitions, func(p *Partition) bool { return p.ID == s.ID })
		w.partitions[at].Assignment = s.Next
	}
	w.settle()
	return steps, nil
}

// check holds one step against the invariants.
func (w *world) check(p *Partition, s *Step) error {
	if s.ISR != p.ISR.Rev {
		return fmt.Errorf("decided on in-sync set %d, which is %d", s.ISR, p.ISR.Rev)
	}
	added, gone := 0, 0
	for _, n := range s.Next.Replicas {
		if !slices.Contains(p.Replicas, n) {
			added++
			if node := w.nodes[n]; node == nil || !node.live {
				return fmt.Errorf("node %d gets a replica and is not there", n)
			}
		}
	}
	for _, n := range p.Replicas {
		if !slices.Contains(s.Next.Replicas, n) {
			gone++
		}
	}
	origin := p.Replicas
	if p.Move != nil {
		origin = p.Move.Origin
	}
	insync, before := w.inSync(p, s.Next.Replicas), w.inSync(p, origin)
	switch {
	case added > 0 && gone > 0 && p.ISR.Rev != 0, added > 1 && p.ISR.Rev != 0:
		return fmt.Errorf("C2: more than one thing at once")
	case len(s.Next.Replicas) == 0:
		return fmt.Errorf("no replica is left")
	case gone > 0 && p.ISR.Rev != 0 && insync == 0:
		return fmt.Errorf("C3: no replica in sync is left")
	case gone > 0 && s.Next.Move == nil && s.Why != WhyGiveUp && p.ISR.Rev != 0 && insync < min(len(s.Next.Replicas), before):
		return fmt.Errorf("C3: of the replicas that stay %d are in sync, of those before the move %d", insync, before)
	case p.ISR.Rev != 0 && w.inSync(p, p.Replicas) > insync && insync < min(p.MinISR, len(s.Next.Goal())):
		return fmt.Errorf("C3: in sync are %d of those that stay, which takes away what makes the minimum of %d", insync, p.MinISR)
	case s.Next.Move == nil && s.Why == WhyStep && p.ISR.Rev != 0 && w.inSync(p, p.Move.Adding()) < len(p.Move.Adding()):
		return fmt.Errorf("C3: a move ends before what it brings is in sync")
	case s.Why == WhyLeaderLoad:
		if _, ok := p.ISR.Member(s.Next.Replicas[0]); !ok || !w.live(s.Next.Replicas[0]) || added+gone > 0 {
			return fmt.Errorf("C1: node %d is preferred and could not lead", s.Next.Replicas[0])
		}
	}
	factor := len(s.Next.Goal()) - len(p.Goal())
	draining := slices.ContainsFunc(append(slices.Clone(p.Goal()), p.Replicas...), func(n record.NodeID) bool { return w.nodes[n].draining })
	if factor < 0 && s.Why != WhyGiveUp && s.Why != WhyStep && (!p.AutoRF || !draining) || factor > 0 && s.Why != WhyStep && s.Why != WhyGiveUp && !p.AutoRF {
		return fmt.Errorf("C3: the replication factor changes by %d", factor)
	}
	if s.Why == WhyReplicaLoad || s.Why == WhyReplicas {
		if w.shares(s.Next.Goal()) > w.shares(p.Goal()) {
			return fmt.Errorf("C5: more replicas share a rack")
		}
	}
	return nil
}

// inSync is how many of the nodes are in the in-sync set.
func (w *world) inSync(p *Partition, nodes []record.NodeID) (n int) {
	for _, id := range nodes {
		if _, ok := p.ISR.Member(id); ok {
			n++
		}
	}
	return n
}

// shares is how many pairs of replicas share a rack.
func (w *world) shares(replicas []record.NodeID) (n int) {
	for i, a := range replicas {
		for _, b := range replicas[:i] {
			if r := w.nodes[a].rack; r != "" && r == w.nodes[b].rack {
				n++
			}
		}
	}
	return n
}

// rest plans until nothing is left to do, by the second.
func (w *world) rest(within int) (steps []Step, err error) {
	quiet := 0
	for range within {
		some, err := w.plan()
		steps = append(steps, some...)
		if err != nil {
			return steps, err
		}
		if quiet++; len(some) > 0 {
			quiet = 0
		}
		if quiet > 30 { // longer than load has to be uneven
			return steps, nil
		}
		w.now = w.now.Add(time.Second)
	}
	return steps, fmt.Errorf("C4: still busy after %d plans", within)
}

func name(id metadata.PartitionID) string { return fmt.Sprintf("%c/%d", id.Topic[0], id.Index) }

func describe(p *Partition, s *Step) string {
	text := fmt.Sprintf("%s: %v -> %v", name(s.ID), p.Replicas, s.Next.Replicas)
	if s.Next.Move != nil {
		text += fmt.Sprintf(" to %v", s.Next.Move.Target)
	}
	return text + ", " + string(s.Why)
}

// summary is what nodes lead and hold.
func (w *world) summary() string {
	leads, holds, rate := map[record.NodeID]int{}, map[record.NodeID]int{}, map[record.NodeID]int64{}
	for _, p := range w.partitions {
		leads[p.Leader]++
		rate[p.Leader] += p.Rate
		for _, n := range p.Replicas {
			holds[n]++
		}
	}
	var out []string
	for id := record.NodeID(0); id < 100; id++ {
		if n := w.nodes[id]; n != nil || leads[id]+holds[id] > 0 {
			out = append(out, fmt.Sprintf("node %d leads %d, holds %d, %d KB/s", id, leads[id], holds[id], rate[id]>>10))
		}
	}
	return strings.Join(out, "\n")
}

// skew is the most loaded node's share of the mean.
func (w *world) skew() float64 {
	load, nodes, total := map[record.NodeID]float64{}, 0, 0.0
	for _, p := range w.partitions {
		load[p.Leader] += float64(p.Rate)
		total += float64(p.Rate)
	}
	most := 0.0
	for id, n := range w.nodes {
		if n.live && !n.draining {
			nodes++
			most = max(most, load[id])
		}
	}
	return most / (total / float64(nodes))
}
