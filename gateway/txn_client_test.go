// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/varve/varve/internal/memnet"
)

// clientVersions are what real clients speak: the newest protocol, in which each transaction has an epoch of its own, and the one before.
var clientVersions = map[string][]kgo.Opt{"bumping": nil, "classic": {kgo.MaxVersions(kversion.V3_7_0())}}

// producesTxns commits every transaction but each third, and gives what was committed.
func producesTxns(t *testing.T, ctx context.Context, c *kgo.Client, partitions, first, txns int) (committed []string) {
	t.Helper()
	for i := first; i < first+txns; i++ {
		check(t, c.BeginTransaction())
		var mine []string
		for k := range 5 {
			r := &kgo.Record{Topic: "t", Partition: int32((i + k) % partitions), Value: fmt.Appendf(nil, "%d.%d", i, k)}
			mine = append(mine, string(r.Value))
			c.Produce(ctx, r, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
		check(t, c.Flush(ctx))
		end := kgo.TryCommit
		if i%3 == 2 {
			end = kgo.TryAbort
		}
		if err := c.EndTransaction(ctx, end); err != nil {
			t.Fatalf("ending transaction %d: %v", i, err)
		}
		if end == kgo.TryCommit {
			committed = append(committed, mine...)
		}
	}
	return committed
}

// reads reads until it has that many records, and then for a while what is too many.
func reads(t *testing.T, ctx context.Context, c *kgo.Client, want int) (values []string) {
	t.Helper()
	defer c.Close()
	poll := func(wait time.Duration) {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		c.PollFetches(ctx).EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	for len(values) < want && ctx.Err() == nil {
		poll(time.Second)
	}
	poll(2 * time.Second)
	slices.Sort(values)
	return values
}

// TestTransactions: a real client commits and aborts, and readers of what is committed see that and nothing else.
func TestTransactions(t *testing.T) {
	for name, versions := range clientVersions {
		for what, f := range map[string]memnet.Faults{"": {}, ", with faults": {DelayMin: time.Millisecond, DelayMax: 20 * time.Millisecond, Cut: 0.01, LoseReply: 0.02}} {
			t.Run(name+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "3"}}).coordinating()
					const partitions, txns = 3, 30
					n.topic("t", partitions, nil)
					n.net.SetFaults(f)
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
					defer cancel()
					p := n.kafka(append(slices.Clone(versions), kgo.TransactionalID("x"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
					want := producesTxns(t, ctx, p, partitions, 0, txns)
					slices.Sort(want)
					got := reads(t, ctx, n.kafka(kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), len(want))
					if !slices.Equal(got, want) {
						t.Errorf("%d records are read, %d were committed\n got %q\nwant %q", len(got), len(want), got, want)
					}
					all := reads(t, ctx, n.kafka(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 5*txns)
					if len(all) < 5*txns {
						t.Errorf("%d records are there, %d were sent", len(all), 5*txns)
					}
				})
			})
		}
	}
}

// TestFencedProducer: a new producer of a transactional id ends what the old one left open, which then can do nothing more.
func TestFencedProducer(t *testing.T) {
	for name, versions := range clientVersions {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "3"}}).coordinating()
				n.topic("t", 1, nil)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				client := func() *kgo.Client { return n.kafka(append(slices.Clone(versions), kgo.TransactionalID("x"))...) }
				old := client()
				check(t, old.BeginTransaction())
				check(t, old.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("old")}).FirstErr())
				young := client()
				check(t, young.BeginTransaction())
				check(t, young.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("young")}).FirstErr())
				err := old.EndTransaction(ctx, kgo.TryCommit)
				if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
					t.Errorf("the old producer's commit: %v", err)
				}
				check(t, young.EndTransaction(ctx, kgo.TryCommit))
				got := reads(t, ctx, n.kafka(kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 1)
				if !slices.Equal(got, []string{"young"}) {
					t.Errorf("read %q", got)
				}
			})
		})
	}
}

// TestTransactionTimeout: a transaction that lasts too long is aborted; its producer is fenced, and what comes after it can be read.
func TestTransactionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "3"}}).coordinating()
		n.topic("t", 1, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		p := n.kafka(kgo.TransactionalID("x"), kgo.TransactionTimeout(5*time.Second), kgo.DefaultProduceTopic("t"))
		check(t, p.BeginTransaction())
		check(t, p.ProduceSync(ctx, kgo.StringRecord("late")).FirstErr())
		check(t, n.kafka().ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("plain")}).FirstErr())
		got := reads(t, ctx, n.kafka(kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 1)
		if !slices.Equal(got, []string{"plain"}) {
			t.Errorf("read %q", got)
		}
		if err := p.EndTransaction(ctx, kgo.TryCommit); err == nil {
			t.Error("a transaction that was aborted is committed")
		}
	})
}

// transform moves the records of "in" to "t" in transactions, with their offsets, until ctx ends. Every fourth it aborts.
func transform(t *testing.T, ctx context.Context, group, id string, o ...kgo.Opt) {
	s, err := kgo.NewGroupTransactSession(append([]kgo.Opt{
		kgo.TransactionalID(id), kgo.ConsumeTopics("in"), kgo.ConsumerGroup(group), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100 * time.Millisecond), kgo.SessionTimeout(10 * time.Second), kgo.TransactionTimeout(10 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, o...)...)
	check(t, err)
	defer s.Close()
	for i := 0; ctx.Err() == nil; i++ {
		pctx, cancel := context.WithTimeout(ctx, time.Second)
		fetches := s.PollRecords(pctx, 7)
		cancel()
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := s.Begin(); err != nil {
			return // this instance is fenced: its successor goes on
		}
		fetches.EachRecord(func(r *kgo.Record) {
			s.Produce(ctx, &kgo.Record{Topic: "t", Partition: r.Partition, Value: r.Value}, func(*kgo.Record, error) {})
		})
		if _, err := s.End(ctx, kgo.TransactionEndTry(i%4 != 3)); err != nil && ctx.Err() == nil {
			t.Logf("%s: %v", id, err)
			return
		}
	}
}

// keeps runs transform again whenever its instance has come to an end.
func keeps(t *testing.T, ctx context.Context, group, id string, o ...kgo.Opt) {
	for ctx.Err() == nil {
		transform(t, ctx, group, id, o...)
	}
}

// TestExactlyOnce: what is moved in transactions together with the group's offsets arrives once.
func TestExactlyOnce(t *testing.T) {
	for name, versions := range clientVersions {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nodeOptions{static: map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}}).coordinating()
				const partitions, records = 3, 200
				n.topic("in", partitions, nil)
				n.topic("t", partitions, nil)
				n.fill("in", partitions, 0, records)
				n.net.SetFaults(memnet.Faults{DelayMin: time.Millisecond, DelayMax: 10 * time.Millisecond, Cut: 0.005, LoseReply: 0.01})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				working, stop := context.WithCancel(ctx)
				done := make(chan struct{})
				for _, id := range []string{"a", "b"} {
					go func() {
						keeps(t, working, "g", id, append(slices.Clone(versions), kgo.SeedBrokers(testAddress), kgo.Dialer(n.net.DialFunc(id)), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
						done <- struct{}{}
					}()
				}
				got := reads(t, ctx, n.kafka(kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), records)
				stop()
				<-done
				<-done
				once(t, got, records)
				n.net.SetFaults(memnet.Faults{})
				n.await("the group's offsets to be committed", func() bool { return n.offsetsSum("g", "in", partitions) == records })
			})
		})
	}
}

// once checks that every record came exactly once.
func once(t *testing.T, got []string, records int) {
	t.Helper()
	count := map[string]int{}
	for _, v := range got {
		count[v]++
	}
	for i := range records {
		if n := count[fmt.Sprint(i)]; n != 1 {
			t.Errorf("record %d came %d times", i, n)
		}
	}
	if len(got) != records {
		t.Errorf("%d records came, %d went", len(got), records)
	}
}

// offsetsSum is where the group stands in all partitions together; -1: not stable, or not known now.
func (n *node) offsetsSum(group, topic string, partitions int) int {
	n.t.Helper()
	c := n.kafka()
	defer c.Close()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	tt := kmsg.NewOffsetFetchRequestGroupTopic()
	tt.Topic = topic
	tt.TopicID = n.meta.Image().Topic(topic).ID
	for i := range partitions {
		tt.Partitions = append(tt.Partitions, int32(i))
	}
	g.Topics = append(g.Topics, tt)
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(context.Background(), c)
	if err != nil || len(resp.Groups) != 1 || resp.Groups[0].ErrorCode != 0 {
		return -1
	}
	sum := 0
	for _, p := range resp.Groups[0].Topics[0].Partitions {
		if p.ErrorCode != 0 {
			return -1
		}
		sum += int(max(p.Offset, 0))
	}
	return sum
}
