// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partitionsOf are topics with the partitions that a command names; nil for all of a topic.
type partitionsOf map[string][]int32

// parsePartitions reads TOPIC[:PARTITION] arguments.
func parsePartitions(args []string) (partitionsOf, error) {
	out := partitionsOf{}
	for _, arg := range args {
		topic, partition, one := strings.Cut(arg, ":")
		if topic == "" {
			return nil, usagef("%q is not TOPIC or TOPIC:PARTITION", arg)
		}
		before, named := out[topic]
		if !one {
			out[topic] = nil
			continue
		}
		n, err := strconv.ParseInt(partition, 10, 32)
		if err != nil || n < 0 {
			return nil, usagef("%q is not TOPIC or TOPIC:PARTITION", arg)
		}
		if named && before == nil {
			continue // all of it already
		}
		if !slices.Contains(before, int32(n)) {
			out[topic] = append(before, int32(n))
		}
	}
	return out, nil
}

// resolve puts the partitions that exist where a topic was named without any.
func (p partitionsOf) resolve(ctx context.Context, adm *admin) error {
	var whole []string
	for topic, partitions := range p {
		if partitions == nil {
			whole = append(whole, topic)
		}
	}
	if len(whole) == 0 {
		return nil
	}
	details, err := adm.ListTopicsWithInternal(ctx, whole...)
	if err != nil {
		return explain("reading topics", err)
	}
	for _, d := range details.Sorted() {
		if d.Err != nil {
			return explain("reading topic "+d.Topic, d.Err)
		}
		p[d.Topic] = d.Partitions.Numbers()
	}
	return nil
}

type elected struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Outcome   string `json:"outcome"`
}

func newElectCommand(s *streams) *cobra.Command {
	var unclean bool
	cmd := &cobra.Command{
		Use:   "elect [TOPIC[:PARTITION]...]",
		Short: "Wait until preferred replicas lead, or ask for an unclean election",
		Long: "Leaders hand over to their preferred replica, the first of the assignment, by themselves once it is in sync. This command waits for\n" +
			"that and says where it cannot be. Without arguments it looks at all partitions.",
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().BoolVar(&unclean, "unclean", false, "let a replica that is not in sync lead where no other is left: records are lost")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		wanted, err := parsePartitions(args)
		if err != nil {
			return err
		}
		if unclean && len(args) == 0 {
			return usagef("--unclean needs the partitions, TOPIC[:PARTITION]: it loses records")
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		if err := wanted.resolve(ctx, adm); err != nil {
			return err
		}
		req := kmsg.NewPtrElectLeadersRequest()
		req.TimeoutMillis = int32((conn.timeout * 9 / 10).Milliseconds())
		if unclean {
			req.ElectionType = 1
		}
		for topic, partitions := range wanted {
			t := kmsg.NewElectLeadersRequestTopic()
			t.Topic, t.Partitions = topic, partitions
			req.Topics = append(req.Topics, t)
		}
		resp, err := req.RequestWith(ctx, adm.kafka)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			return explain("electing leaders", err)
		}
		rows, failures := electionRows(resp)
		if err := out.show(s.out, rows, electionTable(rows, len(args) == 0)); err != nil {
			return err
		}
		return reportFailures(cmd, failures)
	}
	return cmd
}

func electionRows(resp *kmsg.ElectLeadersResponse) (rows []elected, failures []error) {
	rows = []elected{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			outcome := "elected"
			if err := kerr.ErrorForCode(p.ErrorCode); err == kerr.ElectionNotNeeded {
				outcome = "leads already"
			} else if err != nil {
				message := deref(p.ErrorMessage)
				outcome = "failed"
				failures = append(failures, answered("electing a leader for "+t.Topic+":"+strconv.Itoa(int(p.Partition)), err, message))
			}
			rows = append(rows, elected{Topic: t.Topic, Partition: p.Partition, Outcome: outcome})
		}
	}
	slices.SortFunc(rows, func(a, b elected) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
	return rows, failures
}

func electionTable(rows []elected, all bool) *table {
	t := &table{header: []string{"topic", "partition", "outcome"}}
	for _, r := range rows {
		t.add(r.Topic, r.Partition, r.Outcome)
	}
	if len(rows) == 0 && all {
		return &table{rows: [][]string{{"every partition is led by its preferred replica"}}}
	}
	return t
}
