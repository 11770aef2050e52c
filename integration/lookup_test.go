// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// The special timestamps of ListOffsets.
const (
	latest        = -1
	earliest      = -2
	earliestLocal = -4
	latestTiered  = -5
)

// found is one partition's answer.
type found struct{ offset, millis int64 }

// listOffsets asks for one timestamp in every partition of a topic. Retriable errors are asked again as any client does.
func listOffsets(ctx context.Context, c *kgo.Client, topic string, partitions int, timestamp int64) ([]found, error) {
	for {
		answers, retry, err := listOnce(ctx, c, topic, partitions, timestamp)
		if err != nil || !retry {
			return answers, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func listOnce(ctx context.Context, c *kgo.Client, topic string, partitions int, timestamp int64) (answers []found, retry bool, err error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for p := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = int32(p), timestamp, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, c)
	if kerr.IsRetriable(err) {
		return nil, true, nil // the client has heard of no leader yet
	}
	if err != nil {
		return nil, false, err
	}
	answers = make([]found, partitions)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); kerr.IsRetriable(err) {
				return nil, true, nil
			} else if err != nil {
				return nil, false, fmt.Errorf("ListOffsets of %s-%d at %d: %w", topic, p.Partition, timestamp, err)
			}
			answers[p.Partition] = found{p.Offset, p.Timestamp}
		}
	}
	return answers, false, nil
}

// boundary is listOffsets of a special timestamp that fails the test.
func boundary(t testing.TB, c *kgo.Client, topic string, partitions int, special int64) []int64 {
	t.Helper()
	answers, err := listOffsets(within(t, patience), c, topic, partitions, special)
	if err != nil {
		t.Fatal(err)
	}
	var out []int64
	for _, a := range answers {
		out = append(out, a.offset)
	}
	return out
}

// lookUpAll compares the product's answer with the brute-force one for every moment in every partition (A4).
func (l *ledger) lookUpAll(t testing.TB, c *kgo.Client, moments []int64) (lookups int) {
	t.Helper()
	const askers = 8
	want := l.times()
	g, ctx := errgroup.WithContext(within(t, patience))
	for a := range askers {
		g.Go(func() error {
			for i := a; i < len(moments); i += askers {
				answers, err := listOffsets(ctx, c, l.in.topic, len(l.at), moments[i])
				if err != nil {
					return err
				}
				for p, got := range answers {
					offset, millis := want.first(p, moments[i])
					if got.offset != offset || got.millis != millis {
						return fmt.Errorf("%s-%d at %d: got offset %d with time %d, brute force says offset %d with time %d",
							l.in.topic, p, moments[i], got.offset, got.millis, offset, millis)
					}
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return len(moments) * len(l.at)
}
