// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/reconcile"
)

// backup is all of the metadata but what hangs on a lease.
func (c *cluster) backup() (out []metadata.KeyValue) {
	c.t.Helper()
	kv := c.peers.etcd.Client()
	defer kv.Close()
	all, err := kv.Range(c.t.Context(), metadata.RangeRequest{Key: "\x00", End: "\xff"})
	check(c.t, err)
	return slices.DeleteFunc(all.KVs, func(kv metadata.KeyValue) bool { return kv.Lease != 0 })
}

// restore stops all nodes and puts a backup into the place of the metadata.
func (c *cluster) restore(backup []metadata.KeyValue) {
	c.t.Helper()
	for _, n := range c.nodes {
		n.stop()
	}
	c.peers.etcd = memory.New()
	kv := c.peers.etcd.Client()
	defer kv.Close()
	for _, b := range backup {
		_, err := kv.Txn(c.t.Context(), metadata.Txn{Then: []metadata.Op{{Kind: metadata.OpPut, Key: b.Key, Value: b.Value}}})
		check(c.t, err)
	}
}

// inspect reads the hot logs of a node that does not run.
func (c *cluster) inspect(id record.NodeID) (n reconcile.Node) {
	c.t.Helper()
	db, err := hotlog.Open("data", hotlog.Options{FS: c.peers.disks[id].FS(nil)})
	check(c.t, err)
	n = reconcile.Node{ID: id, Store: db.Identity().StoreID, MaxPID: -1}
	ids, err := db.Partitions()
	check(c.t, err)
	for _, p := range ids {
		l, err := db.OpenLog(p, nil)
		check(c.t, err)
		n.Logs = append(n.Logs, reconcile.Log{ID: p, Start: l.Start(), End: l.AppendedEnd(), HighWatermark: l.Meta().HighWatermark, CurrentEpoch: l.Meta().CurrentEpoch, Epochs: l.Epochs()})
	}
	check(c.t, db.Close())
	return n
}

// reconcile makes the metadata fit what is left, and starts every node: those that are lost with an empty disk.
func (c *cluster) reconcile(lost ...record.NodeID) *reconcile.Result {
	c.t.Helper()
	kv := c.peers.etcd.Client()
	defer kv.Close()
	meta, err := metadata.Open(c.t.Context(), kv, metadata.Options{Logger: slog.New(slog.DiscardHandler), CompactEvery: -1})
	check(c.t, err)
	in := &reconcile.Input{}
	for id := record.NodeID(1); id <= 3; id++ {
		if slices.Contains(lost, id) {
			delete(c.peers.disks, id)
			if len(lost) < 3 {
				in.Without = append(in.Without, id)
				continue
			}
			c.peers.disks[id] = hotlog.NewMemFS()
		}
		in.Nodes = append(in.Nodes, c.inspect(id))
	}
	in.State, err = meta.Freeze(c.t.Context())
	check(c.t, err)
	in.Bucket, err = reconcile.Survey(c.t.Context(), c.peers.store, meta.ClusterID(), in.State, in.Nodes)
	check(c.t, err)
	plan, err := reconcile.Plan(in)
	check(c.t, err)
	check(c.t, meta.Reconcile(c.t.Context(), in.State, &plan.Reconciliation))
	for id := record.NodeID(1); id <= 3; id++ {
		c.start(id)
	}
	return plan
}

// readAll reads a replica from its log start to its high watermark, wherever the records are.
func (c *cluster) readAll(n record.NodeID, id record.PartitionID) (out []string) {
	c.t.Helper()
	p, err := c.nodes[n].broker.Partition(id)
	if err != nil {
		return nil
	}
	for at, end := p.Marks().LogStart, p.Marks().HW; at < end; at = record.Offset(len(out)) {
		var res broker.ReadResult
		req := broker.ReadRequest{Offset: at, MaxBytes: 1 << 20, FirstWhole: true, CurrentEpoch: record.NoEpoch, LastFetchedEpoch: record.NoEpoch, AnyReplica: true}
		err := p.Read(&req, &res)
		if res.Cold && err == nil {
			err = p.ReadCold(c.t.Context(), &req, &res)
		}
		got := contents(c.t, res.Data)
		if err != nil || len(got) == 0 {
			return append(out, fmt.Sprint(err))
		}
		out = append(out, got...)
	}
	return out
}

// TestReconcile puts the metadata back to a backup, after which the cluster uploaded, changed leaders and lost a member of the in-sync set.
// Whoever's disks are left, what was acknowledged is there as far as the bucket or a disk has it, and the cluster goes on.
func TestReconcile(t *testing.T) {
	for _, tc := range []struct {
		name string
		lost []record.NodeID
		want []string
	}{
		{"nobody is lost", nil, []string{"a", "b", "c", "d", "e"}},
		{"the leader is lost", []record.NodeID{2}, []string{"a", "b", "c", "d", "e"}},
		{"one that was not in sync is lost", []record.NodeID{1}, []string{"a", "b", "c", "d", "e"}},
		{"only one that was not in sync is left", []record.NodeID{2, 3}, []string{"a", "b", "c"}},
		{"all disks are lost", []record.NodeID{1, 2, 3}, []string{"a", "b", "c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				id := c.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "0"})
				p := c.awaitLeader(id, 1)
				c.must(p, "a")
				c.await("the first record to be in the bucket", func() bool { return p.Marks().TieredEnd == 1 })
				backup := c.backup()
				c.must(p, "b")
				c.nodes[1].stop()
				p = c.awaitLeader(id, 2)
				c.must(p, "c")
				c.await("three records to be in the bucket", func() bool { return p.Marks().TieredEnd == 3 })
				_, err := c.nodes[2].meta.AlterTopicConfig(t.Context(), id.Topic, func(o map[string]string) error { o["segment.ms"] = "3600000"; return nil })
				check(t, err)
				time.Sleep(time.Second)
				c.must(p, "d")
				c.must(p, "e")
				last := p.Marks().Epoch
				c.restore(backup)
				plan := c.reconcile(tc.lost...)
				if warned := len(plan.Warnings) > 0; warned != (len(tc.lost) > 1) {
					t.Errorf("warnings: %q", plan.Warnings)
				}
				next := c.awaitLeader(id, 1, 2, 3)
				if e := next.Marks().Epoch; e <= last {
					t.Errorf("leads in epoch %d, the last one was %d", e, last)
				}
				leader := record.NodeID(1)
				for n := range c.nodes {
					if q, err := c.nodes[n].broker.Partition(id); err == nil && q == next {
						leader = n
					}
				}
				c.awaitISR(leader, id, 1, 2, 3)
				c.must(next, "f")
				want := append(slices.Clone(tc.want), "f")
				for n := range c.nodes {
					c.await(fmt.Sprintf("node %d to give %v", n, want), func() bool { return slices.Equal(c.readAll(n, id), want) })
				}
			})
		})
	}
}
