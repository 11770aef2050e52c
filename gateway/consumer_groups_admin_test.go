// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/consumer"
	"github.com/varve/varve/metadata"
)

// TestConsumerGroupAdmin: what administration sees of a consumer group, and may do with it.
func TestConsumerGroupAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 2, nil)
		n.topic("u", 1, nil)
		v := &voice{t: t, group: "g", id: "m", topics: []string{"t"}}
		v.must(n, false)
		for _, c := range []struct{ types, want string }{{"", "consumer Stable consumer"}, {"CONSUMER", "consumer Stable consumer"}, {"classic", ""}} {
			if got := n.listed("g", strings.Fields(c.types)...); got != c.want {
				t.Errorf("listed by %q: %q", c.types, got)
			}
		}
		g := n.consumerGroup("g")
		if g.State != "Stable" || g.Epoch != 2 || g.AssignmentEpoch != 2 || g.AssignorName != "uniform" || len(g.Members) != 1 {
			t.Fatalf("%+v", g)
		}
		m := g.Members[0]
		if m.MemberID != "m" || m.MemberEpoch != 2 || m.ClientID != "c" || m.ClientHost != "/host" || !slices.Equal(m.SubscribedTopics, []string{"t"}) ||
			fmt.Sprint(m.Assignment.TopicPartitions[0].Topic, m.Assignment.TopicPartitions[0].Partitions) != "t[0 1]" || len(m.TargetAssignment.TopicPartitions) != 1 {
			t.Errorf("%+v", m)
		}
		if code := n.consumerGroup("none").ErrorCode; code != codeGroupIDNotFound.int16() {
			t.Errorf("no such group: %d", code)
		}
		c := n.dial()
		describe := kmsg.NewPtrDescribeGroupsRequest()
		describe.Groups = []string{"g"}
		if d := c.do(6, describe).(*kmsg.DescribeGroupsResponse).Groups[0]; d.ErrorCode != codeGroupIDNotFound.int16() || d.State != stateDead {
			t.Errorf("described as a classic group: %+v", d)
		}
		remove := kmsg.NewPtrDeleteGroupsRequest()
		remove.Groups = []string{"g"}
		if code := c.do(2, remove).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode; code != codeNonEmptyGroup.int16() {
			t.Errorf("deleting it with a member: %d", code)
		}
		v.epoch = -1
		if code := v.beat(n, false); code != codeNone {
			t.Errorf("leaving: %d", code)
		}
		if got := n.listed("g"); got != "consumer Empty consumer" {
			t.Errorf("when it is empty: %q", got)
		}
		if code := c.do(2, remove).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode; code != 0 || n.listed("g") != "" || n.revisionOf("/group/") != 0 {
			t.Errorf("deleting it: %d", code)
		}
	})
}

// TestConsumerGroupConfig: a group's own configs are in force from the next heartbeat on.
func TestConsumerGroupConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"group.consumer.max.session.timeout.ms": "100000"}}).coordinating()
		n.topic("t", 1, nil)
		c := n.dial()
		for name, value := range map[string]string{"consumer.heartbeat.interval.ms": "7000", "consumer.session.timeout.ms": "90000"} {
			if code := c.do(1, incrementalRequest(false, kmsg.ConfigResourceTypeGroupConfig, "g", configOp{name, 0, &value})).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode; code != 0 {
				t.Fatalf("%s: %d", name, code)
			}
		}
		v := &voice{t: t, group: "g", id: "m", topics: []string{"t"}}
		if got := v.ask(n, v.request()).HeartbeatIntervalMillis; got != 7000 {
			t.Errorf("heartbeat interval %d", got)
		}
		time.Sleep(80 * time.Second)
		if got := n.listed("g"); got != "consumer Stable consumer" {
			t.Errorf("before the session's end: %s", got)
		}
		time.Sleep(11 * time.Second)
		if got := n.listed("g"); got != "consumer Empty consumer" {
			t.Errorf("after it: %s", got)
		}
	})
}

// TestConsumerGroupOffsets: offsets are committed and fetched with the member's epoch; an earlier one is good for what the member still has.
func TestConsumerGroupOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"group.consumer.assignment.interval.ms": "0"}}).coordinating()
		topic := n.topic("t", 2, nil)
		c := n.dial()
		a, b := &voice{t: t, group: "g", id: "a", topics: []string{"t"}}, &voice{t: t, group: "g", id: "b", topics: []string{"t"}}
		a.must(n, false)
		b.must(n, false)
		a.must(n, false)
		a.must(n, true)
		b.must(n, false)
		if a.epoch != 3 || !slices.Equal(a.partitions(), []int32{0}) {
			t.Fatalf("a has %v at %d", a.partitions(), a.epoch)
		}
		commit := func(v int16, id string, epoch, partition int32) Code {
			r := kmsg.NewPtrOffsetCommitRequest()
			r.Group, r.MemberID, r.Generation = "g", id, epoch
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic, rt.TopicID = "t", topic.ID
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset = partition, 7
			rt.Partitions = append(rt.Partitions, p)
			r.Topics = append(r.Topics, rt)
			return Code(c.do(v, r).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
		}
		fetch := func(v int16, id *string, epoch int32) Code {
			r := kmsg.NewPtrOffsetFetchRequest()
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group, g.MemberID, g.MemberEpoch = "g", id, epoch
			r.Groups = append(r.Groups, g)
			return Code(c.do(v, r).(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode)
		}
		for v := int16(9); v <= 10; v++ {
			for _, x := range []struct {
				what             string
				id               string
				epoch, partition int32
				want             Code
			}{
				{"its epoch", "a", 3, 0, codeNone}, {"the epoch before", "a", 2, 0, codeNone}, {"the epoch before, what it gave up", "a", 2, 1, codeStaleMemberEpoch},
				{"an epoch to come", "a", 4, 0, codeStaleMemberEpoch}, {"no member", "x", 3, 0, codeUnknownMemberID}, {"nobody", "", -1, 0, codeUnknownMemberID},
			} {
				if got := commit(v, x.id, x.epoch, x.partition); got != x.want {
					t.Errorf("commit v%d, %s: %d, want %d", v, x.what, got, x.want)
				}
			}
			for _, x := range []struct {
				what  string
				id    *string
				epoch int32
				want  Code
			}{{"its epoch", &a.id, 3, codeNone}, {"the epoch before", &a.id, 2, codeStaleMemberEpoch}, {"no member", kmsg.StringPtr("x"), 3, codeUnknownMemberID}, {"nobody", nil, -1, codeNone}} {
				if got := fetch(v, x.id, x.epoch); got != x.want {
					t.Errorf("fetch v%d, %s: %d, want %d", v, x.what, got, x.want)
				}
			}
		}
		if got := commit(8, "a", 3, 0); got != codeUnsupportedVersion {
			t.Errorf("commit v8: %d", got)
		}
		// What nobody reads goes when its time is over, what somebody reads stays.
		remove := kmsg.NewPtrOffsetDeleteRequest()
		remove.Group = "g"
		remove.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
		if got := c.do(0, remove).(*kmsg.OffsetDeleteResponse).Topics[0].Partitions[0].ErrorCode; got != codeGroupSubscribedToTopic.int16() {
			t.Errorf("deleting offsets that are used: %d", got)
		}
	})
}

// TestConsumerGroupExpiry: offsets of topics that no member reads any more expire, counted from their commit; the others stay.
func TestConsumerGroupExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"offsets.retention.minutes": "10", "offsets.retention.check.interval.ms": "60000"}}).coordinating()
		read, other := n.topic("read", 1, nil), n.topic("other", 1, nil)
		who := group.Committer{Generation: group.NoGeneration}
		for _, topic := range []*metadata.Topic{read, other} {
			check(t, n.server.commitOffsets(context.Background(), "g", who, []chunkEdit{
				{id: metadata.ChunkOf(topic.ID, 0), set: []metadata.CommittedOffset{{Offset: 5, LeaderEpoch: 1, Committed: metadata.MillisOf(time.Now())}}},
			}))
		}
		v := &voice{t: t, group: "g", id: "m", topics: []string{}}
		r := v.request()
		r.SubscribedTopicRegex = kmsg.StringPtr("re.*")
		v.epoch = v.ask(n, r).MemberEpoch
		for range 20 {
			time.Sleep(40 * time.Second)
			v.must(n, false)
		}
		found, err := n.server.readOffsets(context.Background(), "g", nil)
		if err != nil || len(found[read.ID]) != 1 || len(found[other.ID]) != 0 {
			t.Errorf("%+v, %v", found, err)
		}
	})
}

// TestEmptyConsumerGroupExpiry: the offsets of a consumer group that has had nothing to commit for longer than the retention stay for that long once it is
// empty, also with another coordinator.
func TestEmptyConsumerGroupExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: quick("offsets.topic.num.partitions", "1", "offsets.retention.minutes", "10", "offsets.retention.check.interval.ms", "60000")}).coordinating()
		topic := n.topic("t", 1, nil)
		m := &voice{t: t, group: "g", id: "m", topics: []string{"t"}}
		m.must(n, false)
		edits := []chunkEdit{{id: metadata.ChunkOf(topic.ID, 0), set: []metadata.CommittedOffset{{Offset: 3}}}}
		check(t, n.server.commitOffsets(context.Background(), "g", group.Committer{MemberID: m.id, Generation: group.Generation(m.epoch)}, edits))
		for began := time.Now(); time.Since(began) < 15*time.Minute; time.Sleep(2 * time.Second) {
			m.must(n, false)
		}
		m.epoch = consumer.LeaveEpoch
		m.must(n, false)
		offset := func() int64 { return fetchedOffset(n.dial().do(pipedFetch, fetchOf("g"))) }
		time.Sleep(5 * time.Minute)
		before, err := n.server.groups.find("g")
		check(t, err)
		n.loseShard("g")
		n.await("another coordinator", func() bool { sh, err := n.server.groups.find("g"); return err == nil && sh != before })
		if got := offset(); got != 3 {
			t.Errorf("5 minutes after the last member left: offset %d", got)
		}
		time.Sleep(4 * time.Minute)
		if got := offset(); got != 3 {
			t.Errorf("9 minutes after the last member left: offset %d", got)
		}
		time.Sleep(3 * time.Minute)
		if got := offset(); got != -1 || len(reload(t, n).groups) > 0 {
			t.Errorf("12 minutes after the last member left: offset %d", got)
		}
	})
}

// TestConsumerGroupTooLarge: a group that cannot be stored answers nobody as if it were, until it is small enough again.
func TestConsumerGroupTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{}).coordinating()
		n.topic("t", 1, nil)
		random := rand.New(rand.NewPCG(1, 2))
		names := func(bytes int) (list []string) {
			for ; bytes > 0; bytes -= 200 {
				b := make([]byte, 200)
				for i := range b {
					b[i] = byte(random.IntN(256))
				}
				list = append(list, string(b))
			}
			return list
		}
		sh, err := n.server.groups.find("g")
		check(t, err)
		const members = 300
		codes, epoch, generation := make(chan Code, 2*members+2), int32(0), int32(0)
		classic := func(now time.Time, id string) {
			sh.joinConsumer(now, sh.groups["g"], &group.JoinRequest{
				MemberID: id, NewID: "classic", Session: time.Minute, Rebalance: time.Minute, ProtocolType: "consumer",
				Protocols: []group.Protocol{{Name: "range", Metadata: (&kmsg.ConsumerMemberMetadata{}).AppendTo(nil)}},
			}, func(o group.Output) { codes <- groupCode(o.Err) })
			for _, m := range sh.groups["g"].c.Describe(consumer.Config{}).Members {
				if m.Classic {
					generation = m.Epoch
				}
			}
		}
		check(t, sh.call(func(now time.Time) { // each of them would fit; all come before one is stored
			for i := range 2 * members {
				if i == members {
					classic(now, "")
				}
				list := names(200 + i/members*3200)
				r := &consumer.Heartbeat{MemberID: fmt.Sprint(i % members), Rebalance: time.Minute, Topics: &list, Owned: &consumer.Partitions{}, ClientID: "c", Host: "/host"}
				sh.heartbeatConsumer(now, "g", r, func(a consumer.Answer, err error) {
					epoch = a.Epoch
					codes <- groupCode(err)
				})
			}
			classic(now, "classic")
		}))
		for range cap(codes) {
			if code := <-codes; code != codeGroupMaxSizeReached || n.revisionOf("/group/") != 0 {
				t.Fatalf("code %d", code)
			}
		}
		last := &voice{t: t, group: "g", id: fmt.Sprint(members - 1), epoch: epoch}
		if code := last.beat(n, false); code != codeGroupMaxSizeReached {
			t.Errorf("a heartbeat in a group that is not stored: %d", code)
		}
		heartbeat := kmsg.NewPtrHeartbeatRequest()
		heartbeat.Group, heartbeat.MemberID, heartbeat.Generation = "g", "classic", generation
		if code := n.dial().do(4, heartbeat).(*kmsg.HeartbeatResponse).ErrorCode; code != codeGroupMaxSizeReached.int16() {
			t.Errorf("a heartbeat of the classic protocol: %d", code)
		}
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.Members = "g", []kmsg.LeaveGroupRequestMember{{MemberID: "classic"}}
		if code := n.dial().do(4, leave).(*kmsg.LeaveGroupResponse).Members[0].ErrorCode; code != codeGroupMaxSizeReached.int16() {
			t.Errorf("one leaves by the classic protocol, and that is not stored: %d", code)
		}
		code, left := codeGroupMaxSizeReached, 0
		for ; code == codeGroupMaxSizeReached && left < members-1; left++ {
			code = (&voice{t: t, group: "g", id: fmt.Sprint(left), epoch: -1}).beat(n, false)
		}
		if code != codeNone || left < 2 || n.revisionOf("/group/") == 0 {
			t.Errorf("%d leave, and there is room: %d", left, code)
		}
		if code := last.beat(n, false); code != codeNone {
			t.Errorf("the other goes on: %d", code)
		}
	})
}

// TestConsumerGroupKinds: an empty group becomes of the kind of who joins it, keeps its offsets, and is loaded as what it is.
func TestConsumerGroupKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: impatient}).coordinating()
		topic := n.topic("t", 1, nil)
		reload := func(want string) {
			t.Helper()
			session := n.meta.Session()
			check(t, session.Close(context.Background()))
			n.await("the node to register anew", func() bool { x := n.meta.Session(); return x != nil && x != session && x.Alive() })
			n.coordinating()
			if got := n.listed("g"); got != want {
				t.Errorf("loaded as %q, want %q", got, want)
			}
		}
		who := joinOne(t, n, "g")
		check(t, n.server.commitOffsets(context.Background(), "g", who, []chunkEdit{
			{id: metadata.ChunkOf(topic.ID, 0), set: []metadata.CommittedOffset{{Offset: 5, LeaderEpoch: 1, Committed: metadata.MillisOf(time.Now())}}},
		}))
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.MemberID = "g", who.MemberID
		if code := n.dial().do(2, leave).(*kmsg.LeaveGroupResponse).ErrorCode; code != 0 {
			t.Fatalf("leaving: %d", code)
		}
		v := &voice{t: t, group: "g", id: "m", topics: []string{"t"}}
		v.must(n, false)
		reload("consumer Stable consumer")
		v.must(n, false)
		v.epoch = -1
		v.must(n, false)
		reload("consumer Empty consumer")
		joinOne(t, n, "g")
		reload("classic Stable consumer")
		found, err := n.server.readOffsets(context.Background(), "g", nil)
		if err != nil || len(found[topic.ID]) != 1 || found[topic.ID][0].Offset != 5 {
			t.Errorf("%+v, %v", found, err)
		}
	})
}
