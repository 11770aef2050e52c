// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func newTopicAlterCommand(s *streams) *cobra.Command {
	var (
		partitions int
		set, unset []string
	)
	cmd := &cobra.Command{
		Use:     "alter TOPIC",
		Short:   "Add partitions or change configs of a topic",
		Example: "  varve topic alter logs --partitions 6 --config retention.ms=86400000 --delete-config segment.ms",
		Args:    exactArgs("TOPIC"),
	}
	f := cmd.Flags()
	f.IntVarP(&partitions, "partitions", "p", 0, "new total number of partitions (it can only grow)")
	f.StringArrayVarP(&set, "config", "c", nil, "config to set, `KEY=VALUE`, repeatable")
	f.StringArrayVar(&unset, "delete-config", nil, "config to put back to its default, `KEY`, repeatable")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if partitions == 0 && len(set) == 0 && len(unset) == 0 {
			return usagef("nothing to alter: give --partitions, --config or --delete-config")
		}
		if partitions < 0 {
			return usagef("--partitions %d must be above 0", partitions)
		}
		changes, err := configChanges("--config", set, unset)
		if err != nil {
			return err
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		r := resource{kind: topicResource, name: args[0]}
		if err := checkUnset(ctx, adm, r, changes); err != nil {
			return err
		}
		if partitions > 0 && len(changes) > 0 { // partitions cannot be taken back when a config turns out to be refused
			if err := alterConfigs(ctx, adm, r, changes, true); err != nil {
				return err
			}
		}
		if partitions > 0 {
			if err := growTopic(ctx, adm, args[0], partitions); err != nil {
				return err
			}
			if *out != outputJSON {
				fmt.Fprintf(s.out, "%s has %s\n", args[0], counted(partitions, "partition"))
			}
		}
		if len(changes) > 0 {
			if err := alterConfigs(ctx, adm, r, changes, false); err != nil {
				return err
			}
			warnOfCompaction(s.err, policyOf(changes))
			if *out != outputJSON {
				fmt.Fprintf(s.out, "changed %s of %s\n", counted(len(changes), "config"), args[0])
			}
		}
		if *out == outputJSON {
			return writeJSON(s.out, changedConfigs{Resource: r.String(), Partitions: partitions, Changed: changedKeys(changes)})
		}
		return nil
	}
	return cmd
}

func growTopic(ctx context.Context, adm *admin, topic string, partitions int) error {
	answers, err := adm.UpdatePartitions(ctx, partitions, topic)
	if err != nil {
		return explain("adding partitions to "+topic, err)
	}
	a := answers[topic]
	return answered("adding partitions to "+topic, a.Err, a.ErrMessage)
}
