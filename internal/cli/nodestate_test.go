// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// TestMoves: a partition counts as being reassigned as long as its topic says so, and one of no topic does not.
func TestMoves(t *testing.T) {
	meta := startNodes(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	topic, err := meta.CreateTopic(ctx, metadata.TopicSpec{Name: "t", Partitions: [][]record.NodeID{{1}, {1}}})
	if err != nil {
		t.Fatal(err)
	}
	move := metadata.Assignment{Replicas: []record.NodeID{1}, Move: &metadata.Move{Target: []record.NodeID{2}, Origin: []record.NodeID{1}}}
	if topic, err = meta.AlterAssignments(ctx, topic, []metadata.AssignmentChange{{Partition: 1, Next: move}}); err != nil {
		t.Fatal(err)
	}
	if err := meta.WaitFor(ctx, topic.Rev); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[record.PartitionID]bool{
		{Topic: topic.ID}: false, {Topic: topic.ID, Index: 1}: true, {Topic: topic.ID, Index: 2}: false, {}: false,
	} {
		if got := moves(meta.Image(), id); got != want {
			t.Errorf("%v: %v", id, got)
		}
	}
}
