// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/record"
)

// reseal makes a batch's CRC agree with its bytes again.
func reseal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// TestProduceCodes: the code for each bad batch, and nothing of it stored.
func TestProduceCodes(t *testing.T) {
	change := func(f func(b []byte)) func(testing.TB) []byte {
		return func(t testing.TB) []byte {
			b := values(t, "a", "b")
			f(b)
			return b
		}
	}
	for _, tc := range []struct {
		name    string
		version int16
		topic   string
		client  string
		config  map[string]string
		acks    int16
		txn     string
		batch   func(testing.TB) []byte
		code    int16
		records bool // per-record detail
	}{
		{name: "unknown topic", version: 9, topic: "nosuch", code: 3},
		{name: "unknown topic id", version: 13, topic: "nosuch", code: 100},
		{name: "acks 2", version: 9, acks: 2, code: 21},
		{name: "empty record set", version: 9, batch: func(testing.TB) []byte { return []byte{} }, code: 87},
		{name: "null record set", version: 9, batch: func(testing.TB) []byte { return nil }, code: 87},
		{name: "wrong crc", version: 9, batch: change(func(b []byte) { b[len(b)-1] ^= 1 }), code: 2},
		{name: "magic 1", version: 9, batch: change(func(b []byte) { b[16] = 1 }), code: 87},
		{name: "control batch", version: 9, batch: change(func(b []byte) { b[22] |= record.ControlBit; reseal(b) }), code: 87},
		{name: "count lies", version: 9, batch: change(func(b []byte) { binary.BigEndian.PutUint32(b[57:], 1<<30); reseal(b) }), code: 87},
		{name: "base offset set", version: 9, batch: change(func(b []byte) { b[7] = 1 }), code: 87},
		{name: "two batches", version: 9, batch: func(t testing.TB) []byte { return append(values(t, "a"), values(t, "b")...) }, code: 87},
		{name: "too large", version: 9, config: map[string]string{"max.message.bytes": "100"}, batch: func(t testing.TB) []byte { return values(t, string(make([]byte, 200))) }, code: 10},
		{name: "no key in a compacted topic", version: 9, config: map[string]string{"cleanup.policy": "compact"}, code: 87, records: true},
		{name: "timestamp too far ahead", version: 9, batch: func(t testing.TB) []byte {
			return batch(t, func(b *record.Builder) { b.Add(time.Now().Add(2*time.Hour).UnixMilli(), nil, nil) })
		}, code: 32, records: true},
		{name: "zstd before version 7", version: 6, batch: func(t testing.TB) []byte {
			return batch(t, func(b *record.Builder) { b.Codec = record.Zstd; b.Add(time.Now().UnixMilli(), nil, []byte("x")) })
		}, code: 76},
		{name: "codec 7", version: 9, batch: change(func(b []byte) { b[22] |= 7; reseal(b) }), code: 76},
		{name: "transactional without id", version: 9, batch: transactional, code: 53},
		{name: "transactional, unknown id, version 10", version: 10, txn: "tx", batch: transactional, code: 49},
		{name: "transactional, unknown id, version 12", version: 12, txn: "tx", batch: transactional, code: 49},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nodeOptions{})
				topic := n.topic("t", 1, tc.config)
				c := n.dial()
				if tc.batch == nil {
					tc.batch = func(t testing.TB) []byte { return values(t, "a") }
				}
				name, id := "t", topic.ID
				if tc.topic != "" {
					name, id = tc.topic, record.TopicID{9}
				}
				acks := tc.acks
				if acks == 0 {
					acks = -1
				}
				req := produceRequest(name, id, acks, tc.batch(t))
				if tc.txn != "" {
					req.TransactionID = &tc.txn
				}
				p := c.do(tc.version, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
				if p.ErrorCode != tc.code || p.BaseOffset != -1 || p.LogAppendTime != -1 || (tc.version >= 5 && p.LogStartOffset != -1) {
					t.Errorf("got %+v, want code %d and no offsets", p, tc.code)
				}
				if (len(p.ErrorRecords) > 0) != tc.records {
					t.Errorf("per-record errors: %+v, want some=%v", p.ErrorRecords, tc.records)
				}
				if m := n.partition(topic, 0).Marks(); m.LogEnd != 0 {
					t.Errorf("log end %d: something was stored", m.LogEnd)
				}
			})
		})
	}
}

func transactional(t testing.TB) []byte {
	return batch(t, func(b *record.Builder) {
		b.SetProducer(record.Producer{ID: 5, Transactional: true})
		b.Add(time.Now().UnixMilli(), nil, nil)
	})
}

// TestProduceMany: many partitions and topics in one request, some of them bad, one of them named twice.
func TestProduceMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 3, nil)
		c := n.dial()
		req := produceRequest("t", topic.ID, -1, values(t, "dropped"), values(t, "b"), values(t, "c"), values(t, "no such partition"))
		again := kmsg.NewProduceRequestTopicPartition()
		again.Partition, again.Records = 0, values(t, "kept1", "kept2")
		second := kmsg.NewProduceRequestTopic()
		second.Topic, second.Partitions = "t", append(second.Partitions, again)
		bad := kmsg.NewProduceRequestTopic()
		bad.Topic, bad.Partitions = "nosuch", append(bad.Partitions, kmsg.ProduceRequestTopicPartition{Records: values(t, "x")})
		req.Topics = append(req.Topics, bad, second)
		resp := c.do(8, req).(*kmsg.ProduceResponse)
		got := map[string]map[int32]int16{}
		for _, rt := range resp.Topics {
			for _, p := range rt.Partitions {
				if got[rt.Topic] == nil {
					got[rt.Topic] = map[int32]int16{}
				}
				if _, twice := got[rt.Topic][p.Partition]; twice {
					t.Errorf("%s-%d is answered twice", rt.Topic, p.Partition)
				}
				got[rt.Topic][p.Partition] = p.ErrorCode
			}
		}
		for p, code := range map[int32]int16{0: 0, 1: 0, 2: 0, 3: 3} {
			if c, ok := got["t"][p]; !ok || c != code {
				t.Errorf("t-%d: code %d (answered %v), want %d", p, c, ok, code)
			}
		}
		if code, ok := got["nosuch"][0]; !ok || code != 3 {
			t.Errorf("nosuch-0: code %d (answered %v), want 3", code, ok)
		}
		f := c.do(12, fetchFor("t", topic.ID, 0, 0, time.Second)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if v := contents(t, f.RecordBatches); len(v) != 2 || v[0] != "kept1" {
			t.Errorf("of the partition named twice %q is stored, want the last entry", v)
		}
	})
}

// TestLogAppendTime: the answer carries the time that the broker gave.
func TestLogAppendTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
		c := n.dial()
		before := time.Now().UnixMilli()
		p := c.do(9, produceRequest("t", topic.ID, -1, values(t, "a"))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.LogAppendTime < before || p.LogAppendTime > time.Now().UnixMilli() {
			t.Errorf("%+v, want the broker's time", p)
		}
	})
}

// TestNotLeader: a node that left answers 6 and, from version 10 on, who leads as far as it knows.
func TestNotLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		c := n.dial()
		check(t, n.broker.Leave(t.Context()))
		for _, v := range []int16{9, 10, 13} {
			resp := c.do(v, produceRequest("t", topic.ID, -1, values(t, "a"))).(*kmsg.ProduceResponse)
			p := resp.Topics[0].Partitions[0]
			if p.ErrorCode != 6 || p.BaseOffset != -1 {
				t.Errorf("version %d: %+v", v, p)
			}
			if (p.CurrentLeader.LeaderID == testNodeID) != (v >= 10) {
				t.Errorf("version %d: current leader %+v", v, p.CurrentLeader)
			}
		}
		f := c.do(16, fetchFor("t", topic.ID, 0, 0, time.Second)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if f.ErrorCode != 6 || f.HighWatermark != -1 || f.CurrentLeader.LeaderID != testNodeID {
			t.Errorf("fetch: %+v", f)
		}
	})
}
