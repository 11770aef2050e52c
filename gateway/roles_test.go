// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// leaderRequest is a request that the leader of partition 0 of "t" has to answer.
type leaderRequest struct {
	version int16
	req     kmsg.Request
	code    func(kmsg.Response) int16
}

func leaderRequests(t testing.TB, topic *metadata.Topic) map[string]leaderRequest {
	list := kmsg.NewPtrListOffsetsRequest()
	lt := kmsg.NewListOffsetsRequestTopic()
	lp := kmsg.NewListOffsetsRequestTopicPartition()
	lp.Timestamp, lt.Topic = -1, "t"
	lt.Partitions = append(lt.Partitions, lp)
	list.Topics = append(list.Topics, lt)
	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	et := kmsg.NewOffsetForLeaderEpochRequestTopic()
	et.Topic, et.Partitions, epochs.ReplicaID = "t", []kmsg.OffsetForLeaderEpochRequestTopicPartition{kmsg.NewOffsetForLeaderEpochRequestTopicPartition()}, -1
	epochs.Topics = append(epochs.Topics, et)
	del := kmsg.NewPtrDeleteRecordsRequest()
	dt := kmsg.NewDeleteRecordsRequestTopic()
	dp := kmsg.NewDeleteRecordsRequestTopicPartition()
	dp.Offset, dt.Topic, del.TimeoutMillis = -1, "t", 5000
	dt.Partitions = append(dt.Partitions, dp)
	del.Topics = append(del.Topics, dt)
	describe := kmsg.NewPtrDescribeProducersRequest()
	pt := kmsg.NewDescribeProducersRequestTopic()
	pt.Topic, pt.Partitions = "t", []int32{0}
	describe.Topics = append(describe.Topics, pt)
	fetched := func(r kmsg.Response) int16 { return r.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode }
	produced := func(r kmsg.Response) int16 { return r.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode }
	return map[string]leaderRequest{
		"Produce 9":   {9, produceRequest("t", topic.ID, -1, values(t, "a")), produced},
		"Produce 13":  {13, produceRequest("t", topic.ID, 1, values(t, "a")), produced},
		"Fetch 11":    {11, fetchFor("t", topic.ID, 0, 0, 500*time.Millisecond), fetched},
		"Fetch 16":    {16, fetchFor("t", topic.ID, 0, 0, 500*time.Millisecond), fetched},
		"ListOffsets": {7, list, func(r kmsg.Response) int16 { return r.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode }},
		"OffsetForLeaderEpoch": {4, epochs, func(r kmsg.Response) int16 {
			return r.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0].ErrorCode
		}},
		"DeleteRecords": {2, del, func(r kmsg.Response) int16 { return r.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode }},
		"DescribeProducers": {0, describe, func(r kmsg.Response) int16 {
			return r.(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ErrorCode
		}},
	}
}

// lateTopic makes a topic whose leader, this node, is named by the metadata and takes d to begin its epoch.
func (n *node) lateTopic(p *peers, d time.Duration) *metadata.Topic {
	n.t.Helper()
	time.Sleep(time.Second) // the next commit looks at the disk
	p.slow.Store(int64(d))
	topic, err := n.meta.CreateTopic(n.t.Context(), metadata.TopicSpec{Name: "t", Partitions: [][]record.NodeID{{testNodeID}}})
	check(n.t, err)
	n.await("the leader to be named", func() bool {
		state, _ := n.meta.Image().Partition(record.PartitionID{Topic: topic.ID})
		return state.Leader.Node == testNodeID
	})
	if n.partition(topic, 0) != nil {
		n.t.Fatal("the partition is led already: the test tests nothing")
	}
	return topic
}

// TestNamedBeforeServing: the metadata names a leader before that node serves. A client that heard of it does not have to try again.
func TestNamedBeforeServing(t *testing.T) {
	for name := range leaderRequests(t, &metadata.Topic{}) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeers()
				n := startNode(t, nodeOptions{peers: p, id: testNodeID})
				r := leaderRequests(t, n.lateTopic(p, 100*time.Millisecond))[name]
				if code := r.code(n.dial().do(r.version, r.req)); code != 0 {
					t.Errorf("code %d", code)
				}
			})
		})
	}
}

// TestLateLeaderIsNotAwaitedForLong: requests wait for a leadership only so long, from the first of them on; one with a shorter time of its
// own not longer than that; and none at a node that stops.
func TestLateLeaderIsNotAwaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		n := startNode(t, nodeOptions{peers: p, id: testNodeID})
		topic := n.lateTopic(p, time.Minute)
		took := func(timeout int32) time.Duration {
			began := time.Now()
			req := produceRequest("t", topic.ID, -1, values(t, "a"))
			req.TimeoutMillis = timeout
			if code := n.dial().do(9, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; code != codeNotLeaderOrFollower.int16() {
				t.Errorf("code %d", code)
			}
			return time.Since(began)
		}
		if d := took(100); d < 100*time.Millisecond || d > 150*time.Millisecond {
			t.Errorf("a request with 100 ms of its own waited %v", d)
		}
		if d := took(5000); d < roleWait/2 || d > roleWait {
			t.Errorf("the first request waited %v", d)
		}
		if d := took(5000); d > 10*time.Millisecond {
			t.Errorf("a later request waited %v", d)
		}
		p.slow.Store(0)
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		n := startNode(t, nodeOptions{peers: p, id: testNodeID})
		req := produceRequest("t", n.lateTopic(p, time.Minute).ID, -1, values(t, "a"))
		c := n.dial()
		began := time.Now()
		corr := c.send(9, req)
		synctest.Wait() // it waits
		go n.stopGW()
		resp := c.receive(corr, req).(*kmsg.ProduceResponse)
		if code := resp.Topics[0].Partitions[0].ErrorCode; code != codeNotLeaderOrFollower.int16() || time.Since(began) > 10*time.Millisecond {
			t.Errorf("a node that stops answered %d after %v", code, time.Since(began))
		}
		p.slow.Store(0)
	})
}

// TestTopicKnownElsewhere: a client was told of a topic by a node that knew of it before this one does.
func TestTopicKnownElsewhere(t *testing.T) {
	for name := range leaderRequests(t, &metadata.Topic{}) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nodeOptions{})
				n.kv.SetFaults(memory.Faults{DeadWatch: true})
				topic, err := n.meta.CreateTopic(t.Context(), metadata.TopicSpec{Name: "t", Partitions: [][]record.NodeID{{testNodeID}}})
				check(t, err)
				r := leaderRequests(t, topic)[name]
				c := n.dial()
				corr := c.send(r.version, r.req)
				time.Sleep(100 * time.Millisecond)
				n.kv.SetFaults(memory.Faults{})
				if code := r.code(c.receive(corr, r.req)); code != 0 {
					t.Errorf("code %d", code)
				}
				unknown := leaderRequests(t, topic)[name]
				if p, ok := unknown.req.(*kmsg.ProduceRequest); ok {
					began := time.Now()
					p.Topics[0].Topic, p.Topics[0].TopicID = "nosuch", record.TopicID{9}
					if code := unknown.code(c.do(unknown.version, p)); code == 0 || time.Since(began) > 150*time.Millisecond {
						t.Errorf("a topic that does not exist: code %d after %v", code, time.Since(began))
					}
				}
			})
		})
	}
}

// TestLeaderKnownElsewhere: this node was given the leadership, and does not know yet what others tell their clients already.
func TestLeaderKnownElsewhere(t *testing.T) {
	for name := range leaderRequests(t, &metadata.Topic{}) {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				id := c.topic("t", nil)
				c.must(c.awaitLeader(id, 1), "a")
				c.awaitISR(1, id, 1, 2, 3)
				c.awaitISR(2, id, 1, 2, 3)
				r := leaderRequests(t, c.nodes[1].meta.Image().TopicByID(id.Topic))[name]
				c.nodes[2].kv.SetFaults(memory.Faults{DeadWatch: true})
				_, err := c.nodes[1].meta.Drain(t.Context(), 1)
				check(t, err)
				c.await("the leadership to be handed over", func() bool {
					state, _ := c.nodes[3].meta.Image().Partition(id)
					return state.Leader.Node == 2
				})
				nc, err := c.peers.net.Dial(context.Background(), "client", "node2:9092")
				check(t, err)
				defer nc.Close()
				cl := &client{t: t, nc: nc, n: c.nodes[2], id: kmsg.StringPtr("test")}
				corr := cl.send(r.version, r.req)
				time.Sleep(100 * time.Millisecond)
				c.nodes[2].kv.SetFaults(memory.Faults{})
				if code := r.code(cl.receive(corr, r.req)); code != 0 {
					t.Errorf("code %d", code)
				}
			})
		})
	}
}
