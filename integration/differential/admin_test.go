// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (s *side) createTopics(name string, version int16, topics ...kmsg.CreateTopicsRequestTopic) {
	s.t.Helper()
	for _, validate := range []bool{true, false} {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis, req.Topics, req.ValidateOnly = 10000, topics, validate
		s.ask(fmt.Sprintf("create topics/%s (validate only %t)", name, validate), version, req)
	}
}

// assigned is a topic with a replica assignment: a list of nodes per partition.
func assigned(topic string, partitions int32, replicas int16, nodes ...[]int32) kmsg.CreateTopicsRequestTopic {
	t := newTopic(topic, partitions, replicas)
	for i, n := range nodes {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), n
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	return t
}

func topicsScript(s *side) {
	s.create("exists", 1)
	s.create("with.dot", 1)
	for _, v := range []int16{2, 3, 4, 5, 6, 7} {
		named := func(n string) string { return fmt.Sprintf("%s-%d", n, v) }
		null := newTopic(named("null-value"), 1, 1, "retention.ms", "")
		null.Configs[0].Value = nil
		for _, c := range []struct {
			name   string
			topics []kmsg.CreateTopicsRequestTopic
		}{
			{"good", []kmsg.CreateTopicsRequestTopic{newTopic(named("good"), 2, 1)}},
			{"good again", []kmsg.CreateTopicsRequestTopic{newTopic(named("good"), 2, 1)}},
			{"defaults", []kmsg.CreateTopicsRequestTopic{newTopic(named("defaults"), -1, -1)}},
			{"exists", []kmsg.CreateTopicsRequestTopic{newTopic("exists", 1, 1)}},
			{"empty name", []kmsg.CreateTopicsRequestTopic{newTopic("", 1, 1)}},
			{"dot", []kmsg.CreateTopicsRequestTopic{newTopic(".", 1, 1)}},
			{"blank", []kmsg.CreateTopicsRequestTopic{newTopic("a b", 1, 1)}},
			{"250 letters", []kmsg.CreateTopicsRequestTopic{newTopic(strings.Repeat("a", 250), 1, 1)}},
			{"collides", []kmsg.CreateTopicsRequestTopic{newTopic("with_dot", 1, 1)}},
			{"no partitions", []kmsg.CreateTopicsRequestTopic{newTopic(named("none"), 0, 1)}},
			{"negative partitions", []kmsg.CreateTopicsRequestTopic{newTopic(named("negative"), -2, 1)}},
			{"no replicas", []kmsg.CreateTopicsRequestTopic{newTopic(named("none"), 1, 0)}},
			{"too many replicas", []kmsg.CreateTopicsRequestTopic{newTopic(named("many"), 1, 3)}},
			{"unknown config", []kmsg.CreateTopicsRequestTopic{newTopic(named("unknown"), 1, 1, "no.such.config", "1")}},
			{"removed config", []kmsg.CreateTopicsRequestTopic{newTopic(named("removed"), 1, 1, "message.format.version", "2.0")}},
			{"bad value", []kmsg.CreateTopicsRequestTopic{newTopic(named("bad"), 1, 1, "retention.ms", "soon")}},
			{"out of range", []kmsg.CreateTopicsRequestTopic{newTopic(named("range"), 1, 1, "segment.bytes", "3")}},
			{"null value", []kmsg.CreateTopicsRequestTopic{null}},
			{"twice", []kmsg.CreateTopicsRequestTopic{newTopic(named("twice"), 1, 1), newTopic(named("twice"), 1, 1)}},
			{"good and bad", []kmsg.CreateTopicsRequestTopic{newTopic(named("fine"), 1, 1), newTopic("..", 1, 1)}},
			{"assigned", []kmsg.CreateTopicsRequestTopic{assigned(named("assigned"), -1, -1, []int32{1}, []int32{1})}},
			{"assigned and counted", []kmsg.CreateTopicsRequestTopic{assigned(named("counted"), 2, 1, []int32{1}, []int32{1})}},
			{"assigned to nobody", []kmsg.CreateTopicsRequestTopic{assigned(named("nobody"), -1, -1, []int32{})}},
			{"assigned to a stranger", []kmsg.CreateTopicsRequestTopic{assigned(named("stranger"), -1, -1, []int32{9})}},
			{"assigned twice", []kmsg.CreateTopicsRequestTopic{assigned(named("double"), -1, -1, []int32{1, 1})}},
			{"nothing", nil},
		} {
			s.createTopics(c.name, v, c.topics...)
		}
	}
	s.createPartitions()
	s.deleteTopics()
}

func (s *side) createPartitions() {
	for v := int16(0); v <= 3; v++ {
		topic := fmt.Sprintf("grows-%d", v)
		s.create(topic, 2)
		for _, c := range []struct {
			name  string
			topic string
			count int32
			nodes [][]int32
		}{
			{"fewer", topic, 1, nil}, {"as many", topic, 2, nil}, {"none", topic, 0, nil}, {"negative", topic, -1, nil}, {"unknown topic", "nowhere", 3, nil},
			{"more", topic, 4, nil}, {"assigned", topic, 5, [][]int32{{1}}}, {"assigned to a stranger", topic, 6, [][]int32{{8}}},
			{"too few assigned", topic, 8, [][]int32{{1}}}, {"too many assigned", topic, 6, [][]int32{{1}, {1}}}, {"other replication", topic, 6, [][]int32{{1, 2}}},
		} {
			for _, validate := range []bool{true, false} {
				req := kmsg.NewPtrCreatePartitionsRequest()
				req.TimeoutMillis, req.ValidateOnly = 10000, validate
				t := kmsg.NewCreatePartitionsRequestTopic()
				t.Topic, t.Count = c.topic, c.count
				for _, n := range c.nodes {
					a := kmsg.NewCreatePartitionsRequestTopicAssignment()
					a.Replicas = n
					t.Assignment = append(t.Assignment, a)
				}
				req.Topics = append(req.Topics, t)
				s.ask(fmt.Sprintf("create partitions/%s (validate only %t)", c.name, validate), v, req)
			}
		}
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = 10000
		for range 2 {
			t := kmsg.NewCreatePartitionsRequestTopic()
			t.Topic, t.Count = topic, 9
			req.Topics = append(req.Topics, t)
		}
		s.ask("create partitions/twice", v, req)
	}
}

func (s *side) deleteTopics() {
	for v := int16(1); v <= 6; v++ {
		for _, c := range []struct {
			name   string
			topics []string
		}{
			{"one", []string{fmt.Sprintf("gone-%d", v)}}, {"unknown", []string{"nowhere"}}, {"twice in a request", []string{fmt.Sprintf("gone-b-%d", v), fmt.Sprintf("gone-b-%d", v)}},
			{"nothing", nil}, {"empty name", []string{""}},
		} {
			if strings.HasPrefix(strings.Join(c.topics, ""), "gone") {
				s.create(c.topics[0], 1)
			}
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.TimeoutMillis, req.TopicNames = 10000, c.topics
			for i := range c.topics {
				t := kmsg.NewDeleteTopicsRequestTopic()
				t.Topic = &c.topics[i]
				req.Topics = append(req.Topics, t)
			}
			s.ask("delete topics/"+c.name, v, req)
		}
	}
	s.create("by-id", 1)
	name := "by-id"
	for _, c := range []struct {
		name string
		t    kmsg.DeleteTopicsRequestTopic
	}{
		{"unknown id", kmsg.DeleteTopicsRequestTopic{TopicID: [16]byte{1, 2, 3}}},
		{"no id and no name", kmsg.DeleteTopicsRequestTopic{}},
		{"id and name", kmsg.DeleteTopicsRequestTopic{TopicID: s.topics[name], Topic: &name}},
		{"id", kmsg.DeleteTopicsRequestTopic{TopicID: s.topics[name]}},
		{"id again", kmsg.DeleteTopicsRequestTopic{TopicID: s.topics[name]}},
	} {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = 10000
		req.Topics = append(req.Topics, c.t)
		s.ask("delete topics/"+c.name, 6, req)
	}
}

func configsScript(s *side) {
	s.create("configured", 1, "retention.ms", "3600000", "cleanup.policy", "compact,delete")
	describe := func(name string, v int16, kind kmsg.ConfigResourceType, resource string, synonyms bool, keys ...string) {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeSynonyms = synonyms
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kind, resource, keys
		req.Resources = append(req.Resources, r)
		s.ask("describe configs/"+name, v, req)
	}
	for v := int16(1); v <= 4; v++ {
		describe("all", v, kmsg.ConfigResourceTypeTopic, "configured", false)
		describe("all with synonyms", v, kmsg.ConfigResourceTypeTopic, "configured", true)
		describe("two", v, kmsg.ConfigResourceTypeTopic, "configured", false, "retention.ms", "no.such.config")
		describe("unknown topic", v, kmsg.ConfigResourceTypeTopic, "nowhere", false)
		describe("bad topic", v, kmsg.ConfigResourceTypeTopic, "a b", false)
		describe("other broker", v, kmsg.ConfigResourceTypeBroker, "77", false)
		describe("no broker", v, kmsg.ConfigResourceTypeBroker, "x", false)
		describe("unknown type", v, kmsg.ConfigResourceType(99), "configured", false)
	}
	alter := func(name string, v int16, kind kmsg.ConfigResourceType, resource, key string, op kmsg.IncrementalAlterConfigOp, value *string) {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kind, resource
		r.Configs = append(r.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: key, Op: op, Value: value})
		req.Resources = append(req.Resources, r)
		s.ask("alter configs/"+name, v, req)
	}
	text := func(v string) *string { return &v }
	topic := kmsg.ConfigResourceTypeTopic
	for v := range int16(2) {
		alter("set", v, topic, "configured", "retention.ms", 0, text("7200000"))
		alter("bad value", v, topic, "configured", "retention.ms", 0, text("x"))
		alter("null value", v, topic, "configured", "retention.ms", 0, nil)
		alter("unknown config", v, topic, "configured", "no.such.config", 0, text("1"))
		alter("unknown topic", v, topic, "nowhere", "retention.ms", 0, text("1"))
		alter("append to a list", v, topic, "configured", "cleanup.policy", 2, text("delete"))
		alter("subtract from a list", v, topic, "configured", "cleanup.policy", 3, text("delete"))
		alter("append to a number", v, topic, "configured", "retention.ms", 2, text("1"))
		alter("delete", v, topic, "configured", "retention.ms", 1, nil)
		alter("unknown operation", v, topic, "configured", "retention.ms", 9, text("1"))
		alter("other broker", v, kmsg.ConfigResourceTypeBroker, "77", "log.retention.ms", 0, text("7200000"))
		describe("after altering", 4, topic, "configured", true, "retention.ms", "cleanup.policy")
	}
}

// versionsScript compares the version ranges of what the product serves.
func versionsScript(s *side) {
	served := []int16{0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 29, 30, 31, 33, 34, 35, 37, 43, 44, 45, 46, 48, 49, 50, 51, 57, 60, 61, 64, 74, 75}
	for v := int16(0); v <= 4; v++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "differential", "1.0"
		resp := s.must(v, req).(*kmsg.ApiVersionsResponse)
		s.note("api versions", v, field{"ErrorCode", fmt.Sprint(resp.ErrorCode)})
		for _, key := range served {
			got := "absent"
			for _, k := range resp.ApiKeys {
				if k.ApiKey == key {
					got = fmt.Sprintf("%d-%d", k.MinVersion, k.MaxVersion)
				}
			}
			s.note("api versions", v, field{kmsg.NameForKey(key), got})
		}
	}
	future := kmsg.NewPtrApiVersionsRequest()
	future.ClientSoftwareName, future.ClientSoftwareVersion = "differential", "1.0"
	s.ask("api versions/of the future", 9, future)
	s.ask("api versions/and then", 2, kmsg.NewPtrOffsetForLeaderEpochRequest())
}
