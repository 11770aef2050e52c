// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/varve/varve/internal/memnet"
	"github.com/varve/varve/record"
)

// clientVersions are what real clients speak: the newest protocol, in which each transaction has an epoch of its own, and the one before.
var clientVersions = map[string][]kgo.Opt{"bumping": nil, "classic": {kgo.MaxVersions(kversion.V3_7_0())}}

// producesTxns commits every transaction but each third, and gives what was committed.
func producesTxns(t *testing.T, ctx context.Context, c *kgo.Client, partitions, first, txns int) (committed []string) {
	t.Helper()
	for i := first; i < first+txns; i++ {
		if !hasProducerID(ctx, c) {
			t.Fatal("no producer id")
		}
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

// mover moves records of "in" to "t" in transactions, with the offsets of a group.
type mover struct {
	t          *testing.T
	id         string
	partitions []int32
	topic      record.TopicID // of "in"
	classic    bool
	options    []kgo.Opt
}

// keeps runs instances of the mover, one after the other, until ctx ends: each ends with the first transaction that it aborts or that fails,
// and the next fences it. A client that is a member of a group would wait for answers under a mutex, for which the clock of a bubble stands
// still; so movers share the partitions by themselves.
func (m *mover) keeps(ctx context.Context) {
	for life := 0; ctx.Err() == nil; life++ {
		c, err := kgo.NewClient(append([]kgo.Opt{kgo.TransactionalID(m.id), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.TransactionTimeout(10 * time.Second)}, m.options...)...)
		check(m.t, err)
		m.live(ctx, c)
		c.Close()
		_ = pause(ctx, 50*time.Millisecond)
	}
}

func (m *mover) live(ctx context.Context, c *kgo.Client) {
	if !hasProducerID(ctx, c) { // from here on what an earlier instance left open has no effect
		return
	}
	mine := map[int32]kgo.Offset{}
	for _, p := range m.partitions {
		mine[p] = kgo.NewOffset().At(int64(standing(ctx, c, m.topic, p)))
	}
	c.AddConsumePartitions(map[string]map[int32]kgo.Offset{"in": mine})
	for i := 0; ctx.Err() == nil; i++ {
		pctx, cancel := context.WithTimeout(ctx, time.Second)
		records := c.PollRecords(pctx, 7).Records()
		cancel()
		if len(records) == 0 {
			continue
		}
		if !hasProducerID(ctx, c) || c.BeginTransaction() != nil {
			return
		}
		var out []*kgo.Record
		for _, r := range records {
			out = append(out, &kgo.Record{Topic: "t", Partition: r.Partition, Value: r.Value})
		}
		commit := c.ProduceSync(ctx, out...).FirstErr() == nil && m.commitOffsets(ctx, c, records) && i%4 != 3
		if err := c.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil || !commit {
			return
		}
	}
}

// hasProducerID has the client get its id before several of its goroutines ask for it, which they do under a mutex.
func hasProducerID(ctx context.Context, c *kgo.Client) bool {
	for {
		if _, _, err := c.ProducerID(ctx); err == nil {
			return true
		}
		if !pause(ctx, 100*time.Millisecond) {
			return false
		}
	}
}

func (m *mover) commitOffsets(ctx context.Context, c *kgo.Client, records []*kgo.Record) bool {
	id, epoch, err := c.ProducerID(ctx)
	if err != nil {
		return false
	}
	if m.classic {
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = m.id, id, epoch, "g"
		if resp, err := add.RequestWith(ctx, c); err != nil || resp.ErrorCode != 0 {
			return false
		}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.Generation = m.id, id, epoch, "g", -1
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = "in", m.topic
	for _, r := range records {
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = r.Partition, r.Offset+1
		topic.Partitions = append(topic.Partitions, p) // the last one of a partition counts
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		return false
	}
	for _, p := range resp.Topics[0].Partitions {
		if p.ErrorCode != 0 {
			return false
		}
	}
	return true
}

// standing is the group's offset of a partition, once no transaction is about to change it; 0 when it has none.
func standing(ctx context.Context, c *kgo.Client, topic record.TopicID, partition int32) int {
	for {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.RequireStable, req.Group = true, "g"
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = "g"
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.TopicID, t.Partitions = "in", topic, []int32{partition}
		g.Topics = append(g.Topics, t)
		req.Groups = append(req.Groups, g)
		resp, err := req.RequestWith(ctx, c)
		if err == nil && len(resp.Groups) == 1 && resp.Groups[0].ErrorCode == 0 {
			if p := resp.Groups[0].Topics[0].Partitions[0]; p.ErrorCode == 0 {
				return int(max(p.Offset, 0))
			}
		}
		if !pause(ctx, 100*time.Millisecond) {
			return 0
		}
	}
}

// move starts movers for all partitions; the returned function waits until they have ended.
func move(t *testing.T, ctx context.Context, topic record.TopicID, name string, options func(id string) []kgo.Opt) (wait func()) {
	var wg sync.WaitGroup
	for id, partitions := range map[string][]int32{"a": {0, 2}, "b": {1}} {
		m := &mover{t: t, id: id, partitions: partitions, topic: topic, classic: name == "classic", options: append(options(id), clientVersions[name]...)}
		wg.Go(func() { m.keeps(ctx) })
	}
	return wg.Wait
}

// TestExactlyOnce: what is moved in transactions together with the group's offsets arrives once.
func TestExactlyOnce(t *testing.T) {
	for name := range clientVersions {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "3"}}).coordinating()
				const partitions, records = 3, 200
				in := n.topic("in", partitions, nil)
				n.topic("t", partitions, nil)
				n.fill("in", partitions, 0, records)
				n.net.SetFaults(memnet.Faults{DelayMin: time.Millisecond, DelayMax: 10 * time.Millisecond, Cut: 0.005, LoseReply: 0.01})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				working, stop := context.WithCancel(ctx)
				wait := move(t, working, in.ID, name, func(id string) []kgo.Opt {
					return []kgo.Opt{kgo.SeedBrokers(testAddress), kgo.Dialer(unhurried(n.net.DialFunc(id))), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100 * time.Millisecond)}
				})
				got := reads(t, ctx, n.kafka(kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), records)
				stop()
				wait()
				once(t, got, records)
				sum := 0
				for p := range int32(partitions) {
					sum += standing(ctx, n.kafka(), in.ID, p)
				}
				if sum != records {
					t.Errorf("the group stands at %d of %d", sum, records)
				}
			})
		})
	}
}

// unhurried takes time for a connection that is refused: the client asks again at once then, for ever at one instant of a bubble's clock.
func unhurried(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			_ = pause(ctx, 20*time.Millisecond)
		}
		return c, err
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

// TestPlainAndTransactionalCommits: a group's offsets are committed with and without transactions, and deleted, in turn: no change is lost, and
// the shard, which writes only one of the two kinds, goes on in its term.
func TestPlainAndTransactionalCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.topic.num.partitions": "1"}}).coordinating()
		in := n.topic("in", 3, nil)
		n.topic("t", 3, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		c := n.kafka(kgo.TransactionalID("x"), kgo.DefaultProduceTopic("t"))
		m := &mover{t: t, id: "x", topic: in.ID}
		before, err := n.server.groups.find("g")
		check(t, err)
		plain := n.kafka()
		adm := func(partition int32, offset int64) int16 {
			req := kmsg.NewPtrOffsetCommitRequest()
			req.Group, req.Generation = "g", -1
			topic := kmsg.NewOffsetCommitRequestTopic()
			topic.Topic, topic.TopicID = "in", in.ID
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset = partition, offset
			topic.Partitions = append(topic.Partitions, p)
			req.Topics = append(req.Topics, topic)
			resp, err := req.RequestWith(ctx, plain)
			check(t, err)
			return resp.Topics[0].Partitions[0].ErrorCode
		}
		for i := range 20 {
			check(t, c.BeginTransaction())
			check(t, c.ProduceSync(ctx, kgo.StringRecord("v")).FirstErr())
			if !m.commitOffsets(ctx, c, []*kgo.Record{{Partition: 0, Offset: int64(10*i + 4)}, {Partition: 1, Offset: int64(10*i + 5)}}) {
				t.Fatal("the transaction's offsets are refused")
			}
			if i%2 == 1 { // pending meanwhile
				if code := adm(2, int64(10*i)); code != 0 {
					t.Fatalf("a commit beside a transaction: %d", code)
				}
			}
			check(t, c.EndTransaction(ctx, kgo.TransactionEndTry(i%5 != 4)))
			if code := adm(1, int64(10*i+8)); code != 0 {
				t.Fatalf("a commit after a transaction: %d", code)
			}
			want := []int{10*i + 5, 10*i + 8, 10 * (i - 1 + i%2)}
			if i%5 == 4 {
				want[0] -= 10 // aborted
			}
			for p, w := range want {
				if got := standing(ctx, plain, in.ID, int32(p)); got != max(w, 0) {
					t.Errorf("round %d: partition %d stands at %d, want %d", i, p, got, w)
				}
			}
		}
		del := kmsg.NewPtrDeleteGroupsRequest()
		del.Groups = []string{"g"}
		if resp, err := del.RequestWith(ctx, plain); err != nil || resp.Groups[0].ErrorCode != 0 {
			t.Errorf("deleting the group: %+v, %v", resp, err)
		}
		for p := range int32(3) {
			if got := standing(ctx, plain, in.ID, p); got != 0 {
				t.Errorf("partition %d stands at %d in a group that is deleted", p, got)
			}
		}
		if after, err := n.server.groups.find("g"); err != nil || after != before {
			t.Errorf("the shard's term ended: %v", err)
		}
	})
}
