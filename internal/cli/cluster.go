// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

func newClusterCommand(s *streams) *cobra.Command {
	return group(&cobra.Command{Use: "cluster", Short: "Describe and upgrade the cluster"},
		newClusterDescribeCommand(s), newClusterUpgradeCommand(s))
}
