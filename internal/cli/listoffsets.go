// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kafka's special timestamps of ListOffsets.
const (
	specLatest          int64 = -1
	specEarliest        int64 = -2
	specMaxTimestamp    int64 = -3
	specEarliestLocal   int64 = -4
	specLatestTiered    int64 = -5
	specEarliestPending int64 = -6
)

// noOffset is Kafka's "there is none".
const noOffset int64 = -1

// isolation is --isolation.
type isolation string

const (
	readUncommitted isolation = "read_uncommitted"
	readCommitted   isolation = "read_committed"
)

func (i *isolation) String() string { return string(*i) }
func (i *isolation) Type() string   { return "read_uncommitted|read_committed" }
func (i *isolation) Set(v string) error {
	switch isolation(v) {
	case readUncommitted, readCommitted:
		*i = isolation(v)
		return nil
	}
	return fmt.Errorf("%q is not read_uncommitted or read_committed", v)
}

func (i isolation) level() int8 {
	if i == readCommitted {
		return 1
	}
	return 0
}

// foundOffset is one partition's answer to ListOffsets.
type foundOffset struct {
	offset, timestamp int64
	epoch             int32
}

// topicPartitions names the partitions of an existing topic, or checks that the wanted ones are among them.
func topicPartitions(ctx context.Context, adm *admin, topic string, wanted []int32) ([]int32, error) {
	details, err := adm.ListTopicsWithInternal(ctx, topic)
	if err == nil {
		err = details[topic].Err
	}
	if err != nil {
		return nil, explain("looking up topic "+topic, err)
	}
	all := details[topic].Partitions.Numbers()
	if len(wanted) == 0 {
		return all, nil
	}
	for _, p := range wanted {
		if !slices.Contains(all, p) {
			return nil, fmt.Errorf("topic %s has no partition %d; it has %d, numbered from 0", topic, p, len(all))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(wanted))), nil
}

// listOffsets asks the leaders where spec, a timestamp or one of Kafka's specials, lies in each partition.
func listOffsets(ctx context.Context, adm *admin, topic string, partitions []int32, spec int64, level isolation) (map[int32]foundOffset, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = level.level()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for _, p := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, spec, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	found := make(map[int32]foundOffset, len(partitions))
	for _, shard := range adm.kafka.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("partition %d: %w", p.Partition, err)
				}
				found[p.Partition] = foundOffset{p.Offset, p.Timestamp, p.LeaderEpoch}
			}
		}
	}
	for _, p := range partitions {
		if _, ok := found[p]; !ok {
			return nil, fmt.Errorf("partition %d: no answer from its leader", p)
		}
	}
	return found, nil
}

// unsupported tells that a broker does not know a special timestamp.
func unsupported(err error) bool {
	return errors.Is(err, kerr.UnsupportedVersion) || errors.Is(err, kerr.InvalidRequest)
}
