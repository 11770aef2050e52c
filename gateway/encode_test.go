// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/record"
)

// written is what an answer puts on the wire behind the response header.
func written(t testing.TB, a *answer) []byte {
	a.cut()
	var all []byte
	for _, p := range a.parts {
		all = append(all, p...)
	}
	if len(all) != a.size {
		t.Fatalf("size %d, %d bytes written", a.size, len(all))
	}
	skip := 8
	if a.c == nil {
		t.Fatal("an answer without a connection")
	}
	return all[skip:]
}

// randomFetch builds the same answer for our encoder and for kmsg.
func randomFetch(rng *rand.Rand, version int16) (*fetchRun, []*fetchPart, *kmsg.FetchResponse) {
	f := &fetchRun{c: &call{api: &api{flexibleFrom: 12}}, set: &fetchSet{turn: 1}}
	f.c.Version = version
	f.a = newAnswer(&conn{}, f.c)
	f.limits.readCommitted = rng.IntN(2) == 0
	resp := &kmsg.FetchResponse{Version: version}
	var list []*fetchPart
	for range rng.IntN(4) {
		topic := topicKey{name: string(make([]byte, rng.IntN(200)))}
		rt := kmsg.NewFetchResponseTopic()
		if version >= fetchTopicIDs {
			topic = topicKey{id: record.TopicID{byte(len(list) + 1)}}
		} else {
			topic.name += string(rune('a' + len(list)))
		}
		rt.Topic, rt.TopicID = topic.name, topic.id
		for range 1 + rng.IntN(3) {
			fp := &fetchPart{set: f.set, turn: 1, key: fetchKey{topic, rng.Int32()}}
			list = append(list, fp)
			rt.Partitions = append(rt.Partitions, randomPart(rng, f, fp))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return f, list, resp
}

func randomPart(rng *rand.Rand, f *fetchRun, fp *fetchPart) kmsg.FetchResponseTopicPartition {
	r := &fp.res
	*r = nothingRead
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition = fp.key.index
	if rng.IntN(4) == 0 {
		r.preferred = record.NodeID(rng.Int32())
	}
	p.PreferredReadReplica = int32(r.preferred)
	r.HighWatermark, r.LastStable, r.LogStart = record.Offset(rng.Int64()), record.Offset(rng.Int64()), record.Offset(rng.Int64())
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = int64(r.HighWatermark), int64(r.LastStable), int64(r.LogStart)
	p.RecordBatches = []byte{}
	for range rng.IntN(3) {
		run := make([]byte, rng.IntN(300))
		for i := range run {
			run[i] = byte(rng.Uint32())
		}
		if r.run == nil {
			r.run = run
		} else {
			r.more = append(r.more, run)
		}
		r.size += len(run)
		p.RecordBatches = append(p.RecordBatches, run...)
	}
	if f.limits.readCommitted {
		p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
		for range rng.IntN(3) {
			txn := broker.AbortedTxn{ProducerID: rng.Int64(), FirstOffset: record.Offset(rng.Int64())}
			r.Aborted = append(r.Aborted, txn)
			at := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			at.ProducerID, at.FirstOffset = txn.ProducerID, int64(txn.FirstOffset)
			p.AbortedTransactions = append(p.AbortedTransactions, at)
		}
	}
	switch rng.IntN(4) {
	case 0:
		r.code = codeOffsetOutOfRange
		p.ErrorCode = 1
	case 1:
		r.Diverging = broker.EpochEnd{Epoch: record.Epoch(rng.Int32()), End: record.Offset(rng.Int64())}
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = int32(r.Diverging.Epoch), int64(r.Diverging.End)
	}
	return p
}

func checkFetchEncoding(t testing.TB, seed uint64, version int16) {
	f, list, resp := randomFetch(rand.New(rand.NewPCG(seed, 1)), version)
	e := encoder{b: f.a.head.b, compact: f.c.flexible()}
	e.i32(0)
	if version >= fetchSessions {
		e.i16(0)
		e.i32(77)
		resp.SessionID = 77
	}
	f.encodeTopics(&e, list)
	f.a.head.b = e.b
	got, want := written(t, f.a), resp.AppendTo(nil)
	if f.c.flexible() {
		got = got[1:]
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("seed %d version %d:\n got %x\nwant %x", seed, version, got, want)
	}
}

// TestFetchEncoding compares the hand-written encoder with kmsg for every version.
func TestFetchEncoding(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		for seed := range uint64(300) {
			checkFetchEncoding(t, seed, version)
		}
	}
}

func FuzzFetchEncoding(f *testing.F) {
	f.Add(uint64(1), uint8(18))
	f.Fuzz(func(t *testing.T, seed uint64, v uint8) { checkFetchEncoding(t, seed, 4+int16(v%15)) })
}

// TestEndpointsEncoding: the tagged list of nodes is what kmsg writes.
func TestEndpointsEncoding(t *testing.T) {
	list := []endpoint{{1, "host-one", 9092, "rack"}, {2, "h2", 9093, ""}}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 16
	for _, n := range list {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = int32(n.node), n.host, n.port
		if n.rack != "" {
			b.Rack = kmsg.StringPtr(n.rack)
		}
		resp.Brokers = append(resp.Brokers, b)
	}
	e := encoder{compact: true}
	e.i32(0)
	e.i16(0)
	e.i32(0)
	e.array(0)
	e.endpoints(list)
	if want := resp.AppendTo(nil); !bytes.Equal(e.b, want) {
		t.Errorf("got %x\nwant %x", e.b, want)
	}
}

// FuzzRequest feeds the decoders of every key: they must never panic, nor keep what is not there.
func FuzzRequest(f *testing.F) {
	table, err := newTable(append(coreAPIs(), adminAPIs()...))
	check(f, err)
	for i := range table.rows {
		a := &table.rows[i]
		for v := max(a.min-a.silentBelow, a.refuseBelow); v <= a.max; v++ {
			req := kmsg.RequestForKey(a.key)
			req.SetVersion(v)
			f.Add(kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, req, 1))
		}
	}
	f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, func() kmsg.Request {
		r := produceRequest("t", [16]byte{}, -1, []byte("not a batch"), nil)
		r.Version = 9
		return r
	}(), 1))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 4+minFrame {
			return
		}
		p := parsePreamble(frame)
		a := table.serves(p.key, p.version)
		if a == nil {
			return
		}
		cl := &call{api: a}
		cl.Key, cl.Version = p.key, p.version
		_, body, err := splitHeader(frame[4+minFrame:], cl.flexible())
		if err != nil {
			return
		}
		if a.decode != nil {
			err = a.decode(cl, body)
		} else {
			cl.Body = a.body()
			err = decodeBody(cl.Body, p.version, body)
		}
		if pc := cl.produce; pc != nil && err == nil {
			pc.dropSuperseded()
			_ = pc.refuseAll()
			answers, parts := 0, 0
			for i := range pc.topics {
				answers += int(pc.topics[i].answers)
				parts += int(pc.topics[i].n)
			}
			if parts != len(pc.parts) || answers > parts {
				t.Fatalf("%d parts counted, %d there, %d answers", parts, len(pc.parts), answers)
			}
			pc.recycle()
		}
	})
}
