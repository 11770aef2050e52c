// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// kafka is a client of the cluster, from a host of that name.
func (c *cluster) options(host string, o ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers("node1:9092", "node2:9092", "node3:9092"), kgo.Dialer(unhurried(c.peers.net.DialFunc(host))), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, o...)
}

func (c *cluster) kafka(host string, o ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	cl, err := kgo.NewClient(c.options(host, o...)...)
	check(c.t, err)
	c.t.Cleanup(cl.Close)
	return cl
}

// topicOver makes a topic whose partitions' leaders are spread over the nodes.
func (c *cluster) topicOver(name string, partitions int) {
	c.t.Helper()
	spec := metadata.TopicSpec{Name: name}
	for i := range partitions {
		a := record.NodeID(i % 3)
		spec.Partitions = append(spec.Partitions, []record.NodeID{a + 1, (a+1)%3 + 1, (a+2)%3 + 1})
	}
	topic, err := c.nodes[1].meta.CreateTopic(c.t.Context(), spec)
	check(c.t, err)
	for i := range partitions {
		c.awaitLeader(record.PartitionID{Topic: topic.ID, Index: int32(i)}, 1, 2, 3)
	}
}

// TestExactlyOnceInCluster moves records in transactions while nodes lose their registration, or stop and come back, one after the other:
// coordinators of transactions and groups, and leaders, are others all the time.
func TestExactlyOnceInCluster(t *testing.T) {
	for name := range clientVersions {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				const partitions, records = 3, 250
				c.topicOver("in", partitions)
				c.topicOver("t", partitions)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
				defer cancel()
				working, stop := context.WithCancel(ctx)
				in := c.nodes[1].meta.Image().Topic("in").ID
				wait := move(t, working, in, name, func(id string) []kgo.Opt { return c.options(id) })
				done := make(chan struct{})
				go func() { // what is to be moved comes while it happens
					p := c.kafka("source")
					for i := range records {
						if err := p.ProduceSync(ctx, &kgo.Record{Topic: "in", Partition: int32(i % partitions), Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
							t.Errorf("produce: %v", err)
						}
						time.Sleep(100 * time.Millisecond)
					}
					done <- struct{}{}
				}()
				go func() {
					for i := range 4 {
						time.Sleep(6 * time.Second)
						id := record.NodeID(i%3) + 1
						if i%2 == 0 {
							c.unregister(id)
						} else {
							c.nodes[id].stop()
							c.start(id)
						}
					}
					done <- struct{}{}
				}()
				got := reads(t, ctx, c.kafka("reader", kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), records)
				stop()
				wait()
				<-done
				<-done
				once(t, got, records)
			})
		})
	}
}

// TestCoordinatorMoves: a coordinator that lost its shard decides and confirms nothing, and what it had decided its successor completes.
func TestCoordinatorMoves(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.topicOver("t", 3)
		first := c.coordinator("x")
		p := c.kafka("producer", kgo.TransactionalID("x"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		check(t, p.BeginTransaction())
		for i := range int32(3) {
			check(t, p.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: i, Value: []byte("v")}).FirstErr())
		}
		old, err := first.server.groups.findTxn("x")
		check(t, err)
		was := old.look("x")
		if was.State != txn.Ongoing || len(was.Partitions) != 3 {
			t.Fatalf("the transaction is %s with %v", was.State, was.Partitions)
		}
		// The leaders cannot be reached: the decision is made, and no marker written.
		c.isolate(first.server.cfg.NodeID, true)
		out, err := old.step(ctx, "x", func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
			return cur.End(now, cur.Producer, true, txn.Bumping, record.NoProducerID)
		})
		if err != nil || out.txn.State != txn.PrepareCommit {
			t.Fatalf("deciding: %+v, %v", out, err)
		}
		_, err = first.meta.Drain(ctx, first.server.cfg.NodeID)
		check(t, err)
		second := c.coordinator("x", first.server.cfg.NodeID)
		c.isolate(first.server.cfg.NodeID, false)
		c.await("the successor to complete the transaction", func() bool {
			next, err := second.server.groups.findTxn("x")
			if err != nil {
				return false
			}
			is := next.look("x")
			return is != nil && is.State == txn.CompleteCommit && is.Epoch == was.Epoch+1
		})
		for what, step := range map[string]txnStep{
			"a change": func(now time.Time, cur *txn.Txn) (*txn.Txn, error) { return cur.Complete(now), nil },
			"a look":   func(time.Time, *txn.Txn) (*txn.Txn, error) { return nil, nil },
		} {
			if _, err := old.step(ctx, "x", step); !errors.Is(err, errNotCoordinator) && !errors.Is(err, metadata.ErrFenced) {
				t.Errorf("%s by the old coordinator: %v", what, err)
			}
		}
		got := reads(t, ctx, c.kafka("reader", kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 3)
		if !slices.Equal(got, []string{"v", "v", "v"}) {
			t.Errorf("read %q", got)
		}
	})
}

// TestMarkersOfDeletedTopic: a topic that is deleted does not keep a transaction from its end.
func TestMarkersOfDeletedTopic(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.topicOver("t", 3)
		c.topicOver("gone", 3)
		p := c.kafka("producer", kgo.TransactionalID("x"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		for range 2 {
			check(t, p.BeginTransaction())
			check(t, p.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr())
			if gone := c.nodes[1].meta.Image().Topic("gone"); gone != nil && !gone.Deleting {
				check(t, p.ProduceSync(ctx, &kgo.Record{Topic: "gone", Value: []byte("v")}).FirstErr())
				_, err := c.nodes[1].meta.DeleteTopic(ctx, gone.ID)
				check(t, err)
			}
			check(t, p.EndTransaction(ctx, kgo.TryCommit))
		}
		got := reads(t, ctx, c.kafka("reader", kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 2)
		if !slices.Equal(got, []string{"v", "v"}) {
			t.Errorf("read %q", got)
		}
	})
}

// TestCoordinatorEpoch: it rises with the terms of a generation and with the generations, whatever the terms of the next one are, and fits.
func TestCoordinatorEpoch(t *testing.T) {
	last := int32(0)
	for _, x := range []struct {
		generation int64
		term       metadata.Revision
	}{{1, 1}, {1, 2}, {1, 1 << 20}, {1, 1 << 40}, {2, 1}, {2, 1 << 50}, {126, 3}, {1 << 40, 1}, {1 << 40, 1 << 50}} {
		got := coordinatorEpoch(x.generation, x.term)
		if got <= last {
			t.Errorf("%+v: %d after %d", x, got, last)
		}
		last = got
	}
}
