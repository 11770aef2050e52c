// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
)

// local serves requests without a network: what is measured is the gateway and what lies below it.
type local struct {
	n *node
	c *conn
}

func newLocal(t testing.TB, n *node) *local {
	nc, err := n.net.Dial(context.Background(), "bench", testAddress)
	check(t, err)
	return &local{n: n, c: newConn(context.Background(), n.server, nc, testListener)}
}

// call makes a call of a request's body, as the reader would.
func (l *local) call(t testing.TB, key, version int16, body []byte) *call {
	cl := &call{api: l.n.server.table.byKey[key], arrived: time.Now()}
	cl.Key, cl.Version, cl.Listener = key, version, testListener
	check(t, cl.api.decode(cl, body))
	if cl.api.start != nil {
		cl.api.start(l.n.server, context.Background(), cl)
	}
	return cl
}

// finish answers a call and gives its buffers back, as the writer would.
func (l *local) finish(t testing.TB, cl *call) *answer {
	a := newAnswer(l.c, cl)
	check(t, cl.api.finish(l.n.server, context.Background(), cl, a))
	a.cut()
	if a.failed {
		t.Fatal("the answer carries an error")
	}
	a.release()
	return a
}

func manyBatches(t testing.TB, topic *metadata.Topic, partitions, size int) []byte {
	var all [][]byte
	for range partitions {
		all = append(all, values(t, string(make([]byte, size))))
	}
	req := produceRequest(topic.Name, topic.ID, -1, all...)
	req.Version = 13
	return req.AppendTo(nil)
}

// TestProduceAllocations bounds what a produce request of 64 partitions allocates, everything below the gateway included.
func TestProduceAllocations(t *testing.T) {
	poisonBuffers = false
	defer func() { poisonBuffers = true }()
	n := startNode(t, nodeOptions{})
	topic := n.topic("t", 64, nil)
	l := newLocal(t, n)
	body := manyBatches(t, topic, 64, 100)
	sent := make([]byte, len(body)) // appending stamps the batches in place
	got := testing.AllocsPerRun(50, func() {
		copy(sent, body)
		l.finish(t, l.call(t, 0, 13, sent))
	})
	t.Logf("%.0f allocations per request, %.2f per partition", got, got/64)
	if got > 3*64 {
		t.Errorf("%.0f allocations for 64 partitions, want at most 3 for each", got)
	}
}

func BenchmarkProduce64(b *testing.B) {
	poisonBuffers = false
	n := startNode(b, nodeOptions{})
	topic := n.topic("t", 64, nil)
	l := newLocal(b, n)
	body := manyBatches(b, topic, 64, 1000)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	sent := make([]byte, len(body))
	for b.Loop() {
		copy(sent, body)
		l.finish(b, l.call(b, 0, 13, sent))
	}
}

// openSession makes a session of all partitions of a topic and returns the body of the empty request that follows.
func openSession(t testing.TB, l *local, topic *metadata.Topic, partitions int) func() []byte {
	req := fetchFor(topic.Name, topic.ID, 0, 0, 0)
	req.Version, req.MinBytes = 13, 0
	base := req.Topics[0].Partitions[0]
	base.LastFetchedEpoch, base.CurrentLeaderEpoch = -1, -1
	req.Topics[0].Partitions = nil
	for p := range int32(partitions) {
		base.Partition = p
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, base)
	}
	req.SessionEpoch = 0
	l.finish(t, l.call(t, 1, 13, req.AppendTo(nil)))
	next := kmsg.NewPtrFetchRequest()
	next.Version, next.MaxBytes = 13, 50<<20
	for _, s := range l.n.server.sessions.mu.sessions {
		next.SessionID = s.id
	}
	return func() []byte {
		next.SessionEpoch++
		if next.SessionEpoch == 0 {
			next.SessionEpoch = 1
		}
		return next.AppendTo(nil)
	}
}

// busySession is a session some of whose partitions get a batch before each fetch.
type busySession struct {
	*local
	topic  *metadata.Topic
	next   func() []byte
	set    *fetchSet
	active int
	took   []time.Duration
}

func newBusySession(b *testing.B, partitions, active int) *busySession {
	n := startNode(b, nodeOptions{})
	s := &busySession{local: newLocal(b, n), topic: n.topic("t", partitions, nil), active: active}
	s.next = openSession(b, s.local, s.topic, partitions)
	s.finish(b, s.call(b, 1, 13, s.next()))
	for _, session := range n.server.sessions.mu.sessions {
		s.set = session.set
	}
	return s
}

// fetch appends one record to each active partition, not timed, and times the fetch that brings them. As a client does, it names
// the partitions of the answer before with their new offsets.
func (s *busySession) fetch(b *testing.B, offset int64) {
	s.finish(b, s.call(b, 0, 13, manyBatches(b, s.topic, s.active, 100)))
	req := kmsg.NewPtrFetchRequest()
	req.Version = 13
	check(b, req.ReadFrom(s.next()))
	if offset > 0 {
		moved := fetchFor(s.topic.Name, s.topic.ID, 0, offset, 0).Topics[0]
		one := moved.Partitions[0]
		one.CurrentLeaderEpoch, one.LastFetchedEpoch = -1, -1
		for p := range int32(s.active - 1) {
			one.Partition = p + 1
			moved.Partitions = append(moved.Partitions, one)
		}
		req.Topics = append(req.Topics, moved)
	}
	body := req.AppendTo(nil)
	s.n.await("the news", func() bool { return s.set.readyLen() == s.active })
	begin := time.Now()
	a := s.finish(b, s.call(b, 1, 13, body))
	s.took = append(s.took, time.Since(begin))
	if a.size < s.active*100 || a.size > s.active*400 {
		b.Fatalf("fetch %d of %d partitions has %d bytes, %d records were to come", offset, len(s.set.parts), a.size, s.active)
	}
}

func (s *busySession) median() float64 {
	slices.Sort(s.took)
	return float64(s.took[len(s.took)/2].Nanoseconds())
}

// BenchmarkSession: a fetch costs what there is news of. Ten partitions have news in a session of ten and in one of 5,000, in
// turn; the ratio of the medians is what counts.
func BenchmarkSession(b *testing.B) {
	poisonBuffers = false
	small, large := newBusySession(b, 10, 10), newBusySession(b, 5000, 10)
	offset := int64(0)
	for b.Loop() {
		small.fetch(b, offset)
		large.fetch(b, offset)
		offset++
	}
	ratio := large.median() / small.median()
	b.ReportMetric(small.median(), "ns/fetch-of-10")
	b.ReportMetric(large.median(), "ns/fetch-of-5000")
	b.ReportMetric(ratio, "ratio")
	if ratio > 2 {
		b.Errorf("a fetch of ten partitions with news takes %.2f times as long in a session of 5,000 as in one of 10, at most 2 is wanted", ratio)
	}
}

// BenchmarkFetch reads 1 MiB of one partition per request, in batches of 16 KiB and 256 KiB.
func BenchmarkFetch(b *testing.B) {
	poisonBuffers = false
	for _, size := range []int{16 << 10, 256 << 10} {
		b.Run(fmt.Sprint(size>>10, " KiB batches"), func(b *testing.B) {
			n := startNode(b, nodeOptions{})
			topic := n.topic("t", 1, nil)
			l := newLocal(b, n)
			for range 4 << 20 / size {
				l.finish(b, l.call(b, 0, 13, manyBatches(b, topic, 1, size-200)))
			}
			req := fetchFor("t", topic.ID, 0, 0, 0)
			req.Version = 13
			req.Topics[0].Partitions[0].CurrentLeaderEpoch, req.Topics[0].Partitions[0].LastFetchedEpoch = -1, -1
			req.SessionEpoch = -1
			body := req.AppendTo(nil)
			b.ReportAllocs()
			bytes := 0
			for b.Loop() {
				bytes = l.finish(b, l.call(b, 1, 13, body)).size
			}
			b.SetBytes(int64(bytes))
		})
	}
}

// TestSessionReadsOnlyNews counts what a fetch of a large session touches.
func TestSessionReadsOnlyNews(t *testing.T) {
	n := startNode(t, nodeOptions{})
	topic := n.topic("t", 300, nil)
	l := newLocal(t, n)
	next := openSession(t, l, topic, 300)
	l.finish(t, l.call(t, 1, 13, next()))
	var set *fetchSet
	for _, s := range n.server.sessions.mu.sessions {
		set = s.set
	}
	if set == nil || set.readyLen() != 0 {
		t.Fatal("an idle session has partitions to read")
	}
	l.finish(t, l.call(t, 0, 13, manyBatches(t, topic, 7, 100)))
	n.await("the news", func() bool { return set.readyLen() == 7 })
	before := set.turn
	l.finish(t, l.call(t, 1, 13, next()))
	read := 0
	for _, fp := range set.parts {
		if fp.turn > before {
			read++
		}
	}
	if read != 7 {
		t.Errorf("%d partitions were read, 7 have news", read)
	}
}
