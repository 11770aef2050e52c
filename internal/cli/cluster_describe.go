// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varve/varve/ops"
)

type describedCluster struct {
	ClusterID       string       `json:"clusterId"`
	Controller      *int32       `json:"controller"` // null: none, or not known
	Nodes           []brokerNode `json:"nodes"`
	Topics          int          `json:"topics"`
	Partitions      int          `json:"partitions"`
	UnderReplicated int          `json:"underReplicatedPartitions"`
	Offline         int          `json:"offlinePartitions"`
}

type brokerNode struct {
	Node    int32  `json:"node"`
	Host    string `json:"host"`
	Port    int32  `json:"port"`
	Rack    string `json:"rack,omitempty"`
	Leads   int    `json:"leads"`
	Replica int    `json:"replicas"`
}

func newClusterDescribeCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{Use: "describe", Short: "Show the cluster id, its nodes and the state of its partitions", Args: exactArgs(),
		Long: "Which node is the controller is asked of the operations API: Kafka's protocol names one that clients may send administration to, and that\n" +
			"is any. Without an answer, or without a controller, it is shown as -."}
	conn, out := addConnection(cmd), addOutput(cmd)
	api := addOps(cmd, conn)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		md, err := adm.Metadata(ctx)
		if err != nil {
			return explain("describing the cluster", err)
		}
		c := describeCluster(md)
		c.Controller = api.controller(ctx, c.ClusterID)
		if *out == outputJSON {
			return writeJSON(s.out, c)
		}
		fmt.Fprintf(s.out, "cluster %s  controller %s  topics %d  partitions %d  under-replicated %d  offline %d\n",
			cell(c.ClusterID), nodeOrNone(c.Controller), c.Topics, c.Partitions, c.UnderReplicated, c.Offline)
		t := &table{header: []string{"node", "host", "port", "rack", "leads", "replicas"}}
		for _, n := range c.Nodes {
			t.add(n.Node, n.Host, n.Port, n.Rack, n.Leads, n.Replica)
		}
		return t.write(s.out)
	}
	return cmd
}

// controller asks which node is the controller of that cluster; nil: nobody, or no answer. The description does without it.
func (o *opsClient) controller(ctx context.Context, cluster string) *int32 {
	ctx, cancel := context.WithTimeout(ctx, controllerWait)
	defer cancel()
	var c ops.Cluster
	if o.call(ctx, http.MethodGet, "/v1/cluster", nil, &c) != nil || c.ClusterID != cluster {
		return nil
	}
	return c.Controller
}

func nodeOrNone(n *int32) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func describeCluster(md kadm.Metadata) describedCluster {
	c := describedCluster{ClusterID: md.Cluster, Nodes: []brokerNode{}, Topics: len(md.Topics)}
	leads, replicas := map[int32]int{}, map[int32]int{}
	md.Topics.EachPartition(func(p kadm.PartitionDetail) {
		c.Partitions++
		if p.Leader < 0 {
			c.Offline++
		}
		if len(p.ISR) < len(p.Replicas) {
			c.UnderReplicated++
		}
		leads[p.Leader]++
		for _, r := range p.Replicas {
			replicas[r]++
		}
	})
	for _, b := range md.Brokers {
		n := brokerNode{Node: b.NodeID, Host: b.Host, Port: b.Port, Leads: leads[b.NodeID], Replica: replicas[b.NodeID]}
		if b.Rack != nil {
			n.Rack = *b.Rack
		}
		c.Nodes = append(c.Nodes, n)
	}
	slices.SortFunc(c.Nodes, func(a, b brokerNode) int { return cmp.Compare(a.Node, b.Node) })
	return c
}
