// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/objstore"
)

// TestReplication: what is acknowledged is on every replica, and a consumer reads it from any.
func TestReplication(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		p := c.awaitLeader(id, 1)
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprint("v", i))
			c.must(p, want[i])
		}
		c.awaitISR(1, id, 1, 2, 3)
		c.awaitHeld(id, want, 1, 2, 3)
		const metric = "kafka_server_brokertopicmetrics_replicationbytes"
		in, out := c.nodes[2].metric(metric+"in_total")+c.nodes[3].metric(metric+"in_total"), c.nodes[1].metric(metric+"out_total")
		if in == 0 || in != out || c.nodes[1].metric(metric+"in_total") != 0 {
			t.Errorf("the followers copied %v bytes, the leader gave %v", in, out)
		}
	})
}

// TestOldLeaderTruncates: a leader that is cut off goes on appending; what it did not get acknowledged by the others is gone once it is
// back, and nothing that was acknowledged is.
func TestOldLeaderTruncates(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		p := c.awaitLeader(id, 1)
		c.must(p, "kept")
		c.isolate(1, true)
		if _, err := c.produce(p, -1, "lost"); !errors.Is(err, broker.ErrTimedOut) && !errors.Is(err, broker.ErrNotEnoughReplicasAfterAppend) {
			t.Fatalf("acks=all without followers: %v", err)
		}
		c.nodes[1].kv.SetFaults(memory.Faults{Outage: true}) // its lease ends too
		next := c.awaitLeader(id, 2, 3)
		if _, err := c.produce(p, 1, "late"); !errors.Is(err, broker.ErrNotLeader) {
			t.Fatalf("a leader whose lease has ended accepted an append: %v", err)
		}
		c.must(next, "new")
		c.nodes[1].kv.SetFaults(memory.Faults{})
		c.isolate(1, false)
		c.awaitISR(2, id, 1, 2, 3)
		c.awaitHeld(id, []string{"kept", "new"}, 1, 2, 3)
		if c.nodes[1].log.Count("replica truncated") == 0 {
			t.Error("the old leader's tail was never truncated: the test tests nothing")
		}
	})
}

// TestTailBelowTheTieredEnd: a leader that is cut off has a tail of its own that ends beyond what the next leader has put in the bucket. Once it is
// back it truncates below the bucket's end, which speaks of the leaders' log and not of its own.
func TestTailBelowTheTieredEnd(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "-1", "local.retention.bytes": "-1"})
		p := c.awaitLeader(id, 1)
		c.must(p, "kept")
		c.isolate(1, true)
		for i := range 9 {
			if _, err := c.produce(p, 1, fmt.Sprint("lost", i)); err != nil {
				t.Fatalf("acks=1 without followers: %v", err)
			}
		}
		c.nodes[1].kv.SetFaults(memory.Faults{Outage: true}) // its lease ends too
		next := c.awaitLeader(id, 2, 3)
		want := []string{"kept"}
		for i := range 4 {
			want = append(want, fmt.Sprint("new", i))
			c.must(next, want[len(want)-1])
		}
		c.await("the log to be in the bucket", func() bool { return next.Marks().TieredEnd == 5 })
		c.nodes[1].kv.SetFaults(memory.Faults{})
		c.isolate(1, false)
		c.awaitISR(2, id, 1, 2, 3)
		c.awaitHeld(id, want, 1, 2, 3)
		if c.nodes[1].log.Count("replica truncated") == 0 {
			t.Error("the old leader's tail was never truncated: the test tests nothing")
		}
	})
}

// TestToldAfterDivergence: a reader that is told where its log and the leader's part drops the rest of that answer, so the session tells the
// high watermark again. The follower of an idle partition would else stay behind by a record for good (S9).
func TestToldAfterDivergence(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		c.must(c.awaitLeader(id, 1), "a")
		c.nodes[1].kv.SetFaults(memory.Faults{Outage: true}) // its lease ends
		next := c.awaitLeader(id, 2, 3)
		c.must(next, "b")
		leader := 2
		if c.nodes[3].partition(c.nodes[3].meta.Image().TopicByID(id.Topic), 0) == next {
			leader = 3
		}
		nc, err := c.peers.net.Dial(context.Background(), "client", fmt.Sprintf("node%d:9092", leader))
		check(t, err)
		defer nc.Close()
		raw := &client{t: t, nc: nc, n: c.nodes[record.NodeID(leader)], id: kmsg.StringPtr("test")}
		session, turn := int32(0), int32(0)
		ask := func(offset int64, lastEpoch int32) []kmsg.FetchResponseTopicPartition {
			req := fetchFor("", id.Topic, 0, offset, 0)
			req.SessionID, req.SessionEpoch = session, turn
			req.Topics[0].Partitions[0].CurrentLeaderEpoch, req.Topics[0].Partitions[0].LastFetchedEpoch = -1, lastEpoch
			resp := raw.do(13, req).(*kmsg.FetchResponse)
			if session, turn = resp.SessionID, turn+1; len(resp.Topics) == 0 {
				return nil
			}
			return resp.Topics[0].Partitions
		}
		if got := ask(2, 1); len(got) != 1 || got[0].HighWatermark != 2 {
			t.Fatalf("at the end: %+v", got)
		}
		if got := ask(2, 1); len(got) != 0 {
			t.Errorf("no news: %+v", got)
		}
		if got := ask(2, 0); len(got) != 1 || got[0].DivergingEpoch.EndOffset != 1 {
			t.Fatalf("the first epoch ends at 1: %+v", got)
		}
		if got := ask(2, 1); len(got) != 1 || got[0].HighWatermark != 2 {
			t.Errorf("after it truncated: %+v", got)
		}
	})
}

// TestBelowMinISR: with one node left nothing is acknowledged, the removed ones stay eligible, and what was acknowledged before is
// there when they are back (A2).
func TestBelowMinISR(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		p := c.awaitLeader(id, 1)
		c.must(p, "a")
		c.nodes[2].stop()
		c.awaitISR(1, id, 1, 3) // of two that go at once the leader thinks that it is the one in trouble
		c.nodes[3].stop()
		c.await("one member and one eligible replica", func() bool {
			in, eligible := c.isr(1, id) // the image may tell before the leader has the outcome of its change
			return slices.Equal(in, []record.NodeID{1}) && len(eligible) >= 1 && p.Marks().InSync == 1
		})
		before := p.Marks().HW
		if _, err := c.produce(p, -1, "refused"); !errors.Is(err, broker.ErrNotEnoughReplicas) {
			t.Fatalf("acks=all below min ISR: %v", err)
		}
		if _, err := c.produce(p, 1, "b"); err != nil {
			t.Fatalf("acks=1 below min ISR: %v", err)
		}
		time.Sleep(10 * time.Second)
		if hw := p.Marks().HW; hw != before {
			t.Fatalf("the high watermark moved from %d to %d below min ISR", before, hw)
		}
		c.start(2)
		c.awaitISR(1, id, 1, 2)
		c.must(p, "c")
		c.start(3)
		c.awaitISR(1, id, 1, 2, 3)
		c.awaitHeld(id, []string{"a", "b", "c"}, 1, 2, 3)
		if _, eligible := c.isr(1, id); len(eligible) != 0 {
			t.Errorf("still eligible although enough are in sync: %v", eligible)
		}
	})
}

// TestLostDisk: a node that comes back with an empty disk is not the member that it was; it copies and enters again.
func TestLostDisk(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		p := c.awaitLeader(id, 1)
		c.must(p, "a")
		c.nodes[1].stop()
		next := c.awaitLeader(id, 2, 3)
		c.must(next, "b")
		delete(c.peers.disks, 1)
		c.start(1)
		c.awaitISR(2, id, 1, 2, 3)
		c.awaitHeld(id, []string{"a", "b"}, 1, 2, 3)
	})
}

// TestHandOver: a node that leaves hands its leadership over without an error that a client would not retry, and producers go on.
func TestHandOver(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		c.must(c.awaitLeader(id, 1), "a")
		c.awaitISR(1, id, 1, 2, 3)
		began := time.Now()
		check(t, c.nodes[1].broker.Leave(t.Context()))
		next := c.awaitLeader(id, 2, 3)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the handover took %v; a lease lasts %v", took, c.peers.lease)
		}
		c.must(next, "b")
		c.awaitHeld(id, []string{"a", "b"}, 2, 3)
	})
}

// TestStartsAtTier: a new replica begins where the bucket ends, with the epochs and producers of the newest segment, and copies the hot
// tail only.
func TestStartsAtTier(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "0"})
		p := c.awaitLeader(id, 1)
		for i := range 10 {
			c.must(p, fmt.Sprint("old", i))
		}
		c.await("the log to be in the bucket", func() bool { m := p.Marks(); return m.TieredEnd == 10 && m.Local == 10 })
		c.nodes[3].stop()
		c.must(p, "new")
		delete(c.peers.disks, 3)
		c.start(3)
		c.awaitISR(1, id, 1, 2, 3)
		q, err := c.nodes[3].broker.Partition(id)
		check(t, err)
		if m := q.Marks(); m.Local < 10 {
			t.Errorf("the new replica holds offsets from %d on: it copied what is in the bucket", m.Local)
		}
		if c.nodes[3].log.Count("replica starts at the end of the bucket") == 0 {
			t.Error("it never started at the end of the bucket: the test tests nothing")
		}
		if got := c.held(3, id); len(got) == 0 || got[0] != "old0" {
			t.Errorf("a reader of the new replica gets %v", got)
		}
	})
}

// TestEpochsBelowTheLogStart: a replica that starts where the log was deleted to knows of the epochs below, and can lead those that have
// followed them.
func TestEpochsBelowTheLogStart(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "0"})
		p := c.awaitLeader(id, 1)
		c.must(p, "a")
		c.await("the first epoch to be in the bucket", func() bool { return p.Marks().TieredEnd == 1 })
		c.nodes[1].stop()
		p = c.awaitLeader(id, 2)
		c.must(p, "b") // in a later epoch, which no segment tells of
		if m := p.Marks(); m.TieredEnd != 1 {
			t.Fatalf("the second record is in the bucket too: %+v", m)
		}
		if _, err := p.DeleteRecords(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		c.start(1)
		c.awaitISR(2, id, 1, 2, 3)
		c.nodes[3].stop()
		delete(c.peers.disks, 3)
		c.start(3)
		c.awaitISR(2, id, 1, 2, 3)
		if c.nodes[3].log.Count("replica starts at the end of the bucket") == 0 {
			t.Error("it never started at the log start: the test tests nothing")
		}
		c.nodes[1].stop()
		c.awaitISR(2, id, 2, 3)
		c.nodes[2].stop()
		c.awaitLeader(id, 3)
		c.start(1)
		c.start(2)
		c.awaitISR(3, id, 1, 2, 3)
	})
}

// TestFollowsWithBucketAway: a replica that needs the bucket in order to follow does not hold up those that do not.
func TestFollowsWithBucketAway(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		cold, warm := c.topic("cold", map[string]string{"segment.ms": "1000", "local.retention.ms": "0"}), c.topic("warm", nil)
		p := c.awaitLeader(cold, 1)
		for i := range 5 {
			c.must(p, fmt.Sprint("old", i))
		}
		c.await("the log to be in the bucket", func() bool { m := p.Marks(); return m.TieredEnd == 5 && m.Local == 5 })
		c.nodes[3].stop()
		c.must(p, "new")
		delete(c.peers.disks, 3)
		held := make(chan struct{})
		release := sync.OnceFunc(func() { close(held) })
		t.Cleanup(release)
		c.peers.store.Add(objstore.Rule{Op: objstore.OpGet, Effect: objstore.Hold, Release: held})
		c.start(3)
		c.awaitISR(1, warm, 1, 2, 3)
		c.must(c.awaitLeader(warm, 1), "w")
		c.awaitHeld(warm, []string{"w"}, 1, 2, 3)
		release()
		c.awaitISR(1, cold, 1, 2, 3)
	})
}

// TestReplicaRequests: who acts as a replica must come through the inter-broker listener, under the registration that is in force.
func TestReplicaRequests(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		c.must(c.awaitLeader(id, 1), "a")
		incarnation := c.nodes[1].meta.Image().Broker(2).Incarnation
		for _, tc := range []struct {
			name        string
			address     string
			incarnation metadata.Incarnation
			want        Code
		}{
			{"client listener", "node1:9092", incarnation, codeClusterAuthorizationFailed},
			{"old registration", "node1:9094", incarnation - 1, codeStaleBrokerEpoch},
			{"follower", "node1:9094", incarnation, codeNone},
		} {
			nc, err := c.peers.net.Dial(context.Background(), "node2", tc.address)
			check(t, err)
			raw := &client{t: t, nc: nc, n: c.nodes[1], id: kmsg.StringPtr("test")}
			req := fetchFor("", id.Topic, 0, 0, 0)
			req.ReplicaState.ID, req.ReplicaState.Epoch = 2, int64(tc.incarnation)
			req.Topics[0].Partitions[0].CurrentLeaderEpoch = 0
			resp := raw.do(17, req).(*kmsg.FetchResponse)
			if Code(resp.ErrorCode) != tc.want {
				t.Errorf("%s: code %d, want %d", tc.name, resp.ErrorCode, tc.want)
			}
			check(t, nc.Close())
		}
	})
}

// TestReadNearby: a client with a rack is pointed at an in-sync follower there, which serves it.
func TestReadNearby(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		c.must(c.awaitLeader(id, 1), "a")
		c.awaitHeld(id, []string{"a"}, 3)
		var offset int64
		ask := func(n record.NodeID, rack string) kmsg.FetchResponseTopicPartition {
			nc, err := c.peers.net.Dial(context.Background(), "client", fmt.Sprintf("node%d:9092", n))
			check(t, err)
			defer nc.Close()
			raw := &client{t: t, nc: nc, n: c.nodes[n], id: kmsg.StringPtr("test")}
			req := fetchFor("", id.Topic, 0, offset, time.Second)
			req.Rack = rack
			return raw.do(13, req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		}
		if p := ask(1, "rack3"); p.PreferredReadReplica != 3 || len(p.RecordBatches) > 0 || p.ErrorCode != 0 {
			t.Errorf("the leader answers %+v, want node 3 and nothing else", p)
		}
		if p := ask(3, "rack3"); p.PreferredReadReplica != -1 || !slices.Equal(contents(t, p.RecordBatches), []string{"a"}) {
			t.Errorf("the follower answers %+v", p)
		}
		if p := ask(1, "rack1"); p.PreferredReadReplica != -1 || len(p.RecordBatches) == 0 {
			t.Errorf("the leader in the client's own rack answers %+v", p)
		}
		offset = 7 // nowhere: the leader has to say so, since a client that is pointed elsewhere does not look at the code
		if p := ask(1, "rack3"); p.PreferredReadReplica != -1 || Code(p.ErrorCode) != codeOffsetOutOfRange {
			t.Errorf("of an offset out of range the leader answers %+v", p)
		}
	})
}

// TestReadBeyondFollower: a follower that lacks what a client has read does not know whether that is anywhere. One that answered that the offset is out
// of range, as of a node that came back with an empty disk and found no leader, would send the client back to the log start.
func TestReadBeyondFollower(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		c.must(c.awaitLeader(id, 1), "a", "b")
		c.awaitHeld(id, []string{"a", "b"}, 2, 3)
		ask := func(n record.NodeID, offset int64, last int32) Code {
			nc, err := c.peers.net.Dial(context.Background(), "client", fmt.Sprintf("node%d:9092", n))
			check(t, err)
			defer nc.Close()
			raw := &client{t: t, nc: nc, n: c.nodes[n], id: kmsg.StringPtr("test")}
			req := fetchFor("", id.Topic, 0, offset, time.Second)
			req.Topics[0].Partitions[0].LastFetchedEpoch = last
			p := raw.do(13, req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			if p.DivergingEpoch.Epoch != -1 {
				t.Errorf("node %d says of offset %d, epoch %d, that its log parts at %+v", n, offset, last, p.DivergingEpoch)
			}
			return Code(p.ErrorCode)
		}
		for offset := range int64(2) {
			if code := ask(3, offset, 0); code != codeNone {
				t.Errorf("node 3 has everything and answers %d", code)
			}
		}
		c.nodes[3].stop()
		c.awaitISR(1, id, 1, 2)
		delete(c.peers.disks, 3)
		c.isolate(3, true)
		c.start(3)
		c.await("node 3 to follow", func() bool {
			p, err := c.nodes[3].broker.Partition(id)
			return err == nil && p.Follows()
		})
		for _, last := range []int32{-1, 0} {
			if code := ask(3, 2, last); code != codeNotLeaderOrFollower {
				t.Errorf("after epoch %d node 3, which has nothing, answers %d", last, code)
			}
		}
		if code := ask(3, 0, 0); code != codeNotLeaderOrFollower {
			t.Errorf("of the log start, after an epoch that it does not know, node 3 answers %d", code)
		}
		c.isolate(3, false)
		c.awaitHeld(id, []string{"a", "b"}, 3)
		if code := ask(3, 2, 0); code != codeNone {
			t.Errorf("node 3 has everything again and answers %d", code)
		}
		if code := ask(1, 3, -1); code != codeOffsetOutOfRange {
			t.Errorf("of an offset that is nowhere the leader answers %d", code)
		}
	})
}

// TestIdleFollowersStay: a partition that was idle for longer than replica.lag.time.max.ms has followers that lack nothing, also in the
// moment after the next append.
func TestIdleFollowersStay(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		p := c.awaitLeader(id, 1)
		c.must(p, "a")
		time.Sleep(17 * time.Second)
		for i := range 20 {
			c.must(p, fmt.Sprint(i))
		}
		if n := c.nodes[1].log.Count("in-sync set changed"); n > 0 {
			t.Errorf("the in-sync set changed %d times:\n%s", n, c.nodes[1].log)
		}
	})
}

// TestStartsInsideBatch: a log start may lie inside a batch; a replica with an empty disk begins with the whole batch.
func TestStartsInsideBatch(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		p := c.awaitLeader(id, 1)
		c.must(p, "a", "b", "c")
		c.must(p, "d")
		c.awaitISR(1, id, 1, 2, 3)
		_, err := p.DeleteRecords(t.Context(), 2)
		check(t, err)
		c.nodes[3].stop()
		delete(c.peers.disks, 3)
		c.start(3)
		c.awaitISR(1, id, 1, 2, 3)
		c.must(p, "e")
		q, err := c.nodes[3].broker.Partition(id)
		check(t, err)
		c.await("node 3 to have all", func() bool { return q.Marks().HW == 5 })
		if m := q.Marks(); m.LogStart != 2 {
			t.Errorf("the log of node 3 starts at %d", m.LogStart)
		}
	})
}

// TestReadNearbyInSession: also an incremental answer names the replica to read from, though there is nothing else to say.
func TestReadNearbyInSession(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		c.must(c.awaitLeader(id, 1), "a")
		c.awaitHeld(id, []string{"a"}, 3)
		nc, err := c.peers.net.Dial(context.Background(), "client", "node1:9092")
		check(t, err)
		defer nc.Close()
		raw := &client{t: t, nc: nc, n: c.nodes[1], id: kmsg.StringPtr("test")}
		req := fetchFor("", id.Topic, 0, 0, time.Second)
		req.SessionEpoch = 0
		began := raw.do(13, req).(*kmsg.FetchResponse)
		if began.SessionID == 0 || len(began.Topics) != 1 {
			t.Fatalf("no session: %+v", began)
		}
		next := fetchFor("", id.Topic, 0, 0, time.Second)
		next.Topics, next.SessionID, next.SessionEpoch, next.Rack = nil, began.SessionID, 1, "rack3"
		resp := raw.do(13, next).(*kmsg.FetchResponse)
		if len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].PreferredReadReplica != 3 {
			t.Errorf("the incremental answer is %+v", resp)
		}
	})
}

// TestFollowerServesTheBucket: a follower serves what is in the bucket only.
func TestFollowerServesTheBucket(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "0"})
		c.must(c.awaitLeader(id, 1), "a")
		q, err := c.nodes[3].broker.Partition(id)
		check(t, err)
		c.await("node 3 to have nothing of it any more", func() bool { m := q.Marks(); return m.TieredEnd == 1 && m.Local == 1 })
		nc, err := c.peers.net.Dial(context.Background(), "client", "node3:9092")
		check(t, err)
		defer nc.Close()
		raw := &client{t: t, nc: nc, n: c.nodes[3], id: kmsg.StringPtr("test")}
		p := raw.do(13, fetchFor("", id.Topic, 0, 0, time.Second)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || !slices.Equal(contents(t, p.RecordBatches), []string{"a"}) {
			t.Errorf("the follower answers %+v", p)
		}
	})
}

// TestRegistersAnew: a node whose registration is another one from one fetch to the next is in sync again, also for a partition of which
// it has nothing new to say.
func TestRegistersAnew(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		id := c.topic("t", nil)
		c.must(c.awaitLeader(id, 1), "a")
		c.awaitISR(1, id, 1, 2, 3)
		was := c.nodes[1].meta.Image().Broker(3).Incarnation
		c.unregister(3)
		c.awaitStamped(1, id, 3, was)
	})
}
