// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"reportcard.example/golang/card"
)

func client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(card.Bootstrap...), Timeout: 30 * time.Second}
}

func topic(ctx context.Context, what string, partitions int) string {
	t := card.Name(what)
	got := card.Get(client().CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: t, NumPartitions: partitions, ReplicationFactor: card.Replicas},
	}}))
	card.Must(got.Errors[t])
	card.Until(ctx, "topic "+t, func() bool { return partitionsOf(ctx, t) == partitions })
	return t
}

func partitionsOf(ctx context.Context, t string) int {
	got, err := client().Metadata(ctx, &kafka.MetadataRequest{Topics: []string{t}})
	if err != nil || len(got.Topics) != 1 || got.Topics[0].Error != nil {
		return -1
	}
	return len(got.Topics[0].Partitions)
}

func writer(t string, changes ...func(*kafka.Writer)) *kafka.Writer {
	w := &kafka.Writer{Addr: kafka.TCP(card.Bootstrap...), Topic: t, RequiredAcks: kafka.RequireAll, BatchTimeout: 100 * time.Millisecond}
	for _, change := range changes {
		change(w)
	}
	return w
}

func fill(ctx context.Context, t string, n int, changes ...func(*kafka.Writer)) {
	var all []kafka.Message
	for i := range n {
		all = append(all, kafka.Message{Value: fmt.Append(nil, "v", i), Time: card.Base.Add(time.Duration(i) * time.Second)})
	}
	w := writer(t, changes...)
	defer w.Close()
	card.Must(w.WriteMessages(ctx, all...))
}

func reader(t string, changes ...func(*kafka.ReaderConfig)) *kafka.Reader {
	c := kafka.ReaderConfig{Brokers: card.Bootstrap, Topic: t, MaxWait: 500 * time.Millisecond, StartOffset: kafka.FirstOffset}
	for _, change := range changes {
		change(&c)
	}
	return kafka.NewReader(c)
}

func take(ctx context.Context, r *kafka.Reader, n int) (out []kafka.Message) {
	for len(out) < n {
		out = append(out, card.Get(r.FetchMessage(ctx)))
	}
	return out
}

func read(ctx context.Context, t string, offset int64, n int) []kafka.Message {
	r := reader(t)
	defer r.Close()
	card.Must(r.SetOffset(offset))
	return take(ctx, r, n)
}

func values(all []kafka.Message) (out []string) {
	for _, m := range all {
		out = append(out, string(m.Value))
	}
	return out
}

var ten = []string{"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"}

func produce() {
	for _, acks := range []kafka.RequiredAcks{kafka.RequireNone, kafka.RequireOne, kafka.RequireAll} {
		name := map[kafka.RequiredAcks]string{kafka.RequireNone: "0", kafka.RequireOne: "1", kafka.RequireAll: "all"}[acks]
		card.Case("produce-acks-"+name, func(ctx context.Context) {
			t := topic(ctx, "acks-"+name, 1)
			fill(ctx, t, 1) // the leader is there: without acknowledgements the client would not know
			fill(ctx, t, 10, func(w *kafka.Writer) { w.RequiredAcks = acks })
			card.Equal(values(read(ctx, t, 1, 10)), ten)
		})
	}
	for i, name := range card.Codecs {
		card.Case("codec-"+name, func(ctx context.Context) {
			t := topic(ctx, "codec-"+name, 1)
			fill(ctx, t, 10, func(w *kafka.Writer) { w.Compression = kafka.Compression(i) })
			card.Equal(values(read(ctx, t, 0, 10)), ten)
		})
	}
	card.None("produce-idempotent", "no idempotent producer")
	card.None("transactions", "the raw calls only, no transactional producer")
	card.Case("produce-keys-headers-nulls", func(ctx context.Context) {
		t := topic(ctx, "nulls", 1)
		w := writer(t)
		defer w.Close()
		h := []kafka.Header{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte("2")}, {Key: "e", Value: []byte("")}}
		card.Must(w.WriteMessages(ctx, kafka.Message{Key: []byte("k"), Headers: h}, kafka.Message{Value: []byte("")}))
		got := read(ctx, t, 0, 2)
		card.Equal(fmt.Sprintf("%s %s", got[0].Key, got[0].Headers), fmt.Sprintf("k %s", h))
		card.Check(len(got[0].Value) == 0 && len(got[1].Key) == 0, "nulls are not empty")
	})
	card.Case("produce-large-batch", func(ctx context.Context) {
		t := topic(ctx, "large", 1)
		w := writer(t, func(w *kafka.Writer) { w.BatchSize, w.BatchBytes = 3000, 1000000 })
		defer w.Close()
		var all []kafka.Message
		for range 3000 {
			all = append(all, kafka.Message{Value: make([]byte, 1000)})
		}
		card.Must(w.WriteMessages(ctx, append(all, kafka.Message{Value: make([]byte, 900000)})...))
		card.Equal(len(read(ctx, t, 0, 3001)[3000].Value), 900000)
	})
}

func offsetAt(ctx context.Context, t string, at kafka.OffsetRequest) *kafka.ListOffsetsResponse {
	got := card.Get(client().ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{t: {at}}}))
	card.Must(got.Topics[t][0].Error)
	return got
}

func consume() {
	card.Case("consume-earliest", func(ctx context.Context) {
		t := topic(ctx, "earliest", 1)
		fill(ctx, t, 10)
		card.Equal(values(read(ctx, t, kafka.FirstOffset, 10)), ten)
	})
	card.Case("consume-latest", func(ctx context.Context) {
		t := topic(ctx, "latest", 1)
		fill(ctx, t, 9)
		card.Equal(offsetAt(ctx, t, kafka.LastOffsetOf(0)).Topics[t][0].LastOffset, 9)
		r := reader(t)
		defer r.Close()
		card.Must(r.SetOffset(kafka.LastOffset))
		none, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := r.FetchMessage(none)
		card.Check(errors.Is(err, context.DeadlineExceeded), "a record before any: %v", err)
		fill(ctx, t, 1)
		card.Equal(take(ctx, r, 1)[0].Offset, 9)
	})
	card.Case("consume-offset", func(ctx context.Context) {
		t := topic(ctx, "offset", 1)
		fill(ctx, t, 10)
		card.Equal(values(read(ctx, t, 7, 3)), ten[7:])
	})
	card.Case("consume-timestamp", func(ctx context.Context) {
		t := topic(ctx, "timestamp", 1)
		fill(ctx, t, 10)
		r := reader(t)
		defer r.Close()
		card.Must(r.SetOffsetAt(ctx, card.Base.Add(4500*time.Millisecond)))
		card.Equal(values(take(ctx, r, 5)), ten[5:])
	})
	card.Case("admin-offsets-by-time", func(ctx context.Context) {
		t := topic(ctx, "bytime", 1)
		fill(ctx, t, 10)
		got := offsetAt(ctx, t, kafka.TimeOffsetOf(0, card.Base.Add(4500*time.Millisecond)))
		for offset := range got.Topics[t][0].Offsets {
			card.Equal(offset, 5)
		}
	})
}

func member(t, g string) *kafka.Reader {
	return reader(t, func(c *kafka.ReaderConfig) { c.GroupID, c.HeartbeatInterval = g, 500*time.Millisecond })
}

func joined(ctx context.Context, what string) (t, g string, r *kafka.Reader) {
	t, g = topic(ctx, what, 1), card.Name("g-"+what)
	fill(ctx, t, 10)
	r = member(t, g)
	got := take(ctx, r, 10)
	card.Equal(values(got), ten)
	card.Must(r.CommitMessages(ctx, got[5]))
	offsets := card.Get(client().OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: g, Topics: map[string][]int{t: {0}}}))
	card.Equal(offsets.Topics[t][0].CommittedOffset, 6)
	return t, g, r
}

func listed(ctx context.Context, g string) bool {
	for _, one := range card.Get(client().ListGroups(ctx, &kafka.ListGroupsRequest{})).Groups {
		if one.GroupID == g {
			return true
		}
	}
	return false
}

func groups() {
	card.Case("group-join-commit", func(ctx context.Context) {
		_, _, r := joined(ctx, "join")
		r.Close()
	})
	card.Case("group-resume", func(ctx context.Context) {
		t, g, r := joined(ctx, "resume")
		r.Close()
		r = member(t, g)
		defer r.Close()
		card.Equal(values(take(ctx, r, 4)), ten[6:])
	})
	card.Case("group-rebalance", func(ctx context.Context) {
		t, g := topic(ctx, "rebalance", 4), card.Name("g-rebalance")
		one := member(t, g)
		defer one.Close()
		two := member(t, g)
		defer two.Close()
		card.Until(ctx, "two members of two partitions", func() bool {
			got, err := client().DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{g}})
			if err != nil || len(got.Groups) != 1 || len(got.Groups[0].Members) != 2 {
				return false
			}
			for _, m := range got.Groups[0].Members {
				if len(m.MemberAssignments.Topics) != 1 || len(m.MemberAssignments.Topics[0].Partitions) != 2 {
					return false
				}
			}
			return true
		})
	})
	card.None("group-static", "no group instance id")
	card.Case("admin-list-groups", func(ctx context.Context) {
		_, g, r := joined(ctx, "list")
		defer r.Close()
		card.Check(listed(ctx, g), "not listed")
	})
	card.Case("admin-describe-group", func(ctx context.Context) {
		_, g, r := joined(ctx, "describe")
		defer r.Close()
		got := card.Get(client().DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{g}})).Groups[0]
		card.Equal([]any{got.GroupState, len(got.Members)}, []any{"Stable", 1})
	})
	card.Case("admin-delete-group", func(ctx context.Context) {
		_, g, r := joined(ctx, "delete")
		r.Close()
		card.Until(ctx, "deletion", func() bool {
			got, err := client().DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{g}})
			return err == nil && got.Errors[g] == nil
		})
		card.Check(!listed(ctx, g), "listed still")
	})
}

func retention(ctx context.Context, t string) string {
	got := card.Get(client().DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: t, ConfigNames: []string{"retention.ms"}},
	}}))
	card.Must(got.Resources[0].Error)
	return got.Resources[0].ConfigEntries[0].ConfigValue
}

func administer() {
	card.Case("metadata", func(ctx context.Context) {
		t := topic(ctx, "metadata", 3)
		got := card.Get(client().Metadata(ctx, &kafka.MetadataRequest{Topics: []string{t}}))
		card.Equal([]int{len(got.Brokers), len(got.Topics[0].Partitions)}, []int{card.Replicas, 3})
	})
	card.Case("admin-create-topic", func(ctx context.Context) {
		t := topic(ctx, "created", 2)
		got := card.Get(client().CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
			{Topic: t, NumPartitions: 2, ReplicationFactor: card.Replicas},
		}}))
		card.Check(errors.Is(got.Errors[t], kafka.TopicAlreadyExists), "the same topic twice: %v", got.Errors[t])
	})
	card.Case("admin-create-partitions", func(ctx context.Context) {
		t := topic(ctx, "grow", 1)
		got := card.Get(client().CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: t, Count: 3}}}))
		card.Must(got.Errors[t])
		card.Until(ctx, "three partitions", func() bool { return partitionsOf(ctx, t) == 3 })
	})
	card.Case("admin-delete-topic", func(ctx context.Context) {
		t := topic(ctx, "gone", 1)
		card.Must(card.Get(client().DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{t}})).Errors[t])
		card.Until(ctx, "deletion", func() bool {
			for _, one := range card.Get(client().Metadata(ctx, &kafka.MetadataRequest{})).Topics {
				if one.Name == t {
					return false
				}
			}
			return true
		})
	})
	card.Case("admin-describe-configs", func(ctx context.Context) {
		card.Equal(retention(ctx, topic(ctx, "configs", 1)), "604800000")
	})
	card.Case("admin-alter-configs", func(ctx context.Context) {
		t := topic(ctx, "alter", 1)
		card.Get(client().IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{
			{ResourceType: kafka.ResourceTypeTopic, ResourceName: t, Configs: []kafka.IncrementalAlterConfigsRequestConfig{
				{Name: "retention.ms", Value: "7200000", ConfigOperation: kafka.ConfigOperationSet},
			}},
		}}))
		card.Until(ctx, "the new value", func() bool { return retention(ctx, t) == "7200000" })
	})
	card.None("admin-delete-records", "no DeleteRecords")
}

func main() {
	produce()
	consume()
	groups()
	administer()
	card.Main()
}
