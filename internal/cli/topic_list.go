// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

type listedTopic struct {
	Topic             string `json:"topic"`
	ID                string `json:"id,omitempty"`
	Partitions        int    `json:"partitions"`
	ReplicationFactor int    `json:"replicationFactor"`
	Internal          bool   `json:"internal,omitempty"`
}

func newTopicListCommand(s *streams) *cobra.Command {
	var internal bool
	cmd := &cobra.Command{Use: "list", Short: "List topics", Args: exactArgs()}
	cmd.Flags().BoolVar(&internal, "internal", false, "internal topics too")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		topics, err := adm.ListTopicsWithInternal(ctx)
		if err != nil {
			return explain("listing topics", err)
		}
		t := &table{header: []string{"topic", "id", "partitions", "replication"}}
		listed := []listedTopic{}
		for _, d := range topics.Sorted() {
			if d.IsInternal && !internal {
				continue
			}
			l := listedTopic{d.Topic, topicIDText(d.ID), len(d.Partitions), d.Partitions.NumReplicas(), d.IsInternal}
			listed = append(listed, l)
			t.add(l.Topic, l.ID, l.Partitions, l.ReplicationFactor)
		}
		return out.show(s.out, listed, t)
	}
	return cmd
}
