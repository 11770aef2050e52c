// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/varve/varve/metadata/etcd/embed"
)

// Version is set by the linker (see the Makefile).
var Version = "dev"

func versionText() string {
	return fmt.Sprintf("varve %s (%s %s/%s, etcd %s)", Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, embed.Release)
}

func newVersionCommand(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and that of the etcd inside",
		Args:  exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			return writeLine(s.out, "%s", versionText())
		},
	}
}
