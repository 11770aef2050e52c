// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	"github.com/varve/varve/ops"
)

func newClusterUpgradeCommand(s *streams) *cobra.Command {
	var to int
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Let the cluster write the formats of a newer version",
		Long: "A cluster writes the formats of its cluster version, so that nodes of the version before can still read them and a rolling\n" +
			"upgrade can go back. Once all nodes run the new release, this command raises the cluster version. There is no way back.",
		Args: exactArgs(),
	}
	cmd.Flags().IntVar(&to, "to", 0, "cluster version (default: the highest that all nodes can run)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be done")
	conn, out := addConnection(cmd), addOutput(cmd)
	api := addOps(cmd, conn)
	api.addToken(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if to < 0 {
			return usagef("--to %d is not a cluster version", to)
		}
		var now ops.Cluster
		if err := api.call(cmd.Context(), http.MethodGet, "/v1/cluster", nil, &now); err != nil {
			return err
		}
		if to == 0 {
			to = now.Upgradable
		}
		if to > now.Upgradable {
			return fmt.Errorf("cluster version %d: the nodes can run at most %d together; start the newer release on every node first", to, now.Upgradable)
		}
		before := now.Version
		if to > before && !dryRun {
			if err := api.call(cmd.Context(), http.MethodPost, "/v1/cluster/upgrade", map[string]int{"to": to}, &now); err != nil {
				return err
			}
		}
		if *out == outputJSON {
			return writeJSON(s.out, map[string]any{"clusterId": now.ClusterID, "before": before, "version": now.Version, "requested": to})
		}
		switch {
		case to <= before:
			return writeLine(s.out, "cluster %s is at version %d, nothing to do", now.ClusterID, before)
		case dryRun:
			return writeLine(s.out, "cluster %s would go from version %d to %d", now.ClusterID, before, to)
		}
		return writeLine(s.out, "cluster %s went from version %d to %d", now.ClusterID, before, now.Version)
	}
	return cmd
}
