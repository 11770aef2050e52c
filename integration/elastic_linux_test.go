// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve/varve/integration/harness"
)

// trickle produces a small record to some partition every few milliseconds, and notes how long each acknowledgement took.
type trickle struct {
	*tally
	acks []ack // tally.mu guards it
}

type ack struct {
	sent time.Time
	took time.Duration
}

func (l *trickle) run(ctx context.Context, c *kgo.Client, partitions int32, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		sent := time.Now()
		l.mu.Lock()
		l.sent++
		l.mu.Unlock()
		c.Produce(context.Background(), &kgo.Record{Topic: l.topic, Partition: rand.Int32N(partitions), Value: fmt.Appendf(nil, "%d %s", n, filler)}, func(r *kgo.Record, err error) {
			l.done(r, err)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.acks = append(l.acks, ack{sent, time.Since(sent)})
		})
		<-tick.C
	}
	flush, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.Flush(flush)
}

// spell is what a client met in some time.
type spell struct {
	records       int
	p50, p99, max time.Duration
	hit           int // records that took more than three times the usual p99
}

func (s spell) String() string {
	return fmt.Sprintf("%d records, p50 %s, p99 %s, max %s, %d above three times the usual p99", s.records, s.p50.Round(10*time.Microsecond), s.p99.Round(10*time.Microsecond), s.max.Round(10*time.Microsecond), s.hit)
}

// between is about the records sent then that were acknowledged by now.
func (c *loads) between(from, to time.Time, usual time.Duration) (s spell) {
	var all []time.Duration
	for _, l := range c.of {
		l.mu.Lock()
		for _, a := range l.acks {
			if a.sent.After(from) && a.sent.Before(to) {
				all = append(all, a.took)
			}
		}
		l.mu.Unlock()
	}
	if s.records = len(all); s.records == 0 {
		return spell{p99: math.MaxInt64}
	}
	slices.Sort(all)
	for _, d := range all {
		if usual > 0 && d > 3*usual {
			s.hit++
		}
	}
	s.p50, s.p99, s.max = all[len(all)/2], all[len(all)*99/100], all[len(all)-1]
	return s
}

// The topics of TestElastic: what is in the bucket before, and what is produced while nodes come and go.
const history, trickled = "history", "trickled"

// loads are clients that produce, each to a topic of its own, while something is done.
type loads struct {
	test  *testing.T
	of    []*trickle
	usual time.Duration // their p99 at rest
}

func newLoads(t *testing.T, topics ...string) loads {
	l := loads{test: t}
	for _, topic := range topics {
		l.of = append(l.of, &trickle{tally: newTally(topic)})
	}
	return l
}

func (c *loads) failed() (n int) {
	for _, l := range c.of {
		_, _, failed := l.counts()
		n += failed
	}
	return n
}

// meanwhile runs do while the clients produce, after twice some time of rest, of which the second half tells what is usual. No send may fail.
func (c *loads) meanwhile(client func() *kgo.Client, partitions int32, rest time.Duration, do func()) {
	c.test.Helper()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, len(c.of))
	for _, l := range c.of {
		producer := client()
		go func() { ended <- l.run(ctx, producer, partitions, 4*time.Millisecond) }()
	}
	time.Sleep(rest) // connections, first batches, first leaders
	began := time.Now()
	time.Sleep(rest)
	at := c.between(began, time.Now(), 0)
	c.usual = at.p99
	c.test.Logf("%d partitions, at rest: %s", int(partitions)*len(c.of), at)
	do()
	stop()
	for range c.of {
		if err := <-ended; err != nil {
			c.test.Fatal(err)
		}
	}
	if n := c.failed(); n > 0 {
		c.test.Errorf("%d sends failed", n)
	}
}

// during tells what the clients met while do ran, and in the two seconds after it.
func (c *loads) during(what string, do func()) {
	c.test.Helper()
	const settled = 2 * time.Second
	began := time.Now()
	do()
	ended := time.Now()
	time.Sleep(settled + patienceOfClients)
	in, after := c.between(began, ended, c.usual), c.between(ended, ended.Add(settled), c.usual)
	times := func(s spell) float64 { return float64(s.p99) / float64(c.usual) }
	c.test.Logf("%s took %s: %s; p99 %.1f times the usual; %d failed. The %s after: %s; p99 %.1f times", what, ended.Sub(began).Round(time.Millisecond), in, times(in),
		c.failed(), settled, after, times(after))
}

// patienceOfClients is how long the acknowledgements of what was sent last are waited for before they are counted.
const patienceOfClients = time.Second

// elastic is a cluster whose nodes come and go while clients produce.
type elastic struct {
	*many
	loads
	token  string
	bucket string
	adm    *kadm.Client
}

// led counts the partitions that each node leads, by what a node that runs tells.
func (e *elastic) led() (map[int32]int, error) {
	answer, err := e.adm.Metadata(within(e.t, patience), e.topics...)
	if err != nil {
		return nil, err
	}
	out := map[int32]int{}
	answer.Topics.EachPartition(func(p kadm.PartitionDetail) { out[p.Leader]++ })
	return out, nil
}

// whole waits until every partition has three replicas in sync.
func (e *elastic) whole() {
	e.t.Helper()
	eventually(e.t, "three replicas of each partition to be in sync", func() bool { _, s := e.missing(e.adm, 3); return s == 0 })
}

// appended is how many bytes of record batches were written to a node's hot log since it started.
func appended(n *harness.Node) float64 {
	return harness.Sum(n.Metrics(), "varve_hotlog_appended_bytes_total")
}

// startElastic starts three nodes with topics of so many partitions, and, with history, that much of one topic in the bucket.
func startElastic(t *testing.T, partitions int32, historyBytes int) *elastic {
	t.Helper()
	e := &elastic{many: &many{t: t, etcd: harness.StartEtcd(t), partitions: partitions, topics: []string{history, trickled}}, token: tokenFile(t), loads: newLoads(t, trickled, history)}
	e.bucket = harness.TempDir(t, "bucket")
	e.nodes = threeNodes(t, e.etcd, e.bucket, "--http-token-file", e.token)
	c := e.client()
	e.adm = kadm.NewClient(c)
	for _, topic := range e.topics {
		replicated(t, c, topic, e.partitions, map[string]string{"min.insync.replicas": "2", "local.retention.ms": "0"})
	}
	e.whole()
	if historyBytes > 0 {
		e.fill(c, historyBytes)
		eventually(t, "the history to be in the bucket", func() bool { return e.inBucket() >= float64(historyBytes) })
	}
	return e
}

// underLoad is meanwhile; and nothing acknowledged may be lost, of the first topic.
func (e *elastic) underLoad(rest time.Duration, do func()) {
	e.t.Helper()
	e.meanwhile(e.client, e.partitions, rest, do)
	records, _ := e.of[0].verify(e.t, e.nodes[0].Bootstrap(), int(e.partitions), false)
	sent, acked, failed := e.of[0].counts()
	e.t.Logf("%d sent, %d acknowledged, %d failed, %d read", sent, acked, failed, records)
}

// TestDrains hands over what a node leads while clients produce that try again, as idempotent producers do by default: by SIGTERM and by `varve node
// drain`. No send fails, and nothing acknowledged is lost. VARVE_LONG=1 has 1,000 partitions and prints figures that are worth reading on a quiet
// machine: the aim is 10 s, and a p99 meanwhile of at most three times that at rest.
func TestDrains(t *testing.T) {
	t.Parallel() // nearly all of it is waiting
	partitions, rest := int32(30), 2*time.Second
	if harness.Long() {
		partitions, rest = 500, 10*time.Second
	}
	e := startElastic(t, partitions, 0)
	e.underLoad(rest, func() {
		leaver := e.nodes[2]
		e.during("SIGTERM", func() {
			if code := leaver.Terminate(); code != 0 {
				t.Errorf("it ended with code %d", code)
			}
		})
		e.during("the start of it, until it leads its share,", func() {
			leaver.Start()
			e.whole()
			eventually(t, "it to lead its share", func() bool { led, _ := e.led(); return led[int32(leaver.Config.ID)] >= e.total()/4 })
		})
		drained := e.nodes[1]
		e.during("varve node drain", func() {
			drained.Must("node", "drain", fmt.Sprint(drained.Config.ID), "--wait", "30s", "--http-token-file", e.token)
		})
		if led, err := e.led(); err != nil || led[int32(drained.Config.ID)] != 0 {
			t.Errorf("a drained node leads %d partitions: %v", led[int32(drained.Config.ID)], err)
		}
		drained.Must("node", "undrain", fmt.Sprint(drained.Config.ID), "--http-token-file", e.token)
	})
}

// TestElastic takes a disk away and adds a node while clients produce. No send fails, nothing acknowledged is lost, and what is copied is hot: the
// history in the bucket stays where it is. VARVE_LONG=1 has 1,000 partitions and more history.
func TestElastic(t *testing.T) {
	t.Parallel() // nearly all of it is waiting
	partitions, size := int32(30), 8<<20
	if harness.Long() {
		partitions, size = 500, 256<<20
	}
	e := startElastic(t, partitions, size)
	e.underLoad(2*time.Second, func() {
		e.emptyDisk()
		e.fourth()
	})
}

// fill produces so many bytes to all partitions alike.
func (e *elastic) fill(c *kgo.Client, bytes int) {
	e.t.Helper()
	const size = 16 << 10
	value := make([]byte, size)
	for i := range max(bytes/size, int(e.partitions)) {
		c.Produce(context.Background(), &kgo.Record{Topic: history, Partition: int32(i) % e.partitions, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				e.t.Error(err)
			}
		})
	}
	if err := c.Flush(within(e.t, patience)); err != nil {
		e.t.Fatal(err)
	}
}

// emptyDisk takes a node's disk away while it is down. It comes back by itself, and copies what is hot: the load of meanwhile, not the history.
func (e *elastic) emptyDisk() {
	e.t.Helper()
	n := e.nodes[2]
	n.Kill()
	if err := os.RemoveAll(n.Config.Data); err != nil {
		e.t.Fatal(err)
	}
	began := time.Now()
	n.Start()
	ready := time.Since(began)
	e.whole()
	took, copied, size := time.Since(began), appended(n), e.inBucket()
	e.t.Logf("an empty disk: ready after %s, all in sync after %s, %.2f MiB copied of %.1f in the bucket", ready, took, copied/(1<<20), size/(1<<20))
	if copied > size/2 {
		e.t.Errorf("the history was copied: %.0f bytes of %.0f", copied, size)
	}
}

// fourth adds a node: it leads partitions soon, and copies what is hot.
func (e *elastic) fourth() {
	e.t.Helper()
	n := memberNode(e.t, 4, e.etcd, e.bucket, "--http-token-file", e.token)
	began := time.Now()
	n.Start()
	ready := time.Since(began)
	leads := func() int { led, _ := e.led(); return led[4] } // asked again where there was no answer
	eventually(e.t, "the fourth node to lead", func() bool { return leads() > 0 })
	first := time.Since(began)
	enough := e.total() / 4 * 3 / 4
	eventually(e.t, "the fourth node to lead its share", func() bool { return leads() >= enough })
	share := time.Since(began)
	time.Sleep(time.Second)
	copied, size := appended(n), e.inBucket()
	e.t.Logf("a fourth node: ready after %s, leads a partition after %s and %d after %s, %.2f MiB copied of %.1f in the bucket", ready, first, leads(), share, copied/(1<<20), size/(1<<20))
	if copied > size/2 {
		e.t.Errorf("the history was copied: %.0f bytes of %.0f", copied, size)
	}
}

// inBucket is the size of the topic's segments.
func (e *elastic) inBucket() (bytes float64) {
	for p := range e.partitions {
		s, err := e.nodes[0].Segments(history, p)
		if err != nil {
			e.t.Fatal(err)
		}
		bytes += float64(s.TieredBytes)
	}
	return bytes
}
