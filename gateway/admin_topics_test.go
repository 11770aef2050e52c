// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

type newTopic struct {
	name       string
	partitions int32
	rf         int16
	assign     map[int32][]int32
	configs    map[string]*string
}

func createRequest(validateOnly bool, topics ...newTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10000
	req.ValidateOnly = validateOnly
	for _, n := range topics {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = n.name, n.partitions, n.rf
		for p := int32(0); p < 10; p++ {
			if replicas, ok := n.assign[p]; ok {
				a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
				a.Partition, a.Replicas = p, replicas
				t.ReplicaAssignment = append(t.ReplicaAssignment, a)
			}
		}
		for k, v := range n.configs {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = k, v
			t.Configs = append(t.Configs, c)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

func TestCreateTopics(t *testing.T) {
	x := newAdminScript(t)
	str := kmsg.StringPtr
	for v := int16(2); v <= 7; v++ {
		name := x.topic("ok" + string(rune('0'+v)))
		x.do("create", v, createRequest(false, newTopic{name: name, partitions: 2, rf: 1}))
		x.do("create again", v, createRequest(false, newTopic{name: name, partitions: 2, rf: 1}))
		x.do("defaults", v, createRequest(true, newTopic{name: x.topic("d"), partitions: -1, rf: -1}))
	}
	x.do("validate only", 7, createRequest(true, newTopic{name: x.topic("never"), partitions: 1, rf: 1}))
	x.do("validate only, exists", 7, createRequest(true, newTopic{name: x.topic("ok7"), partitions: 1, rf: 1}))
	m := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = str(x.topic("never"))
	m.Topics = append(m.Topics, mt)
	x.do("nothing was created", 8, m)

	one := func(name string, n newTopic) {
		if n.name == "" {
			n.name = x.topic("one")
		}
		x.do(name, 5, createRequest(false, n))
	}
	one("0 partitions", newTopic{partitions: 0, rf: 1})
	one("-2 partitions", newTopic{partitions: -2, rf: 1})
	one("10001 partitions", newTopic{partitions: 10001, rf: 1})
	one("replication factor 0", newTopic{partitions: 1, rf: 0})
	one("replication factor -2", newTopic{partitions: 1, rf: -2})
	one("replication factor 2 of 1", newTopic{partitions: 1, rf: 2})
	for _, bad := range []string{".", "..", "a b", "a/b", "ü", strings.Repeat("x", 250)} {
		one("name "+bad, newTopic{name: bad, partitions: 1, rf: 1})
	}
	x.do("empty name", 5, createRequest(false, newTopic{name: "", partitions: 1, rf: 1}))
	one("long name", newTopic{name: x.topic(strings.Repeat("y", 200)), partitions: 1, rf: 1})
	one("dot", newTopic{name: x.topic("a.b"), partitions: 1, rf: 1})
	one("collides", newTopic{name: x.topic("a_b"), partitions: 1, rf: 1})
	x.do("collide with each other", 5, createRequest(false, newTopic{name: x.topic("c.d"), partitions: 1, rf: 1}, newTopic{name: x.topic("c_d"), partitions: 1, rf: 1}))
	one("unknown config", newTopic{partitions: 1, rf: 1, configs: map[string]*string{"no.such.config": str("1")}})
	one("removed config", newTopic{partitions: 1, rf: 1, configs: map[string]*string{"message.format.version": str("3.0")}})
	one("bad value", newTopic{partitions: 1, rf: 1, configs: map[string]*string{"retention.ms": str("soon")}})
	one("null value", newTopic{partitions: 1, rf: 1, configs: map[string]*string{"retention.ms": nil}})
	one("contradiction", newTopic{partitions: 1, rf: 1, configs: map[string]*string{"min.compaction.lag.ms": str("2"), "max.compaction.lag.ms": str("1")}})
	one("downconversion", newTopic{partitions: 1, rf: 1, name: x.topic("down"), configs: map[string]*string{"message.downconversion.enable": str("false")}})
	one("compact twice", newTopic{partitions: 1, rf: 1, name: x.topic("cc"), configs: map[string]*string{"cleanup.policy": str("compact,compact")}})
	one("empty policy", newTopic{partitions: 1, rf: 1, name: x.topic("keep"), configs: map[string]*string{"cleanup.policy": str("")}})
	one("segment.bytes too small", newTopic{partitions: 1, rf: 1, configs: map[string]*string{"segment.bytes": str("1000")}})
	one("internal.segment.bytes", newTopic{partitions: 1, rf: 1, name: x.topic("small"), configs: map[string]*string{"internal.segment.bytes": str("1000")}})
	one("assigned", newTopic{name: x.topic("as"), partitions: -1, rf: -1, assign: map[int32][]int32{0: {1}, 1: {1}}})
	one("assigned with a count", newTopic{partitions: 2, rf: -1, assign: map[int32][]int32{0: {1}, 1: {1}}})
	one("assigned with a factor", newTopic{partitions: -1, rf: 1, assign: map[int32][]int32{0: {1}, 1: {1}}})
	one("assigned with a gap", newTopic{partitions: -1, rf: -1, assign: map[int32][]int32{0: {1}, 2: {1}}})
	one("assigned from 1", newTopic{partitions: -1, rf: -1, assign: map[int32][]int32{1: {1}}})
	one("assigned to nobody", newTopic{partitions: -1, rf: -1, assign: map[int32][]int32{0: {}}})
	one("assigned to an unknown broker", newTopic{partitions: -1, rf: -1, assign: map[int32][]int32{0: {99}}})
	one("assigned twice to one", newTopic{partitions: -1, rf: -1, assign: map[int32][]int32{0: {1, 1}}})
	one("assigned unevenly", newTopic{partitions: -1, rf: -1, assign: map[int32][]int32{0: {1}, 1: {1, 2}}})
	x.do("named twice", 5, createRequest(false, newTopic{name: x.topic("tw"), partitions: 1, rf: 1}, newTopic{name: x.topic("other"), partitions: 1, rf: 1}, newTopic{name: x.topic("tw"), partitions: 1, rf: 1}))
	x.do("nothing", 5, createRequest(false))
	x.do("one good, one bad", 7, createRequest(false, newTopic{name: x.topic("good"), partitions: 1, rf: 1}, newTopic{name: x.topic("bad"), partitions: 0, rf: 1}))
	x.golden("19_create_topics")
}

func TestDeleteTopics(t *testing.T) {
	x := newAdminScript(t)
	byName := func(names ...string) *kmsg.DeleteTopicsRequest {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = 10000
		req.TopicNames = names
		for _, n := range names {
			d := kmsg.NewDeleteTopicsRequestTopic()
			d.Topic = kmsg.StringPtr(n)
			req.Topics = append(req.Topics, d)
		}
		return req
	}
	byID := func(ids ...[16]byte) *kmsg.DeleteTopicsRequest {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = 10000
		for _, id := range ids {
			d := kmsg.NewDeleteTopicsRequestTopic()
			d.TopicID = id
			req.Topics = append(req.Topics, d)
		}
		return req
	}
	for v := int16(1); v <= 6; v++ {
		x.makeTopic("d", 1)
		x.do("delete", v, byName(x.topic("d")))
		x.do("delete again", v, byName(x.topic("d")))
	}
	id := x.makeTopic("i", 2)
	x.do("by id", 6, byID(id))
	x.do("by id again", 6, byID(id))
	x.do("unknown id", 6, byID([16]byte{1, 2, 3}))
	id = x.makeTopic("i", 1)
	both := byID(id)
	both.Topics[0].Topic = kmsg.StringPtr(x.topic("i"))
	x.do("name and id", 6, both)
	x.do("neither", 6, byID([16]byte{}))
	x.do("twice by id", 6, byID(id, id))
	twice := byID(id)
	twice.Topics = append(twice.Topics, byName(x.topic("i")).Topics...)
	x.do("by id and by name", 6, twice)
	x.do("twice by name", 6, byName(x.topic("i"), x.topic("i")))
	x.do("twice by name, v5", 5, byName(x.topic("i"), x.topic("i")))
	x.do("bad name", 6, byName("a b"))
	x.do("empty name", 6, byName(""))
	x.do("nothing", 6, byName())
	x.do("one good, one unknown", 4, byName(x.topic("i"), x.topic("no")))
	again := x.makeTopic("i", 1)
	x.note("a topic made anew has a new id: %v", again != id)
	x.golden("20_delete_topics")
}

func TestCreatePartitions(t *testing.T) {
	x := newAdminScript(t)
	type grow struct {
		name   string
		count  int32
		assign [][]int32
	}
	req := func(validateOnly bool, all ...grow) *kmsg.CreatePartitionsRequest {
		r := kmsg.NewPtrCreatePartitionsRequest()
		r.TimeoutMillis, r.ValidateOnly = 10000, validateOnly
		for _, g := range all {
			p := kmsg.NewCreatePartitionsRequestTopic()
			p.Topic, p.Count = g.name, g.count
			for _, replicas := range g.assign {
				a := kmsg.NewCreatePartitionsRequestTopicAssignment()
				a.Replicas = replicas
				p.Assignment = append(p.Assignment, a)
			}
			r.Topics = append(r.Topics, p)
		}
		return r
	}
	x.makeTopic("p", 1)
	p := x.topic("p")
	for v := int16(0); v <= 3; v++ {
		x.do("grow", v, req(false, grow{p, int32(v) + 2, nil}))
		x.do("same", v, req(false, grow{p, int32(v) + 2, nil}))
	}
	x.do("validate only", 3, req(true, grow{p, 9, nil}))
	x.do("less", 3, req(false, grow{p, 1, nil}))
	x.do("0", 3, req(false, grow{p, 0, nil}))
	x.do("-1", 3, req(false, grow{p, -1, nil}))
	x.do("unknown topic", 3, req(false, grow{x.topic("no"), 2, nil}))
	x.do("bad name", 3, req(false, grow{"a b", 2, nil}))
	x.do("named twice", 3, req(false, grow{p, 7, nil}, grow{p, 8, nil}))
	x.do("assigned", 3, req(false, grow{p, 6, [][]int32{{1}}}))
	x.do("too few assigned", 3, req(false, grow{p, 8, [][]int32{{1}}}))
	x.do("too many assigned", 3, req(false, grow{p, 7, [][]int32{{1}, {1}}}))
	x.do("assigned to an unknown broker", 3, req(false, grow{p, 7, [][]int32{{99}}}))
	x.do("assigned to nobody", 3, req(false, grow{p, 7, [][]int32{{}}}))
	x.do("assigned twice to one", 3, req(false, grow{p, 7, [][]int32{{1, 1}}}))
	x.do("too many", 3, req(false, grow{p, 10007, nil}))
	x.do("nothing", 3, req(false))
	m := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = kmsg.StringPtr(p)
	m.Topics = append(m.Topics, mt)
	if r, ok := x.quiet(9, m).(*kmsg.MetadataResponse); ok {
		x.note("partitions in the end: %d", len(r.Topics[0].Partitions))
	}
	x.golden("37_create_partitions")
}

func TestDeleteRecords(t *testing.T) {
	x := newAdminScript(t)
	req := func(topic string, offsets map[int32]int64) *kmsg.DeleteRecordsRequest {
		r := kmsg.NewPtrDeleteRecordsRequest()
		r.TimeoutMillis = 10000
		d := kmsg.NewDeleteRecordsRequestTopic()
		d.Topic = topic
		for p := int32(0); p < 10; p++ {
			if o, ok := offsets[p]; ok {
				dp := kmsg.NewDeleteRecordsRequestTopicPartition()
				dp.Partition, dp.Offset = p, o
				d.Partitions = append(d.Partitions, dp)
			}
		}
		r.Topics = append(r.Topics, d)
		return r
	}
	// A leader that was just elected says that it is not ready, and is asked again, as clients do.
	ready := func(resp *kmsg.DeleteRecordsResponse) bool {
		return !slices.ContainsFunc(resp.Topics, func(t kmsg.DeleteRecordsResponseTopic) bool {
			return slices.ContainsFunc(t.Partitions, func(p kmsg.DeleteRecordsResponseTopicPartition) bool {
				return Code(p.ErrorCode) == codeOffsetNotAvailable || Code(p.ErrorCode) == codeNotLeaderOrFollower
			})
		})
	}
	do := func(name string, version int16, req *kmsg.DeleteRecordsRequest) {
		t.Helper()
		resp := x.quiet(version, req).(*kmsg.DeleteRecordsResponse)
		for tries := 0; !ready(resp) && tries < 1000; tries++ {
			time.Sleep(10 * time.Millisecond)
			resp = x.quiet(version, req).(*kmsg.DeleteRecordsResponse)
		}
		x.record(name, version, resp)
	}
	x.makeTopic("r", 2)
	r := x.topic("r")
	x.produce("r", 0, 10)
	x.produce("r", 1, 3)
	do("to 2", 0, req(r, map[int32]int64{0: 2}))
	do("to 4", 1, req(r, map[int32]int64{0: 4}))
	do("to 4 again", 2, req(r, map[int32]int64{0: 4}))
	do("back to 1", 2, req(r, map[int32]int64{0: 1}))
	do("beyond the end", 2, req(r, map[int32]int64{0: 11}))
	do("-2", 2, req(r, map[int32]int64{0: -2}))
	do("both, one too far", 2, req(r, map[int32]int64{0: 5, 1: 99}))
	do("to the high watermark", 2, req(r, map[int32]int64{0: -1, 1: -1}))
	do("unknown partition", 2, req(r, map[int32]int64{7: 0}))
	do("unknown topic", 2, req(x.topic("no"), map[int32]int64{0: 0}))
	do("bad name", 2, req("a b", map[int32]int64{0: 0}))
	x.makeTopic("c", 1, "cleanup.policy", "compact")
	x.produce("c", 0, 3)
	do("compacted", 2, req(x.topic("c"), map[int32]int64{0: 1}))
	x.makeTopic("b", 1, "cleanup.policy", "compact,delete")
	x.produce("b", 0, 3)
	do("compacted and deleted", 2, req(x.topic("b"), map[int32]int64{0: 1}))
	x.makeTopic("k", 1, "cleanup.policy", "")
	x.produce("k", 0, 3)
	do("kept for ever", 2, req(x.topic("k"), map[int32]int64{0: 1}))
	empty := kmsg.NewPtrDeleteRecordsRequest()
	empty.TimeoutMillis = 1000
	do("nothing", 2, empty)
	x.golden("21_delete_records")
}
