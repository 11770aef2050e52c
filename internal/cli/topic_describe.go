// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type describedTopic struct {
	Topic      string               `json:"topic"`
	ID         string               `json:"id,omitempty"`
	Internal   bool                 `json:"internal,omitempty"`
	Partitions []describedPartition `json:"partitions"`
	Configs    map[string]string    `json:"configs"` // only those set on the topic itself
}

type describedPartition struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"`
	LeaderEpoch int32   `json:"leaderEpoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Offline     []int32 `json:"offline,omitempty"`
	Error       string  `json:"error,omitempty"`
}

func newTopicDescribeCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{Use: "describe TOPIC...", Short: "Show partitions, replicas and configs of topics", Args: someArgs("TOPIC")}
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, topics []string) error {
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		described, failures, err := describeTopics(ctx, adm, topics)
		if err != nil {
			return err
		}
		if *out == outputJSON {
			err = writeJSON(s.out, described)
		} else {
			err = writeDescribed(s.out, described)
		}
		if err != nil {
			return err
		}
		return reportFailures(cmd, failures)
	}
	return cmd
}

func describeTopics(ctx context.Context, adm *admin, topics []string) ([]describedTopic, []error, error) {
	details, err := adm.ListTopicsWithInternal(ctx, topics...)
	if err != nil {
		return nil, nil, explain("describing topics", err)
	}
	described, failures, found := []describedTopic{}, []error{}, []string{}
	for _, d := range details.Sorted() {
		if d.Err != nil {
			failures = append(failures, explain("describing topic "+d.Topic, d.Err))
			continue
		}
		found = append(found, d.Topic)
		described = append(described, describedTopic{Topic: d.Topic, ID: topicIDText(d.ID), Internal: d.IsInternal, Partitions: describePartitions(d)})
	}
	if len(found) == 0 {
		return described, failures, nil
	}
	configs, err := adm.DescribeTopicConfigs(ctx, found...)
	if err != nil {
		return nil, nil, explain("describing the configs", err)
	}
	for i := range described {
		rc, err := configs.On(described[i].Topic, nil)
		if err == nil {
			err = rc.Err
		}
		if err != nil {
			return nil, nil, answered("describing the configs of "+described[i].Topic, err, rc.ErrMessage)
		}
		described[i].Configs = map[string]string{}
		for _, c := range rc.Configs {
			if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
				described[i].Configs[c.Key] = c.MaybeValue()
			}
		}
	}
	return described, failures, nil
}

func describePartitions(d kadm.TopicDetail) []describedPartition {
	ps := []describedPartition{}
	for _, p := range d.Partitions.Sorted() {
		dp := describedPartition{p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.OfflineReplicas, ""}
		if p.Err != nil {
			dp.Error = p.Err.Error()
		}
		ps = append(ps, dp)
	}
	return ps
}

func writeDescribed(w io.Writer, topics []describedTopic) error {
	for i, d := range topics {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "topic %s  id %s  partitions %d\n", d.Topic, cell(d.ID), len(d.Partitions))
		for _, k := range sortedKeys(d.Configs) {
			fmt.Fprintf(w, "config %s=%s\n", k, d.Configs[k])
		}
		t := &table{header: []string{"partition", "leader", "epoch", "replicas", "isr", "offline", "error"}}
		for _, p := range d.Partitions {
			t.add(p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.Offline, p.Error)
		}
		if err := t.write(w); err != nil {
			return err
		}
	}
	return nil
}
