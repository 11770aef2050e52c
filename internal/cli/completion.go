// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

func newCompletionCommand(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Print a completion script for a shell",
		Long:      "Print a completion script, to be sourced by the shell: source <(varve completion bash)",
		Args:      exactArgs("bash|zsh|fish"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(s.out, true)
			case "zsh":
				return root.GenZshCompletion(s.out)
			case "fish":
				return root.GenFishCompletion(s.out, true)
			}
			return usagef("no completion for %q; there is bash, zsh and fish", args[0])
		},
	}
}
