// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/integration/harness"
)

const (
	killsInCI = 5
	killsLong = 100
	// settling makes a topic move to the bucket and off the disk at once, staying keeps it on the disk.
	smallSegment = "20000"
	largeSegment = "100000000"
)

// TestKillLoops kills the node again and again under load, with a topic that settles into the bucket meanwhile in every other
// round, and with DeleteRecords. Nothing acknowledged is lost or stored twice, and the log start never goes back. (A1, A2, A3)
func TestKillLoops(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d (of the times of the kills; the rest is up to the scheduler)", seed)
	kills := killsInCI
	if harness.Long() {
		kills = killsLong
	}
	etcd := harness.StartEtcd(t)
	node := harness.StartNode(t, harness.NodeConfig{
		Etcd: etcd.URL(), Bucket: "file://" + harness.TempDir(t, "bucket"), Set: []string{"varve.broker.lease.ms=2000"},
	})
	admin := client(t, node.Bootstrap())
	createTopic(t, admin, "killed", partitions, map[string]string{"segment.ms": "500", "local.retention.ms": "100"})
	a := newTally("killed")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var g errgroup.Group
	for i := range 4 {
		c := client(t, node.Bootstrap(), kgo.ProducerLinger(time.Duration(i)*2*time.Millisecond))
		g.Go(func() error { return a.run(ctx, c, fmt.Sprint("producer ", i), 200*time.Microsecond) })
	}
	starts := &logStarts{topic: "killed", least: make([]int64, partitions)}
	g.Go(func() error { return starts.deleteNowAndThen(ctx, admin) })
	for i := range kills {
		_, before, _ := a.counts()
		eventually(t, "the producers to go on", func() bool { _, acked, _ := a.counts(); return acked > before+200 })
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		node.Crash()
		alterTopic(t, admin, "killed", map[string]string{"internal.segment.bytes": []string{smallSegment, largeSegment}[i%2]})
		starts.check(t, func() []int64 { return boundary(t, admin, "killed", partitions, earliest) })
	}
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	sent, acked, failed := a.counts()
	if failed > 0 || acked != sent {
		t.Fatalf("of %d records %d were acknowledged and %d failed: an idempotent producer rides out a crash", sent, acked, failed)
	}
	records, start := a.verify(t, node.Bootstrap(), partitions, true)
	starts.check(t, func() []int64 { return start })
	segments := harness.Sum(node.Metrics(), "varve_archiver_seals_total")
	t.Logf("%d kills: %d acknowledged, %d read, log starts %v after %d DeleteRecords, %.0f segments sealed since the last kill",
		kills, acked, records, start, starts.deletes, segments)
	if starts.deletes == 0 || slices.Max(start) == 0 {
		t.Error("no DeleteRecords took effect, the log start was not tested")
	}
}

// logStarts remembers how far the log start was told to be.
type logStarts struct {
	topic   string
	mu      sync.Mutex
	least   []int64
	deletes int
}

// deleteNowAndThen moves the log start of a partition a little.
func (s *logStarts) deleteNowAndThen(ctx context.Context, c *kgo.Client) error {
	adm := kadm.NewClient(c)
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(300 * time.Millisecond):
		}
		p := int32(i % len(s.least))
		s.mu.Lock()
		to := s.least[p] + 25
		s.mu.Unlock()
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: s.topic, Partition: p, At: to, LeaderEpoch: -1})
		answers, err := adm.DeleteRecords(one, offsets)
		cancel()
		if err != nil {
			continue // the node is down, or the outcome is unknown: nothing was promised
		}
		answers.Each(func(d kadm.DeleteRecordsResponse) {
			if d.Err != nil {
				return
			}
			s.mu.Lock()
			s.least[d.Partition] = max(s.least[d.Partition], d.LowWatermark)
			s.deletes++
			s.mu.Unlock()
		})
	}
}

// check demands that no log start lies below one that was promised or seen before it was asked for (A3).
func (s *logStarts) check(t testing.TB, ask func() []int64) {
	t.Helper()
	s.mu.Lock()
	promised := slices.Clone(s.least)
	s.mu.Unlock()
	for p, now := range ask() {
		if now < promised[p] {
			t.Fatalf("%s-%d: the log start went back from %d to %d", s.topic, p, promised[p], now)
		}
		s.mu.Lock()
		s.least[p] = max(s.least[p], now)
		s.mu.Unlock()
	}
}

// TestDrain sends SIGTERM under load of producers that do not retry: what was reported as stored is stored, and the node ends
// by itself with code 0. (A1)
func TestDrain(t *testing.T) {
	etcd := harness.StartEtcd(t)
	node := harness.StartNode(t, harness.NodeConfig{Etcd: etcd.URL(), Bucket: "file://" + harness.TempDir(t, "bucket")})
	admin := client(t, node.Bootstrap())
	createTopic(t, admin, "drained", partitions, nil)
	a := newTally("drained")
	for round := range 3 {
		ctx, stop := context.WithCancel(context.Background())
		var g errgroup.Group
		for i := range 4 {
			c := client(t, node.Bootstrap(), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.RecordDeliveryTimeout(10*time.Second),
				kgo.MaxProduceRequestsInflightPerBroker(3))
			g.Go(func() error { return a.run(ctx, c, fmt.Sprint("round ", round, " producer ", i), 200*time.Microsecond) })
		}
		_, before, _ := a.counts()
		eventually(t, "the producers to start", func() bool { _, acked, _ := a.counts(); return acked > before+500 })
		begin := time.Now()
		if code := node.Terminate(); code != 0 {
			t.Fatalf("SIGTERM ended the node with code %d; its log:\n%s", code, node.Tail())
		}
		took := time.Since(begin)
		stop()
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		node.Start()
		records, _ := a.verify(t, node.Bootstrap(), partitions, false)
		sent, acked, failed := a.counts()
		t.Logf("round %d: drained in %s; %d sent, %d acknowledged, %d failed, %d read", round, took.Round(time.Millisecond), sent, acked, failed, records)
	}
}
