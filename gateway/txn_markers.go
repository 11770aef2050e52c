// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// txnMarker is what the leaders of a transaction's partitions are told at its end.
type txnMarker struct {
	id          string
	producer    txn.Producer
	commit      bool
	version     int8 // 2: the epoch is the one after the transaction's
	coordinator int32
	decided     metadata.Revision
}

// coordinatorEpoch is what a coordinator's markers carry: it never goes back for an id, also not when the metadata was restored and reconciled,
// where revisions do and the cluster's generation has risen. Within one it ends at 2^24 revisions: a marker of a decision is none the worse for
// coming from an earlier coordinator.
func coordinatorEpoch(generation int64, term metadata.Revision) int32 {
	const bits = 24
	return int32(min(generation, 1<<(31-bits)-1))<<bits | int32(min(term, 1<<bits-1))
}

// markerSender writes markers to the leaders of partitions, wherever they are. What waits for a node goes out together.
type markerSender struct {
	s  *Server
	mu struct {
		sync.Mutex
		nodes map[record.NodeID]*markerNode
	}
}

// markerNode is what waits for one node.
type markerNode struct {
	waiting []*markerJob
	flying  int
}

// markerJob is one marker for partitions that a node leads.
type markerJob struct {
	ctx        context.Context // of who waits
	marker     *txnMarker
	partitions []record.PartitionID
	codes      chan []Code // one per partition
}

func newMarkerSender(s *Server) *markerSender {
	m := &markerSender{s: s}
	m.mu.nodes = map[record.NodeID]*markerNode{}
	return m
}

// write has a marker appended by every partition, and waits until it is. false: ctx has ended before.
func (m *markerSender) write(ctx context.Context, marker txnMarker, partitions []record.PartitionID) bool {
	for wait := markerRetryMin; len(partitions) > 0; wait = min(2*wait, markerRetryMax) {
		left, why := m.round(ctx, &marker, partitions)
		if partitions = left; len(left) == 0 {
			break
		}
		m.s.txnMetrics.retries.Add(float64(len(left)))
		if why != codeNotLeaderOrFollower {
			m.s.complain("transaction coordinator: markers could not be written; they are tried again", "id", marker.id, "partitions", len(left), "first", left[0], "code", why)
		}
		if !pause(ctx, wait) {
			return false
		}
	}
	return ctx.Err() == nil
}

// round asks the leader of each partition once. left are those that have no marker yet, why is the code of the last of them.
func (m *markerSender) round(ctx context.Context, marker *txnMarker, partitions []record.PartitionID) (left []record.PartitionID, why Code) {
	img := m.s.meta.Image()
	byNode := map[record.NodeID][]record.PartitionID{}
	for _, p := range partitions {
		state, known := img.Partition(p)
		switch {
		case known && img.Broker(state.Leader.Node) != nil:
			byNode[state.Leader.Node] = append(byNode[state.Leader.Node], p)
		case known || !m.gone(ctx, p.Topic):
			left, why = append(left, p), codeLeaderNotAvailable
		}
	}
	var jobs []*markerJob
	for node, list := range byNode {
		for len(list) > 0 {
			n := min(len(list), maxMarkerPartitions)
			j := &markerJob{ctx: ctx, marker: marker, partitions: list[:n], codes: make(chan []Code, 1)}
			list = list[n:]
			jobs = append(jobs, j)
			m.enqueue(node, j)
		}
	}
	for _, j := range jobs {
		select {
		case codes := <-j.codes:
			for i, code := range codes {
				if !m.written(ctx, j, j.partitions[i], code) {
					left, why = append(left, j.partitions[i]), code
				}
			}
		case <-ctx.Done():
			return append(left, j.partitions...), codeCoordinatorNotAvailable
		}
	}
	return left, why
}

// written tells whether a leader's answer means that the partition is done.
func (m *markerSender) written(ctx context.Context, j *markerJob, p record.PartitionID, code Code) bool {
	switch code {
	case codeNone:
		return true
	case codeUnknownTopicOrPartition, codeUnknownTopicID:
		return m.gone(ctx, p.Topic)
	case codeInvalidProducerEpoch:
		// The partition has seen a later epoch, which there can only be when this decision was completed before: this node lost the shard and
		// does not know it. Its transaction that completes the decision finds that out.
		m.s.log.Warn("transaction coordinator: a partition has a later epoch than the marker's", "id", j.marker.id, "partition", p, "producer", j.marker.producer.ID, "epoch", j.marker.producer.Epoch)
		return true
	}
	return false
}

// gone tells whether a topic is surely deleted.
func (m *markerSender) gone(ctx context.Context, id record.TopicID) bool {
	t, err := m.s.meta.ReadTopic(ctx, id)
	return errors.Is(err, metadata.ErrUnknownTopic) || err == nil && t.Deleting
}

func (m *markerSender) enqueue(node record.NodeID, j *markerJob) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.mu.nodes[node]
	if n == nil {
		n = new(markerNode)
		m.mu.nodes[node] = n
	}
	n.waiting = append(n.waiting, j)
	m.send(node, n)
}

// send starts a request with what waits for a node, unless enough are under way. The caller has the mutex.
func (m *markerSender) send(node record.NodeID, n *markerNode) {
	if len(n.waiting) == 0 || n.flying >= maxMarkerRequests {
		if len(n.waiting) == 0 && n.flying == 0 {
			delete(m.mu.nodes, node)
		}
		return
	}
	count, partitions := 0, 0
	for count < len(n.waiting) && (count == 0 || partitions+len(n.waiting[count].partitions) <= maxMarkerPartitions) {
		partitions += len(n.waiting[count].partitions)
		count++
	}
	jobs := n.waiting[:count:count]
	n.waiting = n.waiting[count:]
	n.flying++
	// Whoever waits for one of the jobs ends the wait itself; the request ends with its time-out.
	go func() {
		m.request(node, jobs)
		m.mu.Lock()
		defer m.mu.Unlock()
		n.flying--
		m.send(node, n)
	}()
}

// request sends jobs to a node and gives each its codes.
func (m *markerSender) request(node record.NodeID, jobs []*markerJob) {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.SetVersion(2)
	img := m.s.meta.Image()
	for _, j := range jobs {
		req.Markers = append(req.Markers, j.wire(img))
	}
	ctx, cancel := mergedContext(jobs)
	defer cancel()
	resp, err := m.s.askNode(ctx, node, req)
	answer, _ := resp.(*kmsg.WriteTxnMarkersResponse)
	for i, j := range jobs {
		codes := make([]Code, 0, len(j.partitions))
		if err == nil && answer != nil && len(answer.Markers) == len(jobs) {
			for _, t := range answer.Markers[i].Topics {
				for _, p := range t.Partitions {
					codes = append(codes, Code(p.ErrorCode))
				}
			}
		}
		for len(codes) < len(j.partitions) {
			codes = append(codes, codeCoordinatorNotAvailable)
		}
		j.codes <- codes[:len(j.partitions)]
	}
}

// mergedContext ends when nobody waits for any of the jobs any more.
func mergedContext(jobs []*markerJob) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	left := len(jobs)
	stops := make([]func() bool, len(jobs))
	for i, j := range jobs {
		stops[i] = context.AfterFunc(j.ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// wire is the job's part of a request.
func (j *markerJob) wire(img *metadata.Image) kmsg.WriteTxnMarkersRequestMarker {
	k := kmsg.NewWriteTxnMarkersRequestMarker()
	k.ProducerID, k.ProducerEpoch, k.Committed = j.marker.producer.ID, j.marker.producer.Epoch, j.marker.commit
	k.TransactionVersion = j.marker.version
	k.CoordinatorEpoch = j.marker.coordinator
	tagMarker(&k, j.marker.decided, j.marker.id)
	for i, p := range j.partitions {
		if i == 0 || j.partitions[i-1].Topic != p.Topic {
			t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			t.Topic = topicName(img, p.Topic)
			tagMarkerTopic(&t, p.Topic)
			k.Topics = append(k.Topics, t)
		}
		t := &k.Topics[len(k.Topics)-1]
		t.Partitions = append(t.Partitions, p.Index)
	}
	return k
}
