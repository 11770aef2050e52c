// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/record"
)

const apiVersionsKey = 18

// rawClient speaks the protocol request by request and sees the bytes as they come. It is used by one goroutine.
type rawClient struct {
	w       *World
	host    string
	timeout time.Duration
	conns   map[record.NodeID]net.Conn
	corr    int32
	turn    int // of the nodes, when any will do
	leaders map[part]leaderKnown
	// fetchWait is how long a fetch waits for data at most.
	fetchWait time.Duration
	// coordinator looks after the group; 0: to be found.
	coordinator record.NodeID
}

// leaderKnown is who leads a partition, as some node told.
type leaderKnown struct {
	node  record.NodeID
	epoch record.Epoch
}

func newRawClient(w *World, host string, timeout time.Duration) *rawClient {
	return &rawClient{w: w, host: host, timeout: timeout, conns: map[record.NodeID]net.Conn{}, leaders: map[part]leaderKnown{}, fetchWait: 500 * time.Millisecond}
}

func (c *rawClient) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// any sends a request that every node can answer. After an error the next one goes to another node.
func (c *rawClient) any(ctx context.Context, version int16, req kmsg.Request) (kmsg.Response, error) {
	resp, err := c.ask(ctx, record.NodeID(c.turn%len(c.w.machines)+1), version, req)
	if err != nil {
		c.turn++
	}
	return resp, err
}

// leader finds out who leads a partition. Where there is one node it is that, whatever the epoch.
func (c *rawClient) leader(ctx context.Context, p part) (l leaderKnown, err error) {
	if !c.w.knobs.several() {
		return leaderKnown{1, record.NoEpoch}, nil
	}
	if l, ok := c.leaders[p]; ok {
		return l, nil
	}
	t, err := c.topic(ctx, p.topic)
	if err != nil {
		return l, err
	}
	for _, tp := range t.Partitions {
		if tp.Partition != p.id.Index || t.TopicID != p.id.Topic {
			continue
		}
		if err := codeError(tp.ErrorCode); err != nil {
			c.turn++
			return l, err
		}
		c.leaders[p] = leaderKnown{record.NodeID(tp.Leader), record.Epoch(tp.LeaderEpoch)}
		return c.leaders[p], nil
	}
	c.turn++
	return l, codeUnknownTopic
}

// forget is called with the outcome of a request to a partition's leader: after an error it is to be found anew, from another node.
func (c *rawClient) forget(p part, err error) error {
	if err != nil {
		delete(c.leaders, p)
		c.turn++
	}
	return err
}

// ask sends one request to a node and reads its answer. After an error the next one dials again.
func (c *rawClient) ask(ctx context.Context, node record.NodeID, version int16, req kmsg.Request) (kmsg.Response, error) {
	resp, err := c.try(ctx, node, version, req)
	if conn := c.conns[node]; err != nil && conn != nil {
		_ = conn.Close()
		delete(c.conns, node)
	}
	return resp, err
}

func (c *rawClient) try(ctx context.Context, node record.NodeID, version int16, req kmsg.Request) (kmsg.Response, error) {
	conn := c.conns[node]
	if conn == nil {
		dctx, cancel := context.WithTimeout(ctx, min(5*time.Second, c.timeout))
		defer cancel()
		var err error
		if conn, err = c.w.net.Dial(dctx, c.host, addressOf(node)); err != nil {
			return nil, err
		}
		c.conns[node] = conn
	}
	req.SetVersion(version)
	c.corr++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(c.host)).AppendRequest(nil, req, c.corr)
	if err := conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(frame); err != nil {
		return nil, err
	}
	body, err := c.read(conn)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != apiVersionsKey {
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

func (c *rawClient) read(conn net.Conn) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, frame); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != c.corr {
		return nil, fmt.Errorf("answer to request %d, %d is asked", got, c.corr)
	}
	return frame[4:], nil
}

// code is a Kafka error code as an error.
type code int16

func (c code) Error() string { return fmt.Sprintf("Kafka error %d", int16(c)) }

// Codes that the checks are about.
const (
	codeOffsetOutOfRange  code = 1
	codeUnknownTopic      code = 3
	codeNotEnoughReplicas code = 19
	codeTopicExists       code = 36
	codeBadAssignment     code = 39
)

func codeError(n int16) error {
	if n == 0 {
		return nil
	}
	return code(n)
}

// retriable tells whether an answer may come in a run with faults: everything else is wrong.
func retriable(err error) bool {
	var c code
	if !errors.As(err, &c) {
		return true // the connection
	}
	switch c {
	case 3, 5, 6, 7, 38, 39, 41, 56, 74, 75, 78, 100:
		// Not there yet, no leader, timed out, too few brokers are registered, not controller, storage, epochs, offset not available, unknown id.
		return true
	}
	return false
}

// until asks again while the answer is retriable; nothing may take longer than the patience (V8).
func (c *rawClient) until(what string, ask func(ctx context.Context) error) error {
	return c.untilOr("V8", what, ask)
}

// untilOr is until with the ids of the statements that are broken when it takes too long.
func (c *rawClient) untilOr(ids, what string, ask func(ctx context.Context) error) error {
	deadline := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := ask(ctx)
		cancel()
		if err == nil {
			return nil
		}
		if !retriable(err) {
			return err
		}
		if c.w.failed() {
			return errStopped
		}
		c.turn++
		if time.Now().After(deadline) {
			c.w.failf("%s: %s did not work for %v: %v", ids, what, patience, err)
			return errStopped
		}
		time.Sleep(200 * time.Millisecond)
	}
}

var errStopped = errors.New("the run has failed")

// fetched is one good answer to a fetch.
type fetched struct {
	batches      []record.Batch
	hw, logStart record.Offset
	epoch        record.Epoch // in which the leader was asked
}

// fetch reads from the leader.
func (c *rawClient) fetch(ctx context.Context, p part, from record.Offset, maxBytes int32) (f fetched, err error) {
	l, err := c.leader(ctx, p)
	if err == nil {
		f, err = c.fetchAt(ctx, l, p, from, maxBytes)
	}
	return f, c.forget(p, err)
}

func (c *rawClient) fetchAt(ctx context.Context, at leaderKnown, p part, from record.Offset, maxBytes int32) (f fetched, err error) {
	f.epoch = at.epoch
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch, req.SessionID = int32(c.fetchWait.Milliseconds()), 1, maxBytes, -1, 0
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = p.topic, p.id.Topic
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes, fp.CurrentLeaderEpoch = p.id.Index, int64(from), maxBytes, int32(at.epoch)
	topic.Partitions = append(topic.Partitions, fp)
	req.Topics = append(req.Topics, topic)
	kresp, err := c.ask(ctx, at.node, 16, req)
	if err != nil {
		return f, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 {
		return f, code(resp.ErrorCode)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return f, fmt.Errorf("fetch of one partition answers %d topics", len(resp.Topics))
	}
	rp := resp.Topics[0].Partitions[0]
	f.hw, f.logStart = record.Offset(rp.HighWatermark), record.Offset(rp.LogStartOffset)
	if err := codeError(rp.ErrorCode); err != nil {
		return f, err
	}
	if f.batches, err = split(rp.RecordBatches); err != nil {
		c.w.failf("S26: fetch of %s from %d: %v", p, from, err)
		return f, errStopped
	}
	return f, nil
}

// split takes the batches of an answer apart; each must be whole and right.
func split(raw []byte) (out []record.Batch, err error) {
	for len(raw) > 0 {
		if len(raw) < 61 {
			return nil, fmt.Errorf("%d bytes are left, no batch", len(raw))
		}
		size := 12 + int(binary.BigEndian.Uint32(raw[8:]))
		if size < 61 || size > len(raw) {
			return nil, fmt.Errorf("batch of %d bytes in %d", size, len(raw))
		}
		b := record.Batch(raw[:size:size])
		if err := b.Check(); err != nil {
			return nil, err
		}
		out, raw = append(out, b), raw[size:]
	}
	return out, nil
}

// found is an answer of ListOffsets.
type found struct {
	offset    record.Offset
	timestamp int64
	epoch     record.Epoch
}

func (c *rawClient) listOffsets(ctx context.Context, p part, ts int64) (f found, err error) {
	l, err := c.leader(ctx, p)
	if err == nil {
		f, err = c.listOffsetsAt(ctx, l, p, ts)
	}
	return f, c.forget(p, err)
}

func (c *rawClient) listOffsetsAt(ctx context.Context, at leaderKnown, p part, ts int64) (f found, err error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = p.topic
	lp := kmsg.NewListOffsetsRequestTopicPartition()
	lp.Partition, lp.Timestamp, lp.CurrentLeaderEpoch = p.id.Index, ts, int32(at.epoch)
	topic.Partitions = append(topic.Partitions, lp)
	req.Topics = append(req.Topics, topic)
	req.TimeoutMillis = 30_000
	kresp, err := c.ask(ctx, at.node, 11, req)
	if err != nil {
		return f, err
	}
	rp := kresp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	f = found{record.Offset(rp.Offset), rp.Timestamp, record.Epoch(rp.LeaderEpoch)}
	err = codeError(rp.ErrorCode)
	if err != nil && f.offset != record.NoOffset {
		c.w.failf("S28: ListOffsets of %s answers %v with offset %d", p, err, f.offset)
	}
	return f, err
}

func (c *rawClient) deleteRecords(ctx context.Context, p part, to record.Offset) (low record.Offset, err error) {
	low = record.NoOffset
	l, err := c.leader(ctx, p)
	if err == nil {
		low, err = c.deleteRecordsAt(ctx, l.node, p, to)
	}
	return low, c.forget(p, err)
}

func (c *rawClient) deleteRecordsAt(ctx context.Context, node record.NodeID, p part, to record.Offset) (low record.Offset, err error) {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 30_000
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = p.topic
	dp := kmsg.NewDeleteRecordsRequestTopicPartition()
	dp.Partition, dp.Offset = p.id.Index, int64(to)
	topic.Partitions = append(topic.Partitions, dp)
	req.Topics = append(req.Topics, topic)
	kresp, err := c.ask(ctx, node, 2, req)
	if err != nil {
		return record.NoOffset, err
	}
	rp := kresp.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
	return record.Offset(rp.LowWatermark), codeError(rp.ErrorCode)
}

// createTopic makes a topic with these replicas, or, where the first of them is nil, as many partitions wherever the cluster likes. It
// answers the topic's id, which is another one than that of the topic that had the name before. A topic that is there already was made by
// a request whose answer was lost.
func (c *rawClient) createTopic(name string, replicas [][]int32, configs map[string]string, before record.TopicID) (id record.TopicID, err error) {
	err = c.until("creating topic "+name, func(ctx context.Context) error {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = 30_000
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(len(replicas)), 1
		if c.w.knobs.several() {
			t.NumPartitions, t.ReplicationFactor = -1, -1
			if replicas[0] == nil {
				t.NumPartitions, replicas = int32(len(replicas)), nil
			}
			for i, nodes := range replicas {
				a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
				a.Partition, a.Replicas = int32(i), nodes
				t.ReplicaAssignment = append(t.ReplicaAssignment, a)
			}
		}
		for k, v := range configs {
			cfg := kmsg.NewCreateTopicsRequestTopicConfig()
			cfg.Name, cfg.Value = k, &v
			t.Configs = append(t.Configs, cfg)
		}
		req.Topics = append(req.Topics, t)
		kresp, err := c.any(ctx, 7, req)
		if err != nil {
			return err
		}
		if err := codeError(kresp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode); err != nil && err != codeTopicExists {
			return err
		}
		if id, err = c.topicID(ctx, name); err == nil && id == before {
			c.turn++
			return codeUnknownTopic // this node has not heard yet that it was deleted
		}
		return err
	})
	return id, err
}

func (c *rawClient) topicID(ctx context.Context, name string) (id record.TopicID, err error) {
	t, err := c.topic(ctx, name)
	return t.TopicID, err
}

// topic is what some node knows about a topic.
func (c *rawClient) topic(ctx context.Context, name string) (rt kmsg.MetadataResponseTopic, err error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &name
	req.Topics = append(req.Topics, t)
	kresp, err := c.any(ctx, 12, req)
	if err != nil {
		return rt, err
	}
	rt = kresp.(*kmsg.MetadataResponse).Topics[0]
	err = codeError(rt.ErrorCode)
	if err != nil {
		c.turn++
	}
	return rt, err
}

func (c *rawClient) deleteTopic(name string) error {
	return c.until("deleting topic "+name, func(ctx context.Context) error {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = 30_000
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
		req.TopicNames = append(req.TopicNames, name)
		kresp, err := c.any(ctx, 6, req)
		if err != nil {
			return err
		}
		if err := codeError(kresp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode); err != nil && err != codeUnknownTopic {
			return err
		}
		// Gone for everybody once its name is.
		if _, err := c.topicID(ctx, name); err != codeUnknownTopic || c.w.anyKnows(name) {
			return code(7)
		}
		return nil
	})
}

func (c *rawClient) alterConfig(topic, name, value string) error {
	return c.until("altering "+name+" of "+topic, func(ctx context.Context) error {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		rc.Name, rc.Value = name, &value
		r.Configs = append(r.Configs, rc)
		req.Resources = append(req.Resources, r)
		kresp, err := c.any(ctx, 1, req)
		if err != nil {
			return err
		}
		return codeError(kresp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode)
	})
}
