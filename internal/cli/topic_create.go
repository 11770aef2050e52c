// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

type createdTopic struct {
	Topic             string `json:"topic"`
	ID                string `json:"id,omitempty"`
	Partitions        int32  `json:"partitions"`
	ReplicationFactor int16  `json:"replicationFactor"`
	Outcome           string `json:"outcome"`
}

func newTopicCreateCommand(s *streams) *cobra.Command {
	var (
		partitions     int32
		replication    int16
		configs        []string
		dryRun, exists bool
	)
	cmd := &cobra.Command{
		Use:     "create TOPIC...",
		Short:   "Create topics",
		Example: "  varve topic create logs --partitions 3 --config retention.ms=-1",
		Args:    someArgs("TOPIC"),
	}
	f := cmd.Flags()
	f.Int32VarP(&partitions, "partitions", "p", -1, "number of partitions (-1: the cluster's num.partitions)")
	f.Int16VarP(&replication, "replication-factor", "r", -1, "copies of each partition (-1: the cluster's default)")
	f.StringArrayVarP(&configs, "config", "c", nil, "topic config `KEY=VALUE`, repeatable")
	f.BoolVar(&exists, "if-not-exists", false, "a topic that is there already is no failure")
	f.BoolVar(&dryRun, "dry-run", false, "only check")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, topics []string) error {
		if partitions == 0 || partitions < -1 {
			return usagef("--partitions %d must be 1 or more, or -1 for the cluster's default", partitions)
		}
		if replication == 0 || replication < -1 {
			return usagef("--replication-factor %d must be 1 or more, or -1 for the cluster's default", replication)
		}
		kv, err := parseConfigs("--config", configs)
		if err != nil {
			return err
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		values := make(map[string]*string, len(kv))
		for k, v := range kv {
			values[k] = &v
		}
		create := adm.CreateTopics
		if dryRun {
			create = adm.ValidateCreateTopics
		}
		answers, err := create(ctx, partitions, replication, values, topics...)
		if err != nil {
			return explain("creating topics", err)
		}
		if slices.ContainsFunc(answers.Sorted(), func(a kadm.CreateTopicResponse) bool { return a.Err == nil }) {
			warnOfCompaction(s.err, kv["cleanup.policy"])
		}
		for _, a := range answers.Sorted() {
			if a.Err == nil && a.ReplicationFactor > 0 && a.ReplicationFactor < replication {
				fmt.Fprintf(s.err, "warning: topic %s has %s, not %d: there are no more nodes\n", a.Topic, counted(int(a.ReplicationFactor), "replica"), replication)
			}
		}
		return showCreated(cmd, *out, answers, exists, dryRun)
	}
	return cmd
}

// warnOfCompaction says of a topic's cleanup.policy that it is kept and not followed.
func warnOfCompaction(w io.Writer, policy string) {
	for one := range strings.SplitSeq(policy, ",") {
		if strings.TrimSpace(one) == "compact" {
			fmt.Fprintln(w, "warning: compaction is not done yet: cleanup.policy=compact is stored, and no record is removed because a later one has its key")
			return
		}
	}
}

func showCreated(cmd *cobra.Command, out outputFlag, answers kadm.CreateTopicResponses, existsIsFine, dryRun bool) error {
	t := &table{header: []string{"topic", "id", "partitions", "replication", "outcome"}}
	number := func(n int64) any { // the answer about a topic that is there already says nothing of it
		if n < 0 {
			return "-"
		}
		return n
	}
	created, failures := []createdTopic{}, []error{}
	for _, a := range answers.Sorted() {
		c := createdTopic{Topic: a.Topic, ID: topicIDText(a.ID), Partitions: a.NumPartitions, ReplicationFactor: a.ReplicationFactor, Outcome: "created"}
		switch {
		case a.Err == nil && dryRun:
			c.Outcome, c.ID = "would be created", ""
		case a.Err == nil:
		case existsIsFine && errors.Is(a.Err, kerr.TopicAlreadyExists):
			c.Outcome, c.Partitions, c.ReplicationFactor = "exists already", -1, -1
		default:
			failures = append(failures, answered("creating topic "+a.Topic, a.Err, a.ErrMessage))
			continue
		}
		created = append(created, c)
		t.add(c.Topic, c.ID, number(int64(c.Partitions)), number(int64(c.ReplicationFactor)), c.Outcome)
	}
	if len(created) > 0 || out == outputJSON {
		if err := out.show(cmd.OutOrStdout(), created, t); err != nil {
			return err
		}
	}
	return reportFailures(cmd, failures)
}

// reportFailures prints one line per failure; several topics of one command fail independently.
func reportFailures(cmd *cobra.Command, failures []error) error {
	switch len(failures) {
	case 0:
		return nil
	case 1:
		return failures[0]
	}
	for _, err := range failures {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), oneLine(err.Error()))
	}
	return errReported
}
