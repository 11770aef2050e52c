// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/etcd/embed"
	"github.com/varve/varve/record"
)

// counted counts the requests of a client.
type counted struct {
	metadata.KV
	txns, ranges, keepalives atomic.Int64
}

func (c *counted) Txn(ctx context.Context, t metadata.Txn) (metadata.TxnResult, error) {
	c.txns.Add(1)
	return c.KV.Txn(ctx, t)
}

func (c *counted) Range(ctx context.Context, r metadata.RangeRequest) (metadata.RangeResult, error) {
	c.ranges.Add(1)
	return c.KV.Range(ctx, r)
}

func (c *counted) KeepAlive(ctx context.Context, id metadata.LeaseID) error {
	c.keepalives.Add(1)
	return c.KV.KeepAlive(ctx, id)
}

// TestManyPartitions prints what 10,000 led partitions cost: to take over, to load, to follow one change, and idle. Idle, no transaction
// may be sent, and nothing per partition.
func TestManyPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 partitions take some seconds")
	}
	const topics, each = 10, 1000
	m := startMember(t, t.TempDir(), embed.Options{UnsafeNoFsync: true})
	kv := &counted{KV: m.client(t)}
	defer kv.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s, err := metadata.Open(ctx, kv, options(nil))
	if err != nil {
		t.Fatal(err)
	}
	sess, err := s.Register(ctx, metadata.BrokerInfo{StoreID: metadata.NewUUID(), Boots: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sess.Close(ctx) }()
	replicas := make([][]record.NodeID, each)
	for i := range replicas {
		replicas[i] = []record.NodeID{1}
	}
	var ids []metadata.PartitionID
	for i := range topics {
		topic, err := s.CreateTopic(ctx, metadata.TopicSpec{Name: fmt.Sprint("t", i), Partitions: replicas})
		if err != nil {
			t.Fatal(err)
		}
		for k := range each {
			ids = append(ids, metadata.PartitionID{Topic: topic.ID, Index: int32(k)})
		}
	}
	begin := time.Now()
	ls, err := s.TakeOver(ctx, sess, ids)
	if err != nil || len(ls) != len(ids) {
		t.Fatalf("took %d, %v", len(ls), err)
	}
	t.Logf("taking over %d partitions: %s", len(ids), time.Since(begin).Round(time.Millisecond))

	before := heap()
	begin = time.Now()
	go func() { _ = s.Run(ctx) }()
	if err := s.WaitFor(ctx, ls[len(ls)-1].LeaderRev); err != nil {
		t.Fatal(err)
	}
	t.Logf("loading the image: %s, %d KiB on the heap", time.Since(begin).Round(time.Millisecond), (heap()-before)>>10)

	changed := make(chan int, 100)
	s.Subscribe(func(old, new *metadata.Image) {
		n := 0
		metadata.Diff(old, new, func(c metadata.TopicChange) { n += len(c.Partitions) })
		changed <- n
	})
	begin = time.Now()
	const moves = 50
	for i := range moves {
		if _, err := s.AdvanceLogStart(ctx, ls[i*100], 1, nil); err != nil {
			t.Fatal(err)
		}
		if n := <-changed; n != 1 {
			t.Fatalf("one change differs in %d partitions", n)
		}
	}
	t.Logf("a change until the subscriber has seen it: %s", (time.Since(begin) / moves).Round(time.Microsecond))

	time.Sleep(500 * time.Millisecond) // the check behind the last change
	txns, ranges, keeps := kv.txns.Load(), kv.ranges.Load(), kv.keepalives.Load()
	const idle = 3 * time.Second
	time.Sleep(idle)
	txns, ranges, keeps = kv.txns.Load()-txns, kv.ranges.Load()-ranges, kv.keepalives.Load()-keeps
	t.Logf("idle for %s with a check every 100 ms: %d transactions, %d reads of one key, %d keepalives", idle, txns, ranges, keeps)
	if txns != 0 || ranges > 2*int64(idle/(100*time.Millisecond)) {
		t.Error("an idle node does more than its checks")
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
