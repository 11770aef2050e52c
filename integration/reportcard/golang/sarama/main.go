// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"reportcard.example/golang/card"
)

type change func(*sarama.Config)

func config(changes ...change) *sarama.Config {
	c := sarama.NewConfig()
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Producer.Partitioner = sarama.NewManualPartitioner
	for _, change := range changes {
		change(c)
	}
	return c
}

func admin() sarama.ClusterAdmin {
	return card.Get(sarama.NewClusterAdmin(card.Bootstrap, config()))
}

func topic(ctx context.Context, what string, partitions int32) string {
	a, t := admin(), card.Name(what)
	defer a.Close()
	card.Must(a.CreateTopic(t, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: int16(card.Replicas)}, false))
	card.Until(ctx, "topic "+t, func() bool {
		got, err := a.DescribeTopics([]string{t})
		return err == nil && len(got) == 1 && got[0].Err == sarama.ErrNoError && len(got[0].Partitions) == int(partitions)
	})
	return t
}

func send(t string, messages []*sarama.ProducerMessage, changes ...change) {
	p := card.Get(sarama.NewSyncProducer(card.Bootstrap, config(changes...)))
	defer p.Close()
	for _, m := range messages {
		m.Topic = t
	}
	card.Must(p.SendMessages(messages))
}

func fill(t string, n int, changes ...change) {
	var all []*sarama.ProducerMessage
	for i := range n {
		all = append(all, &sarama.ProducerMessage{Value: sarama.StringEncoder(fmt.Sprint("v", i)), Timestamp: card.Base.Add(time.Duration(i) * time.Second)})
	}
	send(t, all, changes...)
}

func read(ctx context.Context, t string, offset int64, n int, changes ...change) []*sarama.ConsumerMessage {
	c := card.Get(sarama.NewConsumer(card.Bootstrap, config(changes...)))
	defer c.Close()
	p := card.Get(c.ConsumePartition(t, 0, offset))
	defer p.Close()
	return take(ctx, p.Messages(), n)
}

func take(ctx context.Context, from <-chan *sarama.ConsumerMessage, n int) []*sarama.ConsumerMessage {
	var out []*sarama.ConsumerMessage
	for len(out) < n {
		select {
		case m := <-from:
			out = append(out, m)
		case <-ctx.Done():
			card.Check(false, "got %d records, want %d", len(out), n)
		}
	}
	return out
}

func values(all []*sarama.ConsumerMessage) (out []string) {
	for _, m := range all {
		out = append(out, string(m.Value))
	}
	return out
}

var ten = []string{"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"}

func produce() {
	acksOf := map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}
	for _, name := range []string{"0", "1", "all"} {
		card.Case("produce-acks-"+name, func(ctx context.Context) {
			t := topic(ctx, "acks-"+name, 1)
			fill(t, 1) // the leader is there: without acknowledgements the client would not know
			fill(t, 10, func(c *sarama.Config) { c.Producer.RequiredAcks = acksOf[name] })
			card.Equal(values(read(ctx, t, 1, 10)), ten)
		})
	}
	for i, name := range card.Codecs {
		card.Case("codec-"+name, func(ctx context.Context) {
			t := topic(ctx, "codec-"+name, 1)
			fill(t, 10, func(c *sarama.Config) {
				c.Producer.Compression = sarama.CompressionCodec(i)
				if name == "zstd" && !c.Version.IsAtLeast(sarama.V2_1_0_0) {
					c.Version = sarama.V2_1_0_0
				}
			})
			card.Equal(values(read(ctx, t, 0, 10, func(c *sarama.Config) { c.Version = sarama.V2_1_0_0 })), ten)
		})
	}
	card.Case("produce-idempotent", func(ctx context.Context) {
		t := topic(ctx, "idempotent", 1)
		fill(t, 10, func(c *sarama.Config) { c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1 })
		card.Equal(values(read(ctx, t, 0, 10)), ten)
	})
	card.Case("produce-keys-headers-nulls", func(ctx context.Context) {
		t := topic(ctx, "nulls", 1)
		header := func(k, v string) sarama.RecordHeader { return sarama.RecordHeader{Key: []byte(k), Value: []byte(v)} }
		send(t, []*sarama.ProducerMessage{
			{Key: sarama.StringEncoder("k"), Headers: []sarama.RecordHeader{header("h", "1"), header("h", "2"), header("e", "")}},
			{Value: sarama.StringEncoder("")},
		})
		got := read(ctx, t, 0, 2)
		card.Check(got[0].Value == nil && got[1].Key == nil && got[1].Value != nil, "nulls are not nulls")
		card.Equal(fmt.Sprintf("%s %s=%s %s=%s %s=%s", got[0].Key, got[0].Headers[0].Key, got[0].Headers[0].Value, got[0].Headers[1].Key,
			got[0].Headers[1].Value, got[0].Headers[2].Key, got[0].Headers[2].Value), "k h=1 h=2 e=")
	})
	card.Case("produce-large-batch", func(ctx context.Context) {
		t := topic(ctx, "large", 1)
		var all []*sarama.ProducerMessage
		for range 3000 {
			all = append(all, &sarama.ProducerMessage{Value: sarama.ByteEncoder(make([]byte, 1000))})
		}
		all = append(all, &sarama.ProducerMessage{Value: sarama.ByteEncoder(make([]byte, 900000))})
		send(t, all)
		card.Equal(len(read(ctx, t, 0, 3001)[3000].Value), 900000)
	})
	card.Case("transactions", func(ctx context.Context) {
		t := topic(ctx, "txn", 1)
		p := card.Get(sarama.NewSyncProducer(card.Bootstrap, config(func(c *sarama.Config) {
			c.Producer.Idempotent, c.Net.MaxOpenRequests, c.Producer.Transaction.ID = true, 1, card.Name("txn")
		})))
		for _, word := range []string{"no", "yes"} {
			card.Must(p.BeginTxn())
			_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: t, Value: sarama.StringEncoder(word)})
			card.Must(err)
			if word == "yes" {
				card.Must(p.CommitTxn())
			} else {
				card.Must(p.AbortTxn())
			}
		}
		card.Equal(values(read(ctx, t, 0, 1, func(c *sarama.Config) { c.Consumer.IsolationLevel = sarama.ReadCommitted })), []string{"yes"})
	})
}

func consume() {
	card.Case("consume-earliest", func(ctx context.Context) {
		t := topic(ctx, "earliest", 1)
		fill(t, 10)
		card.Equal(values(read(ctx, t, sarama.OffsetOldest, 10)), ten)
	})
	card.Case("consume-latest", func(ctx context.Context) {
		t := topic(ctx, "latest", 1)
		fill(t, 9)
		c := card.Get(sarama.NewConsumer(card.Bootstrap, config()))
		defer c.Close()
		p := card.Get(c.ConsumePartition(t, 0, sarama.OffsetNewest))
		defer p.Close()
		fill(t, 1)
		card.Equal(take(ctx, p.Messages(), 1)[0].Offset, 9)
	})
	card.Case("consume-offset", func(ctx context.Context) {
		t := topic(ctx, "offset", 1)
		fill(t, 10)
		card.Equal(values(read(ctx, t, 7, 3)), ten[7:])
	})
	offsetByTime := func(ctx context.Context, what string) (string, int64) {
		t := topic(ctx, what, 1)
		fill(t, 10)
		c := card.Get(sarama.NewClient(card.Bootstrap, config()))
		defer c.Close()
		card.Equal(card.Get(c.GetOffset(t, 0, sarama.OffsetNewest)), 10)
		return t, card.Get(c.GetOffset(t, 0, card.Base.Add(4500*time.Millisecond).UnixMilli()))
	}
	card.Case("consume-timestamp", func(ctx context.Context) {
		t, offset := offsetByTime(ctx, "timestamp")
		card.Equal(values(read(ctx, t, offset, 5)), ten[5:])
	})
	card.Case("admin-offsets-by-time", func(ctx context.Context) {
		_, offset := offsetByTime(ctx, "bytime")
		card.Equal(offset, 5)
	})
}

// member is a consumer of a group that hands its records over and knows its share.
type member struct {
	records chan *sarama.ConsumerMessage
	commit  int64 // the offset to commit once seen; -1: none
	share   atomic.Pointer[[]int32]
	marked  chan bool
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	for _, partitions := range s.Claims() {
		m.share.Store(&partitions)
	}
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.share.Store(nil)
	return nil
}

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for r := range c.Messages() {
		m.records <- r
		if r.Offset+1 == m.commit {
			s.MarkMessage(r, "m")
			s.Commit()
			close(m.marked)
		}
	}
	return nil
}

// join starts a member; leave ends it and waits.
func join(ctx context.Context, t, g string, commit int64, changes ...change) (m *member, leave func()) {
	m = &member{records: make(chan *sarama.ConsumerMessage, 100), commit: commit, marked: make(chan bool)}
	group := card.Get(sarama.NewConsumerGroup(card.Bootstrap, g, config(changes...)))
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan bool)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = group.Consume(ctx, []string{t}, m)
		}
	}()
	return m, func() {
		cancel()
		<-done
		group.Close()
	}
}

func joined(ctx context.Context, what string, changes ...change) (t, g string, leave func()) {
	t, g = topic(ctx, what, 1), card.Name("g-"+what)
	fill(t, 10)
	m, leave := join(ctx, t, g, 6, changes...)
	card.Equal(values(take(ctx, m.records, 10)), ten)
	select {
	case <-m.marked:
	case <-ctx.Done():
		card.Check(false, "the commit did not return")
	}
	a := admin()
	defer a.Close()
	got := card.Get(a.ListConsumerGroupOffsets(g, map[string][]int32{t: {0}}))
	card.Equal(got.GetBlock(t, 0).Offset, 6)
	return t, g, leave
}

func groups() {
	card.Case("group-join-commit", func(ctx context.Context) {
		_, _, leave := joined(ctx, "join")
		leave()
	})
	card.Case("group-resume", func(ctx context.Context) {
		t, g, leave := joined(ctx, "resume")
		leave()
		m, leave := join(ctx, t, g, -1)
		card.Equal(values(take(ctx, m.records, 4)), ten[6:])
		leave()
	})
	card.Case("group-rebalance", func(ctx context.Context) {
		t, g := topic(ctx, "rebalance", 4), card.Name("g-rebalance")
		fast := func(c *sarama.Config) { c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond }
		one, leaveOne := join(ctx, t, g, -1, fast)
		has := func(m *member, n int) bool { s := m.share.Load(); return s != nil && len(*s) == n }
		card.Until(ctx, "share of four", func() bool { return has(one, 4) })
		two, leaveTwo := join(ctx, t, g, -1, fast)
		card.Until(ctx, "shares of two", func() bool { return has(one, 2) && has(two, 2) })
		leaveOne()
		leaveTwo()
	})
	card.Case("group-static", func(ctx context.Context) {
		_, _, leave := joined(ctx, "static", func(c *sarama.Config) { c.Version, c.Consumer.Group.InstanceId = sarama.V2_4_0_0, "one" })
		leave()
	})
	card.Case("admin-list-groups", func(ctx context.Context) {
		_, g, leave := joined(ctx, "list")
		defer leave()
		_, listed := card.Get(admin().ListConsumerGroups())[g]
		card.Check(listed, "not listed")
	})
	card.Case("admin-describe-group", func(ctx context.Context) {
		_, g, leave := joined(ctx, "describe")
		defer leave()
		got := card.Get(admin().DescribeConsumerGroups([]string{g}))[0]
		card.Equal([]any{got.State, len(got.Members)}, []any{"Stable", 1})
	})
	card.Case("admin-delete-group", func(ctx context.Context) {
		_, g, leave := joined(ctx, "delete")
		leave()
		a := admin()
		card.Until(ctx, "deletion", func() bool { return a.DeleteConsumerGroup(g) == nil })
		_, listed := card.Get(a.ListConsumerGroups())[g]
		card.Check(!listed, "listed still")
	})
}

func retention(a sarama.ClusterAdmin, t string) string {
	all := card.Get(a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: t, ConfigNames: []string{"retention.ms"}}))
	i := slices.IndexFunc(all, func(e sarama.ConfigEntry) bool { return e.Name == "retention.ms" })
	card.Check(i >= 0, "no retention.ms")
	return all[i].Value
}

func administer() {
	card.Case("metadata", func(ctx context.Context) {
		t := topic(ctx, "metadata", 3)
		c := card.Get(sarama.NewClient(card.Bootstrap, config()))
		defer c.Close()
		card.Equal(card.Get(c.Partitions(t)), []int32{0, 1, 2})
		card.Equal(len(c.Brokers()), card.Replicas)
	})
	card.Case("admin-create-topic", func(ctx context.Context) {
		t := topic(ctx, "created", 2)
		err := admin().CreateTopic(t, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: int16(card.Replicas)}, false)
		card.Check(err != nil && strings.Contains(err.Error(), "exists"), "the same topic twice: %v", err)
	})
	card.Case("admin-create-partitions", func(ctx context.Context) {
		t, a := topic(ctx, "grow", 1), admin()
		card.Must(a.CreatePartitions(t, 3, nil, false))
		card.Until(ctx, "three partitions", func() bool { return len(card.Get(a.DescribeTopics([]string{t}))[0].Partitions) == 3 })
	})
	card.Case("admin-delete-topic", func(ctx context.Context) {
		t, a := topic(ctx, "gone", 1), admin()
		card.Must(a.DeleteTopic(t))
		card.Until(ctx, "deletion", func() bool {
			return card.Get(a.DescribeTopics([]string{t}))[0].Err == sarama.ErrUnknownTopicOrPartition
		})
	})
	card.Case("admin-describe-cluster", func(ctx context.Context) {
		brokers, _, err := admin().DescribeCluster()
		card.Must(err)
		card.Equal(len(brokers), card.Replicas)
	})
	card.Case("admin-describe-configs", func(ctx context.Context) {
		card.Equal(retention(admin(), topic(ctx, "configs", 1)), "604800000")
	})
	card.Case("admin-alter-configs", func(ctx context.Context) {
		t, a, value := topic(ctx, "alter", 1), admin(), "7200000"
		card.Must(a.AlterConfig(sarama.TopicResource, t, map[string]*string{"retention.ms": &value}, false))
		card.Until(ctx, "the new value", func() bool { return retention(a, t) == value })
	})
	card.Case("admin-delete-records", func(ctx context.Context) {
		t := topic(ctx, "records", 1)
		fill(t, 10)
		card.Must(admin().DeleteRecords(t, map[int32]int64{0: 4}))
		card.Equal(values(read(ctx, t, sarama.OffsetOldest, 6)), ten[4:])
	})
}

func main() {
	produce()
	consume()
	groups()
	administer()
	card.Main()
}
