// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/internal/golden"
	"github.com/varve/varve/record"
)

// codeCase is one kind of request, in every version that can say it; do gives the code that it was answered with.
type codeCase struct {
	key      int16
	what     string
	from, to int16 // versions; to 0: up to the newest
	do       func(f *codeFixture, v int16) int16
}

// codeFixture is a broker with a group of two members, "active": one of them static, both assigned; an empty group with offsets,
// "empty"; and a topic with three partitions, "t". Names have a prefix, as an oracle keeps what earlier runs left.
type codeFixture struct {
	t              *testing.T
	dial           func() (net.Conn, error)
	c              *wireClient
	prefix         string
	topic          record.TopicID
	dynamic, fixed codeMember
	fresh          int
}

type codeMember struct {
	c          *wireClient
	id         string
	generation int32
}

const staticInstance = "instance"

// closed stands for a connection that was closed in place of an answer.
const closed int16 = math.MinInt16

func (f *codeFixture) client() *wireClient { return &wireClient{t: f.t, dial: f.dial} }

// do sends a request; answer nil: the connection was closed.
func (f *codeFixture) do(c *wireClient, v int16, req kmsg.Request) kmsg.Response {
	f.t.Helper()
	resp, err := c.do(v, req)
	if err != nil {
		return nil
	}
	return resp
}

func (f *codeFixture) name(name string) string {
	if name == "" {
		return ""
	}
	return f.prefix + name
}

// awaitCoordinator waits until the groups are served: an oracle makes its offsets topic when it is first asked.
func (f *codeFixture) awaitCoordinator() {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey = f.name("active")
	for range 600 {
		if f.do(f.c, 3, find).(*kmsg.FindCoordinatorResponse).ErrorCode == 0 && f.leave(2, "active", "x", nil) == codeUnknownMemberID.int16() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.t.Fatal("nobody coordinates the groups")
}

// prepare makes what the cases talk about.
func (f *codeFixture) prepare() {
	t := f.t
	t.Helper()
	f.c = f.client()
	create := kmsg.NewPtrCreateTopicsRequest()
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = f.name("t"), 3, 1
	create.Topics, create.TimeoutMillis = append(create.Topics, ct), 30_000
	created := f.do(f.c, 7, create).(*kmsg.CreateTopicsResponse).Topics[0]
	if created.ErrorCode != 0 {
		t.Fatalf("creating the topic: %d", created.ErrorCode)
	}
	f.topic = created.TopicID
	a, b := codeMember{c: f.client()}, codeMember{c: f.client()}
	f.awaitCoordinator()
	first := f.do(a.c, 3, f.joinRequest("active")).(*kmsg.JoinGroupResponse)
	if first.ErrorCode != 0 {
		t.Fatalf("the first join: %d", first.ErrorCode)
	}
	a.id, a.generation = first.MemberID, first.Generation
	f.dynamic = a
	f.sync(a, 2)
	static := f.joinRequest("active")
	static.InstanceID = kmsg.StringPtr(staticInstance)
	answer := make(chan *kmsg.JoinGroupResponse)
	go func() { answer <- f.do(b.c, 5, static).(*kmsg.JoinGroupResponse) }()
	for f.heartbeat(2, func(*kmsg.HeartbeatRequest) {}) != codeRebalanceInProgress.int16() {
		time.Sleep(10 * time.Millisecond)
	}
	again := f.joinRequest("active")
	again.MemberID = a.id
	rejoined := f.do(a.c, 5, again).(*kmsg.JoinGroupResponse)
	joined := <-answer
	a.generation, b.generation, b.id = rejoined.Generation, joined.Generation, joined.MemberID
	f.dynamic, f.fixed = a, b
	for _, m := range []codeMember{a, b} {
		if code := f.sync(m, 3); code != 0 || rejoined.ErrorCode != 0 || joined.ErrorCode != 0 {
			t.Fatalf("the group does not stand: %d, %d, %d", rejoined.ErrorCode, joined.ErrorCode, code)
		}
	}
	if got := f.commit("empty", 8, nil); got != 0 {
		t.Fatalf("commit: %d", got)
	}
}

func (f *codeFixture) joinRequest(id string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = f.name(id), 1_800_000, 60_000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", (&kmsg.ConsumerMemberMetadata{Topics: []string{f.name("t")}}).AppendTo(nil)
	r.Protocols = append(r.Protocols, p)
	return r
}

func (f *codeFixture) join(v int16, id string, change func(*kmsg.JoinGroupRequest)) int16 {
	r := f.joinRequest(id)
	if change != nil {
		change(r)
	}
	if resp, ok := f.do(f.c, v, r).(*kmsg.JoinGroupResponse); ok {
		return resp.ErrorCode
	}
	return closed
}

func (f *codeFixture) sync(m codeMember, v int16) int16 {
	if resp, ok := f.do(m.c, v, f.syncRequest(m, v)).(*kmsg.SyncGroupResponse); ok {
		return resp.ErrorCode
	}
	return closed
}

func (f *codeFixture) syncRequest(m codeMember, v int16) *kmsg.SyncGroupRequest {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.Generation = f.name("active"), m.id, m.generation
	if v >= 5 {
		r.ProtocolType, r.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	}
	return r
}

func (f *codeFixture) syncWith(v int16, change func(*kmsg.SyncGroupRequest)) int16 {
	r := f.syncRequest(f.dynamic, v)
	change(r)
	if resp, ok := f.do(f.c, v, r).(*kmsg.SyncGroupResponse); ok {
		return resp.ErrorCode
	}
	return closed
}

func (f *codeFixture) heartbeat(v int16, change func(*kmsg.HeartbeatRequest)) int16 {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.MemberID, r.Generation = f.name("active"), f.dynamic.id, f.dynamic.generation
	change(r)
	if resp, ok := f.do(f.c, v, r).(*kmsg.HeartbeatResponse); ok {
		return resp.ErrorCode
	}
	return closed
}

// leave gives the member's code where the version has one, and the request's before it.
func (f *codeFixture) leave(v int16, id, member string, instance *string) int16 {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Group, r.MemberID = f.name(id), member
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID, m.InstanceID = member, instance
	r.Members = append(r.Members, m)
	resp, ok := f.do(f.c, v, r).(*kmsg.LeaveGroupResponse)
	if !ok {
		return closed
	}
	if resp.ErrorCode != 0 || len(resp.Members) == 0 {
		return resp.ErrorCode
	}
	return resp.Members[0].ErrorCode
}

func (f *codeFixture) commit(id string, v int16, change func(*kmsg.OffsetCommitRequest)) int16 {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group = f.name(id)
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = f.name("t"), f.topic
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = 5
	topic.Partitions = append(topic.Partitions, p)
	r.Topics = append(r.Topics, topic)
	if change != nil {
		change(r)
	}
	if resp, ok := f.do(f.c, v, r).(*kmsg.OffsetCommitResponse); ok {
		return resp.Topics[0].Partitions[0].ErrorCode
	}
	return closed
}

// fetch gives the first code that there is, of the group or of a partition.
func (f *codeFixture) fetch(id string, v int16, topic string, topicID [16]byte) int16 {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Group = f.name(id)
	t := kmsg.NewOffsetFetchRequestTopic()
	t.Topic, t.Partitions = f.name(topic), []int32{0}
	r.Topics = append(r.Topics, t)
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = f.name(id)
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.TopicID, gt.Partitions = f.name(topic), topicID, []int32{0}
	g.Topics = append(g.Topics, gt)
	r.Groups = append(r.Groups, g)
	resp, ok := f.do(f.c, v, r).(*kmsg.OffsetFetchResponse)
	if !ok {
		return closed
	}
	codes := []int16{resp.ErrorCode}
	for _, x := range resp.Topics {
		codes = append(codes, x.Partitions[0].ErrorCode)
	}
	for _, x := range resp.Groups {
		codes = append(codes, x.ErrorCode)
		for _, y := range x.Topics {
			codes = append(codes, y.Partitions[0].ErrorCode)
		}
	}
	for _, code := range codes {
		if code != 0 {
			return code
		}
	}
	return 0
}

func (f *codeFixture) deleteOffsets(id, topic string, partition int32) int16 {
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = f.name(id)
	t := kmsg.NewOffsetDeleteRequestTopic()
	t.Topic = f.name(topic)
	p := kmsg.NewOffsetDeleteRequestTopicPartition()
	p.Partition = partition
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	resp, ok := f.do(f.c, 0, r).(*kmsg.OffsetDeleteResponse)
	if !ok {
		return closed
	}
	if resp.ErrorCode != 0 {
		return resp.ErrorCode
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

// unused is a group id that was not used before.
func (f *codeFixture) unused() string {
	f.fresh++
	return fmt.Sprint("fresh-", f.fresh)
}

func joinCodes() []codeCase {
	join := func(what string, from int16, id string, change func(*kmsg.JoinGroupRequest)) codeCase {
		return codeCase{key: 11, what: what, from: from, do: func(f *codeFixture, v int16) int16 {
			if id == "" || len(id) > maxGroupID { // an oracle may let the member in
				return f.join(v, id+f.unused(), change)
			}
			return f.join(v, strings.Trim(id, "-"), change)
		}}
	}
	return []codeCase{
		join("group id empty", 0, "-", nil),
		join("group id too long", 0, strings.Repeat("x", maxGroupID+1), nil),
		join("session timeout too short", 0, "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 5999 }),
		join("session timeout too long", 0, "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1_800_001 }),
		join("session timeout negative", 0, "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = -1 }),
		join("no protocols", 0, "", func(r *kmsg.JoinGroupRequest) { r.Protocols = nil }),
		join("no protocol type", 0, "", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" }),
		join("member id of no group", 0, "", func(r *kmsg.JoinGroupRequest) { r.MemberID = "x" }),
		join("member id of another", 0, "active", func(r *kmsg.JoinGroupRequest) { r.MemberID = "x" }),
		join("new member without id", 0, "", nil),
		join("new static member", 5, "", func(r *kmsg.JoinGroupRequest) { r.InstanceID = kmsg.StringPtr("i") }),
		join("static member with an old id", 5, "active", func(r *kmsg.JoinGroupRequest) {
			r.InstanceID, r.MemberID = kmsg.StringPtr(staticInstance), "old"
		}),
		join("static member with an id and an unknown instance", 5, "active", func(r *kmsg.JoinGroupRequest) {
			r.InstanceID, r.MemberID = kmsg.StringPtr("unknown"), "x"
		}),
		join("another protocol type", 0, "active", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" }),
	}
}

func memberCodes() []codeCase {
	type hb = kmsg.HeartbeatRequest
	type sg = kmsg.SyncGroupRequest
	heartbeat := func(what string, from int16, change func(*codeFixture, *hb)) codeCase {
		return codeCase{key: 12, what: what, from: from, do: func(f *codeFixture, v int16) int16 {
			return f.heartbeat(v, func(r *hb) { change(f, r) })
		}}
	}
	sync := func(what string, from int16, change func(*sg)) codeCase {
		return codeCase{key: 14, what: what, from: from, do: func(f *codeFixture, v int16) int16 { return f.syncWith(v, change) }}
	}
	leave := func(what string, from int16, id, member string, instance *string) codeCase {
		return codeCase{key: 13, what: what, from: from, do: func(f *codeFixture, v int16) int16 { return f.leave(v, id, member, instance) }}
	}
	return []codeCase{
		heartbeat("in good order", 0, func(*codeFixture, *hb) {}),
		heartbeat("group id empty", 0, func(_ *codeFixture, r *hb) { r.Group = "" }),
		heartbeat("no such group", 0, func(f *codeFixture, r *hb) { r.Group = f.name("none") }),
		heartbeat("empty group", 0, func(f *codeFixture, r *hb) { r.Group = f.name("empty") }),
		heartbeat("unknown member", 0, func(_ *codeFixture, r *hb) { r.MemberID = "x" }),
		heartbeat("another generation", 0, func(_ *codeFixture, r *hb) { r.Generation++ }),
		heartbeat("static member with an old id", 3, func(_ *codeFixture, r *hb) { r.InstanceID, r.MemberID = kmsg.StringPtr(staticInstance), "old" }),
		heartbeat("unknown instance", 3, func(_ *codeFixture, r *hb) { r.InstanceID = kmsg.StringPtr("unknown") }),
		sync("in good order", 0, func(*sg) {}),
		sync("group id empty", 0, func(r *sg) { r.Group = "" }),
		sync("no such group", 0, func(r *sg) { r.Group = "none" }),
		sync("unknown member", 0, func(r *sg) { r.MemberID = "x" }),
		sync("another generation", 0, func(r *sg) { r.Generation-- }),
		sync("static member with an old id", 3, func(r *sg) { r.InstanceID, r.MemberID = kmsg.StringPtr(staticInstance), "old" }),
		sync("another protocol", 5, func(r *sg) { r.Protocol = kmsg.StringPtr("sticky") }),
		sync("another protocol type", 5, func(r *sg) { r.ProtocolType = kmsg.StringPtr("connect") }),
		sync("no protocol", 5, func(r *sg) { r.Protocol = nil }),
		leave("group id empty", 0, "", "x", nil),
		leave("no such group", 0, "none", "x", nil),
		leave("unknown member", 0, "active", "x", nil),
		leave("static member with an old id", 3, "active", "old", kmsg.StringPtr(staticInstance)),
		leave("unknown instance", 3, "active", "", kmsg.StringPtr("unknown")),
	}
}

func offsetCodes() []codeCase {
	type oc = kmsg.OffsetCommitRequest
	commit := func(what string, from int16, id string, change func(*codeFixture, *oc)) codeCase {
		return codeCase{key: 8, what: what, from: from, do: func(f *codeFixture, v int16) int16 {
			return f.commit(id, v, func(r *oc) { change(f, r) })
		}}
	}
	member := func(f *codeFixture, r *oc) { r.MemberID, r.Generation = f.dynamic.id, f.dynamic.generation }
	return []codeCase{
		commit("by a member", 2, "active", member),
		commit("without a group's member, group in use", 2, "active", func(*codeFixture, *oc) {}),
		commit("without a group's member, empty group", 2, "empty", func(*codeFixture, *oc) {}),
		commit("without a group's member, group id empty", 2, "", func(*codeFixture, *oc) {}),
		commit("unknown member", 2, "active", func(f *codeFixture, r *oc) { member(f, r); r.MemberID = "x" }),
		commit("another generation", 2, "active", func(f *codeFixture, r *oc) { member(f, r); r.Generation-- }),
		commit("static member with an old id", 7, "active", func(f *codeFixture, r *oc) {
			member(f, r)
			r.InstanceID, r.MemberID = kmsg.StringPtr(staticInstance), "old"
		}),
		commit("member of an empty group", 2, "empty", member),
		commit("member of no group", 2, "none", member),
		commit("unknown topic", 2, "empty", func(_ *codeFixture, r *oc) { r.Topics[0].Topic, r.Topics[0].TopicID = "unknown", [16]byte{9} }),
		commit("unknown partition", 2, "empty", func(_ *codeFixture, r *oc) { r.Topics[0].Partitions[0].Partition = 3 }),
		commit("negative partition", 2, "empty", func(_ *codeFixture, r *oc) { r.Topics[0].Partitions[0].Partition = -1 }),
		commit("metadata too long", 2, "empty", func(_ *codeFixture, r *oc) { r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr("123456789") }),
		commit("metadata just fits", 2, "empty", func(_ *codeFixture, r *oc) { r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr("12345678") }),
		{key: 9, what: "in good order", from: 1, do: func(f *codeFixture, v int16) int16 { return f.fetch("empty", v, "t", f.topic) }},
		{key: 9, what: "no such group", from: 1, do: func(f *codeFixture, v int16) int16 { return f.fetch("none", v, "t", f.topic) }},
		{key: 9, what: "group id empty", from: 1, do: func(f *codeFixture, v int16) int16 { return f.fetch("", v, "t", f.topic) }},
		{key: 9, what: "group id too long", from: 1, do: func(f *codeFixture, v int16) int16 {
			return f.fetch(strings.Repeat("x", maxGroupID+1), v, "t", f.topic)
		}},
		{key: 9, what: "unknown topic", from: 1, do: func(f *codeFixture, v int16) int16 { return f.fetch("empty", v, "unknown", [16]byte{9}) }},
		{key: 47, what: "topic that a member reads", do: func(f *codeFixture, _ int16) int16 { return f.deleteOffsets("active", "t", 0) }},
		{key: 47, what: "no such group", do: func(f *codeFixture, _ int16) int16 { return f.deleteOffsets("none", "t", 0) }},
		{key: 47, what: "unknown topic", do: func(f *codeFixture, _ int16) int16 { return f.deleteOffsets("empty", "unknown", 0) }},
		{key: 47, what: "unknown partition", do: func(f *codeFixture, _ int16) int16 { return f.deleteOffsets("empty", "t", 9) }},
		{key: 47, what: "in good order", do: func(f *codeFixture, _ int16) int16 {
			f.commit("dropped", 8, nil)
			return f.deleteOffsets("dropped", "t", 0)
		}},
	}
}

func adminGroupCodes() []codeCase {
	deleteGroup := func(what, id string) codeCase {
		return codeCase{key: 42, what: what, do: func(f *codeFixture, v int16) int16 {
			r := kmsg.NewPtrDeleteGroupsRequest()
			r.Groups = []string{f.name(id)}
			if id == "simple" {
				f.commit(id, 8, nil)
			}
			if resp, ok := f.do(f.c, v, r).(*kmsg.DeleteGroupsResponse); ok {
				return resp.Groups[0].ErrorCode
			}
			return closed
		}}
	}
	describe := func(what, id string) codeCase {
		return codeCase{key: 15, what: what, do: func(f *codeFixture, v int16) int16 {
			r := kmsg.NewPtrDescribeGroupsRequest()
			r.Groups = []string{f.name(id)}
			if resp, ok := f.do(f.c, v, r).(*kmsg.DescribeGroupsResponse); ok {
				return resp.Groups[0].ErrorCode
			}
			return closed
		}}
	}
	find := func(what string, from int16, kind int8, key string) codeCase {
		return codeCase{key: 10, what: what, from: from, do: func(f *codeFixture, v int16) int16 {
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.CoordinatorType, r.CoordinatorKey, r.CoordinatorKeys = kind, key, []string{key}
			resp, ok := f.do(f.c, v, r).(*kmsg.FindCoordinatorResponse)
			if !ok {
				return closed
			}
			if v >= 4 {
				return resp.Coordinators[0].ErrorCode
			}
			return resp.ErrorCode
		}}
	}
	return []codeCase{
		deleteGroup("with members", "active"), deleteGroup("no such group", "none"), deleteGroup("empty, with offsets", "simple"),
		describe("with members", "active"), describe("no such group", "none"), describe("empty, with offsets", "empty"),
		find("group", 0, groupCoordinator, "g"), find("group id too long", 0, groupCoordinator, strings.Repeat("x", maxGroupID+1)),
		find("transactional id", 1, transactionCoordinator, "x"), find("share group", 1, shareCoordinator, "g"), find("unknown kind", 1, 7, "g"),
		{key: 16, what: "in good order", do: func(f *codeFixture, v int16) int16 {
			if resp, ok := f.do(f.c, v, kmsg.NewPtrListGroupsRequest()).(*kmsg.ListGroupsResponse); ok {
				return resp.ErrorCode
			}
			return closed
		}},
	}
}

// TestGroupCodes asks each API, in each version, what is wrong in each way, and compares the codes with a golden table. None of it
// may move the group. With an oracle, Apache Kafka 4.4 started with the configs below and group.min.session.timeout.ms=6000, it compares what differs from there with
// group_codes.kafka, which lists where we answer otherwise on purpose.
func TestGroupCodes(t *testing.T) {
	if addr := os.Getenv(oracleEnv); addr != "" {
		f := &codeFixture{t: t, prefix: fmt.Sprintf("T%d-", time.Now().UnixNano()), dial: func() (net.Conn, error) { return net.Dial("tcp", addr) }}
		f.prepare()
		f.golden("testdata/group_codes.kafka", differences(readLines(t, "testdata/group_codes.golden"), f.table()))
		return
	}
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{static: map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3", "offset.metadata.max.bytes": "8"}}).coordinating()
		f := &codeFixture{t: t, dial: func() (net.Conn, error) { return n.net.Dial(context.Background(), "client", testAddress) }}
		f.prepare()
		f.golden("testdata/group_codes.golden", f.table())
		if code := f.heartbeat(4, func(*kmsg.HeartbeatRequest) {}); code != 0 {
			t.Errorf("bad input moved the group: heartbeat answers %d", code)
		}
	})
}

// table asks everything.
func (f *codeFixture) table() (lines []string) {
	return f.ask(groupAPIs(), joinCodes(), memberCodes(), offsetCodes(), adminGroupCodes())
}

// ask asks cases of APIs.
func (f *codeFixture) ask(rows []api, all ...[]codeCase) (lines []string) {
	for _, cases := range all {
		for _, c := range cases {
			row := rows[slices.IndexFunc(rows, func(a api) bool { return a.key == c.key })]
			lines = append(lines, fmt.Sprintf("%-16s %-52s %s", row.name, c.what, f.versions(c, max(row.min, c.from), row.max)))
		}
	}
	return lines
}

func (f *codeFixture) golden(path string, got []string) {
	f.t.Helper()
	golden.Check(f.t, path, strings.Join(append(got, ""), "\n"))
}

// versions runs a case in each version and gives the codes, runs of the same one together.
func (f *codeFixture) versions(c codeCase, from, to int16) string {
	var out []string
	begin, code := from, int16(0)
	for v := from; v <= to+1; v++ {
		next := int16(0)
		if v <= to {
			next = c.do(f, v)
		}
		if v > from && (v > to || next != code) {
			name := "NONE"
			if code == closed {
				name = "closed"
			}
			if err := kerr.TypedErrorForCode(code); err != nil {
				name = err.Message
			}
			span := fmt.Sprintf("v%d-%d", begin, v-1)
			if begin == v-1 {
				span = fmt.Sprintf("v%d", begin)
			}
			out = append(out, fmt.Sprintf("%s %s(%d)", span, name, code))
			begin = v
		}
		code = next
	}
	return strings.Join(out, ", ")
}
