// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve/varve/integration/harness"
)

// many is a cluster of three nodes with many partitions of three replicas each.
type many struct {
	t          *testing.T
	etcd       *harness.Etcd
	nodes      []*harness.Node
	topics     []string
	partitions int32 // of each topic
}

func (m *many) total() int { return len(m.topics) * int(m.partitions) }

// client asks the nodes that run.
func (m *many) client() *kgo.Client {
	var seeds []string
	for _, n := range m.nodes {
		if n.Running() {
			seeds = append(seeds, n.Bootstrap())
		}
	}
	return client(m.t, "", kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(m.total()+1),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
}

// settle waits until the record of every partition is in the bucket, which takes a file and some transactions for each: what follows is rest.
func (m *many) settle() {
	m.t.Helper()
	began := time.Now()
	for sealed := 0.0; sealed < float64(m.total()); time.Sleep(time.Second) {
		if time.Since(began) > 5*patience {
			m.t.Fatalf("%.0f of %d partitions are in the bucket", sealed, m.total())
		}
		sealed = 0
		for _, n := range m.nodes {
			sealed += harness.Sum(n.Metrics(), "varve_archiver_seals_total", `outcome="ok"`)
		}
	}
	m.t.Logf("all in the bucket %s after that", time.Since(began))
	time.Sleep(idleSettle)
}

// rest prints what the processes and etcd do while nobody asks anything of them.
func (m *many) rest(what string) {
	m.t.Helper()
	const proposals, span = "etcd_server_proposals_committed_total", 20 * time.Second
	used := func() (nodes, etcd time.Duration) {
		for _, n := range m.nodes {
			nodes += processorTime(m.t, n.Pid())
		}
		return nodes, processorTime(m.t, m.etcd.Pid())
	}
	wrote := m.etcd.Metrics()[proposals]
	nodes, etcd := used()
	time.Sleep(span)
	nodesAfter, etcdAfter := used()
	m.t.Logf("%s: in %s the nodes took %s of processor time and etcd %s, and etcd committed %.1f writes per second", what, span,
		nodesAfter-nodes, etcdAfter-etcd, (m.etcd.Metrics()[proposals]-wrote)/span.Seconds())
}

// missing counts the partitions without a leader, and those whose in-sync set is smaller than want, as a node tells.
func (m *many) missing(c *kadm.Client, want int) (leaderless, small int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := c.Metadata(ctx, m.topics...)
	if err != nil {
		return m.total(), m.total()
	}
	seen := 0
	answer.Topics.EachPartition(func(p kadm.PartitionDetail) {
		seen++
		if p.Leader < 0 || p.Err != nil {
			leaderless++
		}
		if len(p.ISR) < want {
			small++
		}
	})
	return leaderless + m.total() - seen, small + m.total() - seen
}

// produce writes one record to every partition with acks=all, and returns how long the last took.
func (m *many) produce(what string) (last time.Duration) {
	m.t.Helper()
	c, began := m.client(), time.Now()
	var failed atomic.Int64
	for _, topic := range m.topics {
		for p := range m.partitions {
			c.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: p, Value: []byte(what)}, func(r *kgo.Record, err error) {
				if err != nil && failed.Add(1) == 1 {
					m.t.Errorf("%s: %s-%d: %v", what, r.Topic, r.Partition, err)
				}
			})
		}
	}
	if err := c.Flush(within(m.t, patience)); err != nil {
		m.t.Fatalf("%s: %v, %d records wait", what, err, c.BufferedProduceRecords())
	}
	return time.Since(began)
}

// TestManyPartitions ends a node of three with many partitions: every partition that it led is led again by another replica, takes
// records, and gets its third replica back once the node is. It prints how long each took, what the cluster does at rest, and what the
// start read from the bucket. VARVE_LONG=1 has 10,000 partitions.
func TestManyPartitions(t *testing.T) {
	t.Parallel() // nearly all of it is waiting
	m := &many{t: t, etcd: harness.StartEtcd(t), partitions: 100}
	topics := 2
	if harness.Long() {
		topics, m.partitions = 10, 1000
	}
	bucket := harness.TempDir(t, "bucket")
	m.nodes = threeNodes(t, m.etcd, bucket)
	c := m.client()
	began := time.Now()
	for i := range topics {
		m.topics = append(m.topics, fmt.Sprint("many-", i))
		replicated(t, c, m.topics[i], m.partitions, map[string]string{"min.insync.replicas": "2"})
	}
	created := time.Since(began)
	eventually(t, "all partitions to be led and in sync", func() bool { l, s := m.missing(kadm.NewClient(c), 3); return l+s == 0 })
	t.Logf("%d partitions created in %s, all in sync after %s", m.total(), created, time.Since(began))
	t.Logf("a record to each takes %s", m.produce("first"))
	if harness.Long() {
		m.settle()
		m.rest("at rest")
	}

	led := 0
	answer, err := kadm.NewClient(c).Metadata(within(t, patience), m.topics...)
	if err != nil {
		t.Fatal(err)
	}
	victim := m.nodes[0]
	answer.Topics.EachPartition(func(p kadm.PartitionDetail) {
		if p.Leader == int32(victim.Config.ID) {
			led++
		}
	})
	victim.Kill()
	began = time.Now()
	survivor := kadm.NewClient(m.client())
	eventually(t, "all partitions to be led by the others", func() bool {
		answer, err := survivor.Metadata(within(t, patience), m.topics...)
		if err != nil {
			return false
		}
		left := m.total()
		answer.Topics.EachPartition(func(p kadm.PartitionDetail) {
			if p.Leader > 0 && p.Leader != int32(victim.Config.ID) {
				left--
			}
		})
		return left == 0
	})
	taken := time.Since(began)
	m.produce("after the kill")
	t.Logf("node %d led %d partitions: all led by others %s after its end (its lease: %s), a record taken by each partition after %s",
		victim.Config.ID, led, taken, lease, time.Since(began))

	began = time.Now()
	victim.Start()
	ready := time.Since(began)
	gets := harness.Sum(victim.Metrics(), "varve_objstore_requests_total", `op="get"`)
	eventually(t, "all partitions to have three replicas in sync", func() bool { _, s := m.missing(survivor, 3); return s == 0 })
	t.Logf("back: ready after %s, with %.0f reads of the bucket; all in sync after %s", ready, gets, time.Since(began))
	m.produce("at the end")
}
