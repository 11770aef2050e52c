// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"reportcard.example/golang/card"
)

func client(opts ...kgo.Opt) *kgo.Client {
	return card.Get(kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(card.Bootstrap...), kgo.FetchMaxWait(500 * time.Millisecond)}, opts...)...))
}

func admin() *kadm.Client { return kadm.NewClient(client()) }

func topic(ctx context.Context, what string, partitions int32) string {
	a, t := admin(), card.Name(what)
	defer a.Close()
	card.Get(a.CreateTopic(ctx, partitions, int16(card.Replicas), nil, t))
	card.Until(ctx, "topic "+t, func() bool {
		got, err := a.ListTopics(ctx, t)
		return err == nil && got.Error() == nil && len(got[t].Partitions) == int(partitions)
	})
	return t
}

func send(ctx context.Context, records []*kgo.Record, t string, opts ...kgo.Opt) {
	c := client(append(opts, kgo.DefaultProduceTopic(t), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	defer c.Close()
	card.Must(c.ProduceSync(ctx, records...).FirstErr())
}

func fill(ctx context.Context, t string, n int, opts ...kgo.Opt) {
	var all []*kgo.Record
	for i := range n {
		all = append(all, &kgo.Record{Value: fmt.Append(nil, "v", i), Timestamp: card.Base.Add(time.Duration(i) * time.Second)})
	}
	send(ctx, all, t, opts...)
}

func take(ctx context.Context, c *kgo.Client, n int) (out []*kgo.Record) {
	for len(out) < n {
		f := c.PollFetches(ctx)
		card.Must(f.Err())
		out = append(out, f.Records()...)
	}
	return out
}

func read(ctx context.Context, t string, at kgo.Offset, n int, opts ...kgo.Opt) []*kgo.Record {
	c := client(append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t: {0: at}}))...)
	defer c.Close()
	return take(ctx, c, n)
}

func values(all []*kgo.Record) (out []string) {
	for _, m := range all {
		out = append(out, string(m.Value))
	}
	return out
}

var (
	ten   = []string{"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"}
	start = kgo.NewOffset().AtStart()
)

func produce() {
	acks := map[string][]kgo.Opt{
		"0": {kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()}, "1": {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		"all": {kgo.RequiredAcks(kgo.AllISRAcks()), kgo.DisableIdempotentWrite()},
	}
	for _, name := range []string{"0", "1", "all"} {
		card.Case("produce-acks-"+name, func(ctx context.Context) {
			t := topic(ctx, "acks-"+name, 1)
			fill(ctx, t, 1) // the leader is there: without acknowledgements the client would not know
			fill(ctx, t, 10, acks[name]...)
			card.Equal(values(read(ctx, t, kgo.NewOffset().At(1), 10)), ten)
		})
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, name := range card.Codecs {
		card.Case("codec-"+name, func(ctx context.Context) {
			t := topic(ctx, "codec-"+name, 1)
			fill(ctx, t, 10, kgo.ProducerBatchCompression(codecs[i]))
			card.Equal(values(read(ctx, t, start, 10)), ten)
		})
	}
	card.Case("produce-idempotent", func(ctx context.Context) {
		t := topic(ctx, "idempotent", 1)
		fill(ctx, t, 10)
		card.Equal(values(read(ctx, t, start, 10)), ten)
	})
	card.Case("produce-keys-headers-nulls", func(ctx context.Context) {
		t := topic(ctx, "nulls", 1)
		h := []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte("2")}, {Key: "e", Value: []byte("")}}
		send(ctx, []*kgo.Record{{Key: []byte("k"), Headers: h}, {Value: []byte("")}}, t)
		got := read(ctx, t, start, 2)
		card.Equal(fmt.Sprintf("%s %s", got[0].Key, got[0].Headers), fmt.Sprintf("k %s", h))
		card.Check(got[0].Value == nil && got[1].Key == nil && got[1].Value != nil, "nulls are not nulls")
	})
	card.Case("produce-large-batch", func(ctx context.Context) {
		t := topic(ctx, "large", 1)
		var all []*kgo.Record
		for range 3000 {
			all = append(all, kgo.SliceRecord(make([]byte, 1000)))
		}
		send(ctx, append(all, kgo.SliceRecord(make([]byte, 900000))), t, kgo.ProducerBatchCompression(kgo.NoCompression()))
		card.Equal(len(read(ctx, t, start, 3001)[3000].Value), 900000)
	})
	card.Case("transactions", func(ctx context.Context) {
		t := topic(ctx, "txn", 1)
		c := client(kgo.TransactionalID(card.Name("txn")), kgo.DefaultProduceTopic(t))
		for _, word := range []string{"no", "yes"} {
			card.Must(c.BeginTransaction())
			card.Must(c.ProduceSync(ctx, kgo.StringRecord(word)).FirstErr())
			card.Must(c.EndTransaction(ctx, kgo.TransactionEndTry(word == "yes")))
		}
		card.Equal(values(read(ctx, t, start, 1, kgo.FetchIsolationLevel(kgo.ReadCommitted()))), []string{"yes"})
	})
}

func consume() {
	card.Case("consume-earliest", func(ctx context.Context) {
		t := topic(ctx, "earliest", 1)
		fill(ctx, t, 10)
		card.Equal(values(read(ctx, t, start, 10)), ten)
	})
	card.Case("consume-latest", func(ctx context.Context) {
		t := topic(ctx, "latest", 1)
		fill(ctx, t, 10)
		card.Equal(values(read(ctx, t, kgo.NewOffset().AtEnd().Relative(-2), 2)), ten[8:])
	})
	card.Case("consume-offset", func(ctx context.Context) {
		t := topic(ctx, "offset", 1)
		fill(ctx, t, 10)
		card.Equal(values(read(ctx, t, kgo.NewOffset().At(7), 3)), ten[7:])
	})
	card.Case("consume-timestamp", func(ctx context.Context) {
		t := topic(ctx, "timestamp", 1)
		fill(ctx, t, 10)
		card.Equal(values(read(ctx, t, kgo.NewOffset().AfterMilli(card.Base.Add(4500*time.Millisecond).UnixMilli()), 5)), ten[5:])
	})
	card.Case("admin-offsets-by-time", func(ctx context.Context) {
		t := topic(ctx, "bytime", 1)
		fill(ctx, t, 10)
		got := card.Get(admin().ListOffsetsAfterMilli(ctx, card.Base.Add(4500*time.Millisecond).UnixMilli(), t))
		card.Equal(got[t][0].Offset, 5)
		card.Equal(card.Get(admin().ListMaxTimestampOffsets(ctx, t))[t][0].Offset, 9)
	})
}

func member(t, g string, opts ...kgo.Opt) *kgo.Client {
	return client(append(opts, kgo.ConsumerGroup(g), kgo.ConsumeTopics(t), kgo.ConsumeResetOffset(start), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(500*time.Millisecond))...)
}

func joined(ctx context.Context, what string, opts ...kgo.Opt) (t, g string, c *kgo.Client) {
	t, g = topic(ctx, what, 1), card.Name("g-"+what)
	fill(ctx, t, 10)
	c = member(t, g, opts...)
	got := take(ctx, c, 10)
	card.Equal(values(got), ten)
	card.Must(c.CommitRecords(ctx, got[5]))
	o, _ := card.Get(admin().FetchOffsets(ctx, g)).Lookup(t, 0)
	card.Equal(o.At, 6)
	return t, g, c
}

func rebalance(ctx context.Context, what string, opts ...kgo.Opt) {
	t, g := topic(ctx, what, 4), card.Name("g-"+what)
	shares := make([]map[int32]bool, 2)
	changed := make(chan func(), 100)
	for i := range shares {
		shares[i] = map[int32]bool{}
		share := func(holds bool) func(context.Context, *kgo.Client, map[string][]int32) {
			return func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
				changed <- func() {
					for _, p := range got[t] {
						shares[i][p] = holds
						if !holds {
							delete(shares[i], p)
						}
					}
				}
			}
		}
		c := member(t, g, append(opts, kgo.OnPartitionsAssigned(share(true)), kgo.OnPartitionsRevoked(share(false)), kgo.OnPartitionsLost(share(false)))...)
		defer c.Close()
		go func() {
			for ctx.Err() == nil && !c.PollFetches(ctx).IsClientClosed() {
			}
		}()
		for want := 4 / (i + 1); len(shares[i]) != want || len(shares[0]) != want; {
			select {
			case change := <-changed:
				change()
			case <-ctx.Done():
				card.Check(false, "shares %v of four partitions", shares)
			}
		}
	}
}

func groups() {
	card.Case("group-join-commit", func(ctx context.Context) {
		_, _, c := joined(ctx, "join")
		c.Close()
	})
	card.Case("group-resume", func(ctx context.Context) {
		t, g, c := joined(ctx, "resume")
		c.Close()
		c = member(t, g)
		defer c.Close()
		card.Equal(values(take(ctx, c, 4)), ten[6:])
	})
	card.Case("group-rebalance", func(ctx context.Context) { rebalance(ctx, "rebalance", kgo.Balancers(kgo.RangeBalancer())) })
	card.Case("group-rebalance-cooperative", func(ctx context.Context) {
		rebalance(ctx, "cooperative", kgo.Balancers(kgo.CooperativeStickyBalancer()))
	})
	card.Case("group-static", func(ctx context.Context) {
		_, _, c := joined(ctx, "static", kgo.InstanceID("one"))
		c.Close()
	})
	card.Case("admin-list-groups", func(ctx context.Context) {
		_, g, c := joined(ctx, "list")
		defer c.Close()
		_, listed := card.Get(admin().ListGroups(ctx))[g]
		card.Check(listed, "not listed")
	})
	card.Case("admin-describe-group", func(ctx context.Context) {
		_, g, c := joined(ctx, "describe")
		defer c.Close()
		got := card.Get(admin().DescribeGroups(ctx, g))[g]
		card.Equal([]any{got.State, len(got.Members)}, []any{"Stable", 1})
	})
	card.Case("admin-delete-group", func(ctx context.Context) {
		_, g, c := joined(ctx, "delete")
		c.Close()
		card.Until(ctx, "deletion", func() bool { return card.Get(admin().DeleteGroups(ctx, g)).Error() == nil })
		_, listed := card.Get(admin().ListGroups(ctx))[g]
		card.Check(!listed, "listed still")
	})
}

func retention(ctx context.Context, a *kadm.Client, t string) string {
	got := card.Get(card.Get(a.DescribeTopicConfigs(ctx, t)).On(t, nil))
	for _, c := range got.Configs {
		if c.Key == "retention.ms" {
			return c.MaybeValue()
		}
	}
	return ""
}

func administer() {
	card.Case("metadata", func(ctx context.Context) {
		t := topic(ctx, "metadata", 3)
		got := card.Get(admin().Metadata(ctx, t))
		card.Equal([]int{len(got.Brokers), len(got.Topics[t].Partitions)}, []int{card.Replicas, 3})
	})
	card.Case("admin-create-topic", func(ctx context.Context) {
		t := topic(ctx, "created", 2)
		_, err := admin().CreateTopic(ctx, 2, int16(card.Replicas), nil, t)
		card.Check(errors.Is(err, kerr.TopicAlreadyExists), "the same topic twice: %v", err)
	})
	card.Case("admin-create-partitions", func(ctx context.Context) {
		t, a := topic(ctx, "grow", 1), admin()
		card.Must(card.Get(a.CreatePartitions(ctx, 2, t)).Error())
		card.Until(ctx, "three partitions", func() bool { return len(card.Get(a.ListTopics(ctx, t))[t].Partitions) == 3 })
	})
	card.Case("admin-delete-topic", func(ctx context.Context) {
		t, a := topic(ctx, "gone", 1), admin()
		card.Get(a.DeleteTopic(ctx, t))
		card.Until(ctx, "deletion", func() bool { return !card.Get(a.ListTopics(ctx)).Has(t) })
	})
	card.Case("admin-describe-cluster", func(ctx context.Context) {
		card.Equal(len(card.Get(admin().BrokerMetadata(ctx)).Brokers), card.Replicas)
	})
	card.Case("admin-describe-configs", func(ctx context.Context) {
		card.Equal(retention(ctx, admin(), topic(ctx, "configs", 1)), "604800000")
	})
	card.Case("admin-alter-configs", func(ctx context.Context) {
		t, a := topic(ctx, "alter", 1), admin()
		card.Get(a.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: kadm.StringPtr("7200000")}}, t))
		card.Until(ctx, "the new value", func() bool { return retention(ctx, a, t) == "7200000" })
	})
	card.Case("admin-delete-records", func(ctx context.Context) {
		t := topic(ctx, "records", 1)
		fill(ctx, t, 10)
		var o kadm.Offsets
		o.AddOffset(t, 0, 4, -1)
		card.Must(card.Get(admin().DeleteRecords(ctx, o)).Error())
		card.Equal(values(read(ctx, t, start, 6)), ten[4:])
	})
}

func main() {
	produce()
	consume()
	groups()
	administer()
	card.Main()
}
