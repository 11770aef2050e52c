// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/record"
)

// The indices of those who send straight to nodes, among the producers.
const (
	riskier = 8
	prober  = 9
)

// probe sends records one by one straight to nodes, whether they lead or not, until ctx ends. Each is sent once, so that its outcome is
// that of one request: who acknowledges leads, and alone in its epoch (S8, S9); what is refused is not there (S3).
func (r *run) probe(ctx context.Context, p part) {
	rng := rand.New(rand.NewPCG(r.w.seed, 0x9906e))
	c := newRawClient(r.w, "prober", 4*time.Second)
	defer c.close()
	for i := 0; pauseFor(ctx, time.Duration(50+rng.IntN(600))*time.Millisecond); i++ {
		to := record.NodeID(rng.IntN(len(r.w.machines)) + 1)
		if rng.IntN(2) == 0 {
			l, err := c.leader(ctx, p)
			if err != nil {
				continue
			}
			to = l.node
		}
		value := []byte(fmt.Sprintf("probe %d of node %d", i, to))
		s := &send{p: p, key: fmt.Sprintf("probe/%d", i), producer: prober, idempotent: true, node: to, timestamp: epoch.UnixMilli(), hash: r.h.hash(value)}
		r.h.invoke(s)
		offset, err := c.produce(ctx, s, value)
		r.h.answer(s, offset, c.forget(p, err))
	}
}

// askLatest asks one node for the latest offsets of partitions, whether it leads them or not, until ctx ends: who answers at all leads, and
// knows everything that anybody knew before (S6).
func (r *run) askLatest(ctx context.Context, m *machine) {
	rng := rand.New(rand.NewPCG(r.w.seed, uint64(m.id)))
	c := newRawClient(r.w, "prober", 3*time.Second)
	defer c.close()
	parts := slices.Concat(r.consumed[own], r.consumed[mix], r.consumed[probed])
	written := r.consumed[probed][0]
	pause := func() time.Duration {
		d := time.Duration(50+rng.IntN(500)) * time.Millisecond
		if r.w.inHandOver(written.id) {
			return d / 10
		}
		return d
	}
	for pauseFor(ctx, pause()) {
		p := parts[rng.IntN(len(parts))]
		if r.w.inHandOver(written.id) {
			p = written // of one that it does not lead a node without the metadata answers late
		}
		// And who waits for that asks nothing about what it takes itself for the leader of.
		c.timeout = []time.Duration{300 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}[rng.IntN(3)]
		floor := r.h.floor(p)
		f, err := c.listOffsetsAt(ctx, leaderKnown{m.id, record.NoEpoch}, p, latest)
		if err != nil {
			r.w.cover.hit(AskedNoLeader)
			continue
		}
		r.h.sawLatest(p, m.id, floor, f.offset)
	}
}

// readReplica reads on and on what one node has of each partition, whether it leads or not, until ctx ends: what lies below the high watermark
// that it knows is what everybody is given, whatever else its log holds (S2, S7, S12).
func (r *run) readReplica(ctx context.Context, m *machine) {
	rng := rand.New(rand.NewPCG(r.w.seed, 0x4ead+uint64(m.id)))
	c := newRawClient(r.w, "reader", 3*time.Second)
	c.fetchWait = 10 * time.Millisecond
	defer c.close()
	parts := slices.Concat(r.consumed[own], r.consumed[mix], r.consumed[probed])
	next := map[part]record.Offset{}
	for pauseFor(ctx, time.Duration(20+rng.IntN(200))*time.Millisecond) {
		p := parts[rng.IntN(len(parts))]
		from := max(next[p], r.h.start(p))
		f, err := c.fetchAt(ctx, leaderKnown{m.id, record.NoEpoch}, p, from, 1<<16)
		if err != nil || len(f.batches) == 0 {
			continue // it may lack what another one gave, and has it later
		}
		r.w.cover.hit(ReplicaRead)
		r.checkBatches(p, from, &f, false, 0, false)
		next[p] = r.each(p, f.batches, from, func(record.Offset, logRecord) {})
	}
}

// produce sends one record without idempotence and asks for all acknowledgements.
func (c *rawClient) produce(ctx context.Context, s *send, value []byte) (record.Offset, error) {
	var b record.Builder
	b.LeaderEpoch = record.NoEpoch
	b.SetProducer(record.NoProducer)
	b.Add(s.timestamp, []byte(s.key), value)
	batch, err := b.Build()
	if err != nil {
		return record.NoOffset, err
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 1500
	t := kmsg.NewProduceRequestTopic()
	t.Topic = s.p.topic
	tp := kmsg.NewProduceRequestTopicPartition()
	tp.Partition, tp.Records = s.p.id.Index, batch
	t.Partitions = append(t.Partitions, tp)
	req.Topics = append(req.Topics, t)
	kresp, err := c.ask(ctx, s.node, 11, req)
	if err != nil {
		return record.NoOffset, err
	}
	rp := kresp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if err = codeError(rp.ErrorCode); err != nil && rp.BaseOffset != -1 {
		c.w.failf("S28: a produce request for %s that fails with %v is answered with offset %d", s.p, err, rp.BaseOffset)
	}
	return record.Offset(rp.BaseOffset), err
}
