// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

func TestCheckTopicName(t *testing.T) {
	for _, good := range []string{"a", "A-b_c.9", "...", "__consumer_offsets", strings.Repeat("x", 249)} {
		if err := checkTopicName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "a b", "a/b", "é", "a\x00", "a\n", strings.Repeat("x", 250)} {
		if err := checkTopicName(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// secondNode registers another node beside the one under test, in the metadata only. It is reached through listener.
func secondNode(t *testing.T, n *node, id record.NodeID, listener, rack string) (*metadata.Store, *metadata.Session) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	store, err := metadata.Open(ctx, n.kv, metadata.Options{NodeID: id, CompactEvery: -1, DataClusterID: n.meta.ClusterID(), DataNode: id})
	check(t, err)
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx) }()
	n.await("the second node's image", func() bool { return store.Image().Loaded() })
	session, err := store.Register(ctx, metadata.BrokerInfo{Node: id, StoreID: metadata.NewUUID(), Rack: rack, Started: time.Now(),
		Endpoints: []metadata.Endpoint{{Listener: listener, Host: "node2", Port: 9192, Protocol: "PLAINTEXT"}}})
	check(t, err)
	t.Cleanup(func() {
		check(t, session.Close(ctx))
		cancel()
		<-ended
	})
	n.await("both nodes", func() bool { return len(n.meta.Image().Brokers()) == 2 })
	return store, session
}

// TestLeadersAndListeners: what Metadata says about partitions without leader, led elsewhere, and led by a node that the
// client's listener does not reach.
func TestLeadersAndListeners(t *testing.T) {
	for _, tc := range []struct {
		listener       string
		brokers        int
		before6, from6 int16 // codes of a partition that node 2 leads
	}{{testListener, 2, 0, 0}, {"OTHER", 1, 5, 72}} {
		t.Run(tc.listener, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nodeOptions{})
				c := n.dial()
				store, session := secondNode(t, n, 2, tc.listener, "r2")
				create := createRequest(false, newTopic{name: "t", partitions: -1, rf: -1, assign: map[int32][]int32{0: {1}, 1: {2}}})
				create.TimeoutMillis = 500
				if r := c.do(7, create).(*kmsg.CreateTopicsResponse).Topics[0]; r.ErrorCode != 7 {
					t.Fatalf("node 2 takes over nothing, so the request times out; got %+v", r)
				}
				topic := n.meta.Image().Topic("t")
				p := c.do(13, metadataRequest(false, false, "t")).(*kmsg.MetadataResponse).Topics[0].Partitions
				if p[0].ErrorCode != 0 || p[0].Leader != 1 || p[0].LeaderEpoch < 0 || len(p[0].OfflineReplicas) != 0 {
					t.Errorf("led here: %+v", p[0])
				}
				if p[1].ErrorCode != 5 || p[1].Leader != -1 || len(p[1].ISR) != 0 || len(p[1].Replicas) != 1 {
					t.Errorf("never led: %+v", p[1])
				}
				led, err := store.TakeOver(context.Background(), session, []record.PartitionID{{Topic: topic.ID, Index: 1}})
				if err != nil || len(led) != 1 {
					t.Fatalf("takeover: %v %v", led, err)
				}
				check(t, n.meta.WaitFor(context.Background(), led[0].LeaderRev))
				for v := int16(0); v <= 13; v++ {
					r := c.do(v, metadataRequest(false, false, "t")).(*kmsg.MetadataResponse)
					want := tc.from6
					if v < 6 {
						want = tc.before6
					}
					leader := int32(2)
					if want != 0 {
						leader = -1
					}
					p := r.Topics[0].Partitions[1]
					if len(r.Brokers) != tc.brokers || p.ErrorCode != want || p.Leader != leader {
						t.Errorf("version %d: %d brokers, error %d, leader %d; want %d, %d, %d", v, len(r.Brokers), p.ErrorCode, p.Leader, tc.brokers, want, leader)
					}
					if v >= 7 && p.LeaderEpoch != int32(led[0].Epoch) {
						t.Errorf("version %d: leader epoch %d, want %d", v, p.LeaderEpoch, led[0].Epoch)
					}
				}
				if r := c.do(2, &kmsg.DescribeClusterRequest{EndpointType: 1}).(*kmsg.DescribeClusterResponse); len(r.Brokers) != tc.brokers || r.ControllerID != 1 {
					t.Errorf("cluster: %+v", r)
				}
				// The other node goes: its partition has no leader, its replicas are offline, the epoch does not go back.
				check(t, session.Close(context.Background()))
				n.await("node 2 to be gone", func() bool { return len(n.meta.Image().Brokers()) == 1 })
				p = c.do(13, metadataRequest(false, false, "t")).(*kmsg.MetadataResponse).Topics[0].Partitions
				if p[1].ErrorCode != 5 || p[1].Leader != -1 || p[1].LeaderEpoch < int32(led[0].Epoch) || !slices.Equal(p[1].OfflineReplicas, []int32{2}) {
					t.Errorf("leader gone: %+v", p[1])
				}
			})
		})
	}
}

// TestMetadataAwaitsFirstLeaders: a topic whose leader comes a moment after it is answered with the leader, whether it is asked for by name, by
// id or with all others; one whose leader does not come is answered without, after a while, and so is one that had a leader and lost it, at once.
func TestMetadataAwaitsFirstLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		c := n.dial()
		store, session := secondNode(t, n, 2, testListener, "r2")
		asks := map[string]func(record.TopicID) *kmsg.MetadataRequest{
			"name": func(record.TopicID) *kmsg.MetadataRequest { return metadataRequest(false, false, "name") },
			"id":   func(id record.TopicID) *kmsg.MetadataRequest { return metadataByID(id) },
			"all":  func(record.TopicID) *kmsg.MetadataRequest { return &kmsg.MetadataRequest{} },
		}
		leader := func(how string, id record.TopicID) (leader int32, after time.Duration) {
			began := time.Now()
			for _, topic := range c.do(13, asks[how](id)).(*kmsg.MetadataResponse).Topics {
				if *topic.Topic == how {
					return topic.Partitions[0].Leader, time.Since(began)
				}
			}
			return -2, 0
		}
		for _, how := range []string{"name", "id", "all"} {
			topic, err := store.CreateTopic(t.Context(), metadata.TopicSpec{Name: how, Partitions: [][]record.NodeID{{2}}})
			check(t, err)
			n.await("the topic", func() bool { return n.meta.Image().Topic(how) != nil })
			if got, after := leader(how, topic.ID); got != -1 || after != firstLeaderWait {
				t.Errorf("%s: leader %d after %s, want none after %s", how, got, after, firstLeaderWait)
			}
			taken := make(chan error, 1)
			go func() {
				time.Sleep(firstLeaderWait / 4)
				_, err := store.TakeOver(context.Background(), session, []record.PartitionID{{Topic: topic.ID}})
				taken <- err
			}()
			if got, after := leader(how, topic.ID); got != 2 || after >= firstLeaderWait {
				t.Errorf("%s: leader %d after %s, want 2 once it is there", how, got, after)
			}
			check(t, <-taken)
		}
		check(t, session.Close(context.Background()))
		n.await("node 2 to be gone", func() bool { return len(n.meta.Image().Brokers()) == 1 })
		if got, after := leader("name", record.TopicID{}); got != -1 || after != 0 {
			t.Errorf("leader gone: %d after %s, want none at once", got, after)
		}
	})
}

// TestReplicationFactor: auto follows the nodes, a factor above their number is refused, or clamped where the node says so.
func TestReplicationFactor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		c := n.dial()
		secondNode(t, n, 2, testListener, "r2")
		try := func(rf int16) kmsg.CreateTopicsResponseTopic {
			return c.do(7, createRequest(true, newTopic{name: "t", partitions: 4, rf: rf})).(*kmsg.CreateTopicsResponse).Topics[0]
		}
		if r := try(-1); r.ErrorCode != 0 || r.ReplicationFactor != 2 {
			t.Errorf("auto with 2 nodes: %+v", r)
		}
		if r := try(3); r.ErrorCode != 38 || r.ErrorMessage == nil || !strings.Contains(*r.ErrorMessage, "2 brokers") {
			t.Errorf("3 with 2 nodes: %+v", r)
		}
		d := c.do(4, describeRequest(false, resource(brokerResource, "1", "default.replication.factor"))).(*kmsg.DescribeConfigsResponse)
		if v := d.Resources[0].Configs[0].Value; v == nil || *v != "2" {
			t.Errorf("default.replication.factor in force: %v", v)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{gateway: Config{ClampReplicationFactor: true}})
		r := n.dial().do(7, createRequest(false, newTopic{name: "t", partitions: 2, rf: 3})).(*kmsg.CreateTopicsResponse).Topics[0]
		if r.ErrorCode != 0 || r.ReplicationFactor != 1 || n.log.Count("level=WARN", "replication factor clamped", "asked=3") != 1 {
			t.Errorf("clamped: %+v; log:\n%s", r, n.log)
		}
	})
}

// TestSwitchedOff: topics are neither deleted nor created by asking when the configs say so.
func TestSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"delete.topic.enable": "false", "auto.create.topics.enable": "false"}})
		topic, c := n.topic("t", 1, nil), n.dial()
		for v := int16(1); v <= 6; v++ {
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.TopicNames = []string{"t"}
			d := kmsg.NewDeleteTopicsRequestTopic()
			d.TopicID = topic.ID
			req.Topics = append(req.Topics, d)
			want := int16(73)
			if v < 3 {
				want = 42
			}
			if r := c.do(v, req).(*kmsg.DeleteTopicsResponse).Topics[0]; r.ErrorCode != want {
				t.Errorf("version %d: error %d, want %d", v, r.ErrorCode, want)
			}
		}
		for v := int16(0); v <= 13; v++ {
			if r := c.do(v, metadataRequest(true, false, "new")).(*kmsg.MetadataResponse).Topics[0]; r.ErrorCode != 3 {
				t.Errorf("metadata version %d: error %d", v, r.ErrorCode)
			}
		}
		synctest.Wait()
		if n.meta.Image().Topic("new") != nil || n.meta.Image().Topic("t") == nil {
			t.Error("a topic was created or deleted")
		}
	})
}

// TestInternalTopicsAreNotCreatedByAsking: they come with the coordinators.
func TestInternalTopicsAreNotCreatedByAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		r := n.dial().do(9, metadataRequest(true, false, "__consumer_offsets", "mine")).(*kmsg.MetadataResponse)
		n.await("mine", func() bool { return n.meta.Image().Topic("mine") != nil })
		if n.meta.Image().Topic("__consumer_offsets") != nil || r.Topics[0].ErrorCode != 3 || !r.Topics[0].IsInternal {
			t.Errorf("%+v", r.Topics[0])
		}
	})
}

// TestDynamicConfigsTakeEffect: what is altered is described, inherited by topics, and in force on the data path.
func TestDynamicConfigsTakeEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"message.max.bytes": "5000"}})
		topic, c := n.topic("t", 1, nil), n.dial()
		seen := func() string {
			r := c.do(4, describeRequest(true, resource(topicResource, "t", "max.message.bytes"))).(*kmsg.DescribeConfigsResponse).Resources[0].Configs[0]
			var out []string
			for _, s := range r.ConfigSynonyms {
				out = append(out, fmt.Sprintf("%s=%s(%d)", s.Name, *s.Value, s.Source))
			}
			return fmt.Sprintf("%s(%d): %s", *r.Value, r.Source, strings.Join(out, " "))
		}
		alter := func(kind kmsg.ConfigResourceType, name, key, value string) {
			t.Helper()
			r := c.do(1, incrementalRequest(false, kind, name, configOp{key, kmsg.IncrementalAlterConfigOpSet, &value})).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
			if r.ErrorCode != 0 {
				t.Fatalf("altering %s: %d %s", key, r.ErrorCode, *r.ErrorMessage)
			}
		}
		produce := func() int16 {
			return c.do(9, produceRequest("t", topic.ID, -1, values(t, strings.Repeat("x", 1000)))).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
		}
		static := "message.max.bytes=5000(4) message.max.bytes=1048588(5)"
		if got := seen(); got != "5000(4): "+static || produce() != 0 {
			t.Errorf("static: %s", got)
		}
		alter(brokerResource, "", "message.max.bytes", "900")
		if got := seen(); got != "900(3): message.max.bytes=900(3) "+static {
			t.Errorf("for all brokers: %s", got)
		}
		n.await("the cluster's limit on the data path", func() bool { return produce() == 10 })
		alter(brokerResource, "1", "message.max.bytes", "2000")
		if got := seen(); got != "2000(2): message.max.bytes=2000(2) message.max.bytes=900(3) "+static {
			t.Errorf("for this broker: %s", got)
		}
		n.await("the node's limit on the data path", func() bool { return produce() == 0 })
		alter(topicResource, "t", "max.message.bytes", "100")
		if got := seen(); got != "100(1): max.message.bytes=100(1) message.max.bytes=2000(2) message.max.bytes=900(3) "+static {
			t.Errorf("for the topic: %s", got)
		}
		n.await("the topic's limit on the data path", func() bool { return produce() == 10 })
		alter(groupResource, "g", "consumer.heartbeat.interval.ms", "6000")
		r := c.do(4, describeRequest(false, resource(groupResource, "g", "consumer.heartbeat.interval.ms"))).(*kmsg.DescribeConfigsResponse).Resources[0].Configs[0]
		if *r.Value != "6000" || r.Source != 8 {
			t.Errorf("group: %+v", r)
		}
	})
}

// TestFindCoordinator: the one node of every version and kind, from the moment that it serves; share groups have none, and an unknown kind is the
// client's fault.
func TestFindCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startNode(t, nodeOptions{}).dial()
		for v := int16(0); v <= 6; v++ {
			for kind, want := range map[int8]int16{0: 0, 1: 0, 2: 15, 3: 42} {
				if v == 0 && kind != 0 {
					continue // version 0 has no kind
				}
				if kind == 2 && v < 6 {
					want = 42
				}
				node := int32(-1)
				if want == 0 {
					node = testNodeID
				}
				req := kmsg.NewPtrFindCoordinatorRequest()
				req.CoordinatorKey, req.CoordinatorKeys, req.CoordinatorType = "g", []string{"g", "h"}, kind
				r := c.do(v, req).(*kmsg.FindCoordinatorResponse)
				if v < 4 {
					if r.ErrorCode != want || r.NodeID != node {
						t.Errorf("version %d, kind %d: %+v", v, kind, r)
					}
					continue
				}
				if len(r.Coordinators) != 2 || r.Coordinators[0].Key != "g" || r.Coordinators[1].Key != "h" || r.Coordinators[0].NodeID != node ||
					r.Coordinators[0].ErrorCode != want || r.Coordinators[1].ErrorCode != want {
					t.Errorf("version %d, kind %d: %+v", v, kind, r.Coordinators)
				}
			}
		}
	})
}

// TestFindCoordinatorWaits: what no node coordinates is answered once one does, and after a while without.
func TestFindCoordinatorWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		c := n.dial()
		store, session := secondNode(t, n, 2, testListener, "")
		n.await("the number of shards", func() bool { return n.meta.Image().Shards() > 0 })
		group, shard := "", int32(0) // what node 2 is to coordinate, which takes nothing by itself
		for i := 0; group == ""; i++ {
			id := fmt.Sprint("group", i)
			if shard = metadata.ShardOf(id, n.meta.Image().Shards()); n.meta.Image().PreferredCoordinator(shard) == 2 {
				group = id
			}
		}
		n.await("node 1 to leave the shard to node 2", func() bool { _, held := n.meta.Image().Coordinator(shard); return !held })
		for _, v := range []int16{3, 4} {
			find := func() (code int16, node int32, after time.Duration) {
				req := kmsg.NewPtrFindCoordinatorRequest()
				req.CoordinatorKey, req.CoordinatorKeys = group, []string{group}
				began := time.Now()
				r := c.do(v, req).(*kmsg.FindCoordinatorResponse)
				if v >= 4 {
					return r.Coordinators[0].ErrorCode, r.Coordinators[0].NodeID, time.Since(began)
				}
				return r.ErrorCode, r.NodeID, time.Since(began)
			}
			if code, node, after := find(); code != codeCoordinatorNotAvailable.int16() || node != -1 || after != findWait {
				t.Errorf("version %d: code %d, node %d after %s, want none after %s", v, code, node, after, findWait)
			}
			var held metadata.Coordination
			taken := make(chan error, 1)
			go func() {
				time.Sleep(findWait / 4)
				var err error
				held, err = store.TakeShard(context.Background(), session, shard)
				taken <- err
			}()
			if code, node, after := find(); code != 0 || node != 2 || after >= findWait {
				t.Errorf("version %d: code %d, node %d after %s, want 2 once it is there", v, code, node, after)
			}
			check(t, <-taken)
			check(t, store.ReleaseShard(t.Context(), held))
			n.await("the shard to be free", func() bool { _, held := n.meta.Image().Coordinator(shard); return !held })
		}
	})
}

// TestLogDirs: the hot copy in the first directory, what is in the bucket in another one.
func TestLogDirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"log.dirs": "/data/hot"}})
		topic, c := n.topic("t", 2, map[string]string{"segment.ms": "1000", "local.retention.ms": "-1", "local.retention.bytes": "-1"}), n.dial()
		c.do(9, produceRequest("t", topic.ID, -1, values(t, strings.Repeat("x", 5000))))
		n.await("the segment to be in the bucket", func() bool { return n.partition(topic, 0).Marks().TieredSize > 0 })
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = nil
		r := c.do(5, req).(*kmsg.DescribeLogDirsResponse)
		if len(r.Dirs) != 2 || r.Dirs[0].Dir != "/data/hot" || r.Dirs[1].Dir != tieredDir {
			t.Fatalf("directories: %+v", r.Dirs)
		}
		hot, tiered := r.Dirs[0].Topics[0].Partitions, r.Dirs[1].Topics[0].Partitions
		if len(hot) != 2 || hot[0].Partition != 0 || hot[1].Partition != 1 || hot[1].Size != 0 || hot[0].Size < 5000 {
			t.Errorf("hot: %+v", hot)
		}
		if len(tiered) != 1 || tiered[0].Partition != 0 || tiered[0].Size < 5000 {
			t.Errorf("tiered: %+v", tiered)
		}
	})
}

// TestMetadataStoreAway: changes answer a retriable code within the client's time, questions are answered from the image.
func TestMetadataStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic, c := n.topic("t", 1, nil), n.dial()
		c.do(9, produceRequest("t", topic.ID, -1, values(t, "a", "b")))
		n.kv.SetFaults(memory.Faults{Outage: true})
		began := time.Now()
		create := createRequest(false, newTopic{name: "u", partitions: 1, rf: 1})
		create.TimeoutMillis = 1000
		if r := c.do(7, create).(*kmsg.CreateTopicsResponse).Topics[0]; r.ErrorCode != 7 || time.Since(began) > 2*time.Second {
			t.Errorf("create: %+v after %s", r, time.Since(began))
		}
		if r := c.do(9, metadataRequest(false, false, "t")).(*kmsg.MetadataResponse).Topics[0]; r.ErrorCode != 0 || r.Partitions[0].Leader != 1 {
			t.Errorf("metadata: %+v", r)
		}
		began = time.Now()
		if r := c.do(9, metadataRequest(true, false, "v")).(*kmsg.MetadataResponse).Topics[0]; r.ErrorCode != 3 || time.Since(began) > 2*autoCreateWait {
			t.Errorf("metadata that would create: %+v after %s", r, time.Since(began))
		}
		n.kv.SetFaults(memory.Faults{})
		n.await("the node to be itself again", func() bool {
			return c.do(7, createRequest(false, newTopic{name: "w", partitions: 1, rf: 1})).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode == 0
		})
	})
}
