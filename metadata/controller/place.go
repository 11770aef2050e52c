// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// Node is a registered node that holds replicas.
type Node struct {
	ID       record.NodeID
	Rack     string // "": a rack of its own
	Draining bool
}

// Nodes are the nodes of an image that hold replicas, by id.
func Nodes(img *metadata.Image) []Node {
	var out []Node
	for _, b := range img.Brokers() {
		if len(b.Roles) == 0 || slices.Contains(b.Roles, "broker") {
			out = append(out, Node{ID: b.Node, Rack: b.Rack, Draining: img.Draining(b.Node)})
		}
	}
	return out
}

// Placeable are the nodes that may get replicas: those that do not drain.
func Placeable(nodes []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.Draining })
}

// Counts is how many partitions nodes lead, by preference, and hold.
type Counts struct {
	Leads, Holds map[record.NodeID]int
}

// Count counts a cluster's partitions.
func Count(img *metadata.Image) Counts {
	c := Counts{Leads: map[record.NodeID]int{}, Holds: map[record.NodeID]int{}}
	for t := range img.Topics() {
		if !t.Deleting {
			c.Add(t.Partitions)
		}
	}
	return c
}

// Add counts further partitions.
func (c *Counts) Add(partitions [][]record.NodeID) {
	for _, replicas := range partitions {
		c.Leads[replicas[0]]++
		for _, n := range replicas {
			c.Holds[n]++
		}
	}
}

// Placement asks for the replicas of n new partitions of one topic.
type Placement struct {
	Nodes      []Node            // those that may get replicas; at least Replicas
	Existing   [][]record.NodeID // the topic's other partitions
	Cluster    Counts            // all partitions
	Partitions int
	Replicas   int
	Start      int // which node is taken among equals: a random number
}

// Place chooses the replicas: within the topic leaders and replicas are even, the replicas of a partition are on different racks as far as
// there are racks (C5), the followers of one leader are spread over the others, and among equals the node is taken that has less of
// the whole cluster.
func Place(p Placement) [][]record.NodeID {
	own := Counts{Leads: map[record.NodeID]int{}, Holds: map[record.NodeID]int{}}
	own.Add(p.Existing)
	all := Counts{Leads: maps.Clone(p.Cluster.Leads), Holds: maps.Clone(p.Cluster.Holds)}
	if all.Leads == nil {
		all = Counts{Leads: map[record.NodeID]int{}, Holds: map[record.NodeID]int{}}
	}
	pairs := map[[2]record.NodeID]int{} // leader, follower
	for _, replicas := range p.Existing {
		for _, f := range replicas[1:] {
			pairs[[2]record.NodeID{replicas[0], f}]++
		}
	}
	out := make([][]record.NodeID, p.Partitions)
	for i := range out {
		leader := best(p.Nodes, p.Start+i, func(n Node) []int {
			return []int{own.Leads[n.ID], all.Leads[n.ID], own.Holds[n.ID], all.Holds[n.ID]}
		})
		chosen := []Node{leader}
		for len(chosen) < p.Replicas {
			next := best(without(p.Nodes, chosen), p.Start+i+len(chosen), func(n Node) []int {
				return []int{shared(chosen, n), own.Holds[n.ID], pairs[[2]record.NodeID{leader.ID, n.ID}], all.Holds[n.ID]}
			})
			pairs[[2]record.NodeID{leader.ID, next.ID}]++
			chosen = append(chosen, next)
		}
		replicas := make([]record.NodeID, len(chosen))
		for k, n := range chosen {
			replicas[k] = n.ID
		}
		out[i] = replicas
		own.Add(out[i : i+1])
		all.Add(out[i : i+1])
	}
	return out
}

// Refactor gives each of the existing partitions p.Replicas replicas: the last ones go, or others come as Place would choose them; the
// rest stays in its order.
func Refactor(p Placement) [][]record.NodeID {
	holds := maps.Clone(p.Cluster.Holds)
	if holds == nil {
		holds = map[record.NodeID]int{}
	}
	for _, replicas := range p.Existing {
		for _, n := range replicas {
			holds[n]++
		}
	}
	byID := map[record.NodeID]Node{}
	for _, n := range p.Nodes {
		byID[n.ID] = n
	}
	out := make([][]record.NodeID, len(p.Existing))
	for i, replicas := range p.Existing {
		out[i] = slices.Clone(replicas[:min(len(replicas), p.Replicas)])
		var has []Node
		for _, n := range out[i] {
			has = append(has, Node{ID: n, Rack: byID[n].Rack})
		}
		for _, n := range replicas[len(out[i]):] {
			holds[n]--
		}
		for len(out[i]) < p.Replicas {
			free := without(p.Nodes, has)
			if len(free) == 0 {
				break
			}
			next := best(free, p.Start+i, func(n Node) []int { return []int{shared(has, n), holds[n.ID]} })
			holds[next.ID]++
			has, out[i] = append(has, next), append(out[i], next.ID)
		}
	}
	return out
}

// best is the node with the least cost, compared place by place; among equals the first from start on, round the list.
func best(nodes []Node, start int, cost func(Node) []int) Node {
	var least []int
	var found Node
	for i := range nodes {
		n := nodes[(start+i)%len(nodes)]
		if c := cost(n); least == nil || slices.Compare(c, least) < 0 {
			least, found = c, n
		}
	}
	return found
}

func without(nodes, taken []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool {
		return slices.ContainsFunc(taken, func(t Node) bool { return t.ID == n.ID })
	})
}

// shared is how many of the nodes stand in the rack of n.
func shared(nodes []Node, n Node) (count int) {
	for _, other := range nodes {
		if n.Rack != "" && other.Rack == n.Rack {
			count++
		}
	}
	return count
}
