// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"
)

// free tells whether all of a budget is free.
func free(s *semaphore.Weighted, all int64) bool {
	if !s.TryAcquire(all) {
		return false
	}
	s.Release(all)
	return true
}

// TestRequestMemory reaches the node's budget: what does not fit is not read before room is made, a request above the whole
// budget passes alone, and everything is given back (G4).
func TestRequestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 10_000
		n := startNode(t, nodeOptions{gateway: Config{NodeMemory: budget, ConnectionMemory: budget}})
		topic := n.topic("t", 1, nil)
		// A peer that announces 8,000 bytes and sends few of them holds that much.
		slow := n.dial()
		frame, id := slow.frame(9, produceRequest("t", topic.ID, -1, values(t, string(make([]byte, 8000)))))
		_, err := slow.nc.Write(frame[:100])
		check(t, err)
		synctest.Wait()
		if free(n.server.memory, budget-7000) {
			t.Error("the announced request is not admitted against the budget")
		}
		other := n.dial()
		req := produceRequest("t", topic.ID, -1, values(t, string(make([]byte, 3000))))
		otherID := other.send(9, req)
		time.Sleep(5 * time.Second)
		if m := n.partition(topic, 0).Marks(); m.LogEnd != 0 {
			t.Error("a request beyond the budget was served")
		}
		_, err = slow.nc.Write(frame[100:])
		check(t, err)
		slow.receive(id, req)
		if p := other.receive(otherID, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != 1 {
			t.Errorf("the request that waited: %+v", p)
		}
		huge := produceRequest("t", topic.ID, -1, values(t, string(make([]byte, 5*budget))))
		if p := other.do(9, huge).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 {
			t.Errorf("a request above the whole budget: %+v", p)
		}
		synctest.Wait()
		if !free(n.server.memory, budget) {
			t.Error("the budget is not free after all requests were answered")
		}
	})
}

// TestPipelineBound: a client that reads no answers is read from no further than the pipeline's bound, and its memory stays bounded.
func TestPipelineBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		c := n.dial()
		parked := fetchFor("t", topic.ID, 0, 0, time.Hour)
		c.send(12, parked)
		sent := make(chan int, 1)
		go func() {
			for i := range 5 * maxPipelined {
				frame, _ := c.frame(9, produceRequest("nosuch", topic.ID, -1, make([]byte, 4000)))
				_ = c.nc.SetWriteDeadline(time.Now().Add(time.Minute))
				if _, err := c.nc.Write(frame); err != nil {
					sent <- i
					return
				}
			}
			sent <- 5 * maxPipelined
		}()
		if got := <-sent; got == 5*maxPipelined {
			t.Error("the server read everything while it could answer nothing")
		}
		for cn := range n.server.mu.conns {
			if open := cn.open.Load(); open > maxPipelined+2 {
				t.Errorf("%d requests are open, the bound is %d", open, maxPipelined)
			}
		}
	})
}

// TestFetchMemory: with the node's fetch budget used up, a fetch still brings a batch, but little more.
func TestFetchMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{gateway: Config{FetchMemory: 100 << 10}})
		topic := n.topic("t", 1, nil)
		for range 40 {
			n.produce(topic, 0, string(make([]byte, 20<<10)))
		}
		c := n.dial()
		size := func() int {
			got := len(c.do(12, fetchFor("t", topic.ID, 0, 0, 0)).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches)
			synctest.Wait() // the server gives the memory back once it has written
			return got
		}
		// 64 KiB are reserved before 100 KiB are seen to bind.
		if got := size(); got > 110<<10 || got < 20<<10 {
			t.Errorf("%d bytes with a budget of %d", got, 100<<10)
		}
		taken := n.server.fetchMemory.take(100<<10, 0)
		if got := size(); got < 20<<10 || got > 70<<10 {
			t.Errorf("%d bytes with nothing left of the budget", got)
		}
		n.server.fetchMemory.release(taken)
		if used := n.server.fetchMemory.used.Load(); used != 0 {
			t.Errorf("%d bytes of the budget are not given back", used)
		}
	})
}

// TestConnectionLimit: one more than max.connections is closed at once.
func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"max.connections": "2"}})
		a, b, c := n.dial(), n.dial(), n.dial()
		a.do(0, kmsg.NewPtrApiVersionsRequest())
		b.do(0, kmsg.NewPtrApiVersionsRequest())
		if _, err := c.nc.Read(make([]byte, 1)); err == nil {
			t.Error("the third connection is served")
		}
	})
}
