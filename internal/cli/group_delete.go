// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
)

func newGroupDeleteCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{Use: "delete GROUP...", Short: "Delete groups without members, with their offsets", Args: someArgs("GROUP")}
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		answers, err := adm.DeleteGroups(ctx, ids...)
		if err != nil {
			return explain("deleting groups", err)
		}
		deleted, failures := []string{}, []error{}
		for _, a := range answers.Sorted() {
			if a.Err == nil {
				deleted = append(deleted, a.Group)
			} else {
				failures = append(failures, explain("deleting group "+a.Group, a.Err))
			}
		}
		return showDeleted(cmd, s, *out, deleted, failures)
	}
	return cmd
}
