// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listOffsets asks for one time of one partition.
func (s *side) listOffsets(name string, version int16, topic string, partition int32, isolation int8, current int32, times ...int64) {
	s.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel, req.TimeoutMillis = -1, isolation, 5000
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for _, ts := range times {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, ts, current
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	s.ask(name, version, req)
}

var listVersions = []int16{1, 2, 4, 7, 8, 9, 10, 11}

func listOffsetsScript(s *side) {
	for _, kind := range []string{"CreateTime", "LogAppendTime"} {
		topic := "times-" + kind
		s.create(topic, 2, "message.timestamp.type", kind)
		if kind == "CreateTime" {
			s.load(topic, 0, at(-5000, -9000, -3000, -7000))
			s.load(topic, 0, at(-1000, -1000, -8000).with(func(b *batch) { b.codec = kgo.CodecLz4 }))
			s.load(topic, 0, at(-2000))
			s.load(topic, 0, at(-1000, -6000))
		} else {
			s.load(topic, 0, at(-5000, -9000, -3000))
			time.Sleep(10 * time.Millisecond) // the batches get different times, also from a broker that takes both in one millisecond
			s.load(topic, 0, at(-1000))
		}
		s.lookUp(topic, "")
		s.deleteRecords("list offsets/delete records", 2, topic, 0, 2)
		s.lookUp(topic, " after delete records")
		if kind == "CreateTime" {
			s.deleteRecords("list offsets/delete records", 2, topic, 0, 9)
			s.lookUp(topic, " after deleting beyond the maximum")
			s.deleteRecords("list offsets/delete all", 2, topic, 0, -1)
			s.lookUp(topic, " after deleting all")
		}
	}
	epoch := s.epoch("times-CreateTime")
	for _, v := range listVersions {
		s.listOffsets("list offsets/unknown topic", v, "nowhere", 0, 0, -1, -1)
		s.listOffsets("list offsets/unknown partition", v, "times-CreateTime", 9, 0, -1, -1)
		s.listOffsets("list offsets/partition twice", v, "times-CreateTime", 0, 0, -1, -1, -2)
		for _, ts := range []int64{-1, -2, -3, -4, 5} {
			s.listOffsets(fmt.Sprintf("list offsets/current epoch, %d", ts), v, "times-CreateTime", 0, 0, epoch, ts)
			s.listOffsets(fmt.Sprintf("list offsets/future epoch, %d", ts), v, "times-CreateTime", 0, 0, epoch+3, ts)
		}
	}
}

// lookUp asks for every special and around every time.
func (s *side) lookUp(topic, when string) {
	s.t.Helper()
	for _, v := range listVersions {
		for isolation := range int8(2) {
			for partition := range int32(2) {
				for special := int64(-1); special >= -7; special-- {
					name := fmt.Sprintf("list offsets/%s/%d isolation %d special %d%s", topic, partition, isolation, special, when)
					s.listOffsets(name, v, topic, partition, isolation, -1, special)
				}
				times := []int64{-startOfRun, 3_000_000}
				for t := int64(-9000); t <= -1000; t += 1000 {
					times = append(times, t-1, t, t+1)
				}
				for _, t := range times {
					name := fmt.Sprintf("list offsets/%s/%d isolation %d time %d%s", topic, partition, isolation, t, when)
					s.listOffsets(name, v, topic, partition, isolation, -1, startOfRun+t)
				}
			}
		}
	}
}

func epochScript(s *side) {
	s.create("epochs", 2)
	s.load("epochs", 0, records(3))
	s.deleteRecords("offset for leader epoch/delete records", 2, "epochs", 0, 2)
	epoch := s.epoch("epochs")
	for v := int16(2); v <= 4; v++ {
		for _, c := range []struct {
			name           string
			topic          string
			partition      int32
			current, asked int32
		}{
			{"the current one", "epochs", 0, -1, epoch}, {"a future one", "epochs", 0, -1, epoch + 5}, {"one before all", "epochs", 0, -1, -1},
			{"none", "epochs", 0, -1, -2}, {"of an empty log", "epochs", 1, -1, epoch}, {"current given", "epochs", 0, epoch, epoch},
			{"future given", "epochs", 0, epoch + 2, epoch}, {"unknown partition", "epochs", 5, -1, epoch}, {"unknown topic", "nowhere", 0, -1, epoch},
		} {
			s.epochEnd("offset for leader epoch/"+c.name, v, c.topic, c.partition, c.current, c.asked)
		}
	}
}

// epochEnd asks where an epoch ends.
func (s *side) epochEnd(name string, version int16, topic string, partition, current, asked int32) {
	s.t.Helper()
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, current, asked
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	s.ask(name, version, req)
}

func (s *side) deleteRecords(name string, version int16, topic string, partition int32, offset int64) {
	s.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10000
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = topic
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = partition, offset
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	s.ask(name, version, req)
}

func deleteRecordsScript(s *side) {
	for v := int16(0); v <= 2; v++ {
		topic, compact, both := fmt.Sprintf("delete-%d", v), fmt.Sprintf("delete-compact-%d", v), fmt.Sprintf("delete-both-%d", v)
		s.create(topic, 1)
		s.create(compact, 1, "cleanup.policy", "compact")
		s.create(both, 1, "cleanup.policy", "compact,delete")
		for _, t := range []string{topic, compact, both} {
			s.load(t, 0, records(5))
			s.load(t, 0, records(5))
		}
		for _, offset := range []int64{0, 3, 1, 3, 7, -2, 11, 10, -1} {
			s.deleteRecords(fmt.Sprintf("delete records/%d", offset), v, topic, 0, offset)
			s.readAll("delete records/stored", topic, 0)
		}
		s.deleteRecords("delete records/compacted topic", v, compact, 0, 3)
		s.deleteRecords("delete records/compacted and deleted topic", v, both, 0, 3)
		s.deleteRecords("delete records/unknown partition", v, topic, 4, 3)
		s.deleteRecords("delete records/unknown topic", v, "nowhere", 0, 3)
		s.load(topic, 0, records(2))
		s.ask("delete records/goes on", 16, s.fetchRequest(1<<20, want{topic: topic, from: 10, max: 1 << 20}))
	}
}
