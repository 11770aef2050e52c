// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/integration/harness"
)

const (
	partitions = 3
	// longBytes and ciBytes are how much text each of the two topics gets.
	longBytes = 100 << 20
	ciBytes   = 12 << 20
	// segmentBytes makes even the short form seal several segments per partition: logs compress to a tenth.
	segmentBytes = 64 << 10
)

// TestRealLogs is the main job from end to end: logs are loaded with the event time of each line, settle into a real S3 server
// and leave the disk, while the node is killed during the load and during the upload. Afterwards every line is read back by two
// unrelated clients, and every time in the logs is looked up, before and after. (A1, A2, A4)
func TestRealLogs(t *testing.T) {
	for _, open := range []func(testing.TB, string) bucket{s3Bucket, minioBucket} {
		b := open(t, "real/logs")
		t.Run(b.name, func(t *testing.T) { realLogs(t, b) })
	}
}

// story is one run of TestRealLogs.
type story struct {
	t       *testing.T
	node    *harness.Node
	client  *kgo.Client
	ledgers []*ledger
	count   counters
}

// counters are what the run prints.
type counters struct {
	acked, franz, kcat, lookups int
	gets, puts                  float64 // of the starts that ended
}

func realLogs(t *testing.T, b bucket) {
	etcd := harness.StartEtcd(t)
	node := harness.StartNode(t, harness.NodeConfig{Etcd: etcd.URL(), Bucket: b.url, Env: b.env, Set: []string{"varve.broker.lease.ms=3000"}})
	s := &story{t: t, node: node, client: client(t, node.Bootstrap())}
	size := int64(ciBytes)
	if harness.Long() {
		size = longBytes
	}
	var orders [][]int32
	for _, in := range inputs(t) {
		createTopic(t, s.client, in.topic, partitions, map[string]string{"retention.ms": "-1", "compression.type": "producer"})
		s.ledgers = append(s.ledgers, newLedger(in, partitions))
		orders = append(orders, in.order(size))
	}
	for i, l := range s.ledgers {
		orders[i] = s.loadByCommand(l, orders[i])
	}
	s.load(orders)
	for _, l := range s.ledgers {
		l.check(t)
		s.count.acked += l.count()
	}
	if tiered := s.boundaries(latestTiered); slices.Max(tiered) >= 0 {
		t.Fatalf("something is in the bucket before it should be: %v", tiered)
	}
	s.step("all records on disk only")
	s.lookUp()
	s.tier()
	s.restart()
	if gets := s.lookUp(); gets == 0 {
		t.Error("looking up evicted records cost no GET: they were not in the bucket")
	}
	s.readBack()
	s.report(b.name)
}

func (s *story) step(format string, args ...any) {
	s.t.Helper()
	s.t.Logf("%s  %s", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// loadByCommand loads the first part with `varve produce`, which parses the event times itself, and returns the rest.
func (s *story) loadByCommand(l *ledger, order []int32) []int32 {
	s.t.Helper()
	part := min(5000, len(order)/4)
	var text bytes.Buffer
	for _, i := range order[:part] {
		text.Write(l.in.lines[i].text)
		text.WriteByte('\n')
	}
	if _, err := s.node.Run(&text, "produce", l.in.topic, "--partition", "0", "--compression", l.in.codec,
		"--time-regex", l.in.regex, "--time-layout", l.in.layout, "--time-zone", "UTC"); err != nil {
		s.t.Fatal(err)
	}
	for o, i := range order[:part] {
		l.ack(0, int64(o), -i-1)
	}
	s.step("varve produce loaded %d lines of %s", part, l.in.topic)
	return order[part:]
}

// load sends the rest of every input at once through idempotent producers, and kills the node twice meanwhile.
func (s *story) load(orders [][]int32) {
	s.t.Helper()
	total, begin := 0, time.Now()
	done := func() (n int) {
		for _, l := range s.ledgers {
			n += l.count()
		}
		return n
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	before := done()
	for i, l := range s.ledgers {
		total += len(orders[i])
		codec := map[string]kgo.CompressionCodec{"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[l.in.codec]
		c := client(s.t, s.node.Bootstrap(), kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(64<<10), kgo.ProducerLinger(5*time.Millisecond),
			kgo.MaxBufferedRecords(20_000))
		g.Go(func() error { return l.produce(ctx, c, orders[i]) })
	}
	for _, third := range []int{1, 2} {
		eventually(s.t, "the load to go on", func() bool { return ctx.Err() != nil || done()-before >= total*third/3 })
		s.kill()
		s.step("kill -9 during the load, after %d acknowledged records", done())
	}
	if err := g.Wait(); err != nil {
		s.t.Fatal(err)
	}
	s.step("loaded %d records in %s", total, time.Since(begin).Round(time.Millisecond))
}

// tier makes the node seal, killing it during the uploads, until the bucket holds everything and the disk nothing.
func (s *story) tier() {
	s.t.Helper()
	for _, l := range s.ledgers {
		alterTopic(s.t, s.client, l.in.topic, map[string]string{
			"internal.segment.bytes": fmt.Sprint(segmentBytes), "segment.ms": "1000", "local.retention.ms": "100", "local.retention.bytes": "1",
		})
	}
	eventually(s.t, "the first uploads", func() bool {
		return harness.Sum(s.node.Metrics(), "varve_archiver_seals_total") >= 2
	})
	sealed := harness.Sum(s.node.Metrics(), "varve_archiver_seals_total")
	s.kill()
	s.step("kill -9 during the upload, after %.0f segments", sealed)
	s.lookUp() // hot, tiered and mixed
	ends := s.boundaries(latest)
	eventually(s.t, "the bucket to hold everything, the disk nothing", func() bool {
		return slices.Equal(s.boundaries(earliestLocal), ends) && slices.Equal(s.boundaries(latestTiered), minusOne(ends))
	})
	segments := 0
	for i, l := range s.ledgers {
		for p := range int32(partitions) {
			listed, err := s.node.Segments(l.in.topic, p)
			if err != nil {
				s.t.Fatal(err)
			}
			s.tiles(listed, l.in.topic, p, ends[i*partitions+int(p)])
			segments += len(listed.Segments)
		}
	}
	if segments <= 2*partitions {
		s.t.Fatalf("only %d segments: internal.segment.bytes=%d has no effect", segments, segmentBytes)
	}
	s.step("%d segments in the bucket, nothing on disk", segments)
}

// tiles demands that the manifest covers the whole log without gap or overlap.
func (s *story) tiles(listed harness.Segments, topic string, partition int32, end int64) {
	s.t.Helper()
	next := int64(0)
	for _, seg := range listed.Segments {
		if seg.Base != next || seg.End <= seg.Base || seg.Records != seg.End-seg.Base {
			s.t.Fatalf("%s-%d: segment [%d, %d) with %d records follows offset %d", topic, partition, seg.Base, seg.End, seg.Records, next)
		}
		next = seg.End
	}
	if next != end || listed.TieredEnd != end {
		s.t.Fatalf("%s-%d: segments end at %d, the tiered end is %d, the log end %d", topic, partition, next, listed.TieredEnd, end)
	}
}

func minusOne(in []int64) []int64 {
	out := slices.Clone(in)
	for i := range out {
		out[i]--
	}
	return out
}

// boundaries are a special offset of every partition of every topic.
func (s *story) boundaries(special int64) (out []int64) {
	s.t.Helper()
	for _, l := range s.ledgers {
		out = append(out, boundary(s.t, s.client, l.in.topic, partitions, special)...)
	}
	return out
}

// collect adds the requests to the store of a start that is about to end.
func (s *story) collect() {
	s.t.Helper()
	m := s.node.Metrics()
	s.count.gets += harness.Sum(m, "varve_objstore_requests_total", `op="get"`)
	s.count.puts += harness.Sum(m, "varve_objstore_requests_total", `op="create"`)
}

func (s *story) kill() {
	s.t.Helper()
	s.collect()
	s.node.Crash()
}

// restart ends the node politely, so that nothing is cached afterwards.
func (s *story) restart() {
	s.t.Helper()
	s.collect()
	if code := s.node.Terminate(); code != 0 {
		s.t.Fatalf("SIGTERM ended the node with code %d", code)
	}
	s.node.Start()
	s.step("restarted")
}

// lookUp looks every time up and returns how many GETs that took.
func (s *story) lookUp() (gets float64) {
	s.t.Helper()
	begin, n := time.Now(), 0
	before := harness.Sum(s.node.Metrics(), "varve_objstore_requests_total", `op="get"`)
	for _, l := range s.ledgers {
		n += l.lookUpAll(s.t, s.client, l.in.moments())
	}
	gets = harness.Sum(s.node.Metrics(), "varve_objstore_requests_total", `op="get"`) - before
	s.count.lookups += n
	s.step("%d lookups by time equal brute force, in %s with %.0f GETs", n, time.Since(begin).Round(time.Millisecond), gets)
	return gets
}

func (s *story) readBack() {
	s.t.Helper()
	for _, l := range s.ledgers {
		acked := l.hashes()
		n, franz := l.readBack(s.t, s.node.Bootstrap())
		m, kcat := l.kcat(s.t, s.node.Bootstrap())
		s.count.franz, s.count.kcat = s.count.franz+n, s.count.kcat+m
		for p := range acked {
			if franz[p] != acked[p] || kcat[p] != acked[p] {
				s.t.Errorf("%s-%d: sha256 of acknowledged %s, franz-go %s, kcat %s", l.in.topic, p, acked[p], franz[p], kcat[p])
			}
			s.step("%s-%d: %d records, sha256 %s (acknowledged = franz-go = kcat)", l.in.topic, p, len(l.at[p]), acked[p])
		}
	}
}

func (s *story) report(name string) {
	s.t.Helper()
	s.collect()
	c := &s.count
	if c.franz != c.acked || c.kcat != c.acked {
		s.t.Errorf("acknowledged %d records, read %d with franz-go and %d with kcat", c.acked, c.franz, c.kcat)
	}
	s.step("%s: %s", name, strings.Join([]string{
		fmt.Sprintf("acknowledged %d", c.acked), fmt.Sprintf("read %d (franz-go) and %d (kcat)", c.franz, c.kcat), fmt.Sprintf("lookups %d", c.lookups),
		fmt.Sprintf("GETs %.0f", c.gets), fmt.Sprintf("PUTs %.0f", c.puts),
	}, ", "))
}
