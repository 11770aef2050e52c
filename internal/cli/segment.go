// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

func newSegmentCommand(s *streams) *cobra.Command {
	return group(&cobra.Command{Use: "segment", Short: "Look at the segments in the bucket"},
		newSegmentListCommand(s), newSegmentDumpCommand(s))
}
