// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/integration/harness"
)

// rolling is a cluster whose nodes change their release one by one under load.
type rolling struct {
	t     *testing.T
	nodes []*harness.Node
	load  *tally
	old   string
	next  string
	token string // file
}

// roll stops a node in order, and starts it with another binary once the others have gone on.
func (r *rolling) roll(n int, binary, what string) {
	r.t.Helper()
	node, began := r.nodes[n], time.Now()
	if code := node.Terminate(); code != 0 {
		r.t.Fatalf("%s: node %d ended with code %d; its log:\n%s", what, node.Config.ID, code, node.Tail())
	}
	down := time.Since(began)
	node.Config.Binary = binary
	node.Start() // ready: every partition assigned to it is in sync there
	up := time.Since(began)
	r.goesOn(what)
	r.t.Logf("%s: node %d stopped in %s, ready after %s, produce on after %s", what, node.Config.ID, down.Round(time.Millisecond), up.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

func (r *rolling) goesOn(what string) {
	r.t.Helper()
	_, before, _ := r.load.counts()
	eventually(r.t, what+": produce to go on", func() bool { _, acked, _ := r.load.counts(); return acked > before+50 })
}

// upgrade runs varve cluster upgrade through a node.
func (r *rolling) upgrade(n int, args ...string) (string, error) {
	return r.nodes[n].Run(nil, append([]string{"cluster", "upgrade", "--http-token-file", r.token}, args...)...)
}

// TestRollingUpgrade rolls a cluster from one release to the next, back and forth again before varve cluster upgrade, and once more
// after it. Nothing acknowledged is lost, and there is no way back after it.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel() // nearly all of it is waiting
	etcd, bucket := harness.StartEtcd(t), harness.TempDir(t, "bucket")
	r := &rolling{t: t, old: harness.Varve(t), next: harness.NextVarve(t), load: newTally("rolled")}
	r.token = tokenFile(t)
	r.nodes = threeNodes(t, etcd, bucket, "--http-token-file", r.token)
	open := func() *kgo.Client {
		return client(t, "", kgo.SeedBrokers(r.nodes[0].Bootstrap(), r.nodes[1].Bootstrap(), r.nodes[2].Bootstrap()))
	}
	replicated(t, open(), "rolled", partitions, map[string]string{"segment.ms": "1000", "local.retention.ms": "0"})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var g errgroup.Group
	c := open()
	g.Go(func() error { return r.load.run(ctx, c, "rolling", 5*time.Millisecond) })

	for n := range r.nodes {
		r.roll(n, r.next, "to the next release")
		if n == 1 {
			if out, err := r.upgrade(n, "--to", "2"); err == nil || !strings.Contains(err.Error(), "the nodes can run at most 1") {
				t.Errorf("raised while an old node runs: %q, %v", out, err)
			}
		}
	}
	r.roll(1, r.old, "back to the old release")
	r.roll(1, r.next, "and forth")
	if out, err := r.upgrade(0); err != nil || !strings.Contains(out, "went from version 1 to 2") {
		t.Fatalf("upgrade: %q, %v", out, err)
	}
	r.goesOn("upgraded")
	r.roll(0, r.next, "after the upgrade")

	if code := r.nodes[2].Terminate(); code != 0 {
		t.Errorf("node 3 ended with code %d", code)
	}
	r.nodes[2].Config.Binary = r.old
	if code, said := r.nodes[2].Refuse(); code == 0 || !strings.Contains(said, "cluster version has format 2, this binary reads up to 1: upgrade varve") {
		t.Errorf("the old release after the upgrade: code %d\n%s", code, said)
	}
	r.nodes[2].Config.Binary = r.next
	r.nodes[2].Start()
	r.goesOn("back in the cluster")
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	records, _ := r.load.verify(t, r.nodes[0].Bootstrap(), partitions, false)
	_, acked, failed := r.load.counts()
	t.Logf("%d acknowledged, %d read, %d failed", acked, records, failed)
}
