// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newTopicDeleteCommand(s *streams) *cobra.Command {
	var ifExists bool
	cmd := &cobra.Command{Use: "delete TOPIC...", Short: "Delete topics with all their data", Args: someArgs("TOPIC")}
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "a topic that is not there is no failure")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, topics []string) error {
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		answers, err := adm.DeleteTopics(ctx, topics...)
		if err != nil {
			return explain("deleting topics", err)
		}
		deleted, failures := []string{}, []error{}
		for _, a := range answers.Sorted() {
			switch {
			case a.Err == nil:
				deleted = append(deleted, a.Topic)
			case ifExists && errors.Is(a.Err, kerr.UnknownTopicOrPartition):
			default:
				failures = append(failures, answered("deleting topic "+a.Topic, a.Err, a.ErrMessage))
			}
		}
		return showDeleted(cmd, s, *out, deleted, failures)
	}
	return cmd
}

// showDeleted says what was deleted and what was not.
func showDeleted(cmd *cobra.Command, s *streams, out outputFlag, deleted []string, failures []error) error {
	if out == outputJSON {
		if err := writeJSON(s.out, map[string][]string{"deleted": deleted}); err != nil {
			return err
		}
	} else {
		for _, name := range deleted {
			fmt.Fprintf(s.out, "deleted %s\n", name)
		}
	}
	return reportFailures(cmd, failures)
}
