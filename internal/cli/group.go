// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newGroupCommand(s *streams) *cobra.Command {
	return group(&cobra.Command{Use: "group", Short: "List, describe, reset and delete consumer groups"},
		newGroupListCommand(s), newGroupDescribeCommand(s), newGroupResetCommand(s), newGroupDeleteCommand(s))
}

// groupCommitted are a group's committed offsets, by topic and partition.
type groupCommitted map[string]map[int32]kadm.OffsetResponse

// committedOffsets reads what a group has committed.
func committedOffsets(ctx context.Context, adm *admin, id string) (groupCommitted, error) {
	answers, err := adm.FetchOffsets(ctx, id)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		return nil, explain("reading the offsets of group "+id, err)
	}
	out := groupCommitted{}
	for topic, partitions := range answers {
		for p, o := range partitions {
			if o.At < 0 {
				continue
			}
			if out[topic] == nil {
				out[topic] = map[int32]kadm.OffsetResponse{}
			}
			out[topic][p] = o
		}
	}
	return out, nil
}

// logEnds asks where the partitions end for a consumer that reads everything.
func logEnds(ctx context.Context, adm *admin, topic string, partitions []int32) (map[int32]foundOffset, error) {
	ends, err := listOffsets(ctx, adm, topic, partitions, specLatest, readUncommitted)
	return ends, explain("reading the ends of topic "+topic, err)
}

func sortedPartitions[V any](m map[int32]V) []int32 {
	out := make([]int32, 0, len(m))
	for p := range m {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}
