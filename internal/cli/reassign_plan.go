// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/record"
)

// plannedMove is a partition with the replicas that it has and should have.
type plannedMove struct {
	Topic     string
	Partition int32
	Now, Next []int32
}

func newReassignPlanCommand(s *streams) *cobra.Command {
	var nodes []int32
	var factor int
	cmd := &cobra.Command{
		Use:   "plan TOPIC...",
		Short: "Propose where replicas should be, for `varve reassign apply`",
		Long: "With --nodes the replicas are spread over those nodes anew; with --replication-factor alone replicas are added, or the last ones taken\n" +
			"away, and the others stay where they are. Racks are kept apart as far as there are racks. A node that drains is proposed like any\n" +
			"other, and `apply` is refused there: leave it out with --nodes. Nothing is changed.",
		Example: "  varve reassign plan logs --replication-factor 3 -o json | varve reassign apply --file -",
		Args:    someArgs("TOPIC"),
	}
	addNumbers(cmd.Flags(), &nodes, "nodes", "", "nodes that may hold the replicas, `NODE[,NODE]` (default: all)")
	cmd.Flags().IntVar(&factor, "replication-factor", 0, "number of replicas (default: as many as there are)")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, topics []string) error {
		if len(nodes) == 0 && factor == 0 {
			return usagef("nothing to plan: give --nodes or --replication-factor")
		}
		if factor < 0 {
			return usagef("--replication-factor %d must be above 0", factor)
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		md, err := adm.Metadata(ctx)
		if err != nil {
			return explain("reading the cluster", err)
		}
		moves, err := planMoves(md, topics, nodes, factor)
		if err != nil {
			return err
		}
		r := &reassignment{Version: 1, Partitions: []reassignedPartition{}}
		t := &table{header: []string{"topic", "partition", "replicas", "proposed"}}
		for _, m := range moves {
			r.Partitions = append(r.Partitions, reassignedPartition{Topic: m.Topic, Partition: m.Partition, Replicas: m.Next})
			t.add(m.Topic, m.Partition, m.Now, m.Next)
		}
		if len(moves) == 0 {
			t = &table{rows: [][]string{{"every partition is where it should be"}}}
		}
		return out.show(s.out, r, t)
	}
	return cmd
}

// planMoves proposes replicas for the partitions of topics; those that are right already are left out.
func planMoves(md kadm.Metadata, topics []string, allowed []int32, factor int) (moves []plannedMove, err error) {
	var nodes []controller.Node
	for _, b := range md.Brokers {
		if len(allowed) == 0 || slices.Contains(allowed, b.NodeID) {
			n := controller.Node{ID: record.NodeID(b.NodeID)}
			if b.Rack != nil {
				n.Rack = *b.Rack
			}
			nodes = append(nodes, n)
		}
	}
	for _, id := range allowed {
		if !slices.ContainsFunc(nodes, func(n controller.Node) bool { return n.ID == record.NodeID(id) }) {
			return nil, fmt.Errorf("--nodes: node %d is not registered; `varve node list` shows those that are", id)
		}
	}
	slices.SortFunc(nodes, func(a, b controller.Node) int { return int(a.ID - b.ID) })
	all := controller.Counts{Leads: map[record.NodeID]int{}, Holds: map[record.NodeID]int{}}
	md.Topics.EachPartition(func(p kadm.PartitionDetail) {
		if len(p.Replicas) > 0 && !slices.Contains(topics, p.Topic) {
			all.Add([][]record.NodeID{asNodes(p.Replicas)})
		}
	})
	for _, topic := range topics {
		d, ok := md.Topics[topic]
		if !ok || d.Err != nil || len(d.Partitions) == 0 {
			return nil, fmt.Errorf("no topic %q; `varve topic list` shows those that there are", topic)
		}
		var now [][]record.NodeID
		for _, p := range d.Partitions.Sorted() {
			now = append(now, asNodes(p.Replicas))
		}
		want := factor
		if want == 0 {
			want = len(now[0])
		}
		if want > len(nodes) {
			return nil, fmt.Errorf("topic %s: %d replicas need as many nodes, there are %d", topic, want, len(nodes))
		}
		var next [][]record.NodeID
		if len(allowed) > 0 {
			next = controller.Place(controller.Placement{Nodes: nodes, Cluster: all, Partitions: len(now), Replicas: want})
		} else {
			next = controller.Refactor(controller.Placement{Nodes: nodes, Existing: now, Cluster: all, Replicas: want})
		}
		all.Add(next)
		for i := range next {
			if !slices.Equal(now[i], next[i]) {
				moves = append(moves, plannedMove{Topic: topic, Partition: int32(i), Now: asIDs(now[i]), Next: asIDs(next[i])})
			}
		}
	}
	return moves, nil
}

func asNodes(ids []int32) []record.NodeID {
	out := make([]record.NodeID, len(ids))
	for i, id := range ids {
		out[i] = record.NodeID(id)
	}
	return out
}

func asIDs(nodes []record.NodeID) []int32 {
	out := make([]int32, len(nodes))
	for i, n := range nodes {
		out[i] = int32(n)
	}
	return out
}
