// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
)

func newConfigSetCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "set KEY=VALUE...",
		Short:   "Set configs",
		Example: "  varve config set --topic logs retention.ms=-1\n  varve config set --brokers min.insync.replicas=2",
		Args:    someArgs("KEY=VALUE"),
	}
	return configChangeCommand(s, cmd, func(args []string) ([]configChange, error) { return configChanges("", args, nil) })
}

func newConfigUnsetCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "unset KEY...",
		Short:   "Put configs back to what they are without being set here",
		Example: "  varve config unset --topic logs retention.ms",
		Args:    someArgs("KEY"),
	}
	return configChangeCommand(s, cmd, func(args []string) ([]configChange, error) { return configChanges("", nil, args) })
}

// changedConfigs is what config set, config unset and topic alter have done, as JSON.
type changedConfigs struct {
	Resource   string   `json:"resource"`
	Partitions int      `json:"partitions,omitempty"` // those that the topic has now
	Changed    []string `json:"changed"`              // configs
	DryRun     bool     `json:"dryRun,omitempty"`
}

func changedKeys(changes []configChange) []string {
	keys := []string{}
	for _, c := range changes {
		keys = append(keys, c.key)
	}
	return keys
}

func configChangeCommand(s *streams, cmd *cobra.Command, changesOf func([]string) ([]configChange, error)) *cobra.Command {
	var dryRun bool
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only check")
	whose, conn, out := addResource(cmd), addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := whose.resource()
		if err != nil {
			return err
		}
		changes, err := changesOf(args)
		if err != nil {
			return err
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		if err := checkUnset(ctx, adm, r, changes); err != nil {
			return err
		}
		if err := alterConfigs(ctx, adm, r, changes, dryRun); err != nil {
			return err
		}
		if r.kind == topicResource {
			warnOfCompaction(s.err, policyOf(changes))
		}
		did := "changed"
		if dryRun {
			did = "would change"
		}
		if *out == outputJSON {
			return writeJSON(s.out, changedConfigs{Resource: r.String(), Changed: changedKeys(changes), DryRun: dryRun})
		}
		return writeLine(s.out, "%s %s of %s", did, counted(len(changes), "config"), r)
	}
	return cmd
}
