// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/record"
)

// produceRequest is a request with one batch per value for partition 0 onwards of a topic.
func produceRequest(topic string, id [16]byte, acks int16, records ...[]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 5000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, id
	for i, r := range records {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = int32(i), r
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func values(t testing.TB, vs ...string) []byte {
	return batch(t, func(b *record.Builder) {
		for _, v := range vs {
			b.Add(time.Now().UnixMilli(), nil, []byte(v))
		}
	})
}

// fetchRequestFor asks for one partition.
func fetchFor(topic string, id [16]byte, partition int32, offset int64, maxWait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(maxWait.Milliseconds()), 1, 50<<20
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func contents(t testing.TB, batches []byte) (out []string) {
	t.Helper()
	for len(batches) > 0 {
		b, rest, err := record.Split(batches)
		check(t, err)
		check(t, b.Each(func(r *record.Record) bool { out = append(out, string(r.Value)); return true }))
		batches = rest
	}
	return out
}

// TestEveryVersion sends every key of the core at every version it serves through the real node.
func TestEveryVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		c := n.dial()
		want := []string{}
		for v := int16(3); v <= 13; v++ {
			resp := c.do(v, produceRequest("t", topic.ID, -1, values(t, "a", "b"))).(*kmsg.ProduceResponse)
			p := resp.Topics[0].Partitions[0]
			if p.ErrorCode != 0 || p.BaseOffset != int64(len(want)) {
				t.Fatalf("produce version %d: %+v", v, p)
			}
			want = append(want, "a", "b")
		}
		for v := int16(4); v <= 18; v++ {
			resp := c.do(v, fetchFor("t", topic.ID, 0, 0, time.Second)).(*kmsg.FetchResponse)
			p := resp.Topics[0].Partitions[0]
			if got := contents(t, p.RecordBatches); p.ErrorCode != 0 || p.HighWatermark != int64(len(want)) || len(got) != len(want) {
				t.Fatalf("fetch version %d: error %d, high watermark %d, %d records of %d", v, p.ErrorCode, p.HighWatermark, len(got), len(want))
			}
			if v >= fetchLogStart && p.LogStartOffset != 0 {
				t.Fatalf("fetch version %d: log start %d", v, p.LogStartOffset)
			}
		}
		for v := int16(1); v <= 11; v++ {
			req := listFor("t", -1)
			p := c.do(v, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
			if p.ErrorCode != 0 || p.Offset != int64(len(want)) {
				t.Fatalf("list offsets version %d: %+v", v, p)
			}
		}
		for v := int16(0); v <= 5; v++ {
			req := kmsg.NewPtrInitProducerIDRequest()
			resp := c.do(v, req).(*kmsg.InitProducerIDResponse)
			if resp.ErrorCode != 0 || resp.ProducerEpoch != 0 || resp.ProducerID < 0 {
				t.Fatalf("init producer id version %d: %+v", v, resp)
			}
		}
		for v := int16(2); v <= 4; v++ {
			p := c.do(v, epochRequest("t", 0)).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
			if p.ErrorCode != 0 || p.LeaderEpoch != 0 && p.LeaderEpoch != 1 {
				t.Fatalf("offset for leader epoch version %d: %+v", v, p)
			}
		}
	})
}

func listFor(topic string, timestamps ...int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for i, ts := range timestamps {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = int32(i), ts
		rt.Partitions = append(rt.Partitions, p)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func epochRequest(topic string, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.LeaderEpoch = epoch
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	return req
}

// TestAPIVersions checks G2 at every version, the answer above the maximum, and the checks of the request itself.
func TestAPIVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		c := n.dial()
		request := func(name string) *kmsg.ApiVersionsRequest {
			req := kmsg.NewPtrApiVersionsRequest()
			req.ClientSoftwareName, req.ClientSoftwareVersion = name, "1.0"
			return req
		}
		for v := int16(0); v <= 5; v++ {
			resp := c.do(v, request("lib")).(*kmsg.ApiVersionsResponse)
			if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(n.server.table.rows) {
				t.Fatalf("version %d: error %d, %d keys", v, resp.ErrorCode, len(resp.ApiKeys))
			}
			for _, k := range resp.ApiKeys {
				if a := n.server.table.byKey[k.ApiKey]; a == nil || k.MinVersion != a.min || k.MaxVersion != a.max {
					t.Errorf("version %d advertises %+v, the table has %+v", v, k, a)
				}
				if k.ApiKey == 0 && (k.MinVersion != 0 || k.MaxVersion != 13) {
					t.Errorf("produce is advertised as %+v", k)
				}
			}
			if v >= 3 && (len(resp.FinalizedFeatures) != 3 || resp.FinalizedFeaturesEpoch < 0 || resp.FinalizedFeatures[0].MaxVersionLevel != 1 || resp.FinalizedFeatures[1].MaxVersionLevel != 33 || resp.FinalizedFeatures[2].MaxVersionLevel != 2) {
				t.Errorf("version %d: features %+v epoch %d", v, resp.FinalizedFeatures, resp.FinalizedFeaturesEpoch)
			}
		}
		if resp := c.do(3, request("-bad name")).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 42 {
			t.Errorf("bad software name: error %d", resp.ErrorCode)
		}
		half := request("lib")
		half.NodeID = 1
		if resp := c.do(5, half).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 42 {
			t.Errorf("node id alone: error %d", resp.ErrorCode)
		}
		other := request("lib")
		other.NodeID, other.ClusterID = 1, kmsg.StringPtr("another")
		if resp := c.do(5, other).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 129 {
			t.Errorf("another cluster: error %d", resp.ErrorCode)
		}
		ours := request("lib")
		ours.NodeID, ours.ClusterID = testNodeID, kmsg.StringPtr(n.meta.ClusterID())
		if resp := c.do(5, ours).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 0 {
			t.Errorf("our own cluster and node: error %d", resp.ErrorCode)
		}
		// Above the maximum: version 0, error 35, key 18, and the connection goes on.
		body, err := c.raw(c.send(6, request("lib")))
		check(t, err)
		resp := kmsg.NewPtrApiVersionsResponse()
		check(t, resp.ReadFrom(body))
		if resp.ErrorCode != 35 || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 5 {
			t.Errorf("version 6: %+v", resp)
		}
		c.do(0, request("lib"))
	})
}

// TestBadInputCloses: each kind of bad input closes the connection, without an answer, with one line naming peer and reason.
func TestBadInputCloses(t *testing.T) {
	le := binary.BigEndian
	header := func(size int32, key, version int16, rest ...byte) []byte {
		b := le.AppendUint32(nil, uint32(size))
		b = le.AppendUint16(b, uint16(key))
		b = le.AppendUint16(b, uint16(version))
		return append(le.AppendUint32(b, 7), rest...)
	}
	for _, tc := range []struct {
		name   string
		bytes  []byte
		reason string
	}{
		{"negative size", header(-5, 0, 9), "malformed request"},
		{"tiny size", header(3, 0, 9), "malformed request"},
		{"oversize produce", header(100<<20+1, 0, 9), "request too large"},
		{"oversize control", header(maxControlFrame+1, 18, 0), "request too large"},
		{"unknown key", header(10, 4, 0, 0xff, 0xff), "unsupported API key or version"},
		{"produce 2", header(10, 0, 2, 0xff, 0xff), "unsupported API key or version"},
		{"produce 14", header(10, 0, 14, 0xff, 0xff), "unsupported API key or version"},
		{"fetch 3", header(10, 1, 3, 0xff, 0xff), "unsupported API key or version"},
		{"negative version", header(10, 18, -1, 0xff, 0xff), "unsupported API key or version"},
		{"header ends early", header(10, 18, 0, 0x00, 0x09), "malformed request"},
		{"body ends early", header(12, 2, 1, 0xff, 0xff, 0, 0), "malformed request"},
		{"array larger than the frame", header(22, 0, 3, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff), "malformed request"},
		{"fetch array larger than the frame", header(41, 1, 12, append(make([]byte, 28), 0xff, 0xff, 0xff, 0xff, 7)...), "malformed request"},
		{"never sent to the end", header(1000, 18, 0, 0xff, 0xff), "peer too slow"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nodeOptions{})
				c := n.dial()
				_, err := c.nc.Write(tc.bytes)
				check(t, err)
				_ = c.nc.SetReadDeadline(time.Now().Add(2 * time.Minute))
				if m, err := c.nc.Read(make([]byte, 1)); m != 0 || !errors.Is(err, io.EOF) {
					t.Fatalf("read %d bytes, %v; want a closed connection", m, err)
				}
				synctest.Wait()
				if got := n.log.Count("connection closed", "peer=client:", tc.reason); got != 1 {
					t.Errorf("%d lines name peer and reason, want 1; log:\n%s", got, n.log)
				}
			})
		})
	}
}

// TestOrder pipelines requests of all kinds, a slow one first, and reads the answers in order (G1).
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		c := n.dial()
		c.do(9, produceRequest("t", topic.ID, -1, values(t, "0")))
		type sent struct {
			id  int32
			req kmsg.Request
		}
		var all []sent
		send := func(v int16, req kmsg.Request) { all = append(all, sent{c.send(v, req), req}) }
		send(12, fetchFor("t", topic.ID, 0, 100000, 0)) // an error, at once
		send(12, fetchFor("t", topic.ID, 0, 1, 3*time.Second))
		for i := range 20 {
			send(9, produceRequest("t", topic.ID, []int16{1, -1}[i%2], values(t, "x")))
			send(0, kmsg.NewPtrApiVersionsRequest())
			send(1, listFor("t", -1))
		}
		var offsets []int64
		for _, s := range all {
			if resp, ok := c.receive(s.id, s.req).(*kmsg.ProduceResponse); ok {
				offsets = append(offsets, resp.Topics[0].Partitions[0].BaseOffset)
			}
		}
		for i, o := range offsets {
			if o != int64(i+1) {
				t.Fatalf("pipelined batches got offsets %v", offsets)
			}
		}
	})
}

// TestIdempotentPipelining: five batches of a producer in flight keep their order, and a resend gets the first answer again.
func TestIdempotentPipelining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		c := n.dial()
		pid := c.do(4, kmsg.NewPtrInitProducerIDRequest()).(*kmsg.InitProducerIDResponse).ProducerID
		build := func(seq int32) []byte {
			return batch(t, func(b *record.Builder) {
				b.SetProducer(record.Producer{ID: pid, Sequence: seq})
				b.Add(time.Now().UnixMilli(), nil, []byte{byte(seq)})
			})
		}
		var ids []int32
		var reqs []kmsg.Request
		for seq := range int32(50) {
			req := produceRequest("t", topic.ID, -1, build(seq))
			ids, reqs = append(ids, c.send(11, req)), append(reqs, req)
		}
		for i := range ids {
			p := c.receive(ids[i], reqs[i]).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			if p.ErrorCode != 0 || p.BaseOffset != int64(i) {
				t.Fatalf("batch %d: error %d, offset %d", i, p.ErrorCode, p.BaseOffset)
			}
		}
		again := c.do(11, produceRequest("t", topic.ID, -1, build(47))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if again.ErrorCode != 0 || again.BaseOffset != 47 {
			t.Errorf("resend: error %d, offset %d", again.ErrorCode, again.BaseOffset)
		}
		gap := c.do(11, produceRequest("t", topic.ID, -1, build(60))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if gap.ErrorCode != 45 || gap.BaseOffset != -1 {
			t.Errorf("gap: error %d, offset %d", gap.ErrorCode, gap.BaseOffset)
		}
	})
}

// TestAcksZero: no answer when it went well, a closed connection when it did not.
func TestAcksZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nodeOptions{})
		topic := n.topic("t", 1, nil)
		c := n.dial()
		c.send(9, produceRequest("t", topic.ID, 0, values(t, "quiet")))
		p := c.do(1, listFor("t", -2)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			t.Fatalf("the next request: %+v", p)
		}
		n.await("the record", func() bool { return n.partition(topic, 0).Marks().HW == 1 })
		c.send(9, produceRequest("nosuch", topic.ID, 0, values(t, "lost")))
		_ = c.nc.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("after a failed produce without acks: %v, want a closed connection", err)
		}
	})
}
