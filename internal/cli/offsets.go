// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// timeLookup is the answer to offsets --at.
type timeLookup struct {
	Topic      string           `json:"topic"`
	At         string           `json:"at"`
	AtMillis   int64            `json:"atMillis"`
	Zone       string           `json:"zone,omitempty"`
	Partitions []lookedUpOffset `json:"partitions"`
}

// lookedUpOffset is the first record at or after a time; offset -1 means that there is none.
type lookedUpOffset struct {
	Partition   int32 `json:"partition"`
	Offset      int64 `json:"offset"`
	Timestamp   int64 `json:"timestamp"`
	LeaderEpoch int32 `json:"leaderEpoch"`
}

// boundary is one partition's offsets; a null is unknown to the broker or not there.
type boundary struct {
	Partition       int32  `json:"partition"`
	Earliest        *int64 `json:"earliest"`
	Latest          *int64 `json:"latest"`
	MaxTimestamp    *int64 `json:"maxTimestamp"`
	MaxTimestampAt  *int64 `json:"maxTimestampOffset"`
	EarliestLocal   *int64 `json:"earliestLocal"`
	LatestTiered    *int64 `json:"latestTiered"`
	EarliestPending *int64 `json:"earliestPendingUpload"`
}

func newOffsetsCommand(s *streams) *cobra.Command {
	var (
		at         string
		partitions []int32
		level      = readUncommitted
	)
	cmd := &cobra.Command{
		Use:   "offsets TOPIC",
		Short: "Show offsets per partition, or look up a time",
		Long: "Without --at: earliest and latest offset, the record with the greatest timestamp, and the tier boundaries: the first\n" +
			"offset on the node's disk (earliest-local), the last one in the bucket (latest-tiered), and the first one that is\n" +
			"not yet in the bucket (earliest-pending).\n" +
			"With --at TIME: the first record whose timestamp is TIME or later, with its timestamp and leader epoch.\n" +
			"TIME is " + timeForms + ".",
		Example: "  varve offsets logs\n  varve offsets logs --at '2024-05-01 14:03:07'\n  varve offsets logs --at=-2h -o json",
		Args:    exactArgs("TOPIC"),
	}
	f := cmd.Flags()
	f.StringVar(&at, "at", "", "look up this `TIME`")
	addNumbers(f, &partitions, "partition", "p", "only these partitions, `N[,N]`")
	f.Var(&level, "isolation", "what \"latest\" and a lookup may see: `read_uncommitted|read_committed`")
	conn, out := addConnection(cmd), addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var when moment
		if at != "" {
			var err error
			if when, err = parseTime(at, time.Now(), time.Local); err != nil {
				return usagef("--at: %s", err)
			}
			if when.time.UnixMilli() < 0 {
				return usagef("--at %s lies before 1970, where Kafka has no times", at)
			}
		}
		ctx, adm, done, err := conn.administer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		if partitions, err = topicPartitions(ctx, adm, args[0], partitions); err != nil {
			return err
		}
		if at != "" {
			return showLookup(ctx, s, *out, adm, lookup{args[0], partitions, when, level})
		}
		return showBoundaries(ctx, s, *out, adm, lookup{topic: args[0], partitions: partitions, level: level})
	}
	return cmd
}

type lookup struct {
	topic      string
	partitions []int32
	when       moment
	level      isolation
}

func showLookup(ctx context.Context, s *streams, out outputFlag, adm *admin, l lookup) error {
	found, err := listOffsets(ctx, adm, l.topic, l.partitions, l.when.time.UnixMilli(), l.level)
	if err != nil {
		return explain("looking up "+l.when.String()+" in "+l.topic, err)
	}
	answer := timeLookup{Topic: l.topic, At: formatTime(l.when.time), AtMillis: l.when.time.UnixMilli(), Zone: l.when.zone, Partitions: []lookedUpOffset{}}
	t := &table{header: []string{"partition", "offset", "timestamp", "time", "epoch"}}
	for _, p := range l.partitions {
		o := found[p]
		answer.Partitions = append(answer.Partitions, lookedUpOffset{p, o.offset, o.timestamp, o.epoch})
		if o.offset < 0 {
			t.add(p, "none", "", "", "")
			continue
		}
		t.add(p, o.offset, o.timestamp, formatMillis(o.timestamp), o.epoch)
	}
	if out == outputTable {
		if err := writeLine(s.out, "first record at or after %s", l.when); err != nil {
			return err
		}
	}
	return out.show(s.out, answer, t)
}

func showBoundaries(ctx context.Context, s *streams, out outputFlag, adm *admin, l lookup) error {
	specs := []int64{specEarliest, specLatest, specMaxTimestamp, specEarliestLocal, specLatestTiered, specEarliestPending}
	answers := make(map[int64]map[int32]foundOffset, len(specs))
	for _, spec := range specs {
		found, err := listOffsets(ctx, adm, l.topic, l.partitions, spec, l.level)
		if err != nil && !(spec < specEarliest && unsupported(err)) {
			return explain("listing offsets of "+l.topic, err)
		}
		answers[spec] = found
	}
	t := &table{header: []string{"partition", "earliest", "latest", "max-timestamp", "at", "earliest-local", "latest-tiered", "earliest-pending"}}
	all := []boundary{}
	for _, p := range l.partitions {
		offset := func(spec int64) *int64 { return known(answers[spec], p, func(o foundOffset) int64 { return o.offset }) }
		b := boundary{
			Partition: p, Earliest: offset(specEarliest), Latest: offset(specLatest), MaxTimestampAt: offset(specMaxTimestamp),
			MaxTimestamp:  known(answers[specMaxTimestamp], p, func(o foundOffset) int64 { return o.timestamp }),
			EarliestLocal: offset(specEarliestLocal), LatestTiered: offset(specLatestTiered), EarliestPending: offset(specEarliestPending),
		}
		all = append(all, b)
		newest := ""
		if b.MaxTimestamp != nil {
			newest = formatMillis(*b.MaxTimestamp)
		}
		t.add(p, b.Earliest, b.Latest, newest, b.MaxTimestampAt, b.EarliestLocal, b.LatestTiered, b.EarliestPending)
	}
	return out.show(s.out, map[string]any{"topic": l.topic, "partitions": all}, t)
}

func known(found map[int32]foundOffset, p int32, field func(foundOffset) int64) *int64 {
	o, ok := found[p]
	if !ok || o.offset == noOffset {
		return nil
	}
	v := field(o)
	return &v
}
