// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varve/varve/record"
)

// spread is the least and greatest of what nodes have.
func spread(nodes []Node, have map[record.NodeID]int) (least, most int) {
	least = have[nodes[0].ID]
	for _, n := range nodes {
		least, most = min(least, have[n.ID]), max(most, have[n.ID])
	}
	return least, most
}

// TestPlace: every replica of a partition on another node, racks shared only when they run out, leaders even, replicas even where racks
// are, in one go or two.
func TestPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		racks := rapid.IntRange(0, 4).Draw(t, "racks")
		count := rapid.IntRange(1, 9).Draw(t, "nodes")
		nodes := make([]Node, count)
		size := map[string]int{}
		for i := range nodes {
			nodes[i].ID = record.NodeID(i + 1)
			if racks > 0 {
				nodes[i].Rack = string(rune('a' + i%racks))
			}
			size[nodes[i].Rack]++
		}
		even := racks == 0 || count%racks == 0
		rf := rapid.IntRange(1, count).Draw(t, "factor")
		first := rapid.IntRange(0, 40).Draw(t, "first")
		p := Placement{Nodes: nodes, Partitions: first, Replicas: rf, Start: rapid.IntRange(0, 8).Draw(t, "start")}
		parts := Place(p)
		p.Existing, p.Partitions = parts, rapid.IntRange(1, 40).Draw(t, "more")
		parts = slices.Concat(parts, Place(p))
		c := Counts{Leads: map[record.NodeID]int{}, Holds: map[record.NodeID]int{}}
		c.Add(parts)
		for _, replicas := range parts {
			inRack := map[string]int{}
			for i, n := range replicas {
				if slices.Contains(replicas[:i], n) {
					t.Fatalf("%v names one twice", replicas)
				}
				inRack[nodes[n-1].Rack]++
			}
			if len(replicas) != rf {
				t.Fatalf("%v: want %d replicas", replicas, rf)
			}
			for rack, n := range inRack {
				// Another rack with a node to spare has one replica less at most.
				for other, nodesThere := range size {
					if racks > 0 && n > inRack[other]+1 && inRack[other] < nodesThere {
						t.Fatalf("%v: %d in rack %s, %d of %d nodes in rack %s", replicas, n, rack, inRack[other], nodesThere, other)
					}
				}
			}
		}
		if least, most := spread(nodes, c.Leads); most-least > 1 {
			t.Fatalf("leaders from %d to %d: %v", least, most, parts)
		}
		if least, most := spread(nodes, c.Holds); even && most-least > 2 {
			t.Fatalf("replicas from %d to %d: %v", least, most, parts)
		}
	})
}

// TestPlaceSpreadsFollowers: the partitions of a lost leader go to all others.
func TestPlaceSpreadsFollowers(t *testing.T) {
	nodes := []Node{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4}, {ID: 5}}
	seconds := map[record.NodeID]map[record.NodeID]int{}
	for _, replicas := range Place(Placement{Nodes: nodes, Partitions: 60, Replicas: 3}) {
		if seconds[replicas[0]] == nil {
			seconds[replicas[0]] = map[record.NodeID]int{}
		}
		seconds[replicas[0]][replicas[1]]++
	}
	for leader, others := range seconds {
		for n, count := range others {
			if len(others) != 4 || count < 2 || count > 4 {
				t.Errorf("of 12 partitions that %d leads, %d has the second replica of %d", leader, n, count)
			}
		}
	}
}

// TestPlaceLooksAtTheCluster: topics of one partition each spread as one topic of many would.
func TestPlaceLooksAtTheCluster(t *testing.T) {
	nodes := []Node{{ID: 1, Rack: "a"}, {ID: 2, Rack: "b"}, {ID: 3, Rack: "c"}}
	all := Counts{Leads: map[record.NodeID]int{}, Holds: map[record.NodeID]int{}}
	for range 30 {
		all.Add(Place(Placement{Nodes: nodes, Cluster: all, Partitions: 1, Replicas: 2}))
	}
	for _, n := range nodes {
		if all.Leads[n.ID] != 10 || all.Holds[n.ID] != 20 {
			t.Errorf("node %d leads %d of 30, holds %d of 60", n.ID, all.Leads[n.ID], all.Holds[n.ID])
		}
	}
}
