// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/tiering"
	"github.com/varve/varve/tiering/objstore"
)

// produce appends one batch with one record to a partition, past the wire.
func (n *node) produce(topic *metadata.Topic, partition int32, value string) {
	n.t.Helper()
	c := n.dial()
	req := produceRequest(topic.Name, topic.ID, -1, values(n.t, value))
	req.Topics[0].Partitions[0].Partition = partition
	p := c.do(9, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		n.t.Fatalf("produce to %s-%d: error %d", topic.Name, partition, p.ErrorCode)
	}
	_ = c.nc.Close()
}

// took measures f on the bubble's clock.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// TestLongPoll: how long a fetch waits, and what ends the wait.
func TestLongPoll(t *testing.T) {
	const wait = 10 * time.Second
	for _, tc := range []struct {
		name     string
		change   func(*kmsg.FetchRequest)
		meantime func(n *node, topic *metadata.Topic)
		want     time.Duration
		records  int
		code     int16
	}{
		{name: "nothing comes", want: wait},
		{name: "no wait asked for", change: func(r *kmsg.FetchRequest) { r.MaxWaitMillis = 0 }, want: 0},
		{name: "min bytes 0", change: func(r *kmsg.FetchRequest) { r.MinBytes = 0 }, want: 0},
		{name: "no partitions", change: func(r *kmsg.FetchRequest) { r.Topics = nil }, want: 0},
		{name: "a record comes", meantime: func(n *node, tp *metadata.Topic) { n.produce(tp, 0, "x") }, want: 2 * time.Second, records: 1},
		{name: "a record comes elsewhere", meantime: func(n *node, tp *metadata.Topic) { n.produce(tp, 1, "x") }, want: wait},
		{name: "not enough bytes", change: func(r *kmsg.FetchRequest) { r.MinBytes = 1000 },
			meantime: func(n *node, tp *metadata.Topic) { n.produce(tp, 0, "x"); n.produce(tp, 0, "y") }, want: wait, records: 2},
		{name: "enough bytes in two steps", change: func(r *kmsg.FetchRequest) { r.MinBytes = 130 },
			meantime: func(n *node, tp *metadata.Topic) {
				n.produce(tp, 0, "x")
				time.Sleep(time.Second)
				n.produce(tp, 0, "y")
			}, want: 3 * time.Second, records: 2},
		{name: "offset out of range", change: func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 7 }, want: 0, code: 1},
		{name: "unknown partition", change: func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = 9 }, want: wait, code: 3},
		{name: "unknown epoch", change: func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 99 }, want: 0, code: 75},
		{name: "leadership ends", meantime: func(n *node, tp *metadata.Topic) { check(n.t, n.broker.Leave(context.Background())) }, want: 2 * time.Second, code: 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nodeOptions{})
				topic := n.topic("t", 2, nil)
				c := n.dial()
				req := fetchFor("t", topic.ID, 0, 0, wait)
				if tc.change != nil {
					tc.change(req)
				}
				var meantime sync.WaitGroup
				defer meantime.Wait()
				if tc.meantime != nil {
					meantime.Go(func() { time.Sleep(2 * time.Second); tc.meantime(n, topic) })
				}
				var resp *kmsg.FetchResponse
				d := took(func() { resp = c.do(12, req).(*kmsg.FetchResponse) })
				if slack := d - tc.want; slack < 0 || slack > 100*time.Millisecond {
					t.Errorf("answered after %s, want %s", d, tc.want)
				}
				if len(req.Topics) == 0 {
					return
				}
				p := resp.Topics[0].Partitions[0]
				if p.ErrorCode != tc.code || len(contents(t, p.RecordBatches)) != tc.records {
					t.Errorf("code %d with %d records, want %d with %d", p.ErrorCode, len(contents(t, p.RecordBatches)), tc.code, tc.records)
				}
				if (p.ErrorCode != 0) != (p.HighWatermark == -1) || (p.ErrorCode != 0) != (p.LogStartOffset == -1) {
					t.Errorf("G6: code %d beside offsets %+v", p.ErrorCode, p)
				}
			})
		})
	}
}

// TestGoneClientEndsItsWait: a client that goes away leaves nothing parked behind.
func TestGoneClientEndsItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		c := n.dial()
		c.send(12, fetchFor("t", topic.ID, 0, 0, time.Hour))
		time.Sleep(time.Second)
		_ = c.nc.Close()
		if d := took(func() { check(t, n.stopGW()) }); d > time.Second {
			t.Errorf("the server needed %s to stop", d)
		}
	})
}

// TestDrain: a stopping server answers what it has, parked fetches at once, and then closes.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		parked, idle := n.dial(), n.dial()
		req := fetchFor("t", topic.ID, 0, 0, time.Hour)
		id := parked.send(12, req)
		idle.do(0, kmsg.NewPtrApiVersionsRequest())
		time.Sleep(time.Second)
		if d := took(func() { check(t, n.stopGW()) }); d > time.Second {
			t.Errorf("draining took %s", d)
		}
		if resp := parked.receive(id, req).(*kmsg.FetchResponse); resp.ErrorCode != 0 {
			t.Errorf("the parked fetch: %+v", resp)
		}
		for _, c := range []*client{parked, idle} {
			if m, err := c.nc.Read(make([]byte, 1)); err == nil {
				t.Errorf("read %d bytes after the drain", m)
			}
		}
		if _, err := n.net.Dial(t.Context(), "client", testAddress); err == nil {
			t.Error("a stopped server accepts")
		}
	})
}

// TestIdleConnections: an idle connection is closed in time, one that waits for an answer is not idle.
func TestIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"connections.max.idle.ms": "60000"}})
		topic := n.topic("t", 1, nil)
		parked, idle := n.dial(), n.dial()
		req := fetchFor("t", topic.ID, 0, 0, 3*time.Minute)
		id := parked.send(12, req)
		d := took(func() { _, _ = idle.nc.Read(make([]byte, 1)) })
		if d != time.Minute {
			t.Errorf("the idle connection was closed after %s", d)
		}
		_ = parked.nc.SetReadDeadline(time.Time{})
		frame, err := readFrame(parked.nc)
		if err != nil || int32(frame[3]) != id&0xff {
			t.Errorf("the waiting connection: %v", err)
		}
	})
}

// TestFetchLimits: the first batch always comes, after it the limits bind, and a partition that found no room is first next time.
func TestFetchLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 4, nil)
		for p := range int32(4) {
			n.produce(topic, p, string(make([]byte, 1000)))
		}
		all := func(maxBytes, partitionMax int32) (sizes []int) {
			req := fetchFor("t", topic.ID, 0, 0, time.Second)
			req.MaxBytes = maxBytes
			base := req.Topics[0].Partitions[0]
			base.PartitionMaxBytes = partitionMax
			req.Topics[0].Partitions = nil
			for p := range int32(4) {
				base.Partition = p
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, base)
			}
			for _, p := range n.dial().do(11, req).(*kmsg.FetchResponse).Topics[0].Partitions {
				if p.HighWatermark != 1 {
					t.Errorf("partition %d: high watermark %d", p.Partition, p.HighWatermark)
				}
				sizes = append(sizes, len(p.RecordBatches))
			}
			return sizes
		}
		size := all(math.MaxInt32, 1<<20)[0]
		for _, tc := range []struct {
			max, part int32
			want      []int
		}{
			{1, 1, []int{size, 0, 0, 0}},
			{0, 1 << 20, []int{size, 0, 0, 0}},
			{int32(size), 1 << 20, []int{size, 0, 0, 0}},
			{int32(2*size + size/2), 1 << 20, []int{size, size, 0, 0}},
			{1 << 20, 1, []int{size, 0, 0, 0}},
			{1 << 20, 1 << 20, []int{size, size, size, size}},
		} {
			if got := all(tc.max, tc.part); !slices.Equal(got, tc.want) {
				t.Errorf("max %d, per partition %d: sizes %v, want %v", tc.max, tc.part, got, tc.want)
			}
		}
	})
}

// sessionClient is the client side of KIP-227, for tests.
type sessionClient struct {
	c       *client
	topic   *metadata.Topic
	version int16
	id      int32
	epoch   int32
	maxB    int32
}

// do sends an incremental (or, at epoch 0, a full) request with these offsets and forgotten partitions.
func (s *sessionClient) do(offsets map[int32]int64, forget ...int32) *kmsg.FetchResponse {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 1, s.maxB
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = s.topic.Name, s.topic.ID
	for p, o := range offsets {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, o, 1<<20
		t.Partitions = append(t.Partitions, rp)
	}
	slices.SortFunc(t.Partitions, func(a, b kmsg.FetchRequestTopicPartition) int { return int(a.Partition - b.Partition) })
	if len(t.Partitions) > 0 {
		req.Topics = append(req.Topics, t)
	}
	if len(forget) > 0 {
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Topic, f.TopicID, f.Partitions = s.topic.Name, s.topic.ID, forget
		req.ForgottenTopics = append(req.ForgottenTopics, f)
	}
	resp := s.c.do(s.version, req).(*kmsg.FetchResponse)
	if resp.ErrorCode == 0 {
		s.id = resp.SessionID
		s.epoch++
	}
	return resp
}

// TestSessionRules: KIP-227's bookkeeping and its errors.
func TestSessionRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 3, nil)
		s := &sessionClient{c: n.dial(), topic: topic, version: 12, maxB: 1 << 20}
		count := func(r *kmsg.FetchResponse) (k int) {
			for _, t := range r.Topics {
				k += len(t.Partitions)
			}
			return k
		}
		if r := s.do(map[int32]int64{0: 0, 1: 0, 2: 0}); r.SessionID == 0 || count(r) != 3 {
			t.Fatalf("full fetch: session %d, %d partitions", r.SessionID, count(r))
		}
		if r := s.do(nil); count(r) != 0 {
			t.Errorf("no news, but %d partitions are named", count(r))
		}
		n.produce(topic, 1, "x")
		synctest.Wait() // it is news a moment after it is acknowledged
		if r := s.do(nil); count(r) != 1 || len(r.Topics[0].Partitions[0].RecordBatches) == 0 {
			t.Errorf("news of one partition: %d named", count(r))
		}
		if r := s.do(nil); count(r) != 1 {
			t.Errorf("a client that did not move on must get it again: %d named", count(r))
		}
		if r := s.do(map[int32]int64{1: 1}); count(r) != 0 {
			t.Errorf("after moving on: %d named", count(r))
		}
		if r := s.do(nil, 1); count(r) != 0 {
			t.Errorf("forgetting: %d named", count(r))
		}
		n.produce(topic, 1, "x")
		synctest.Wait() // it is news a moment after it is acknowledged
		if r := s.do(nil); count(r) != 0 {
			t.Errorf("a forgotten partition is named")
		}
		stale := *s
		stale.epoch--
		if r := stale.do(nil); r.ErrorCode != 71 || r.SessionID != 0 {
			t.Errorf("wrong epoch: %+v", r)
		}
		ids := *s
		ids.version = 13
		if r := ids.do(nil); r.ErrorCode != 106 {
			t.Errorf("ids in a session of names: %+v", r)
		}
		if r := s.do(nil); r.ErrorCode != 0 {
			t.Errorf("the session must survive others' errors: %+v", r)
		}
		if r := s.do(nil, 0, 2); r.SessionID != 0 || r.ErrorCode != 0 {
			t.Errorf("everything forgotten: %+v", r)
		}
		s.id = 12345
		if r := s.do(nil); r.ErrorCode != 70 {
			t.Errorf("unknown session: %+v", r)
		}
		// segmentio's way of saying "no session".
		plain := &sessionClient{c: n.dial(), topic: topic, version: 11, id: -1, epoch: -1, maxB: 1 << 20}
		if r := plain.do(map[int32]int64{0: 0}); r.ErrorCode != 0 || r.SessionID != 0 || count(r) != 1 {
			t.Errorf("session -1, epoch -1: %+v", r)
		}
		if m := n.server.sessions.mu.sessions; len(m) != 0 {
			t.Errorf("%d sessions are left", len(m))
		}
	})
}

// TestSessionSlots: the cache is bounded; a session that rests makes room, and a connection's end frees its session.
func TestSessionSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"max.incremental.fetch.session.cache.slots": "2"}})
		topic := n.topic("t", 2, nil)
		open := func() *sessionClient {
			s := &sessionClient{c: n.dial(), topic: topic, version: 12, maxB: 1 << 20}
			s.do(map[int32]int64{0: 0})
			return s
		}
		a, b := open(), open()
		if c := open(); a.id == 0 || b.id == 0 || c.id != 0 {
			t.Fatalf("sessions %d, %d, %d with two slots", a.id, b.id, c.id)
		}
		time.Sleep(sessionIdle)
		b.do(nil)
		c := open()
		if c.id == 0 {
			t.Error("a session at rest must make room")
		}
		if r := a.do(nil); r.ErrorCode != 70 {
			t.Errorf("the evicted session: %+v", r)
		}
		_ = c.c.nc.Close()
		synctest.Wait()
		if d := open(); d.id == 0 {
			t.Error("a closed connection must free its session")
		}
	})
}

// TestSessionAgainstModel runs random operations on a session and on a naive twin that reads every partition each time: what the
// session tells a client must add up to what the twin sees.
func TestSessionAgainstModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sessionModel(t, seed) })
		})
	}
}

func sessionModel(t *testing.T, seed uint64) {
	const partitions = 12
	rng := rand.New(rand.NewPCG(seed, 1))
	n := startNode(t, nodeOptions{})
	topic := n.topic("t", partitions, nil)
	version := []int16{7, 11, 12, 13, 18}[rng.IntN(5)]
	s := &sessionClient{c: n.dial(), topic: topic, version: version, maxB: int32(100 + rng.IntN(400))}
	position := map[int32]int64{} // of subscribed partitions
	known := map[int32]int64{}    // the high watermark the client was told
	end := map[int32]int64{}
	changed := map[int32]int64{0: 0} // to be told with the next request
	position[0] = 0
	for step := range 250 {
		switch rng.IntN(5) {
		case 0, 1:
			p := rng.Int32N(partitions)
			n.produce(topic, p, fmt.Sprint(p, "/", end[p]))
			end[p]++
		case 2: // subscribe, or seek
			p := rng.Int32N(partitions)
			position[p] = rng.Int64N(end[p] + 1)
			changed[p] = position[p]
		case 3:
			if s.epoch > 0 && len(position) > 1 {
				for p := range position {
					delete(position, p)
					delete(known, p)
					delete(changed, p)
					sessionStep(t, s, position, known, changed, p)
					break
				}
			}
		}
		sessionStep(t, s, position, known, changed)
		_ = step
	}
	for range 300 { // let the client catch up
		sessionStep(t, s, position, known, changed)
	}
	for p, at := range position {
		if at != end[p] || known[p] != end[p] {
			t.Errorf("partition %d: client at %d, told high watermark %d, log end %d", p, at, known[p], end[p])
		}
	}
}

// sessionStep does one fetch and moves the client on by what came.
func sessionStep(t *testing.T, s *sessionClient, position, known, changed map[int32]int64, forget ...int32) {
	t.Helper()
	r := s.do(changed, forget...)
	if r.ErrorCode != 0 {
		t.Fatalf("error %d", r.ErrorCode)
	}
	clear(changed)
	total := 0
	for _, rt := range r.Topics {
		for _, p := range rt.Partitions {
			at, ok := position[p.Partition]
			if !ok || p.ErrorCode != 0 {
				t.Fatalf("partition %d: subscribed=%v, error %d", p.Partition, ok, p.ErrorCode)
			}
			known[p.Partition] = p.HighWatermark
			for _, v := range contents(t, p.RecordBatches) {
				if v != fmt.Sprint(p.Partition, "/", at) {
					t.Fatalf("partition %d at %d: got %q", p.Partition, at, v)
				}
				at++
			}
			total += len(p.RecordBatches)
			if at != position[p.Partition] {
				position[p.Partition], changed[p.Partition] = at, at
			}
		}
	}
	if total > int(s.maxB)+200 {
		t.Fatalf("%d bytes with max bytes %d", total, s.maxB)
	}
}

// TestColdReads: sealed and evicted data is read from the bucket, several partitions beside each other, and a store that hangs
// holds neither hot data nor the answer beyond the request's wait.
func TestColdReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{tier: tiering.Config{}, static: map[string]string{}})
		topic := n.topic("t", 3, map[string]string{"segment.ms": "1000", "local.retention.ms": "1000", "internal.segment.bytes": "300000"})
		for p := range int32(3) {
			for i := range 30 {
				n.produce(topic, p, fmt.Sprint(i, string(make([]byte, 100<<10))))
			}
		}
		evicted := func(p int) bool { m := n.partition(topic, p).Marks(); return m.Local > 0 }
		for range 600 {
			if evicted(0) && evicted(1) && evicted(2) {
				break
			}
			time.Sleep(time.Second)
		}
		if !evicted(0) || !evicted(1) || !evicted(2) {
			t.Fatalf("nothing was evicted: %+v; log:\n%s", n.partition(topic, 0).Marks(), n.log)
		}
		req := fetchFor("t", topic.ID, 0, 0, 2*time.Second)
		base := req.Topics[0].Partitions[0]
		for _, p := range []int32{1, 2} {
			base.Partition = p
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, base)
		}
		release := make(chan struct{})
		n.store.Add(objstore.Rule{Op: objstore.OpGet, Effect: objstore.Hold, Release: release})
		c := n.dial()
		var resp *kmsg.FetchResponse
		d := took(func() { resp = c.do(12, req).(*kmsg.FetchResponse) })
		if d < 2*time.Second || d > 2*time.Second+200*time.Millisecond {
			t.Errorf("with a hanging store the answer took %s, want the max wait of 2s", d)
		}
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.HighWatermark != 30 || len(p.RecordBatches) != 0 {
				t.Errorf("partition %d while the store hangs: error %d, high watermark %d, %d bytes", p.Partition, p.ErrorCode, p.HighWatermark, len(p.RecordBatches))
			}
		}
		close(release)
		n.store.Calm()
		got := map[int32]int{}
		for range 200 {
			for _, p := range c.do(12, req).(*kmsg.FetchResponse).Topics[0].Partitions {
				for _, v := range contents(t, p.RecordBatches) {
					if want := fmt.Sprint(got[p.Partition]); v[:len(want)] != want {
						t.Fatalf("partition %d record %d: %q", p.Partition, got[p.Partition], v[:3])
					}
					got[p.Partition]++
				}
			}
			for i := range req.Topics[0].Partitions {
				p := &req.Topics[0].Partitions[i]
				p.FetchOffset = int64(got[p.Partition])
			}
			if got[0] == 30 && got[1] == 30 && got[2] == 30 {
				return
			}
		}
		t.Errorf("read %v of 30 each", got)
	})
}
