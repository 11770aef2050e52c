// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// want is one partition of a fetch.
type want struct {
	topic     string
	partition int32
	from      int64
	max       int32
	current   *int32 // current leader epoch
	last      *int32 // last fetched epoch
}

// fetchRequest never waits and is outside any session.
func (s *side) fetchRequest(maxBytes int32, wants ...want) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.SessionEpoch = maxBytes, -1
	for _, w := range wants {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = w.topic, s.topics[w.topic]
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = w.partition, w.from, w.max
		if w.current != nil {
			p.CurrentLeaderEpoch = *w.current
		}
		if w.last != nil {
			p.LastFetchedEpoch = *w.last
		}
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return req
}

func fetchScript(s *side) {
	s.create("fetch", 3)
	for range 5 {
		s.load("fetch", 0, records(3))
		s.load("fetch", 1, records(3))
	}
	epoch := s.epoch("fetch")
	before, after := epoch-1, epoch+3
	const lots = 1 << 20
	for _, v := range []int16{4, 11, 12, 13, 16, 18} {
		for _, c := range []struct {
			name  string
			max   int32
			wants []want
		}{
			{"everything", lots, []want{{topic: "fetch", max: lots}}},
			{"inside a batch", lots, []want{{topic: "fetch", from: 7, max: lots}}},
			{"at the end", lots, []want{{topic: "fetch", from: 15, max: lots}}},
			{"beyond the end", lots, []want{{topic: "fetch", from: 16, max: lots}}},
			{"negative offset", lots, []want{{topic: "fetch", from: -3, max: lots}}},
			{"empty partition", lots, []want{{topic: "fetch", partition: 2, max: lots}}},
			{"no bytes", 0, []want{{topic: "fetch", max: lots}}},
			{"one byte", 1, []want{{topic: "fetch", max: lots}}},
			{"no bytes of the partition", lots, []want{{topic: "fetch", max: 0}}},
			{"one byte of the partition", lots, []want{{topic: "fetch", from: 3, max: 1}}},
			{"two batches and a half", lots, []want{{topic: "fetch", max: 450}}},
			{"one byte each of two", lots, []want{{topic: "fetch", max: 1}, {topic: "fetch", partition: 1, max: 1}}},
			{"empty first, one byte each", lots, []want{{topic: "fetch", partition: 2, max: 1}, {topic: "fetch", max: 1}}},
			{"one byte for two", 1, []want{{topic: "fetch", max: lots}, {topic: "fetch", partition: 1, max: lots}}},
			{"unknown partition", lots, []want{{topic: "fetch", partition: 7, max: lots}}},
			{"unknown topic", lots, []want{{topic: "nowhere", max: lots}}},
			{"unknown beside known", lots, []want{{topic: "nowhere", max: lots}, {topic: "fetch", max: lots}}},
			{"current epoch", lots, []want{{topic: "fetch", max: lots, current: &epoch}}},
			{"future epoch", lots, []want{{topic: "fetch", max: lots, current: &after}}},
			{"last fetched epoch", lots, []want{{topic: "fetch", from: 15, max: lots, last: &epoch}}},
			{"last fetched epoch below all", lots, []want{{topic: "fetch", from: 3, max: lots, last: &before}}},
			{"last fetched epoch above all", lots, []want{{topic: "fetch", from: 3, max: lots, last: &after}}},
		} {
			s.ask("fetch/"+c.name, v, s.fetchRequest(c.max, c.wants...))
			committed := s.fetchRequest(c.max, c.wants...)
			committed.IsolationLevel = 1
			s.ask("fetch/read committed, "+c.name, v, committed)
		}
		s.ask("fetch/nothing", v, s.fetchRequest(lots))
	}
	s.deleteRecords("fetch/delete records", 2, "fetch", 0, 4)
	for _, v := range []int16{4, 11, 12, 13, 16, 18} {
		for _, from := range []int64{0, 3, 4, 5} {
			s.ask("fetch/from "+string(rune('0'+from))+" after delete records", v, s.fetchRequest(lots, want{topic: "fetch", from: from, max: lots}))
		}
	}
}

// sessionScript holds one incremental session per version.
func sessionScript(s *side) {
	const lots = 1 << 20
	for _, v := range []int16{7, 11, 12, 13, 16, 18} {
		topic := "session-" + string(rune('a'+v))
		s.create(topic, 3)
		s.load(topic, 0, records(2))
		session := func(name string, id, epoch int32, wants ...want) *kmsg.FetchResponse {
			req := s.fetchRequest(lots, wants...)
			req.SessionID, req.SessionEpoch = id, epoch
			resp, _ := s.ask("session/"+name, v, req).(*kmsg.FetchResponse)
			return resp
		}
		first := session("create", 0, 0, want{topic: topic, max: lots}, want{topic: topic, partition: 1, max: lots})
		if first == nil {
			continue
		}
		id := first.SessionID
		session("same offsets again", id, 1)
		session("moves on", id, 2, want{topic: topic, from: 2, max: lots})
		session("no news", id, 3)
		s.load(topic, 1, records(2))
		session("news of one", id, 4)
		session("wrong epoch", id, 9)
		session("the expected epoch still works", id, 5, want{topic: topic, partition: 1, from: 2, max: lots})
		session("the epoch before", id, 5)
		session("adds one", id, 6, want{topic: topic, partition: 2, max: lots})
		session("adds an unknown one", id, 7, want{topic: topic, partition: 8, max: lots})
		session("the unknown one again", id, 8)
		session("out of range", id, 9, want{topic: topic, from: 99, max: lots})
		session("out of range again", id, 10)
		forget := func(name string, epoch int32, partitions ...int32) {
			req := s.fetchRequest(lots)
			req.SessionID, req.SessionEpoch = id, epoch
			f := kmsg.NewFetchRequestForgottenTopic()
			f.Topic, f.TopicID, f.Partitions = topic, s.topics[topic], partitions
			req.ForgottenTopics = append(req.ForgottenTopics, f)
			s.ask("session/"+name, v, req)
		}
		forget("forgets the bad ones", 11, 0, 8)
		s.load(topic, 0, records(1))
		session("no news of the forgotten", id, 12)
		s.deleteRecords("session/delete records", 2, topic, 1, 1)
		session("log start moved", id, 13)
		forget("forgets all", 14, 1, 2)
		session("after all were forgotten", id, 15)
		session("unknown id", 12345, 1)
		session("unknown id, new", 12345, 0, want{topic: topic, max: lots})
		session("no session with epoch", 0, 3)
		second := session("create again", 0, 0, want{topic: topic, max: lots})
		if second != nil {
			session("close", second.SessionID, -1)
			session("closed", second.SessionID, 1)
		}
	}
}
