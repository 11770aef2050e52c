// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/quota"
	"github.com/varve/varve/metadata"
)

// setQuotas sets a quota and waits until the node charges by it.
func (n *node) setQuota(e metadata.QuotaEntity, key string, value float64) {
	n.t.Helper()
	change := metadata.QuotaChange{Entity: e, Set: map[string]float64{key: value}}
	if value == 0 {
		change = metadata.QuotaChange{Entity: e, Remove: []string{key}}
	}
	rev, err := n.meta.AlterQuotas(n.t.Context(), []metadata.QuotaChange{change})
	check(n.t, err)
	check(n.t, n.meta.WaitFor(n.t.Context(), rev))
	synctest.Wait()
}

func clientNamed(id string) metadata.QuotaEntity {
	return metadata.QuotaEntity{ClientID: metadata.QuotaPart{Is: metadata.QuotaNamed, Name: id}}
}

var anyClient = metadata.QuotaEntity{ClientID: metadata.QuotaPart{Is: metadata.QuotaDefault}}

// dialAs is a connection whose requests carry the client id.
func (n *node) dialAs(id string) *client {
	c := n.dial()
	c.id = &id
	return c
}

// perSecond runs step, which tells how many bytes went through, for a while and then for a minute, and gives that minute's rate.
func perSecond(step func() int) float64 {
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		step()
	}
	began, sum := time.Now(), 0
	for time.Since(began) < time.Minute {
		sum += step()
	}
	return float64(sum) / time.Since(began).Seconds()
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > want/10 {
		t.Errorf("%s: %.0f per second, want %.0f", what, got, want)
	}
}

// TestProduceQuota: a client gets what its quota says, whether it sends one request after the other or five at a time, and the
// others are not touched.
func TestProduceQuota(t *testing.T) {
	for _, inFlight := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			n := startNode(t, nodeOptions{})
			topic := n.topic("t", 1, map[string]string{"retention.bytes": "1"})
			n.setQuota(clientNamed("slow"), quota.Produce.Key(), 20_000)
			slow, fast := n.dialAs("slow"), n.dialAs("fast")
			b := values(t, strings.Repeat("x", 3000))
			req := produceRequest("t", topic.ID, -1, b)
			frame, _ := slow.frame(9, req)
			size := len(frame) - 4
			var sent []int32
			throttled := 0
			got := perSecond(func() int {
				for len(sent) < inFlight {
					sent = append(sent, slow.send(9, req))
				}
				r := slow.receive(sent[0], req).(*kmsg.ProduceResponse)
				sent = sent[1:]
				if r.Topics[0].Partitions[0].ErrorCode != 0 {
					t.Fatalf("produce: %+v", r)
				}
				if r.ThrottleMillis > 0 {
					throttled++
				}
				began := time.Now()
				if r := fast.do(9, req).(*kmsg.ProduceResponse); r.ThrottleMillis != 0 || time.Since(began) > 10*time.Millisecond {
					t.Fatalf("the other client waits %s, is told %d ms", time.Since(began), r.ThrottleMillis)
				}
				return size
			})
			near(t, "produced", got, 20_000)
			if throttled == 0 {
				t.Error("the client was never told")
			}
			n.setQuota(clientNamed("slow"), quota.Produce.Key(), 0)
			for _, id := range sent {
				slow.receive(id, req)
			}
			if r := slow.do(9, req).(*kmsg.ProduceResponse); r.ThrottleMillis != 0 {
				t.Errorf("throttled by %d ms without a quota", r.ThrottleMillis)
			}
		})
	}
}

// TestMuted: the answer comes at once and tells the delay; the next request is served when it is over, also without an answer to the
// first; a server that stops does not wait for it.
func TestMuted(t *testing.T) {
	for _, acks := range []int16{-1, 0} {
		synctest.Test(t, func(t *testing.T) {
			n := startNode(t, nodeOptions{})
			topic := n.topic("t", 1, nil)
			n.setQuota(clientNamed("c"), quota.Produce.Key(), 100)
			c := n.dialAs("c")
			req := produceRequest("t", topic.ID, acks, values(t, strings.Repeat("x", 5000)))
			frame, _ := c.frame(9, req)
			rate := float64(len(frame)-4) / 10
			want := time.Duration((rate-100)/100*10*1000) * time.Millisecond
			began := time.Now()
			id := c.send(9, req)
			if acks != 0 {
				r := c.receive(id, req).(*kmsg.ProduceResponse)
				if got := time.Duration(r.ThrottleMillis) * time.Millisecond; got < want || got > want+time.Millisecond || time.Since(began) > time.Second {
					t.Errorf("told %s after %s, want %s at once", got, time.Since(began), want)
				}
			}
			next := kmsg.NewPtrApiVersionsRequest()
			id = c.send(0, next)
			c.receive(id, next)
			if since := time.Since(began); since < want || since > want+time.Second {
				t.Errorf("the next request is served after %s, want %s", since, want)
			}
			c.send(9, req)
			time.Sleep(time.Second)
			began = time.Now()
			check(t, n.stopGW())
			if time.Since(began) > time.Second {
				t.Errorf("stopping took %s", time.Since(began))
			}
		})
	}
}

// TestPeerGoesUnderQuota: that the peer is gone is seen while a fetch waits, and at last also when it sent something while muted.
func TestPeerGoesUnderQuota(t *testing.T) {
	gone := func(t *testing.T, n *node, within time.Duration) {
		t.Helper()
		time.Sleep(within)
		synctest.Wait()
		n.server.mu.Lock()
		defer n.server.mu.Unlock()
		if left := len(n.server.mu.conns); left != 0 {
			t.Errorf("%d connections are left after %s", left, within)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		n.setQuota(clientNamed("c"), quota.Fetch.Key(), 1e6)
		c := n.dialAs("c")
		c.send(12, fetchFor("t", topic.ID, 0, 0, time.Hour))
		time.Sleep(time.Minute)
		check(t, c.nc.Close())
		gone(t, n, time.Second)
	})
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"connections.max.idle.ms": "60000"}})
		topic := n.topic("t", 1, nil)
		n.setQuota(clientNamed("c"), quota.Produce.Key(), 10)
		c := n.dialAs("c")
		req := produceRequest("t", topic.ID, -1, values(t, strings.Repeat("x", 100_000)))
		if r := c.do(9, req).(*kmsg.ProduceResponse); r.ThrottleMillis < 3_600_000 {
			t.Fatalf("throttled by %d ms only", r.ThrottleMillis)
		}
		c.send(0, kmsg.NewPtrApiVersionsRequest())
		time.Sleep(time.Second)
		check(t, c.nc.Close())
		gone(t, n, time.Minute)
	})
}

// TestMutedHoldsNoMemory: what a client has sent behind a request that mutes it stays in the network.
func TestMutedHoldsNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		n.setQuota(clientNamed("c"), quota.Produce.Key(), 1000)
		c := n.dialAs("c")
		req := produceRequest("t", topic.ID, -1, values(t, strings.Repeat("x", 100_000)))
		var frames [20][]byte
		for i := range frames {
			frames[i], _ = c.frame(9, req)
		}
		first := c.send(9, req)
		go func() {
			for _, frame := range frames {
				if _, err := c.nc.Write(frame); err != nil {
					return // the end of the test
				}
			}
		}()
		if r := c.receive(first, req).(*kmsg.ProduceResponse); r.ThrottleMillis < 60_000 {
			t.Fatalf("throttled by %d ms only", r.ThrottleMillis)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if !n.server.memory.TryAcquire(n.server.cfg.NodeMemory) {
			t.Error("a muted connection holds memory of requests")
		} else {
			n.server.memory.Release(n.server.cfg.NodeMemory)
		}
		if end := n.partition(topic, 0).Marks().HW; end != 1 {
			t.Errorf("%d records are appended, want the first", end)
		}
		check(t, c.nc.Close())
	})
}

// TestFetchQuota: a consumer gets what its quota says: answers are whole or empty, and sessions go on over the empty ones.
func TestFetchQuota(t *testing.T) {
	for _, session := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := startNode(t, nodeOptions{})
			topic := n.topic("t", 1, nil)
			p := n.dial()
			for range 50 {
				p.do(9, produceRequest("t", topic.ID, -1, values(t, strings.Repeat("x", 10_000))))
			}
			c := n.dialAs("slow")
			req := fetchFor("t", topic.ID, 0, 0, time.Second)
			req.SessionEpoch = -1
			if session {
				req.SessionEpoch = 0
				r := c.do(12, req).(*kmsg.FetchResponse)
				if r.SessionID == 0 {
					t.Fatal("no session")
				}
				req.SessionID = r.SessionID
			}
			n.setQuota(clientNamed("slow"), quota.Fetch.Key(), 20_000)
			empty := 0
			got := perSecond(func() int {
				if session {
					req.SessionEpoch++
				}
				r := c.do(12, req).(*kmsg.FetchResponse)
				switch {
				case r.ErrorCode != 0 || session && r.SessionID != req.SessionID:
					t.Fatalf("fetch: %+v", r)
				case r.ThrottleMillis > 0 && len(r.Topics) == 0:
					empty++
					return 0
				case r.ThrottleMillis > 0 || len(r.Topics) != 1 || len(r.Topics[0].Partitions[0].RecordBatches) == 0:
					t.Fatalf("throttled by %d ms with %d topics", r.ThrottleMillis, len(r.Topics))
				}
				return len(r.Topics[0].Partitions[0].RecordBatches)
			})
			near(t, "fetched", got, 20_000)
			if empty == 0 {
				t.Error("no answer was empty")
			}
			if r := p.do(12, fetchFor("t", topic.ID, 0, 0, time.Second)).(*kmsg.FetchResponse); r.ThrottleMillis != 0 || len(r.Topics[0].Partitions[0].RecordBatches) < 400_000 {
				t.Errorf("another client: %d ms, %d bytes", r.ThrottleMillis, len(r.Topics[0].Partitions[0].RecordBatches))
			}
		})
	}
}

// TestFetchOfLargeBatch: a batch that is larger than what the quota ever lets through at once comes all the same, and costs its time.
func TestFetchOfLargeBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		c := n.dialAs("slow")
		for range 2 {
			c.do(9, produceRequest("t", topic.ID, -1, values(t, strings.Repeat("x", 10_000))))
		}
		n.setQuota(clientNamed("slow"), quota.Fetch.Key(), 500)
		for offset := range int64(2) {
			for tries := 0; ; tries++ {
				r := c.do(12, fetchFor("t", topic.ID, 0, offset, 0)).(*kmsg.FetchResponse)
				if r.ThrottleMillis < 10_000 || tries > 2 {
					t.Fatalf("offset %d, try %d: throttled by %d ms with %d topics", offset, tries, r.ThrottleMillis, len(r.Topics))
				}
				if len(r.Topics) == 0 {
					continue
				}
				if size := len(r.Topics[0].Partitions[0].RecordBatches); size < 10_000 || size > 11_000 {
					t.Errorf("offset %d: %d bytes", offset, size)
				}
				break
			}
		}
	})
}

// TestLargeBatchBesideIdlePolls: a batch larger than all windows comes although another connection of the client polls all the time,
// and over a long time no more passes than half as much again as the quota.
func TestLargeBatchBesideIdlePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		n.setQuota(clientNamed("slow"), quota.Fetch.Key(), 5000)
		fetch := func(bytes int) (empty bool, delay time.Duration) {
			c := &call{Request: Request{ClientID: "slow", Principal: anonymous}, turn: time.Now()}
			empty = n.server.quotas.chargeFetch(c, bytes)
			return empty, c.throttle
		}
		const batch, minutes = 100_000, 10
		var mutedUntil time.Time
		came := 0
		for began := time.Now(); time.Since(began) < minutes*time.Minute; time.Sleep(500 * time.Millisecond) {
			if time.Now().Before(mutedUntil) {
				continue // the batch's connection; the polls' one is never muted here, which is worse
			}
			fetch(0)
			empty, delay := fetch(batch)
			if !empty {
				came++
			}
			mutedUntil = time.Now().Add(delay)
		}
		for range 40 {
			fetch(0)
			time.Sleep(500 * time.Millisecond)
		}
		if empty, _ := fetch(batch); empty {
			t.Error("idle polls keep the batch back")
		}
		if most := minutes * 60 * 5000 * 3 / 2 / batch; came < most/3 || came > most {
			t.Errorf("%d batches in %d minutes, at most %d", came, minutes, most)
		}
	})
}

// TestRequestQuotaKeepsFetches: a client that is only over its time gets what it asked for, with the delay.
func TestRequestQuotaKeepsFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		n.setQuota(clientNamed("c"), quota.Request.Key(), 1)
		n.setQuota(clientNamed("c"), quota.Fetch.Key(), 1e6)
		delayed := 0
		for range 20 {
			c := &call{Request: Request{ClientID: "c", Principal: anonymous}, metered: true, busy: 50 * time.Millisecond, turn: time.Now()}
			if n.server.quotas.chargeFetch(c, 1000) {
				t.Fatalf("an empty answer with %s", c.throttle)
			}
			if c.throttle > 0 {
				delayed++
			}
			time.Sleep(c.throttle)
		}
		if delayed == 0 {
			t.Error("the time costs nothing")
		}
	})
}

// TestThrottledFullFetch: a fetch that asks for a session and is throttled gets none.
func TestThrottledFullFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		c := n.dialAs("slow")
		c.do(9, produceRequest("t", topic.ID, -1, values(t, strings.Repeat("x", 10_000))))
		n.setQuota(clientNamed("slow"), quota.Fetch.Key(), 10)
		n.dialAs("slow").do(4, fetchFor("t", topic.ID, 0, 0, 0))
		for v := int16(4); v <= 18; v++ {
			req := fetchFor("t", topic.ID, 0, 0, 0)
			req.SessionEpoch = 0
			r := n.dialAs("slow").do(v, req).(*kmsg.FetchResponse)
			if r.ErrorCode != 0 || r.SessionID != 0 || len(r.Topics) != 0 || v >= 8 && r.ThrottleMillis == 0 {
				t.Errorf("version %d: %+v", v, r)
			}
		}
	})
}

// TestRequestQuota: time on a processor is charged in percent, of waits the bounded part only.
func TestRequestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		n.setQuota(clientNamed("c"), quota.Request.Key(), 1)
		s := n.server
		charge := func(key int16, spent time.Duration) time.Duration {
			c := &call{Request: Request{Key: key, ClientID: "c", Principal: anonymous}, metered: true, busy: spent, turn: time.Now()}
			s.quotas.chargeControl(c)
			return c.throttle
		}
		if d := charge(32, 100*time.Millisecond); d != 0 {
			t.Errorf("one percent of ten seconds: %s", d)
		}
		if d := charge(11, time.Hour); d != 100*time.Millisecond {
			t.Errorf("a join that waited: %s, want that for %s", d, controlChargeMax)
		}
		if d := charge(32, time.Second); d != time.Second {
			t.Errorf("a second: %s, want one window", d)
		}
		if r := n.dialAs("c").do(1, describeQuotas(false)).(*kmsg.DescribeClientQuotasResponse); r.ThrottleMillis != 1000 {
			t.Errorf("told %d ms", r.ThrottleMillis)
		}
	})
}

// TestFollowersAreNotCharged: with the smallest quotas for everybody, records are still replicated at once.
func TestFollowersAreNotCharged(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", map[string]string{"min.insync.replicas": "3"})
		p := c.awaitLeader(id, 1)
		c.awaitISR(1, id, 1, 2, 3)
		for _, key := range []string{quota.Produce.Key(), quota.Fetch.Key(), quota.Request.Key()} {
			c.nodes[1].setQuota(anyClient, key, 1)
			c.nodes[1].setQuota(metadata.QuotaEntity{User: metadata.QuotaPart{Is: metadata.QuotaDefault}}, key, 1)
		}
		began := time.Now()
		for range 20 {
			if _, err := c.produce(p, -1, strings.Repeat("x", 10_000)); err != nil {
				t.Fatal(err)
			}
		}
		if since := time.Since(began); since > 5*time.Second {
			t.Errorf("20 records took %s", since)
		}
		c.nodes[1].server.quotas.meters.Each(time.Now(), func(u quota.Use) {
			if u.Kind == quota.Fetch && u.Rate > 0 {
				t.Errorf("charged: %+v", u)
			}
		})
	})
}

// TestNoQuotaNoCost: without quotas charging allocates nothing.
func TestNoQuotaNoCost(t *testing.T) {
	q := &quotas{}
	c := &call{frame: &buffer{b: make([]byte, 100)}, produce: &produceCall{acks: -1}, Request: Request{ClientID: "c", Principal: anonymous}}
	charge := func() {
		q.chargeProduce(c)
		q.chargeControl(c)
		if q.chargeFetch(c, 100) || q.fetchBound(c, 5) != 5 || q.mutate(&c.Request, true, 5) != nil || c.throttle != 0 {
			t.Error("charged")
		}
	}
	if n := testing.AllocsPerRun(100, charge); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestConnectionQuota: connections beyond the rate are not served and closed after the delay; others are served.
func TestConnectionQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		n.setQuota(metadata.QuotaEntity{IP: metadata.QuotaPart{Is: metadata.QuotaDefault}}, quota.Connection.Key(), 2)
		req := kmsg.NewPtrApiVersionsRequest()
		served, refused := 0, 0
		var waiting []*client
		for range 30 {
			c := n.dial()
			c.send(0, req)
			_ = c.nc.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := readFrame(c.nc); err == nil {
				served++
			} else {
				refused++
				waiting = append(waiting, c)
			}
		}
		if served < 20 || served > 24 || refused == 0 {
			t.Errorf("%d connections served, %d not; want ten seconds' worth", served, refused)
		}
		for _, c := range waiting {
			began := time.Now()
			_ = c.nc.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := readFrame(c.nc); err == nil || time.Since(began) > time.Second {
				t.Errorf("%v after %s, want an end within a window", err, time.Since(began))
			}
		}
		time.Sleep(11 * time.Second)
		n.dial().do(0, req)
		for range 30 {
			n.dial()
		}
		synctest.Wait()
		if n.server.delayed() == 0 {
			t.Fatal("nobody waits to be closed")
		}
		check(t, n.stopGW())
		if n.server.delayed() != 0 {
			t.Error("a stopped server has connections that wait to be closed")
		}
	})
}

func (s *Server) delayed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.refused)
}

// TestConnectionsPerAddress: more than so many at a time are closed at once, and count no more when they are gone.
func TestConnectionsPerAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"max.connections.per.ip": "2"}})
		req := kmsg.NewPtrApiVersionsRequest()
		first, second := n.dial(), n.dial()
		first.do(0, req)
		second.do(0, req)
		_ = n.dial().nc.SetReadDeadline(time.Now().Add(time.Second))
		synctest.Wait()
		if n.log.Count("connection refused", "from there") != 1 {
			t.Errorf("log:\n%s", n.log)
		}
		check(t, first.nc.Close())
		synctest.Wait()
		n.dial().do(0, req)
	})
}

// TestQuotaMetrics: what a client with a quota used is shown under Kafka's names.
func TestQuotaMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		for _, key := range []string{quota.Produce.Key(), quota.Fetch.Key(), quota.Request.Key(), quota.Mutation.Key()} {
			n.setQuota(clientNamed("c"), key, 100)
		}
		c := n.dialAs("c")
		throttled := c.do(9, produceRequest("t", topic.ID, -1, values(t, strings.Repeat("x", 5000)))).(*kmsg.ProduceResponse).ThrottleMillis
		n.dialAs("c").do(12, fetchFor("t", topic.ID, 0, 1, 0))
		n.setQuota(anyClient, quota.Produce.Key(), 100)
		for _, id := range []string{"\xff", "\xfe"} {
			n.dialAs(id).do(9, produceRequest("t", topic.ID, -1, values(t, "x")))
		}
		n.dialAs("c").do(7, createRequest(true, newTopic{name: "u", partitions: 10, rf: 1}))
		all, err := n.metrics.Gather()
		check(t, err)
		got := map[string]float64{}
		for _, f := range all {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "client_id" && l.GetValue() == "c" {
						got[f.GetName()] = m.GetGauge().GetValue()
					}
				}
			}
		}
		if rate := got["kafka_server_produce_byte_rate"]; rate < 500 || rate > 520 {
			t.Errorf("produce rate %v", rate)
		}
		if got["kafka_server_produce_throttle_time"] != float64(throttled) || throttled == 0 {
			t.Errorf("throttle time %v, told %d", got["kafka_server_produce_throttle_time"], throttled)
		}
		if got["kafka_server_fetch_byte_rate"] == 0 || got["kafka_server_controllermutation_tokens"] != 1090 {
			t.Errorf("%v", got)
		}
		for _, name := range []string{"kafka_server_fetch_throttle_time", "kafka_server_request_request_time", "kafka_server_request_throttle_time", "kafka_server_controllermutation_throttle_time"} {
			if v, ok := got[name]; !ok || v != 0 {
				t.Errorf("%s: %v, %v", name, v, ok)
			}
		}
	})
}

// TestAutoCreateUnderQuota: topics that come into being by being asked for are charged too; the client is not muted.
func TestAutoCreateUnderQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		n.setQuota(clientNamed("c"), quota.Mutation.Key(), 0.01) // a ninth of a partition at once: one goes, then none
		c := n.dialAs("c")
		for _, name := range []string{"first", "second", "second"} {
			if r := c.do(9, metadataRequest(true, false, name)).(*kmsg.MetadataResponse); r.ThrottleMillis != 0 || r.Topics[0].ErrorCode != 3 {
				t.Errorf("%s: throttled by %d ms, code %d", name, r.ThrottleMillis, r.Topics[0].ErrorCode)
			}
		}
		n.await("the first topic", func() bool { return n.meta.Image().Topic("first") != nil })
		if n.meta.Image().Topic("second") != nil {
			t.Error("the second topic was made beyond the quota")
		}
		time.Sleep(100 * time.Second)
		c.do(9, metadataRequest(true, false, "second"))
		n.await("the second topic", func() bool { return n.meta.Image().Topic("second") != nil })
	})
}
