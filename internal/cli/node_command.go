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

func newNodeListCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "Show nodes, what they lead and hold, and which drain", Args: exactArgs()}
	conn, out := addConnection(cmd), addOutput(cmd)
	api := addOps(cmd, conn)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var n ops.Nodes
		if err := api.call(cmd.Context(), http.MethodGet, "/v1/nodes", nil, &n); err != nil {
			return err
		}
		return out.show(s.out, n, nodeTable(n.Nodes...))
	}
	return cmd
}

func nodeTable(nodes ...ops.NodeState) *table {
	t := &table{header: []string{"node", "state", "rack", "incarnation", "leads", "replicas", "arriving", "leaving", "http"}}
	for _, n := range nodes {
		incarnation := "-"
		if n.Registered {
			incarnation = strconv.FormatInt(n.Incarnation, 10)
		}
		t.add(n.ID, nodeState(&n), n.Rack, incarnation, n.Leaders, n.Replicas, n.Arriving, n.Leaving, n.HTTP)
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
			"the hot tail is copied. Where there are none, an automatic replication factor falls and other replicas stay. The mark outlives the\n" +
			"node, which may be stopped at any time; `varve node undrain` ends it.",
		Args: exactArgs("NODE"),
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait until the node leads nothing and no replica of it moves, at most this long (default: do not wait)")
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
		return cmp.Or(failure, out.show(s.out, left, nodeTable(left)))
	}
	return cmd
}

// awaitDrained looks until the node leads nothing and nothing of it moves, twice in a row, since a move may be about to begin.
func awaitDrained(ctx context.Context, api *opsClient, id int32, wait time.Duration, n *ops.Nodes) error {
	if wait == 0 {
		return nil
	}
	deadline := time.Now().Add(wait)
	for quiet := 0; ; {
		left := nodeOf(n.Nodes, id)
		if quiet++; left.Leaders > 0 || left.Leaving > 0 {
			quiet = 0
		}
		if left.Leaders+left.Replicas == 0 || quiet > drainLooks {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("node %d still leads %d partitions and has %d replicas that move after %s; it goes on by itself, see `varve node list`",
				id, left.Leaders, left.Leaving, wait)
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
	cmd := &cobra.Command{Use: "undrain NODE", Short: "Let a node lead and hold partitions again", Args: exactArgs("NODE")}
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
		return out.show(s.out, now, nodeTable(now))
	}
	return cmd
}
