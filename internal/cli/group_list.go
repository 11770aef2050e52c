// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
)

type listedGroup struct {
	Group        string `json:"group"`
	State        string `json:"state"`
	Type         string `json:"type,omitempty"`
	ProtocolType string `json:"protocolType,omitempty"`
	Coordinator  int32  `json:"coordinator"`
}

// groupStates and groupTypes are spelled as Kafka does.
var (
	groupStates = []string{"Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead"}
	groupTypes  = []string{"classic", "consumer"}
)

func newGroupListCommand(s *streams) *cobra.Command {
	var states, types []string
	cmd := &cobra.Command{Use: "list", Short: "List groups with their state and coordinator", Args: exactArgs()}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only groups in these states: Empty, Stable; of classic ones PreparingRebalance, CompletingRebalance, of consumer ones Assigning, Reconciling")
	cmd.Flags().StringSliceVar(&types, "type", nil, "only groups of these types: classic, consumer")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		states, err := choices("--state", states, groupStates)
		if err != nil {
			return err
		}
		types, err := choices("--type", types, groupTypes)
		if err != nil {
			return err
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		groups, err := adm.ListGroupsByType(ctx, types, states...)
		if err != nil {
			return explain("listing groups", err)
		}
		list, t := []listedGroup{}, &table{header: []string{"group", "state", "type", "protocol type", "coordinator"}}
		for _, g := range groups.Sorted() {
			list = append(list, listedGroup{g.Group, g.State, g.GroupType, g.ProtocolType, g.Coordinator})
			t.add(g.Group, g.State, g.GroupType, g.ProtocolType, g.Coordinator)
		}
		return out.show(s.out, list, t)
	}
	return cmd
}
