// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/ops"
	"github.com/varve/varve/record"
)

// Nodes shows the registered nodes, and those that are gone and drain still.
func (o opsNode) Nodes(context.Context) (ops.Nodes, error) {
	img := o.n.meta.Image()
	states := map[record.NodeID]*ops.NodeState{}
	of := func(n record.NodeID) *ops.NodeState {
		if states[n] == nil {
			states[n] = &ops.NodeState{ID: int32(n)}
		}
		return states[n]
	}
	for _, b := range img.Brokers() {
		s := of(b.Node)
		s.Registered, s.Rack, s.Incarnation, s.HTTP = true, b.Rack, int64(b.Incarnation), b.HTTP
	}
	for n, d := range img.Drains() {
		s := of(n)
		s.Draining, s.Since = true, d.Since.UnixMilli()
	}
	around := controller.Around(img)
	for t := range img.Topics() {
		for i := range t.Partitions {
			if t.Deleting {
				break
			}
			countReplicas(img, t, int32(i), of)
			if len(img.Drains()) > 0 {
				countStaying(around, t, int32(i), of)
			}
		}
	}
	out := ops.Nodes{Nodes: []ops.NodeState{}, Takers: []int32{}}
	for _, n := range controller.Placeable(around.Nodes) {
		out.Takers = append(out.Takers, int32(n.ID))
	}
	for _, s := range states {
		slices.Sort(s.StayingIn)
		s.StayingIn = s.StayingIn[:min(len(s.StayingIn), maxStayingIn)]
		out.Nodes = append(out.Nodes, *s)
	}
	slices.SortFunc(out.Nodes, func(a, b ops.NodeState) int { return cmp.Compare(a.ID, b.ID) })
	if o.n.broker != nil && !o.n.broker.MayServe() { // as long as etcd is away nobody is seen to go
		out.Unsure = fmt.Sprintf("node %d is not registered, or not sure of its lease", o.n.options.nodeID)
	}
	return out, nil
}

// countReplicas adds one partition to what nodes have.
func countReplicas(img *metadata.Image, t *metadata.Topic, index int32, of func(record.NodeID) *ops.NodeState) {
	state, _ := img.Partition(record.PartitionID{Topic: t.ID, Index: index})
	if b := img.Broker(state.Leader.Node); b != nil && b.Incarnation == state.Leader.Incarnation {
		of(b.Node).Leaders++
	}
	a := t.Assignment(index)
	for _, n := range a.Replicas {
		of(n).Replicas++
	}
	counts := func(n record.NodeID) {
		if !slices.Contains(a.Replicas, n) {
			of(n).Leaving++
		}
	}
	for _, m := range state.ISR.Members {
		counts(m.Node)
	}
	for _, m := range state.ISR.ELR {
		counts(m.Node)
	}
	if a.Move == nil {
		return
	}
	for _, n := range a.Move.Adding() {
		of(n).Arriving++
	}
	for _, n := range a.Removing() {
		of(n).Leaving++
	}
}

// DrainNode marks a node as one that gives up what it holds, or takes the mark away.
func (o opsNode) DrainNode(ctx context.Context, node int32, on bool) (ops.Nodes, error) {
	change := o.n.meta.Undrain
	if on {
		change = o.n.meta.Drain
	}
	rev, err := change(ctx, record.NodeID(node))
	switch {
	case errors.Is(err, metadata.ErrUnknownNode):
		return ops.Nodes{}, fmt.Errorf("%w: no node %d has been part of this cluster", ops.ErrNotFound, node)
	case err == nil:
		err = o.n.meta.WaitFor(ctx, rev)
	}
	if err != nil {
		return ops.Nodes{}, fmt.Errorf("%w: %w", ops.ErrUnavailable, err)
	}
	return o.Nodes(ctx)
}
