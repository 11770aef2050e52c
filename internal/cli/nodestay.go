// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/ops"
	"github.com/varve/varve/record"
)

// countStaying adds what nodes that drain keep of one partition until something changes.
func countStaying(around *controller.Cluster, t *metadata.Topic, index int32, of func(record.NodeID) *ops.NodeState) {
	p := controller.Partition{Assignment: t.Assignment(index), AutoRF: t.AutoRF}
	for _, n := range p.Replicas {
		if !around.Drains[n] || !slices.Contains(p.Goal(), n) || controller.FateOf(around, &p, n) != controller.ReplicaStays {
			continue
		}
		s := of(n)
		s.Staying++
		if len(s.StayingIn) == 0 || s.StayingIn[len(s.StayingIn)-1] != t.Name {
			s.StayingIn = append(s.StayingIn, t.Name)
		}
	}
}

// whyDraining says of each replica on a node that drains what becomes of it.
func whyDraining(around *controller.Cluster, t *metadata.Topic, index int32) (out []string) {
	p := controller.Partition{Assignment: t.Assignment(index), AutoRF: t.AutoRF}
	for _, n := range p.Replicas {
		if !around.Drains[n] {
			continue
		}
		says := ""
		switch f := controller.FateOf(around, &p, n); {
		case p.Move != nil && !slices.Contains(p.Goal(), n):
			says = "a move takes its replica away"
		case f == controller.ReplicaStays && len(controller.Placeable(around.Nodes)) == 0:
			says = "its replica stays: no node is left that takes replicas or leaders; end the drain of one with `varve node undrain NODE`, or start another one"
		case f == controller.ReplicaStays:
			says = "its replica stays: the replication factor is explicit, and no other node can take it; unless the node comes back, start another one, or lower the factor with `varve reassign`"
		case p.Move != nil && !p.Move.Auto:
			says = "its replica goes once the move that is under way has ended"
		case f == controller.FactorFalls:
			says = "its replica is about to go: the replication factor is automatic, and no other node can take it"
		default:
			says = "its replica is about to move to another node"
		}
		out = append(out, fmt.Sprintf("node %d is being drained: %s", n, says))
	}
	return out
}
