// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produce sends one record set to one partition.
func (s *side) produce(name string, version int16, acks int16, topic string, partition int32, set []byte) *kmsg.ProduceResponse {
	s.t.Helper()
	resp, _ := s.ask(name, version, s.produceRequest(acks, topic, partition, set)).(*kmsg.ProduceResponse)
	return resp
}

func (s *side) produceRequest(acks int16, topic string, partition int32, sets ...[]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 10000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, s.topics[topic]
	for _, set := range sets {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = partition, set
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// load appends a batch that the script needs.
func (s *side) load(topic string, partition int32, b batch) {
	s.t.Helper()
	resp := s.must(9, s.produceRequest(-1, topic, partition, b.build())).(*kmsg.ProduceResponse)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		s.t.Fatalf("%s: produce to %s/%d: code %d", s.address, topic, partition, code)
	}
}

// sets are the record sets that are sent at every version.
var sets = []struct {
	name string
	set  []byte
}{
	{"plain", records(3).build()},
	{"gzip", records(30).with(func(b *batch) { b.codec = kgo.CodecGzip }).build()},
	{"snappy", records(30).with(func(b *batch) { b.codec = kgo.CodecSnappy }).build()},
	{"lz4", records(30).with(func(b *batch) { b.codec = kgo.CodecLz4 }).build()},
	{"zstd", records(30).with(func(b *batch) { b.codec = kgo.CodecZstd }).build()},
	{"bad CRC", records(3).with(func(b *batch) { b.broken = true }).build()},
	{"more records claimed", records(3).patched(put32(57, 4)).build()},
	{"more records and offsets claimed", records(3).patched(func(b []byte) { put32(57, 4)(b); put32(23, 3)(b) }).build()},
	{"fewer records and offsets claimed", records(3).patched(func(b []byte) { put32(57, 2)(b); put32(23, 1)(b) }).build()},
	{"greater last offset delta", records(3).patched(put32(23, 7)).build()},
	{"no records", records(1).with(func(b *batch) { b.times, b.payload = nil, []byte{} }).build()},
	{"negative count", records(1).patched(put32(57, math.MaxUint32)).build()},
	{"control bit", records(1).with(func(b *batch) { b.flags = 1 << 5 }).build()},
	{"transactional without id", records(1).producer(7, 0, 0).with(func(b *batch) { b.flags = 1 << 4 }).build()},
	{"append time bit", records(3).with(func(b *batch) { b.flags = 1 << 3 }).build()},
	{"wrong max timestamp", records(3).patched(func(b []byte) { copy(b[35:43], b[27:35]) }).build()},
	{"magic 1", records(1).patched(func(b []byte) { b[16] = 1 }).build()},
	{"magic 0", records(1).patched(func(b []byte) { b[16] = 0 }).build()},
	{"magic 3", records(1).patched(func(b []byte) { b[16] = 3 }).build()},
	{"two batches", slices.Concat(records(2).build(), records(2).build())},
	{"empty", []byte{}},
	{"three bytes", []byte{0, 0, 0}},
	{"half a batch", records(3).build()[:70]},
	{"batch and a half", slices.Concat(records(2).build(), records(3).build()[:70])},
	{"base offset 5", records(2).patched(func(b []byte) { b[7] = 5 }).build()},
	{"producer without sequence", records(1).producer(7, 0, -1).build()},
	{"codec 5", records(1).with(func(b *batch) { b.flags = 5 }).build()},
	{"gzip of nothing known", records(1).with(func(b *batch) { b.flags, b.payload = 1, bytes.Repeat([]byte{0x55}, 40) }).build()},
	{"gzip of garbage", records(1).with(func(b *batch) { b.flags, b.payload = 1, compress(kgo.CodecGzip, bytes.Repeat([]byte{0x55}, 40)) }).build()},
	{"garbage", records(1).with(func(b *batch) { b.payload = bytes.Repeat([]byte{0x55}, 40) }).build()},
	{"oversize", records(1).with(func(b *batch) { b.size = 9000 }).build()},
	{"no timestamp", at(-1 - startOfRun).build()},
}

// shiftedRecord is a record that claims the second place.
func shiftedRecord() []byte {
	r := kmsg.Record{OffsetDelta: 1, Key: []byte("k"), Value: []byte("v")}
	r.Length = int32(len(r.AppendTo(nil)) - 1)
	return r.AppendTo(nil)
}

func produceScript(s *side) {
	for _, v := range []int16{3, 7, 8, 9, 12, 13} {
		topic := fmt.Sprintf("produce-%d", v)
		s.create(topic, 2, "max.message.bytes", "5000")
		for _, c := range sets {
			s.produce("produce/"+c.name, v, -1, topic, 0, c.set)
		}
		s.produceTopics(v)
		s.produceAcks(v, topic)
		s.produce("produce/unknown partition", v, -1, topic, 9, records(1).build())
		s.produce("produce/unknown topic", v, -1, "nowhere", 0, records(1).build())
		twice := s.produceRequest(-1, topic, 1, records(1).build(), records(2).build())
		s.ask("produce/partition twice", v, twice)
		s.readAll("produce/stored", topic, 0)
		s.readAll("produce/stored", topic, 1)
	}
	s.create("old", 1)
	s.produce("produce/refused version", 2, 1, "old", 0, records(1).build())
}

// produceTopics sends to topics whose configs judge or change what arrives.
func (s *side) produceTopics(v int16) {
	hour := int64(3_600_000)
	for _, c := range []struct {
		name    string
		batch   batch
		configs []string
	}{
		{"wrong offset delta", records(1).with(func(b *batch) { b.payload = shiftedRecord() }), nil},
		{"compact", records(3), []string{"cleanup.policy", "compact"}},
		{"compact with a null key", records(3).with(func(b *batch) { b.noKey = 1 }), []string{"cleanup.policy", "compact"}},
		{"too old", at(0, -2*hour, 0), []string{"message.timestamp.before.max.ms", "3600000"}},
		{"too new", at(0, 2*hour, 3*hour), nil},
		{"new enough", at(0, 2*hour, 0), []string{"message.timestamp.after.max.ms", "10800000"}},
		{"append time", at(-5000, -6000), []string{"message.timestamp.type", "LogAppendTime"}},
		{"append time, too new", at(9 * hour), []string{"message.timestamp.type", "LogAppendTime"}},
		{"topic zstd, batch gzip", records(9).with(func(b *batch) { b.codec = kgo.CodecGzip }), []string{"compression.type", "zstd"}},
		{"topic gzip, batch gzip", records(9).with(func(b *batch) { b.codec = kgo.CodecGzip }), []string{"compression.type", "gzip"}},
		{"topic uncompressed, batch lz4", records(9).with(func(b *batch) { b.codec = kgo.CodecLz4 }), []string{"compression.type", "uncompressed"}},
		{"larger than a segment", records(1).with(func(b *batch) { b.size = 1200000 }), []string{"segment.bytes", "1048576", "max.message.bytes", "9000000"}},
	} {
		topic := fmt.Sprintf("%s-%d", flatName(c.name), v)
		s.create(topic, 1, c.configs...)
		s.produce("produce/"+c.name, v, -1, topic, 0, c.batch.build())
		s.readAll("produce/stored, "+c.name, topic, 0)
	}
}

func flatName(name string) string {
	return string(bytes.Map(func(r rune) rune {
		if r == ' ' || r == ',' {
			return '-'
		}
		return r
	}, []byte(name)))
}

// produceAcks varies acks. With acks=0 nothing may be answered, and an error closes the connection.
func (s *side) produceAcks(v int16, topic string) {
	for _, acks := range []int16{1, -1, 5, -2} {
		s.produce(fmt.Sprintf("produce/acks %d", acks), v, acks, topic, 1, records(1).build())
	}
	for _, c := range []struct {
		name string
		b    batch
	}{{"good", records(1)}, {"bad CRC", records(1).with(func(b *batch) { b.broken = true })}} {
		s.send(s.produceRequest(0, topic, 1, c.b.build()), v)
		next := kmsg.NewPtrOffsetForLeaderEpochRequest()
		s.ask("produce/after acks 0, "+c.name, 2, next)
		s.hangUp()
	}
}

// readAll compares what a partition holds.
func (s *side) readAll(name, topic string, partition int32) {
	s.t.Helper()
	s.ask(name+" "+topic, 16, s.fetchRequest(1<<20, want{topic: topic, partition: partition, max: 1 << 20}))
}

func (s *side) producerID() (int64, int16) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		resp := s.must(4, req).(*kmsg.InitProducerIDResponse)
		if resp.ErrorCode == 0 {
			return resp.ProducerID, resp.ProducerEpoch
		}
		if time.Now().After(deadline) { // Kafka's first answer is COORDINATOR_LOAD_IN_PROGRESS
			s.t.Fatalf("%s: InitProducerId: code %d", s.address, resp.ErrorCode)
		}
	}
}

func idempotenceScript(s *side) {
	for _, v := range []int16{3, 9, 13} {
		topic := fmt.Sprintf("idempotence-%d", v)
		s.create(topic, 1)
		pid, _ := s.producerID()
		other, _ := s.producerID()
		for i, step := range []struct {
			name  string
			pid   int64
			epoch int16
			seq   int32
			n     int
		}{
			{"first", pid, 0, 0, 2}, {"second", pid, 0, 2, 2}, {"duplicate of the second", pid, 0, 2, 2}, {"duplicate of the first", pid, 0, 0, 2},
			{"gap", pid, 0, 7, 2}, {"overlap", pid, 0, 3, 2}, {"shorter duplicate", pid, 0, 2, 1}, {"longer duplicate", pid, 0, 2, 3},
			{"third", pid, 0, 4, 1}, {"fourth", pid, 0, 5, 1}, {"fifth", pid, 0, 6, 1}, {"sixth", pid, 0, 7, 1},
			{"duplicate of the oldest known", pid, 0, 2, 2}, {"duplicate of one forgotten", pid, 0, 0, 2},
			{"new epoch, not from zero", pid, 1, 8, 1}, {"new epoch", pid, 1, 0, 1}, {"old epoch", pid, 0, 8, 1}, {"duplicate in the old epoch", pid, 0, 7, 1},
			{"duplicate in the new epoch", pid, 1, 0, 1}, {"next in the new epoch", pid, 1, 1, 1}, {"epoch skips", pid, 7, 0, 1},
			{"unknown producer, any sequence", other, 0, math.MaxInt32 - 3, 3}, {"last of all sequences", other, 0, math.MaxInt32, 1},
			{"from zero again", other, 0, 0, 1}, {"up to the wrap", other, 1, 0, 1}, {"unknown id and epoch", 999999, 5, 3, 1},
			{"wraps inside", 999998, 0, math.MaxInt32 - 1, 4}, {"duplicate of the wrapped", 999998, 0, math.MaxInt32 - 1, 4}, {"behind the wrap", 999998, 0, 2, 1},
			{"negative epoch", 999997, -1, 0, 1},
		} {
			b := records(step.n).producer(step.pid, step.epoch, step.seq)
			b.times = b.times[:step.n]
			s.produce(fmt.Sprintf("idempotence/%02d %s", i, step.name), v, -1, topic, 0, b.build())
		}
		stamped := fmt.Sprintf("idempotence-stamped-%d", v)
		s.create(stamped, 1, "message.timestamp.type", "LogAppendTime")
		for range 2 {
			s.produce("idempotence/twice with append time", v, -1, stamped, 0, at(-5000).producer(pid, 0, 0).build())
		}
		s.deleteRecords("idempotence/delete all", 2, topic, 0, -1)
		s.produce("idempotence/duplicate of a deleted one", v, -1, topic, 0, records(1).producer(pid, 7, 0).build())
	}
	s.initProducerIDs()
}

func (s *side) initProducerIDs() {
	for v := int16(0); v <= 5; v++ {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.ProducerID, req.ProducerEpoch, req.TransactionTimeoutMillis = -1, -1, 60000
		s.ask("init producer id/fresh", v, req)
		empty := ""
		req.TransactionalID = &empty
		s.ask("init producer id/empty transactional id", v, req)
		if v >= 3 {
			req.TransactionalID, req.ProducerID, req.ProducerEpoch = nil, 5, 3
			s.ask("init producer id/with id and epoch", v, req)
			req.ProducerEpoch = -1
			s.ask("init producer id/with id only", v, req)
		}
	}
}
