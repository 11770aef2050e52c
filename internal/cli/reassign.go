// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newReassignCommand(s *streams) *cobra.Command {
	return group(&cobra.Command{Use: "reassign", Short: "Move replicas, and change replication factors"},
		newReassignPlanCommand(s), newReassignApplyCommand(s), newReassignStatusCommand(s), newReassignCancelCommand(s))
}

// reassignment is the file that Kafka's own tool reads and writes.
type reassignment struct {
	Version    int                   `json:"version"`
	Partitions []reassignedPartition `json:"partitions"`
}

type reassignedPartition struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Replicas  []int32 `json:"replicas"`
}

func (r *reassignment) sort() {
	slices.SortFunc(r.Partitions, func(a, b reassignedPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// readReassignment reads such a file, "-" for standard input.
func readReassignment(path string, in io.Reader) (*reassignment, error) {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, usagef("--file: %s", err)
		}
		defer f.Close()
		in = f
	}
	var r reassignment
	if err := json.NewDecoder(io.LimitReader(in, maxReassignmentBytes)).Decode(&r); err != nil {
		return nil, usagef("--file %s is not a reassignment (%s); write {\"version\":1,\"partitions\":[{\"topic\":…,\"partition\":…,\"replicas\":[…]}]}", path, err)
	}
	if r.Version != 1 || r.Partitions == nil {
		return nil, usagef("--file %s: version %d with %d partitions; it must be version 1 with a list of partitions", path, r.Version, len(r.Partitions))
	}
	for _, p := range r.Partitions {
		if p.Topic == "" || len(p.Replicas) == 0 {
			return nil, usagef("--file %s: topic %q partition %d needs replicas", path, p.Topic, p.Partition)
		}
	}
	r.sort()
	return &r, nil
}

func newReassignApplyCommand(s *streams) *cobra.Command {
	var file string
	var keep bool
	cmd := &cobra.Command{
		Use:   "apply --file FILE",
		Short: "Begin the moves of a file, as `varve reassign plan --output json` or Kafka's tool writes it",
		Long: "Each partition's replicas become those of the file, in that order: the first is the preferred leader. One replica is added at a time and\n" +
			"copies the hot tail only; the old ones go when all of the new are in sync. `varve reassign status` shows what is under way.",
		Args: exactArgs(),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "reassignment in JSON, - for standard input")
	cmd.Flags().BoolVar(&keep, "keep-replication-factor", false, "refuse moves that would change the number of replicas")
	_ = cmd.MarkFlagRequired("file") // the flag was just made
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := readReassignment(file, s.in)
		if err != nil {
			return err
		}
		if len(r.Partitions) == 0 { // the plan found every partition where it should be
			return out.show(s.out, []elected{}, &table{rows: [][]string{{"nothing to move"}}})
		}
		return sendReassignment(cmd, s, conn, *out, r, keep, "begun")
	}
	return cmd
}

// sendReassignment asks for moves, or for their end where there are no replicas, and shows the answers.
func sendReassignment(cmd *cobra.Command, s *streams, conn *connection, out outputFlag, r *reassignment, keep bool, done string) error {
	ctx, adm, end, err := conn.administer(cmd.Context())
	if err != nil {
		return err
	}
	defer end()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis, req.AllowReplicationFactorChange = int32(conn.timeout.Milliseconds()), !keep
	for _, p := range r.Partitions {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.Topic {
			t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
			t.Topic = p.Topic
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Partition, rp.Replicas = p.Partition, p.Replicas
		t.Partitions = append(t.Partitions, rp)
	}
	resp, err := req.RequestWith(ctx, adm.kafka)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return explain("reassigning partitions", err)
	}
	rows, failures := []elected{}, []error(nil)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			outcome := done
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				message := deref(p.ErrorMessage)
				outcome = "failed"
				failures = append(failures, answered(fmt.Sprintf("reassigning %s:%d", t.Topic, p.Partition), err, message))
			}
			rows = append(rows, elected{Topic: t.Topic, Partition: p.Partition, Outcome: outcome})
		}
	}
	if err := out.show(s.out, rows, electionTable(rows, false)); err != nil {
		return err
	}
	return reportFailures(cmd, failures)
}

// movingPartition is a move under way with what there is of it.
type movingPartition struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Leader    int32   `json:"leader"`
	Replicas  []int32 `json:"replicas"` // assigned now
	Adding    []int32 `json:"adding"`
	Removing  []int32 `json:"removing"`
	InSync    int     `json:"addedInSync"` // of those that are added
}

func newReassignStatusCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{Use: "status [TOPIC[:PARTITION]...]", Short: "Show the moves under way", Args: cobra.ArbitraryArgs}
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		wanted, err := parsePartitions(args)
		if err != nil {
			return err
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		moves, err := listMoves(ctx, adm, wanted)
		if err != nil {
			return err
		}
		t := &table{header: []string{"topic", "partition", "leader", "replicas", "adding", "in sync of them", "removing"}}
		for _, m := range moves {
			t.add(m.Topic, m.Partition, m.Leader, m.Replicas, m.Adding, m.InSync, m.Removing)
		}
		if len(moves) == 0 {
			t = &table{rows: [][]string{{"nothing moves"}}}
		}
		return out.show(s.out, moves, t)
	}
	return cmd
}

// listMoves are the moves under way of the topics named, of all for none.
func listMoves(ctx context.Context, adm *admin, wanted partitionsOf) ([]movingPartition, error) {
	if err := wanted.resolve(ctx, adm); err != nil {
		return nil, err
	}
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	for topic, partitions := range wanted {
		t := kmsg.NewListPartitionReassignmentsRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, adm.kafka)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, explain("listing reassignments", err)
	}
	moves := []movingPartition{}
	for _, t := range resp.Topics {
		details, err := adm.ListTopicsWithInternal(ctx, t.Topic)
		if err != nil {
			return nil, explain("reading topic "+t.Topic, err)
		}
		for _, p := range t.Partitions {
			d := details[t.Topic].Partitions[p.Partition]
			m := movingPartition{Topic: t.Topic, Partition: p.Partition, Leader: d.Leader, Replicas: d.Replicas, Adding: p.AddingReplicas, Removing: p.RemovingReplicas}
			for _, n := range p.AddingReplicas {
				if slices.Contains(d.ISR, n) {
					m.InSync++
				}
			}
			moves = append(moves, m)
		}
	}
	slices.SortFunc(moves, func(a, b movingPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return moves, nil
}

func newReassignCancelCommand(s *streams) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "cancel TOPIC[:PARTITION]... | --all",
		Short: "Give moves up: the replicas are again those from before",
		Args:  cobra.ArbitraryArgs,
	}
	cmd.Flags().BoolVar(&all, "all", false, "every move under way")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all == (len(args) > 0) {
			return usagef("needs either TOPIC[:PARTITION] or --all")
		}
		wanted, err := parsePartitions(args)
		if err != nil {
			return err
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		moves, err := listMoves(ctx, adm, wanted)
		if err != nil {
			return err
		}
		if len(moves) == 0 {
			return writeLine(s.out, "nothing moves")
		}
		r := &reassignment{Version: 1}
		for _, m := range moves {
			r.Partitions = append(r.Partitions, reassignedPartition{Topic: m.Topic, Partition: m.Partition})
		}
		return sendReassignment(cmd, s, conn, *out, r, false, "given up")
	}
	return cmd
}
