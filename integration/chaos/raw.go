// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// raw is a connection to one node that sends what it is told and no more: no retry, no routing. It connects when it has to.
type raw struct {
	address string
	conn    net.Conn
	next    int32
}

func (r *raw) close() {
	if r.conn != nil {
		r.conn.Close()
		r.conn = nil
	}
}

// ask sends a request, of a version with flexible headers, and waits for its answer.
func (r *raw) ask(req kmsg.Request, resp kmsg.Response) (err error) {
	if r.conn == nil {
		if r.conn, err = net.DialTimeout("tcp", r.address, dialTimeout); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	r.next++
	const id = "chaos"
	b := binary.BigEndian.AppendUint16(make([]byte, 4, 256), uint16(req.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(req.GetVersion()))
	b = binary.BigEndian.AppendUint32(b, uint32(r.next))
	b = binary.BigEndian.AppendUint16(b, uint16(len(id)))
	b = append(append(b, id...), 0)
	b = req.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	if err := r.conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	if _, err := r.conn.Write(b); err != nil {
		return err
	}
	var head [4]byte
	if _, err := io.ReadFull(r.conn, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size < 5 || size > 64<<20 {
		return fmt.Errorf("an answer of %d bytes", size)
	}
	in := make([]byte, size)
	if _, err := io.ReadFull(r.conn, in); err != nil {
		return err
	}
	if got := int32(binary.BigEndian.Uint32(in)); got != r.next || in[4] != 0 {
		return fmt.Errorf("an answer to request %d instead of %d", got, r.next)
	}
	resp.SetVersion(req.GetVersion())
	return resp.ReadFrom(in[5:])
}

// topicState is a topic as one node's metadata tells it.
type topicState struct {
	id         [16]byte
	partitions []kmsg.MetadataResponseTopicPartition
}

func (r *raw) metadata(topics []string) (map[string]topicState, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	for i := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topics[i]
		req.Topics = append(req.Topics, t)
	}
	resp := kmsg.NewPtrMetadataResponse()
	if err := r.ask(req, resp); err != nil {
		return nil, err
	}
	out := map[string]topicState{}
	for _, t := range resp.Topics {
		if t.ErrorCode == codeNone && t.Topic != nil {
			out[*t.Topic] = topicState{t.TopicID, t.Partitions}
		}
	}
	return out, nil
}

// fetch fills in the answer to f, whose question is set.
func (r *raw) fetch(f *fetch, topic [16]byte, maxBytes, wait int32) error {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 16
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = wait, 1, maxBytes, -1
	t := kmsg.NewFetchRequestTopic()
	t.TopicID = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = f.p.index, f.offset, maxBytes, f.epoch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp := kmsg.NewPtrFetchResponse()
	if err := r.ask(req, resp); err != nil {
		return err
	}
	if resp.ErrorCode != codeNone || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fmt.Errorf("a fetch is answered with error %d and %d topics", resp.ErrorCode, len(resp.Topics))
	}
	a := &resp.Topics[0].Partitions[0]
	f.code, f.hw, f.stable, f.logStart = a.ErrorCode, a.HighWatermark, a.LastStableOffset, a.LogStartOffset
	f.batches = decode(a.RecordBatches)
	return nil
}

// list fills in the answer to l.
func (r *raw) list(l *lookup, epoch int32) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 7, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = l.p.topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = l.p.index, l.timestamp, epoch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp := kmsg.NewPtrListOffsetsResponse()
	if err := r.ask(req, resp); err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fmt.Errorf("ListOffsets is answered with %d topics", len(resp.Topics))
	}
	a := &resp.Topics[0].Partitions[0]
	l.code, l.offset, l.found, l.epoch = a.ErrorCode, a.Offset, a.Timestamp, a.LeaderEpoch
	return nil
}

// epochEnd fills in the answer to e.
func (r *raw) epochEnd(e *epochEnd) error {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = 4, -1
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = e.p.topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = e.p.index, e.leads, e.asked
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	if err := r.ask(req, resp); err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fmt.Errorf("OffsetForLeaderEpoch is answered with %d topics", len(resp.Topics))
	}
	a := &resp.Topics[0].Partitions[0]
	e.code, e.epoch, e.end = a.ErrorCode, a.LeaderEpoch, a.EndOffset
	return nil
}
