// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/integration/harness"
	"github.com/varve/varve/internal/testenv"
)

// threeNodes starts a cluster of three nodes on one etcd and a bucket in a directory.
func threeNodes(t *testing.T, etcd *harness.Etcd, bucket string, args ...string) []*harness.Node {
	t.Helper()
	var nodes []*harness.Node
	for id := 1; id <= 3; id++ {
		n := memberNode(t, id, etcd, bucket, args...)
		n.Launch()
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		n.AwaitReady()
	}
	return nodes
}

// memberNode is one node of several, not started.
func memberNode(t *testing.T, id int, etcd *harness.Etcd, bucket string, args ...string) *harness.Node {
	t.Helper()
	return harness.NewNode(t, harness.NodeConfig{
		ID: id, Peers: true, Lease: lease, Etcd: etcd.URL(), Bucket: "file://" + bucket, Args: args, Set: []string{"varve.segment.max.ms=1000"},
	})
}

func replicated(t *testing.T, c *kgo.Client, topic string, partitions int32, configs map[string]string) {
	t.Helper()
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = kadm.StringPtr(v)
	}
	ctx := within(t, patience)
	_, err := kadm.NewClient(c).CreateTopic(ctx, partitions, 3, values, topic)
	for errors.Is(err, kerr.InvalidReplicationFactor) { // a node has not heard of the others yet
		time.Sleep(50 * time.Millisecond)
		_, err = kadm.NewClient(c).CreateTopic(ctx, partitions, 3, values, topic)
	}
	if err != nil {
		t.Fatalf("create %s: %v", topic, err)
	}
}

func commitOffset(t *testing.T, c *kgo.Client, group, topic string, at int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, at, -1)
	if err := kadm.NewClient(c).CommitAllOffsets(within(t, patience), group, offsets); err != nil {
		t.Fatalf("commit %d: %v", at, err)
	}
}

// committedOffset reads a group's offset in partition 0. The client takes the first answer that no node coordinates the group as the last.
func committedOffset(t *testing.T, c *kgo.Client, group, topic string) (at int64) {
	t.Helper()
	eventually(t, "the committed offset", func() bool {
		offsets, err := kadm.NewClient(c).FetchOffsets(within(t, patience), group)
		if err != nil && !kerr.IsRetriable(err) {
			t.Fatal(err)
		}
		o, ok := offsets.Lookup(topic, 0)
		if err == nil && !ok {
			t.Fatalf("group %s has no offset in %s", group, topic)
		}
		at = o.At
		return err == nil
	})
	return at
}

func objects(t *testing.T, bucket string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir(bucket, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, "log") {
			all[path] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReconcile puts etcd back to a snapshot of a cluster that has gone on since: it uploaded, expired, changed leaders, got a topic and
// partitions. No node serves on that etcd. After varve restore --reconcile all that was acknowledged is there, and nothing was deleted.
func TestReconcile(t *testing.T) {
	t.Parallel() // nearly all of it is waiting
	etcdutl := testenv.Tool(t, "etcdutl")
	etcd, bucket := harness.StartEtcd(t), harness.TempDir(t, "bucket")
	nodes := threeNodes(t, etcd, bucket)
	open := func() *kgo.Client {
		return client(t, "", kgo.SeedBrokers(nodes[0].Bootstrap(), nodes[1].Bootstrap(), nodes[2].Bootstrap()))
	}
	admin := open()
	replicated(t, admin, "kept", 3, map[string]string{"local.retention.ms": "0", "segment.ms": "1000"})
	replicated(t, admin, "expires", 1, map[string]string{"local.retention.ms": "0", "retention.ms": "3000", "segment.ms": "1000"})
	kept, expires, younger := newTally("kept"), newTally("expires"), newTally("younger")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var g errgroup.Group
	load := func(a *tally) {
		c := open()
		g.Go(func() error { return a.run(ctx, c, a.topic, 5*time.Millisecond) })
	}
	load(kept)
	load(expires)
	eventually(t, "some of it to be in the bucket", func() bool { return len(objects(t, bucket)) > 4 })
	commitOffset(t, admin, "g", "kept", 5)
	snapshot := etcd.Snapshot()
	commitOffset(t, admin, "g", "kept", 20)
	replicated(t, admin, "younger", 2, nil)
	load(younger)
	if _, err := kadm.NewClient(admin).CreatePartitions(within(t, patience), 1, "kept"); err != nil {
		t.Fatal(err)
	}
	nodes[1].Crash()          // leaders and in-sync sets change
	lasts := 12 * time.Second // the highest revision seen is written down at most every 10 s
	if harness.Long() {
		lasts = 10 * time.Minute
	}
	time.Sleep(lasts)
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	admin.Close()
	unsealed := 0.0 // ranges of "expires" that went before they were in a segment, as they do when the machine stands still for longer than retention
	for _, n := range nodes {
		unsealed += n.Metrics()["varve_archiver_expired_unsealed_total"]
	}
	for _, n := range nodes {
		n.Kill()
	}
	etcd.Kill()
	before := objects(t, bucket)
	etcd.Restore(etcdutl, snapshot, "--initial-cluster-token", "restored")
	etcd.Start()
	refuseAll(t, nodes)

	reconcileAll(t, nodes, etcd.URL(), "file://"+bucket, unsealed > 0)
	for _, n := range nodes {
		n.Launch()
	}
	for _, n := range nodes {
		n.AwaitReady()
	}
	for path := range before {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("an object is gone: %v", err)
		}
	}
	again := open()
	for _, a := range []struct {
		*tally
		parts int
	}{{kept, 4}, {expires, 1}, {younger, 2}} {
		n, start := a.verify(t, nodes[1].Bootstrap(), a.parts, false)
		_, acked, _ := a.counts()
		t.Logf("%s: %d acknowledged, %d read, from %v", a.topic, acked, n, start)
	}
	if at := committedOffset(t, again, "g", "kept"); at != 5 {
		t.Errorf("committed offset %d, want that of the snapshot, 5", at)
	}
	goOn(t, open, nodes, kept)
}

// reconcileAll runs the command on the directories of two nodes and a report of the third: without the third, dry, and for good.
//
// It may warn of one thing, and only where unsealed says so: that the bucket does not lead up to the log start of "expires".
func reconcileAll(t *testing.T, nodes []*harness.Node, etcd, bucket string, unsealed bool) {
	t.Helper()
	restore := []string{"restore", "--reconcile", "--etcd", etcd, "--bucket", bucket}
	for _, n := range nodes[:2] {
		restore = append(restore, "--data", n.Config.Data)
	}
	if _, err := nodes[0].Run(nil, restore...); err == nil || !strings.Contains(err.Error(), "the data directory of node 3 is missing") {
		t.Errorf("without node 3: %v", err)
	}
	report := filepath.Join(harness.TempDir(t, "report"), "node3.json")
	nodes[2].Must("restore", "--data", nodes[2].Config.Data, "--write-report", report)
	restore = append(restore, "--report", report)
	if out := nodes[0].Must(restore...); !strings.Contains(out, "nothing was changed") || !strings.Contains(out, "etcd: is at revision ") {
		t.Errorf("the dry run says:\n%s", out)
	}
	out := nodes[0].Must(append(restore, "--apply")...)
	t.Log(out)
	warnings := regexp.MustCompile(`(?m)^WARNING .*$`).FindAllString(out, -1)
	warnings = slices.DeleteFunc(warnings, func(w string) bool {
		return unsealed && strings.HasPrefix(w, "WARNING expires-0: the segments that would lead up to")
	})
	if !strings.Contains(out, "reconciled: generation 2") || len(warnings) > 0 {
		t.Errorf("it says:\n%s", out)
	}
}

// refuseAll starts the nodes, which must not serve.
func refuseAll(t *testing.T, nodes []*harness.Node) {
	t.Helper()
	var all sync.WaitGroup
	for _, n := range nodes {
		all.Go(func() {
			code, said := n.Refuse()
			if code == 0 || !strings.Contains(said, "etcd went back from revision") || !strings.Contains(said, "varve restore --reconcile") {
				t.Errorf("node %d on the restored etcd: code %d\n%s", n.Config.ID, code, said)
			}
		})
	}
	all.Wait()
}

// goOn produces on, over a change of leaders, and reads everything again.
func goOn(t *testing.T, open func() *kgo.Client, nodes []*harness.Node, a *tally) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var g errgroup.Group
	c := open()
	g.Go(func() error { return a.run(ctx, c, "on", 5*time.Millisecond) })
	_, before, _ := a.counts()
	eventually(t, "produce to go on", func() bool { _, acked, _ := a.counts(); return acked > before+100 })
	nodes[0].Crash()
	_, before, _ = a.counts()
	eventually(t, "produce to go on over a change of leaders", func() bool { _, acked, _ := a.counts(); return acked > before+100 })
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	a.verify(t, nodes[1].Bootstrap(), 4, false)
}
