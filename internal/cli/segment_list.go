// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/varve/varve/ops"
)

func newSegmentListCommand(s *streams) *cobra.Command {
	var partitions []int32
	cmd := &cobra.Command{
		Use:   "list TOPIC[:PARTITION]",
		Short: "List the manifest: every segment of a topic with its object, as `varve segment dump` takes it",
		Args:  exactArgs("TOPIC[:PARTITION]"),
	}
	addNumbers(cmd.Flags(), &partitions, "partition", "p", "only these partitions, `N[,N]`")
	conn, out := addConnection(cmd), addOutput(cmd)
	api := addOps(cmd, conn)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, partition, err := topicAndPartition(args[0])
		if err != nil {
			return err
		}
		if partition >= 0 && len(partitions) > 0 {
			return usagef("%s and --partition exclude each other", args[0])
		}
		var topic ops.Topic
		if err := api.call(cmd.Context(), http.MethodGet, "/v1/topics/"+url.PathEscape(name), nil, &topic); err != nil {
			return err
		}
		wanted := partitions
		if partition >= 0 {
			wanted = []int32{partition}
		}
		if len(wanted) == 0 {
			for p := range topic.Partitions {
				wanted = append(wanted, int32(p))
			}
		}
		manifests := []ops.Segments{}
		for _, p := range wanted {
			if p < 0 || int(p) >= topic.Partitions {
				return fmt.Errorf("topic %s has no partition %d; it has %d, numbered from 0", topic.Name, p, topic.Partitions)
			}
			m, err := api.manifest(cmd.Context(), topic.Name, p)
			if err != nil {
				return err
			}
			manifests = append(manifests, m)
		}
		return out.show(s.out, manifests, manifestTable(manifests))
	}
	return cmd
}

// topicAndPartition reads TOPIC or TOPIC:PARTITION; -1: no partition is named.
func topicAndPartition(arg string) (string, int32, error) {
	name, partition, ok := strings.Cut(arg, ":")
	if !ok {
		return arg, -1, nil
	}
	n, err := strconv.ParseInt(partition, 10, 32)
	if err != nil || n < 0 || name == "" {
		return "", -1, usagef("%q is not TOPIC or TOPIC:PARTITION", arg)
	}
	return name, int32(n), nil
}

// manifest reads all pages of one partition's manifest.
func (o *opsClient) manifest(ctx context.Context, topic string, partition int32) (ops.Segments, error) {
	var whole ops.Segments
	from := int64(0)
	for {
		var page ops.Segments
		path := fmt.Sprintf("/v1/topics/%s/partitions/%d/segments?from=%d", url.PathEscape(topic), partition, from)
		if err := o.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return whole, err
		}
		segments := append(whole.Segments, page.Segments...)
		whole = page
		whole.Segments = segments
		if page.Next == nil {
			return whole, nil
		}
		if *page.Next <= from && from > 0 {
			return whole, fmt.Errorf("the manifest of %s-%d does not advance beyond offset %d", topic, partition, from)
		}
		from = *page.Next
	}
}

func manifestTable(manifests []ops.Segments) *table {
	t := &table{header: []string{"partition", "base", "end", "records", "bytes", "first time", "last time", "epoch", "object"}}
	for _, m := range manifests {
		for _, seg := range m.Segments {
			t.add(m.Partition, seg.Base, seg.End, seg.Records, seg.Bytes, formatMillis(seg.MinTimestamp), formatMillis(seg.MaxTimestamp), seg.LeaderEpoch, cmp.Or(seg.URL, seg.Object))
		}
	}
	return t
}
