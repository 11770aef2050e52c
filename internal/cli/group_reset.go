// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// resetTarget is --to: a place in every partition, or a distance from where the group is.
type resetTarget struct {
	position
	shift   int64
	shifted bool
}

func parseReset(arg string, now time.Time, loc *time.Location) (resetTarget, error) {
	if n, ok := strings.CutPrefix(arg, "shift:"); ok {
		by, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			return resetTarget{}, fmt.Errorf("%q: shift: must be followed by a number of records, like shift:-100", arg)
		}
		return resetTarget{shift: by, shifted: true}, nil
	}
	p, err := parsePosition(arg, now, loc)
	if err != nil {
		return resetTarget{}, fmt.Errorf("%q is not earliest, latest, an offset, shift:N or a time: %s", arg, timeForms)
	}
	return resetTarget{position: p}, nil
}

// resetRow is what becomes of one partition.
type resetRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      *int64 `json:"from"` // null: nothing was committed
	To        int64  `json:"to"`
	epoch     int32
}

type resetAnswer struct {
	Group      string     `json:"group"`
	Executed   bool       `json:"executed"`
	At         string     `json:"at,omitempty"`   // the time that was asked for
	Zone       string     `json:"zone,omitempty"` // where its zone came from when it carried none
	Partitions []resetRow `json:"partitions"`
}

func newGroupResetCommand(s *streams) *cobra.Command {
	var (
		to         string
		topics     []string
		partitions []int32
		execute    bool
	)
	cmd := &cobra.Command{
		Use:   "reset GROUP --to WHERE",
		Short: "Move a group's committed offsets; shows what it would do unless --execute is given",
		Long: "Moves the committed offsets of a group that has no members. Without --topic it moves those of every topic that the group\n" +
			"has offsets of. WHERE is earliest, latest, an offset, shift:N (N records on, or back when negative), or a time: the first\n" +
			"record at or after it, or the end. What lies outside of a partition is moved to its nearest end.\n" +
			"A time is " + timeForms + ".",
		Example: "  varve group reset billing --to earliest\n  varve group reset billing --topic orders --to=-2h --execute",
		Args:    exactArgs("GROUP"),
	}
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "`WHERE` to: earliest, latest, OFFSET, TIME or shift:N")
	f.StringSliceVar(&topics, "topic", nil, "only this topic; repeatable")
	addNumbers(f, &partitions, "partition", "p", "only these partitions of the one --topic, `N[,N]`")
	f.BoolVar(&execute, "execute", false, "do it")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if to == "" {
			return usagef("needs --to earliest, latest, OFFSET, TIME or shift:N")
		}
		target, err := parseReset(to, time.Now(), time.Local)
		if err != nil {
			return usagef("--to: %s", err)
		}
		if len(partitions) > 0 && len(topics) != 1 {
			return usagef("--partition needs exactly one --topic")
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		r := &reset{adm: adm, group: args[0], target: target, topics: topics, partitions: partitions}
		rows, err := r.plan(ctx)
		if err != nil {
			return err
		}
		if execute {
			if err := r.commit(ctx, rows); err != nil {
				return err
			}
		}
		t := &table{header: []string{"topic", "partition", "from", "to"}}
		for _, row := range rows {
			t.add(row.Topic, row.Partition, row.From, row.To)
		}
		answer := resetAnswer{Group: args[0], Executed: execute, Partitions: rows}
		if at := target.position.at; !target.shifted && target.position.kind == atTime {
			answer.At, answer.Zone = formatTime(at.time), at.zone
			if *out == outputTable {
				if err := writeLine(s.out, "first record at or after %s", at); err != nil {
					return err
				}
			}
		}
		if err := out.show(s.out, answer, t); err != nil || execute {
			return err
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing was changed; --execute does it")
		return nil
	}
	return cmd
}

type reset struct {
	adm        *admin
	group      string
	target     resetTarget
	topics     []string
	partitions []int32
}

// plan finds where every partition goes.
func (r *reset) plan(ctx context.Context) ([]resetRow, error) {
	committed, err := committedOffsets(ctx, r.adm, r.group)
	if err != nil {
		return nil, err
	}
	topics := r.topics
	if len(topics) == 0 {
		topics = sortedKeys(committed)
	}
	if len(topics) == 0 {
		return nil, fmt.Errorf("group %s has no offsets; name the topics with --topic", r.group)
	}
	rows := []resetRow{}
	for _, topic := range topics {
		wanted := r.partitions
		if len(r.topics) == 0 {
			wanted = sortedPartitions(committed[topic])
		}
		ps, err := topicPartitions(ctx, r.adm, topic, wanted)
		if err != nil {
			return nil, err
		}
		more, err := r.planTopic(ctx, topic, ps, committed[topic])
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func (r *reset) planTopic(ctx context.Context, topic string, partitions []int32, committed map[int32]kadm.OffsetResponse) ([]resetRow, error) {
	doing := "looking up offsets of topic " + topic
	starts, err := listOffsets(ctx, r.adm, topic, partitions, specEarliest, readUncommitted)
	if err != nil {
		return nil, explain(doing, err)
	}
	ends, err := logEnds(ctx, r.adm, topic, partitions)
	if err != nil {
		return nil, err
	}
	found := ends
	if r.target.kind == atTime && !r.target.shifted {
		if found, err = listOffsets(ctx, r.adm, topic, partitions, r.target.at.time.UnixMilli(), readUncommitted); err != nil {
			return nil, explain(doing, err)
		}
	}
	var rows []resetRow
	for _, p := range partitions {
		row := resetRow{Topic: topic, Partition: p, epoch: -1}
		if o, ok := committed[p]; ok {
			row.From = &o.At
		}
		switch {
		case r.target.shifted && row.From == nil:
			return nil, fmt.Errorf("%s: group %s has nothing committed for partition %d, so it cannot be shifted", doing, r.group, p)
		case r.target.shifted:
			row.To = *row.From + r.target.shift
		case r.target.kind == atEarliest:
			row.To = starts[p].offset
		case r.target.kind == atOffset:
			row.To = r.target.offset
		case found[p].offset == noOffset:
			row.To = ends[p].offset
		default:
			row.To = found[p].offset
		}
		row.To = min(max(row.To, starts[p].offset), ends[p].offset)
		rows = append(rows, row)
	}
	return rows, nil
}

func (r *reset) commit(ctx context.Context, rows []resetRow) error {
	offsets := kadm.Offsets{}
	for _, row := range rows {
		offsets.Add(kadm.Offset{Topic: row.Topic, Partition: row.Partition, At: row.To, LeaderEpoch: row.epoch})
	}
	doing := "resetting group " + r.group
	answers, err := r.adm.CommitOffsets(ctx, r.group, offsets)
	if err != nil {
		return explain(doing, err)
	}
	var failed []string
	for _, topic := range sortedKeys(answers) {
		for _, p := range sortedPartitions(answers[topic]) {
			if e := answers[topic][p].Err; e != nil {
				err = e
				failed = append(failed, fmt.Sprintf("%s-%d", topic, p))
			}
		}
	}
	if err != nil {
		return explain(doing+", "+strings.Join(slices.Compact(failed), ","), err)
	}
	return nil
}
