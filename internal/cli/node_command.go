// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve/varve/ops"
)

func newNodeCommand(s *streams) *cobra.Command {
	return group(&cobra.Command{Use: "node", Short: "List nodes, and empty one before it is stopped for good"},
		newNodeListCommand(s), newNodeDrainCommand(s), newNodeUndrainCommand(s))
}

// nodeColumns explains what nodeTable shows.
const nodeColumns = "STATE is up, draining (`varve node drain`) or away (not registered). INCARNATION is the number of the node's registration:\n" +
	"it gets a higher one at each start, and when its lease had ended; what an earlier one still sends is refused. A node that is away has none.\n" +
	"LEADS are the partitions that it leads, REPLICAS those that are assigned to it, ARRIVING the replicas that a move brings, LEAVING those that\n" +
	"one takes away, or took away while others still count on them, STAYING those of a node that drains which no other node can take. HTTP is the address that it was started with."

func newNodeListCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "Show nodes, what they lead and hold, and which drain", Args: exactArgs(), Long: nodeColumns}
	conn, out := addConnection(cmd), addOutput(cmd)
	api := addOps(cmd, conn)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var n ops.Nodes
		if err := api.call(cmd.Context(), http.MethodGet, "/v1/nodes", nil, &n); err != nil {
			return err
		}
		if n.Unsure != "" {
			fmt.Fprintf(s.err, "%s: this is what it knew last; its log says whether etcd is away\n", n.Unsure)
		}
		return out.show(s.out, n, nodeTable(n.Nodes...))
	}
	return cmd
}

func nodeTable(nodes ...ops.NodeState) *table {
	t := &table{header: []string{"node", "state", "rack", "incarnation", "leads", "replicas", "arriving", "leaving", "staying", "http"}}
	for _, n := range nodes {
		incarnation := "-"
		if n.Registered {
			incarnation = strconv.FormatInt(n.Incarnation, 10)
		}
		t.add(n.ID, nodeState(&n), n.Rack, incarnation, n.Leaders, n.Replicas, n.Arriving, n.Leaving, n.Staying, n.HTTP)
	}
	return t
}

func nodeState(n *ops.NodeState) string {
	switch {
	case n.Draining && !n.Registered:
		return "away, draining"
	case n.Draining:
		return "draining"
	case !n.Registered:
		return "away"
	}
	return "up"
}

// nodeID reads the node that a command is about.
func nodeID(arg string) (int32, error) {
	id, err := strconv.ParseInt(arg, 10, 32)
	if err != nil || id < 0 {
		return 0, usagef("%q is not a node id", arg)
	}
	return int32(id), nil
}

// nodeOf finds a node; one that has nothing and is away is shown as such.
func nodeOf(nodes []ops.NodeState, id int32) ops.NodeState {
	if i := slices.IndexFunc(nodes, func(n ops.NodeState) bool { return n.ID == id }); i >= 0 {
		return nodes[i]
	}
	return ops.NodeState{ID: id}
}

func newNodeDrainCommand(s *streams) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Move what a node leads and holds to others, and give it nothing new",
		Long: "The node hands its leaderships over at once. Its replicas move to nodes that have none of the partition, where there are such; only\n" +
			"the hot tail is copied. Where there are none, an automatic replication factor falls and other replicas stay: how many is said, and that\n" +
			"is no failure. The mark outlives the node, which may be stopped at any time; `varve node undrain` ends it. `varve node list --help`\n" +
			"explains the columns.",
		Args: exactArgs("NODE"),
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait until the node leads nothing and every replica that another node can take has left, at most this long (default: do not wait)")
	conn, out := addConnection(cmd), addOutput(cmd)
	api := addOps(cmd, conn)
	api.addToken(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := nodeID(args[0])
		if err != nil {
			return err
		}
		if wait < 0 {
			return usagef("--wait %s must not be below 0", wait)
		}
		var n ops.Nodes
		if err := api.call(cmd.Context(), http.MethodPost, fmt.Sprintf("/v1/nodes/%d/drain", id), nil, &n); err != nil {
			return err
		}
		failure := awaitDrained(cmd.Context(), api, id, wait, &n)
		left := nodeOf(n.Nodes, id)
		shown := out.show(s.out, left, nodeTable(left))
		if note := drainNote(&n, id); note != "" && failure == nil {
			fmt.Fprintln(s.err, note)
		}
		return cmp.Or(failure, shown)
	}
	return cmd
}

// awaitDrained looks until the node leads nothing, holds nothing but what stays, and gets nothing by a move that somebody asked for before. A look
// may be answered by a node that has not heard of the mark yet: to that nothing stays.
func awaitDrained(ctx context.Context, api *opsClient, id int32, wait time.Duration, n *ops.Nodes) error {
	if wait == 0 {
		return nil
	}
	for deadline := time.Now().Add(wait); ; {
		left := nodeOf(n.Nodes, id)
		if left.Leaders == 0 && left.Replicas <= left.Staying && left.Leaving+left.Arriving == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("node %d still leads %d partitions, has %d replicas that are to leave, and gets %d, after %s; %s",
				id, left.Leaders, max(left.Replicas-left.Staying, left.Leaving), left.Arriving, wait, cmp.Or(nobodyTakes(n), "it goes on by itself, see `varve node list`, and `varve why TOPIC` for what it waits for"))
		}
		select {
		case <-time.After(drainLook):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := api.call(ctx, http.MethodGet, "/v1/nodes", nil, n); err != nil {
			return err
		}
	}
}

func newNodeUndrainCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undrain NODE",
		Short: "Let a node lead and hold partitions again",
		Long: "Within seconds the node leads again where its replica stayed and stands first (`varve topic describe`), once that is in sync. Automatic\n" +
			"replication factors rise at once, with the node last. What went to others otherwise stays there until balance needs the node: for load,\n" +
			"or, while less than 16 KiB/s come in to the whole cluster, for numbers. Then leaders move only between nodes of which one is off the\n" +
			"mean number by more than 2 and a quarter of it, or leads nothing where the mean is 2 or more: of a few partitions none comes back.\n" +
			"Balance rests while a node that holds replicas is away. `varve reassign` spreads a topic, leaders included, at once.",
		Example: "  varve node undrain 2\n" +
			"  varve reassign plan logs --nodes 1,2,3 -o json | varve reassign apply --file -",
		Args: exactArgs("NODE"),
	}
	conn, out := addConnection(cmd), addOutput(cmd)
	api := addOps(cmd, conn)
	api.addToken(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := nodeID(args[0])
		if err != nil {
			return err
		}
		var n ops.Nodes
		if err := api.call(cmd.Context(), http.MethodPost, fmt.Sprintf("/v1/nodes/%d/undrain", id), nil, &n); err != nil {
			return err
		}
		now := nodeOf(n.Nodes, id)
		shown := out.show(s.out, now, nodeTable(now))
		fmt.Fprintln(s.err, undrainNote(&n, id))
		return shown
	}
	return cmd
}
