// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/integration/harness"
)

// TestEmbeddedLosesDisks: three nodes are the etcd themselves. Each of them in turn is killed under load and started with nothing on its disk, the member
// of etcd included. It comes back by itself, and everything acknowledged is there.
func TestEmbeddedLosesDisks(t *testing.T) {
	const count = 3
	bucket, peers := "file://"+harness.TempDir(t, "bucket"), make([]string, count)
	for i := range peers {
		peers[i] = fmt.Sprintf("%d=http://%s", i+1, harness.Loopback(harness.Port(t)))
	}
	nodes, addresses := make([]*harness.Node, count), make([]string, count)
	for i := range nodes {
		nodes[i] = harness.NewNode(t, harness.NodeConfig{
			ID: i + 1, Etcd: "embed", Args: []string{"--etcd-peers", strings.Join(peers, ",")}, Bucket: bucket, Peers: true, Lease: 3 * time.Second,
		})
		addresses[i] = nodes[i].Bootstrap()
		nodes[i].Launch()
	}
	for _, n := range nodes {
		n.AwaitReady()
	}
	admin := client(t, addresses[0])
	replicated(t, admin, "lost", partitions, map[string]string{"min.insync.replicas": "2", "segment.ms": "500", "local.retention.ms": "100"})
	a := newTally("lost")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var g errgroup.Group
	for i := range 2 {
		c := client(t, nodes[i].Bootstrap())
		g.Go(func() error { return a.run(ctx, c, fmt.Sprint("producer ", i), time.Millisecond) })
	}
	for _, n := range nodes {
		_, before, _ := a.counts()
		eventually(t, "the producers to go on", func() bool { _, acked, _ := a.counts(); return acked > before+200 })
		n.Kill()
		if err := os.RemoveAll(n.Config.Data); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		n.Start()
		t.Logf("node %d is ready %s after it was started without its disk", n.Config.ID, time.Since(begin).Round(100*time.Millisecond))
	}
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	sent, acked, failed := a.counts()
	if failed > 0 || acked != sent {
		t.Errorf("of %d records %d were acknowledged and %d failed", sent, acked, failed)
	}
	a.verify(t, addresses[0], partitions, true)
}
