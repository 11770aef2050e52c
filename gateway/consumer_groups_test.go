// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group/consumer"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// voice is a member of the consumer protocol that says by hand what it says.
type voice struct {
	t        *testing.T
	group    string
	id       string
	instance *string
	topics   []string
	epoch    int32
	has      []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic
}

func (v *voice) request() *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Group, r.MemberID, r.MemberEpoch, r.InstanceID, r.RebalanceTimeoutMillis = v.group, v.id, v.epoch, v.instance, -1
	if v.epoch == 0 {
		r.RebalanceTimeoutMillis, r.SubscribedTopicNames, r.Topics = 60_000, v.topics, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	return r
}

// ask sends a request to a node's handler, past the wire.
func (v *voice) ask(n *node, r *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	v.t.Helper()
	resp, err := n.server.consumerGroupHeartbeat(context.Background(), &Request{Version: 1, ClientID: "c", Peer: "host:1", Listener: testListener, Body: r})
	check(v.t, err)
	return resp.(*kmsg.ConsumerGroupHeartbeatResponse)
}

// beat sends a heartbeat, with what the member has if it acknowledges, and takes over what it is told.
func (v *voice) beat(n *node, acknowledge bool) Code {
	v.t.Helper()
	r := v.request()
	if acknowledge {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for _, t := range v.has {
			r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
		}
	}
	resp := v.ask(n, r)
	if resp.ErrorCode == 0 {
		v.epoch = resp.MemberEpoch
		if resp.Assignment != nil {
			v.has = resp.Assignment.Topics
		}
	}
	return Code(resp.ErrorCode)
}

func (v *voice) must(n *node, acknowledge bool) {
	v.t.Helper()
	if code := v.beat(n, acknowledge); code != codeNone {
		v.t.Fatalf("%s: code %d", v.id, code)
	}
}

func (v *voice) partitions() (list []int32) {
	for _, t := range v.has {
		list = append(list, t.Partitions...)
	}
	slices.Sort(list)
	return list
}

// quick are the configs of a node whose consumer groups move quickly.
func quick(more ...string) map[string]string {
	m := maps.Clone(impatient)
	maps.Copy(m, map[string]string{
		"group.consumer.min.heartbeat.interval.ms": "50", "group.consumer.heartbeat.interval.ms": "100", "group.consumer.assignment.interval.ms": "0",
		"group.consumer.min.session.timeout.ms": "500", "group.consumer.session.timeout.ms": "3000",
	})
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return m
}

// TestConsumerGroupMembers: consumers of the new protocol share the partitions, through members that come and leave; every record is read, and
// none twice.
func TestConsumerGroupMembers(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{"uniform": kgo.CooperativeStickyBalancer(), "range": kgo.RangeBalancer()} {
		t.Run(name, func(t *testing.T) {
			const partitions = 6
			opts := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(balancer)}
			n := startNode(t, nodeOptions{static: quick()}).coordinating()
			n.topic("t", partitions, nil)
			n.fill("t", partitions, 0, 300)
			a := n.consumer("t", "g", opts...)
			n.awaitLong("one consumer to read everything", func() bool { return len(seenOf(a)) == 300 })
			b := n.consumer("t", "g", opts...)
			n.awaitLong("two consumers to share", func() bool { return shared(partitions, a, b) })
			n.fill("t", partitions, 300, 300)
			n.awaitLong("two consumers to read everything", func() bool { return len(seenOf(a, b)) == 600 })
			d := n.consumerGroup("g")
			if d.AssignorName != name || len(d.Members) != 2 || d.Members[0].MemberType != consumerMember {
				t.Errorf("%+v", d)
			}
			check(t, b.CommitUncommittedOffsets(context.Background()))
			b.stop()
			b.Close()
			n.awaitLong("the other to take over", func() bool { return shared(partitions, a) })
			n.fill("t", partitions, 600, 60)
			n.awaitLong("the rest", func() bool { return len(seenOf(a, b)) == 660 })
			for v, times := range seenOf(a, b) {
				if times != 1 {
					t.Errorf("record %s was read %d times", v, times)
				}
			}
		})
	}
}

// consumerGroup describes a group of the consumer protocol.
func (n *node) consumerGroup(id string) kmsg.ConsumerGroupDescribeResponseGroup {
	n.t.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{id}
	resp, err := n.server.consumerGroupDescribe(context.Background(), &Request{Version: 1, Body: req})
	check(n.t, err)
	return resp.(*kmsg.ConsumerGroupDescribeResponse).Groups[0]
}

// listed is a group as ListGroups shows it: type, state, protocol.
func (n *node) listed(id string, types ...string) string {
	n.t.Helper()
	req := kmsg.NewPtrListGroupsRequest()
	req.TypesFilter = types
	resp, err := n.server.listGroups(context.Background(), &Request{Version: 5, Body: req})
	check(n.t, err)
	for _, g := range resp.(*kmsg.ListGroupsResponse).Groups {
		if g.Group == id {
			return strings.Join([]string{g.GroupType, g.GroupState, g.ProtocolType}, " ")
		}
	}
	return ""
}

// TestConsumerGroupMigration: a classic group takes a consumer of the new protocol in and becomes a group of that protocol; classic ones may
// still come; when the last new one has left it is a classic group again. Everything is read.
func TestConsumerGroupMigration(t *testing.T) {
	const partitions = 6
	classic := []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}
	modern := append([]kgo.Opt{kgo.ServerSideBalancer()}, classic...)
	n := startNode(t, nodeOptions{static: quick()}).coordinating()
	n.topic("t", partitions, nil)
	n.fill("t", partitions, 0, 120)
	a, b := n.consumer("t", "g", classic...), n.consumer("t", "g", classic...)
	n.awaitLong("two classic consumers to share", func() bool { return shared(partitions, a, b) && len(seenOf(a, b)) == 120 })
	if got := n.listed("g"); got != "classic Stable consumer" {
		t.Fatalf("%s", got)
	}
	c := n.consumer("t", "g", modern...)
	n.awaitLong("three to share", func() bool { return shared(partitions, a, b, c) })
	n.awaitLong("the group to be stable", func() bool { return n.listed("g") == "consumer Stable consumer" })
	n.fill("t", partitions, 120, 120)
	n.awaitLong("three to read everything", func() bool { return len(seenOf(a, b, c)) == 240 })
	kinds := map[int8]int{}
	for _, m := range n.consumerGroup("g").Members {
		kinds[m.MemberType]++
	}
	if kinds[classicMember] != 2 || kinds[consumerMember] != 1 {
		t.Errorf("members by kind: %v", kinds)
	}
	a.stop()
	a.Close()
	d := n.consumer("t", "g", classic...)
	n.awaitLong("another classic one to share", func() bool { return shared(partitions, b, c, d) })
	check(t, c.CommitUncommittedOffsets(context.Background()))
	c.stop()
	c.Close()
	n.awaitLong("the classic ones to share", func() bool { return shared(partitions, b, d) })
	n.awaitLong("the group to be classic", func() bool { return n.listed("g") == "classic Stable consumer" })
	n.fill("t", partitions, 240, 60)
	n.awaitLong("the rest", func() bool { return len(seenOf(a, b, c, d)) == 300 })
}

// classicVoice is a cooperative member of the classic protocol that says by hand what it says.
type classicVoice struct {
	t          *testing.T
	id         string
	generation int32
	has        []int32 // of topic t
}

func (v *classicVoice) asks(n *node, version int16, body kmsg.Request, handle func(*Server, context.Context, *Request) (kmsg.Response, error)) kmsg.Response {
	resp, err := handle(n.server, context.Background(), &Request{Version: version, ClientID: "c", Peer: "host:1", Listener: testListener, Body: body})
	check(v.t, err)
	return resp
}

// join gives what the member was answered, which may take its time.
func (v *classicVoice) join(n *node) <-chan *kmsg.JoinGroupResponse {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.MemberID, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = "g", v.id, 60_000, 60_000, "consumer"
	m := &kmsg.ConsumerMemberMetadata{Version: 3, Topics: []string{"t"}, Generation: v.generation}
	m.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "t", Partitions: v.has}}
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "cooperative-sticky", Metadata: m.AppendTo(nil)}}
	answer := make(chan *kmsg.JoinGroupResponse, 1)
	go func() {
		resp := v.asks(n, 3, join, (*Server).joinGroup).(*kmsg.JoinGroupResponse)
		if resp.ErrorCode == 0 {
			v.id, v.generation = resp.MemberID, resp.Generation
		}
		answer <- resp
	}()
	return answer
}

func (v *classicVoice) sync(n *node, gives ...int32) (code Code, partitions []int32) {
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = "g", v.id, v.generation
	if len(gives) > 0 {
		a := &kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "t", Partitions: gives}}}
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: v.id, MemberAssignment: a.AppendTo(nil)}}
	}
	resp := v.asks(n, 3, sync, (*Server).syncGroup).(*kmsg.SyncGroupResponse)
	var a kmsg.ConsumerMemberAssignment
	if len(resp.MemberAssignment) > 0 {
		check(v.t, a.ReadFrom(resp.MemberAssignment))
	}
	for _, topic := range a.Topics {
		partitions = append(partitions, topic.Partitions...)
	}
	return Code(resp.ErrorCode), partitions
}

// TestUpgradeWhileRebalancing: a group becomes one of the consumer protocol while it rebalances for the second time, when nobody in it is assigned
// anything. What a cooperative member still has is given to nobody else before it has given it up.
func TestUpgradeWhileRebalancing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: quick()}).coordinating()
		n.topic("t", 4, nil)
		a, b, c := &classicVoice{t: t, generation: -1}, &classicVoice{t: t, generation: -1}, &classicVoice{t: t, generation: -1}
		joined := func(answer <-chan *kmsg.JoinGroupResponse) {
			t.Helper()
			if r := <-answer; r.ErrorCode != 0 {
				t.Fatalf("join: code %d", r.ErrorCode)
			}
		}
		joined(a.join(n))
		code, has := a.sync(n, 0, 1, 2, 3)
		if code != codeNone || len(has) != 4 {
			t.Fatalf("alone: code %d, %v", code, has)
		}
		a.has = has
		second := b.join(n)
		synctest.Wait()
		joined(a.join(n))
		joined(second)
		third := c.join(n) // a, which leads, has not said yet who gets what
		synctest.Wait()
		if got := n.listed("g"); got != "classic PreparingRebalance consumer" {
			t.Fatalf("the group: %s", got)
		}
		modern := &voice{t: t, group: "g", id: "m", topics: []string{"t"}}
		modern.must(n, false)
		if r := <-third; r.ErrorCode != codeRebalanceInProgress.int16() {
			t.Errorf("who waited to join: code %d", r.ErrorCode)
		}
		for range 3 {
			if modern.must(n, true); len(modern.partitions()) > 0 {
				t.Fatalf("the new member is given %v, which another one has", modern.partitions())
			}
		}
		for range 5 { // as a cooperative member does: what it does not get any more it gives up, and says so
			joined(a.join(n))
			code, has := a.sync(n)
			if code != codeNone {
				t.Fatalf("sync: code %d", code)
			}
			a.has = has
			joined(b.join(n))
			modern.must(n, true)
		}
		mine := modern.partitions()
		if len(mine) == 0 || len(a.has) == 0 || slices.ContainsFunc(mine, func(p int32) bool { return slices.Contains(a.has, p) }) {
			t.Errorf("in the end the members have %v and %v", a.has, mine)
		}
	})
}

// TestConsumerGroupRegex: topics that match are read, those made later too.
func TestConsumerGroupRegex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: quick()}).coordinating()
		n.topic("log-a", 2, nil)
		v := &voice{t: t, group: "g", id: "m", topics: []string{}}
		r := v.request()
		r.SubscribedTopicRegex = kmsg.StringPtr("log-.*")
		resp := v.ask(n, r)
		if resp.ErrorCode != 0 || resp.Assignment == nil || len(resp.Assignment.Topics) != 1 || resp.HeartbeatIntervalMillis != 100 {
			t.Fatalf("%+v", resp)
		}
		v.epoch = resp.MemberEpoch
		n.topic("log-b", 1, nil)
		n.await("the new topic to be assigned", func() bool {
			time.Sleep(time.Second)
			v.must(n, false)
			return len(v.has) == 2
		})
		bad := v.request()
		bad.SubscribedTopicRegex = kmsg.StringPtr("log-(")
		if code := v.ask(n, bad).ErrorCode; code != codeInvalidRegularExpression.int16() {
			t.Errorf("a bad regular expression: %d", code)
		}
	})
}

// TestConsumerGroupFailover: the coordinator is gone in the middle of a reconciliation. No epoch is lost, who must give something up still must,
// and nobody gets it before.
func TestConsumerGroupFailover(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		topic, err := c.nodes[1].meta.CreateTopic(t.Context(), metadata.TopicSpec{Name: "t", Partitions: [][]record.NodeID{{1}, {2}, {3}, {1}}})
		check(t, err)
		for _, n := range c.nodes {
			c.await("the topic to be known", func() bool { return n.meta.Image().TopicByID(topic.ID) != nil })
		}
		a, b := &voice{t: t, group: "g", id: "a", topics: []string{"t"}}, &voice{t: t, group: "g", id: "b", topics: []string{"t"}}
		first := c.settled("g", 3)
		a.must(first, false)
		time.Sleep(2 * time.Second) // the assignment interval
		b.must(first, false)
		a.must(first, false)
		if !slices.Equal(a.partitions(), []int32{0, 1}) || len(b.partitions()) != 0 {
			t.Fatalf("a has %v, b %v", a.partitions(), b.partitions())
		}
		epochs := [2]int32{a.epoch, b.epoch}
		first.stop()
		delete(c.nodes, first.server.cfg.NodeID)
		second := c.settled("g", 2)
		if code := (&voice{t: t, group: "g", id: "x", epoch: 1}).beat(second, false); code != codeUnknownMemberID {
			t.Errorf("a member that never was: %d", code)
		}
		b.must(second, false)
		a.must(second, false) // it still has all four, as it does not say otherwise
		b.must(second, false)
		if len(b.partitions()) != 0 || a.epoch != epochs[0] || b.epoch != epochs[1] {
			t.Fatalf("after the failover: b has %v; epochs %d and %d, were %v", b.partitions(), a.epoch, b.epoch, epochs)
		}
		a.must(second, true)
		b.must(second, false)
		if !slices.Equal(a.partitions(), []int32{0, 1}) || !slices.Equal(b.partitions(), []int32{2, 3}) || a.epoch != epochs[1] {
			t.Fatalf("a has %v at %d, b %v", a.partitions(), a.epoch, b.partitions())
		}
		second.stop()
		delete(c.nodes, second.server.cfg.NodeID)
		third := c.settled("g", 1)
		a.must(third, false)
		b.must(third, false)
		if g := third.consumerGroup("g"); g.State != "Stable" || g.Epoch != epochs[1] || g.AssignmentEpoch != g.Epoch {
			t.Errorf("%+v", g)
		}
		time.Sleep(40 * time.Second) // nobody is heard of: their sessions end here too
		c.await("the group to be empty", func() bool { return third.consumerGroup("g").State == "Empty" })
	})
}

// settled waits until so many nodes know of each other and the group is coordinated by the one that all of them prefer.
func (c *cluster) settled(id string, nodes int) *node {
	c.t.Helper()
	c.await("the coordinators to settle", func() bool {
		for _, n := range c.nodes {
			img := n.meta.Image()
			if len(img.Brokers()) != nodes || img.Shards() == 0 {
				return false
			}
			shard := metadata.ShardOf(id, img.Shards())
			if owner, held := img.Coordinator(shard); !held || owner.Node != img.PreferredCoordinator(shard) {
				return false
			}
		}
		return true
	})
	return c.coordinator(id)
}

// TestConsumerGroupWritesNothing: a heartbeat that changes nothing does not touch the store.
func TestConsumerGroupWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 3, nil)
		v := &voice{t: t, group: "g", id: "m", topics: []string{"t"}}
		v.must(n, false)
		v.must(n, true)
		before := n.revisionOf("/group/")
		for range 20 {
			time.Sleep(time.Second)
			v.must(n, true)
		}
		if after := n.revisionOf("/group/"); after != before || before == 0 {
			t.Errorf("the group was stored at %d, and again at %d", before, after)
		}
		other := &voice{t: t, group: "g", id: "n", topics: []string{"t"}}
		other.must(n, false)
		if after := n.revisionOf("/group/"); after == before {
			t.Error("a new member was answered and not stored")
		}
	})
}

// revisionOf is the newest revision of the stored values whose keys have the part.
func (n *node) revisionOf(part string) (newest metadata.Revision) {
	n.t.Helper()
	all, err := n.kv.Range(n.t.Context(), metadata.RangeRequest{Key: "\x00", End: "\xff"})
	check(n.t, err)
	for _, kv := range all.KVs {
		if strings.Contains(kv.Key, part) {
			newest = max(newest, kv.ModRevision)
		}
	}
	return newest
}

// TestConsumerProtocolOff: a broker whose list of protocols does not name that of consumer groups refuses their members, as Kafka does.
func TestConsumerProtocolOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: quick("group.coordinator.rebalance.protocols", "classic")}).coordinating()
		n.topic("t", 1, nil)
		v := &voice{t: t, group: "g", id: "m", topics: []string{"t"}}
		if code := v.beat(n, false); code != codeUnsupportedVersion {
			t.Errorf("a member: code %d", code)
		}
		if code := Code(n.consumerGroup("g").ErrorCode); code != codeUnsupportedVersion {
			t.Errorf("describing: code %d", code)
		}
		n.dial().member("g", time.Minute)
	})
}

// TestConsumerGroupStays: a group does not change its protocol where that is not allowed, or its members are no consumers.
func TestConsumerGroupStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: quick("group.consumer.migration.policy", "disabled")}).coordinating()
		n.topic("t", 1, nil)
		joinOne(t, n, "old")
		if code := (&voice{t: t, group: "old", id: "m", topics: []string{"t"}}).beat(n, false); code != codeGroupIDNotFound || n.listed("old") != "classic Stable consumer" {
			t.Errorf("a member for a classic group: %d, %s", code, n.listed("old"))
		}
		(&voice{t: t, group: "new", id: "m", topics: []string{"t"}}).must(n, false)
		join := kmsg.NewPtrJoinGroupRequest()
		join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = "new", 60_000, 60_000, "consumer"
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: (&kmsg.ConsumerMemberMetadata{Topics: []string{"t"}}).AppendTo(nil)}}
		if code := n.dial().do(3, join).(*kmsg.JoinGroupResponse).ErrorCode; code != codeInconsistentGroupProtocol.int16() {
			t.Errorf("a classic member for a consumer group: %d", code)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: quick()}).coordinating()
		n.topic("t", 1, nil)
		join := kmsg.NewPtrJoinGroupRequest()
		join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = "connect", 60_000, 60_000, "connect"
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "default", Metadata: []byte{}}}
		if code := n.dial().do(3, join).(*kmsg.JoinGroupResponse).ErrorCode; code != 0 {
			t.Fatalf("a worker: %d", code)
		}
		if code := (&voice{t: t, group: "connect", id: "m", topics: []string{"t"}}).beat(n, false); code != codeGroupIDNotFound {
			t.Errorf("a consumer for a group of workers: %d", code)
		}
		join.Group, join.ProtocolType = "custom", "consumer"
		join.Protocols[0].Metadata = (&kmsg.ConsumerMemberMetadata{Topics: []string{"t"}}).AppendTo(nil)
		joined := n.dial().do(3, join).(*kmsg.JoinGroupResponse)
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Group, sync.MemberID, sync.Generation = "custom", joined.MemberID, joined.Generation
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: (&kmsg.ConsumerMemberAssignment{UserData: []byte("u")}).AppendTo(nil)}}
		if code := n.dial().do(2, sync).(*kmsg.SyncGroupResponse).ErrorCode; code != 0 {
			t.Fatalf("sync: %d", code)
		}
		if code := (&voice{t: t, group: "custom", id: "m", topics: []string{"t"}}).beat(n, false); code != codeGroupIDNotFound || n.listed("custom") != "classic Stable consumer" {
			t.Errorf("a group with an assignor of its own: %d, %s", code, n.listed("custom"))
		}
		for what, bad := range map[string][]byte{"no metadata": nil, "half of it": {0, 1, 0, 0, 0, 9}} {
			(&voice{t: t, group: "g", id: "m", topics: []string{"t"}}).must(n, false)
			join.Group, join.ProtocolType, join.Protocols[0].Metadata = "g", "consumer", bad
			if code := n.dial().do(3, join).(*kmsg.JoinGroupResponse).ErrorCode; code != codeInconsistentGroupProtocol.int16() {
				t.Errorf("a classic member with %s: %d", what, code)
			}
		}
	})
}

// TestDescribedMember: what a member has and what it gives up is told in order.
func TestDescribedMember(t *testing.T) {
	topic := &metadata.Topic{Name: "t", ID: record.TopicID{1}}
	assigned := consumer.Partitions{topic.ID: {0, 2, 4}}
	m := describedMember(&consumer.MemberDescription{Assigned: assigned, Giving: consumer.Partitions{topic.ID: {1, 3}}}, oneTopic{topic})
	if got := m.Assignment.TopicPartitions; len(got) != 1 || !slices.Equal(got[0].Partitions, []int32{0, 1, 2, 3, 4}) {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(assigned[topic.ID], []int32{0, 2, 4}) {
		t.Error("the group's own list has changed")
	}
}

// oneTopic is a world of one topic.
type oneTopic struct{ topic *metadata.Topic }

// Version is consumer.Topics'.
func (o oneTopic) Version() int64 { return 1 }

// Topic is consumer.Topics'.
func (o oneTopic) Topic(string) (consumer.Topic, bool) { return consumer.Topic{}, false }

// Name is consumer.Topics'.
func (o oneTopic) Name(id record.TopicID) (string, bool) { return o.topic.Name, id == o.topic.ID }

// All is consumer.Topics'.
func (o oneTopic) All() iter.Seq[string] { return func(func(string) bool) {} }

// TestTopicsVersion: to the groups topics are others when a topic is another, not whenever the metadata moves.
func TestTopicsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		version := func() int64 { return imageTopics{n.meta.Image()}.Version() }
		n.topic("t", 1, nil)
		before := version()
		rev, err := n.meta.AlterConfig(context.Background(), metadata.ConfigGroup, "g", func(m map[string]string) error {
			m["consumer.session.timeout.ms"] = "50000"
			return nil
		})
		check(t, err)
		check(t, n.meta.WaitFor(context.Background(), rev))
		if got := version(); got != before {
			t.Errorf("a group's config: from %d to %d", before, got)
		}
		n.topic("u", 1, nil)
		if version() == before {
			t.Error("a topic more: it stays")
		}
	})
}
