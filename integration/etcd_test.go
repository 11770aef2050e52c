// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/integration/harness"
	"github.com/varve/varve/internal/testenv"
)

const (
	lease      = 3 * time.Second
	leaseMilli = "3000"
)

// TestEtcdAway kills etcd under load and brings it back. Produce goes on while the lease lasts, then fails in a way that a client
// retries, and goes on by itself afterwards, without a restart; nothing acknowledged is lost. (A1, A2, A6)
func TestEtcdAway(t *testing.T) {
	etcd := harness.StartEtcd(t)
	node := harness.StartNode(t, harness.NodeConfig{
		Etcd: etcd.URL(), Bucket: "file://" + harness.TempDir(t, "bucket"), Set: []string{"varve.broker.lease.ms=" + leaseMilli},
	})
	admin := client(t, node.Bootstrap())
	createTopic(t, admin, "away", partitions, nil)
	a := newTally("away")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var g errgroup.Group
	patient := client(t, node.Bootstrap())
	g.Go(func() error { return a.run(ctx, patient, "patient", 2*time.Millisecond) })
	probe := startProbe(ctx, &g, client(t, node.Bootstrap(), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.RecordDeliveryTimeout(5*time.Second)), a)
	eventually(t, "both producers to start", func() bool { return probe.outcomes().ok > 20 })

	etcd.Kill()
	killed, before := time.Now(), probe.outcomes()
	eventually(t, "produce to fail", func() bool { return probe.outcomes().failed > before.failed })
	lasted := probe.lastOK().Sub(killed)
	if lasted < lease/4 {
		t.Errorf("produce went on for only %s of a lease of %s", lasted, lease)
	}
	if lasted > lease+time.Second {
		t.Errorf("produce went on for %s with a lease of %s that nobody renewed: another node might have led meanwhile", lasted, lease)
	}
	time.Sleep(lease)
	during := probe.outcomes()
	if !node.Running() {
		t.Fatalf("the node ended while etcd was away; its log:\n%s", node.Tail())
	}
	etcd.Start()
	back := time.Now()
	eventually(t, "produce to resume", func() bool { return probe.outcomes().ok > during.ok+20 })
	resumed := time.Since(back)
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, err := range probe.errors() {
		if !kerr.IsRetriable(err) && !errors.Is(err, kgo.ErrRecordTimeout) && !errors.Is(err, kgo.ErrRecordRetries) {
			t.Errorf("produce failed in a way that no client retries: %v", err)
		}
	}
	records, _ := a.verify(t, node.Bootstrap(), partitions, false)
	_, acked, failed := a.counts()
	t.Logf("produce went on for %s of a lease of %s, failed %d times, resumed %s after etcd; %d acknowledged, %d read",
		lasted.Round(time.Millisecond), lease, failed, resumed.Round(time.Millisecond), acked, records)
}

// probe is a producer that does not retry: what it is told shows what the node answers at each moment.
type probe struct {
	mu      sync.Mutex
	counted outcomes
	last    time.Time // of a success
	errs    map[string]error
}

type outcomes struct{ ok, failed int }

func startProbe(ctx context.Context, g *errgroup.Group, c *kgo.Client, a *tally) *probe {
	p := &probe{errs: map[string]error{}}
	g.Go(func() error {
		for i := 0; ctx.Err() == nil; i++ {
			r := &kgo.Record{Topic: a.topic, Value: []byte("probe " + time.Now().Format(time.RFC3339Nano))}
			_, err := c.ProduceSync(context.Background(), r).First()
			a.done(r, err)
			p.mu.Lock()
			if err == nil {
				p.counted.ok, p.last = p.counted.ok+1, time.Now()
			} else {
				p.counted.failed++
				p.errs[err.Error()] = err
			}
			p.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
	return p
}

func (p *probe) outcomes() outcomes {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counted
}

func (p *probe) lastOK() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *probe) errors() (all []error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, err := range p.errs {
		all = append(all, err)
	}
	return all
}

// TestEtcdWentBack restores etcd from a snapshot that was taken while the node ran, with etcd's own tool: the node must not go on
// from there, neither one that runs nor one that starts, and says what to do.
func TestEtcdWentBack(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"same identity": nil,
		// What etcd advises: another etcd cluster id, and a revision far ahead. The id alone tells.
		"new token, revision raised": {"--initial-cluster-token", "restored", "--bump-revision", "1000000", "--mark-compacted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // nearly all of it is waiting
			testEtcdWentBack(t, flags)
		})
	}
}

func testEtcdWentBack(t *testing.T, restoreFlags []string) {
	const says = `(restored backup?): stop all nodes and run "varve restore --reconcile"`
	etcdutl := testenv.Tool(t, "etcdutl")
	etcd := harness.StartEtcd(t)
	config := harness.NodeConfig{
		Etcd: etcd.URL(), Bucket: "file://" + harness.TempDir(t, "bucket"), Data: harness.TempDir(t, "data") + "/data",
		Set: []string{"varve.broker.lease.ms=" + leaseMilli},
	}
	node := harness.StartNode(t, config)
	c := client(t, node.Bootstrap())
	createTopic(t, c, "before", 1, nil)
	produceOne(t, c, "before")
	snapshot := etcd.Snapshot()
	for _, topic := range []string{"later", "later-still", "latest"} {
		createTopic(t, c, topic, 3, nil)
	}
	produceOne(t, c, "latest")
	// The highest revision seen is written down at most every 10 s.
	time.Sleep(12 * time.Second)

	etcd.Kill()
	etcd.Restore(etcdutl, snapshot, restoreFlags...)
	etcd.Start()
	// An answer that does not fit is asked again for 30 s first: a lagging member is not a restored backup.
	if code := node.Wait(patience); code == 0 {
		t.Error("a node that met an older etcd ended with code 0")
	}
	if !strings.Contains(node.Log(), "etcd went back from revision") || !strings.Contains(node.Log(), says) {
		t.Errorf("the running node does not say that etcd went back; its log:\n%s", node.Tail())
	}
	t.Run("start", func(t *testing.T) {
		r := refusal{config: config, says: []string{"etcd went back from revision", says}, slow: true}
		r.check(t)
	})
}

func produceOne(t *testing.T, c *kgo.Client, topic string) {
	t.Helper()
	if err := c.ProduceSync(within(t, patience), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
