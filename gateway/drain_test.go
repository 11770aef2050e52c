// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// leadersPut counts the leaders that a transaction names.
func leadersPut(txn metadata.Txn) int { return puts(txn, "/leader/") }

func puts(txn metadata.Txn, kind string) (n int) {
	for _, op := range txn.Then {
		if op.Kind == metadata.OpPut && strings.Contains(op.Key, kind) {
			n++
		}
	}
	return n
}

// holdHandovers makes a node's next transaction that names a leader wait until release is called; reached is closed when it waits.
func (c *cluster) holdHandovers(n record.NodeID) (reached <-chan struct{}, release func()) {
	at, gate := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	c.nodes[n].kv.SetFaults(memory.Faults{Txn: func(txn metadata.Txn) memory.Outcome {
		if leadersPut(txn) > 0 && once.CompareAndSwap(false, true) {
			close(at)
			<-gate
		}
		return memory.Outcome{}
	}})
	release = sync.OnceFunc(func() { close(gate) })
	c.t.Cleanup(release) // a test that fails ends
	return at, release
}

// handingOver makes a topic whose only partition node 1 leads and is about to give away: the metadata has the transfer once release is called.
func (c *cluster) handingOver() (id record.PartitionID, release func()) {
	c.t.Helper()
	id = c.topic("t", nil)
	c.must(c.awaitLeader(id, 1), "a")
	reached, release := c.holdHandovers(1)
	_, err := c.nodes[3].meta.Drain(c.t.Context(), 1)
	check(c.t, err)
	<-reached
	return id, release
}

func producedPart(r kmsg.Response) *kmsg.ProduceResponseTopicPartition {
	return &r.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

// TestHeldWhileHandedOver: what comes while a leadership is on its way to another node is not refused before it is known who leads, and then is
// told who.
func TestHeldWhileHandedOver(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id, release := c.handingOver()
		client, req := c.nodes[1].dial(), produceRequest("t", id.Topic, -1, values(t, "b"))
		correlation := client.send(10, req)
		synctest.Wait()
		if got := c.nodes[1].log.Count("leadership handed over"); got != 0 {
			t.Fatal("it is decided: the test tests nothing")
		}
		began := time.Now()
		time.AfterFunc(100*time.Millisecond, release)
		resp := client.receive(correlation, req)
		part := producedPart(resp)
		if part.ErrorCode != codeNotLeaderOrFollower.int16() || part.CurrentLeader.LeaderID != 2 || part.CurrentLeader.LeaderEpoch != 1 {
			t.Errorf("answered %d, leader %d in epoch %d", part.ErrorCode, part.CurrentLeader.LeaderID, part.CurrentLeader.LeaderEpoch)
		}
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Errorf("held for %v", took)
		}
		if nodes := resp.(*kmsg.ProduceResponse).Brokers; len(nodes) != 1 || nodes[0].NodeID != 2 {
			t.Errorf("nodes named: %v", nodes)
		}
		c.must(c.awaitLeader(id, 2), "b")
		c.awaitHeld(id, []string{"a", "b"}, 1, 2, 3)
	})
}

// TestHeldAndNotHandedOver: a handover that comes to nothing has what came meanwhile appended, in the order in which it came.
func TestHeldAndNotHandedOver(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		p := c.awaitLeader(id, 1)
		c.must(p, "a")
		reached, release := c.holdHandovers(1)
		_, err := c.nodes[3].meta.Drain(t.Context(), 1)
		check(t, err)
		<-reached
		c.nodes[1].kv.SetFaults(memory.Faults{DeadWatch: true}) // it goes on thinking that node 2 is the one
		want := []string{"a"}
		client := c.nodes[1].dial()
		var corrs []int32
		var reqs []*kmsg.ProduceRequest
		for i := range 5 {
			want = append(want, fmt.Sprint(i))
			req := produceRequest("t", id.Topic, 1, values(t, fmt.Sprint(i)))
			reqs, corrs = append(reqs, req), append(corrs, client.send(10, req))
		}
		synctest.Wait()
		c.unregister(2)
		release()
		for i, req := range reqs {
			if part := producedPart(client.receive(corrs[i], req)); part.ErrorCode != 0 || part.BaseOffset != int64(i+1) {
				t.Errorf("record %d: code %d, offset %d", i, part.ErrorCode, part.BaseOffset)
			}
		}
		c.nodes[1].kv.SetFaults(memory.Faults{})
		c.awaitHeld(id, want, 1, 2, 3)
	})
}

// TestNotHeldForLong: with the metadata store away a handover stays undecided. Nobody is held for longer than a moment.
func TestNotHeldForLong(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id, release := c.handingOver()
		for _, least := range []time.Duration{time.Second, 0} {
			began := time.Now()
			client, req := c.nodes[1].dial(), produceRequest("t", id.Topic, -1, values(t, "b"))
			if part := producedPart(client.receive(client.send(10, req), req)); part.ErrorCode != codeNotLeaderOrFollower.int16() {
				t.Errorf("answered %d", part.ErrorCode)
			}
			if took := time.Since(began); took < least || took > least+2*time.Second {
				t.Errorf("held for %v", took)
			}
		}
		release()
		c.must(c.awaitLeader(id, 2), "b")
		c.awaitHeld(id, []string{"a", "b"}, 1, 2, 3)
	})
}

// TestUndecidedHoldsNoOther: a handover whose successor lacks something yet ends when its time is over, also while that of another partition in
// its group stays undecided.
func TestUndecidedHoldsNoOther(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		var ids []record.PartitionID
		for i, replicas := range [][]record.NodeID{{1, 2}, {1, 3}} {
			ids = append(ids, c.topicOn(fmt.Sprint("t", i), nil, replicas...))
			c.must(c.awaitLeader(ids[i], 1), "a")
			c.awaitISR(1, ids[i], replicas...)
		}
		reached, release := c.holdHandovers(1)
		c.isolate(3, true)
		slow := c.awaitLeader(ids[1], 1)
		_, err := c.produce(slow, 1, "b") // node 3 lacks it
		check(t, err)
		_, err = c.nodes[2].meta.Drain(t.Context(), 1)
		check(t, err)
		<-reached
		began := time.Now()
		if _, err := c.produce(slow, 1, "c"); err != nil {
			t.Errorf("produced after %v, while the other handover is undecided: %v", time.Since(began), err)
		}
		c.isolate(3, false)
		release()
		c.must(c.awaitLeader(ids[0], 2), "b")
		c.must(c.awaitLeader(ids[1], 3), "d")
		c.awaitHeld(ids[1], []string{"a", "b", "c", "d"}, 1, 3)
	})
}

// TestLateOutcomeEndsNoOther: a handover whose outcome comes when this node leads again, in a later epoch, does not end that.
func TestLateOutcomeEndsNoOther(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topicOn("t", nil, 1, 2)
		c.must(c.awaitLeader(id, 1), "a")
		c.awaitISR(1, id, 1, 2)
		reached, release := c.holdHandovers(1)
		_, err := c.nodes[3].meta.Drain(t.Context(), 1)
		check(t, err)
		<-reached
		before := c.nodes[1].meta.Session().Incarnation()
		c.unregister(1)
		c.awaitLeader(id, 2)
		c.awaitStamped(2, id, 1, before)
		c.awaitISR(2, id, 1, 2)
		c.must(c.awaitLeader(id, 2), "b")
		_, err = c.nodes[3].meta.Undrain(t.Context(), 1)
		check(t, err)
		c.awaitISR(2, id, 1, 2)
		_, err = c.nodes[3].meta.Drain(t.Context(), 2)
		check(t, err)
		again := c.awaitLeader(id, 1)
		c.awaitISR(1, id, 1, 2)
		c.isolate(2, true)
		outcome := make(chan error, 1)
		go func() {
			_, err := c.produce(again, -1, "c")
			outcome <- err
		}()
		synctest.Wait()
		if len(outcome) > 0 {
			t.Error("it waits for nobody: the test tests nothing")
		}
		release()
		synctest.Wait()
		c.isolate(2, false)
		check(t, <-outcome)
		c.awaitHeld(id, []string{"a", "b", "c"}, 1, 2)
	})
}

// TestHandedOverInGroups: few of many partitions move at a time, in one transaction, and all of them soon.
func TestHandedOverInGroups(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		const partitions, together = 60, 8
		spec := metadata.TopicSpec{Name: "t"}
		for range partitions {
			spec.Partitions = append(spec.Partitions, []record.NodeID{1, 2, 3})
		}
		_, err := c.nodes[1].meta.CreateTopic(t.Context(), spec)
		check(t, err)
		leads := func(n record.NodeID) (count int) { return len(c.nodes[n].broker.Led()) }
		c.await("node 1 to lead", func() bool { return leads(1) == partitions })
		var txns, most atomic.Int32
		c.nodes[1].kv.SetFaults(memory.Faults{Txn: func(txn metadata.Txn) memory.Outcome {
			if n := int32(leadersPut(txn)); n > 0 {
				txns.Add(1)
				most.Store(max(most.Load(), n))
				if serve := leads(1) + leads(2) + leads(3); serve < partitions-together {
					t.Errorf("%d of %d partitions have a leader that serves", serve, partitions)
				}
			}
			return memory.Outcome{}
		}})
		began := time.Now()
		_, err = c.nodes[3].meta.Drain(t.Context(), 1)
		check(t, err)
		c.await("node 1 to lead nothing", func() bool { return leads(1) == 0 && leads(2)+leads(3) == partitions })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("that took %v", took)
		}
		if most.Load() > together || txns.Load() > partitions*2/3 {
			t.Errorf("%d transactions with up to %d partitions", txns.Load(), most.Load())
		}
	})
}

// TestLeaverIsNotWaitedFor: a node that leaves is out of the in-sync sets before its registration ends, so that no acknowledgement waits for it, and
// stays where it is needed.
func TestLeaverIsNotWaitedFor(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		spare, needed := c.topic("spare", map[string]string{"min.insync.replicas": "2"}), c.topic("needed", map[string]string{"min.insync.replicas": "3"})
		c.must(c.awaitLeader(spare, 1), "a")
		c.must(c.awaitLeader(needed, 1), "a")
		in := func(img *metadata.Image, id record.PartitionID) bool {
			state, _ := img.Partition(id)
			_, member := state.ISR.Member(3)
			return member
		}
		var seen atomic.Bool
		cancel := c.nodes[1].meta.Subscribe(func(_, img *metadata.Image) {
			if img.Broker(3) != nil || seen.Load() {
				return
			}
			if in(img, spare) || !in(img, needed) {
				t.Errorf("when its registration ends it is in sync where it is spare: %v, where it is needed: %v", in(img, spare), in(img, needed))
			}
			seen.Store(true)
		})
		defer cancel()
		began := time.Now()
		check(t, c.nodes[3].broker.Leave(t.Context()))
		if took := time.Since(began); took > time.Second {
			t.Errorf("leaving took %v", took)
		}
		c.await("node 1 to hear that it is gone", seen.Load) // subscribers are told after the image is there
	})
}

// TestLeaverLeadsToTheLast: what nobody takes from a node that leaves it leads until its registration ends, since nobody else may before that.
func TestLeaverLeadsToTheLast(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		shared := c.topicOn("shared", nil, 2, 1, 3)
		c.must(c.awaitLeader(shared, 2), "a")
		c.awaitISR(2, shared, 1, 2, 3)
		p := c.awaitLeader(c.topicOn("alone", nil, 1), 1)
		gate := make(chan struct{})
		release := sync.OnceFunc(func() { close(gate) })
		defer release()
		c.nodes[2].kv.SetFaults(memory.Faults{Txn: func(txn metadata.Txn) memory.Outcome {
			if puts(txn, "/isr/") > 0 {
				<-gate
			}
			return memory.Outcome{}
		}})
		left := make(chan error, 1)
		go func() { left <- c.nodes[1].broker.Leave(t.Context()) }()
		time.Sleep(500 * time.Millisecond)
		if len(left) > 0 {
			t.Fatal("it does not wait to be out of the in-sync set: the test tests nothing")
		}
		c.must(p, "b")
		release()
		check(t, <-left)
		if _, err := c.produce(p, -1, "c"); !errors.Is(err, broker.ErrNotLeader) {
			t.Errorf("produced after it left: %v", err)
		}
	})
}

// TestLeaverAwaitsWhatMoves: a node that leaves while a partition of it is on its way to another node does not end before that.
func TestLeaverAwaitsWhatMoves(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id, release := c.handingOver()
		left := make(chan error, 1)
		go func() { left <- c.nodes[1].broker.Leave(t.Context()) }()
		time.Sleep(100 * time.Millisecond)
		if len(left) > 0 {
			t.Error("it left with a handover under way")
		}
		release()
		check(t, <-left)
		c.must(c.awaitLeader(id, 2), "b")
		if state, _ := c.nodes[2].meta.Image().Partition(id); state.Leader.Epoch != 1 {
			t.Errorf("node 2 leads in epoch %d", state.Leader.Epoch)
		}
	})
}

// TestLeaverKeepsTimeToEnd: however little time there is, some of it is left to end the registration. Else all would wait for the lease.
func TestLeaverKeepsTimeToEnd(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.must(c.awaitLeader(c.topic("t", nil), 1), "a")
		gate := make(chan struct{})
		defer close(gate)
		c.nodes[1].kv.SetFaults(memory.Faults{Txn: func(txn metadata.Txn) memory.Outcome {
			if puts(txn, "/isr/") > 0 {
				<-gate
			}
			return memory.Outcome{}
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		check(t, c.nodes[3].broker.Leave(ctx))
		c.await("it to be gone", func() bool { return c.nodes[1].meta.Image().Broker(3) == nil })
	})
}

// TestNothingIsGivenToALeaver: who is about to leave gets no leadership that it would have to hand over again.
func TestNothingIsGivenToALeaver(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		c.must(c.awaitLeader(id, 1), "a")
		leaver := c.nodes[1].meta.Image().Broker(2)
		c.nodes[1].broker.Heard(&broker.Replica{Node: 2, Incarnation: leaver.Incarnation, Leaving: true})
		_, err := c.nodes[3].meta.Drain(t.Context(), 1)
		check(t, err)
		next := c.awaitLeader(id, 2, 3)
		if m := next.Marks(); !slices.Contains(c.nodes[3].broker.Led(), id) {
			t.Errorf("node 2 leads, in epoch %d", m.Epoch)
		}
	})
}

// TestFollowersHearAtOnce: a follower's fetch that waits at a leader does not keep it from asking for a partition that this leader gets.
func TestFollowersHearAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		first := c.topic("first", nil)
		c.must(c.awaitLeader(first, 1), "a")
		time.Sleep(1100 * time.Millisecond) // somewhere inside a fetch's time
		synctest.Wait()
		topic, err := c.nodes[1].meta.CreateTopic(context.Background(), metadata.TopicSpec{Name: "second", Partitions: [][]record.NodeID{{1, 2, 3}}})
		check(t, err)
		id := record.PartitionID{Topic: topic.ID}
		began := time.Now()
		c.must(c.awaitLeader(id, 1), "b")
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("an acknowledgement of all took %v", took)
		}
	})
}

// TestRolesDoNotWaitForOthers: a partition whose role has to be looked at again in a moment does not keep another one, that is handed over to this
// node, from being led.
func TestRolesDoNotWaitForOthers(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		stuck := c.topic("stuck", nil)
		c.awaitISR(1, stuck, 1, 2, 3)
		id := c.topicOn("other", nil, 2, 1, 3)
		c.must(c.awaitLeader(id, 2), "a")
		reached, release := c.holdHandovers(1)
		defer release()
		c.assign(1, stuck, metadata.Assignment{Replicas: []record.NodeID{2, 3}})
		<-reached
		synctest.Wait() // it is looked at again every quarter of a second
		began := time.Now()
		_, err := c.nodes[3].meta.Drain(t.Context(), 2)
		check(t, err)
		c.must(c.awaitLeader(id, 1), "b")
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("that took %v", took)
		}
	})
}
