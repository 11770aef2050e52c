// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// ReadRequest asks for batches from Offset on.
type ReadRequest struct {
	Offset           record.Offset
	MaxBytes         int
	FirstWhole       bool // return the first batch even if it is larger than MaxBytes
	ReadCommitted    bool
	CurrentEpoch     record.Epoch      // what the client takes for the leader epoch; NoEpoch: unchecked
	LastFetchedEpoch record.Epoch      // epoch of the client's last batch; NoEpoch: unchecked
	Buf              []byte            // result bytes are appended here
	Chunks           *[]Chunk          // not nil: large runs may be left in their files, and what is found goes behind what it holds
	Replica          *Replica          // a follower's: it may read up to the appended end
	Unable           bool              // the follower cannot append now
	Assigned         metadata.Revision // of the topic that the follower knows its assignment by; 0: it does not say
	Trouble          *Trouble          // of ReadCold, not nil: tells meanwhile whether the bucket fails
	AnyReplica       bool              // a follower may serve it (KIP-392), below the high watermark that it knows
}

// AbortedTxn is one entry of a read-committed consumer's list of what to skip.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset record.Offset
}

// EpochEnd says where a leader epoch ends in this log.
type EpochEnd struct {
	Epoch record.Epoch
	End   record.Offset
}

// ReadResult is what Read found. With an error the offsets are -1.
type ReadResult struct {
	Data          []byte        // ReadRequest.Buf with whole batches appended; but for those left in files, with Chunks
	Size          int           // bytes found in the hot log, those left in files included
	Next          record.Offset // behind what was found in the hot log
	HighWatermark record.Offset
	LastStable    record.Offset
	LogStart      record.Offset
	LeaderEpoch   record.Epoch
	Aborted       []AbortedTxn
	Diverging     EpochEnd // Epoch is NoEpoch unless the client's log diverges here
	Cold          bool     // the data is in the bucket only: call ReadCold
	Bounded       bool     // nothing is to be had at Offset now: it is at the end of what the reader may see
}

// Chunk is a part of what was found: bytes of Data, or a Span.
type Chunk = hotlog.Chunk

// Span is a run of batches in a file of the hot log, to be sent from there. Whoever has it releases it.
type Span = hotlog.Span

// readPlan is one decision where a read is served, taken from one snapshot (protocols §6.1).
type readPlan struct {
	from, bound record.Offset
	cold        bool
	empty       bool
}

// Read serves from the hot log. It waits for the disk at most, never for the network; what is only in the bucket is told by
// Cold.
func (p *Partition) Read(req *ReadRequest, res *ReadResult) error {
	for {
		plan, err := p.plan(req, res)
		if err != nil || plan.empty || plan.cold {
			return err
		}
		known := 0
		if req.Chunks != nil {
			known = len(*req.Chunks)
		}
		err = p.readHot(plan, req, res)
		if errors.Is(err, hotlog.ErrTrimmed) {
			continue // evicted between the plan and the read: plan again, it is in the bucket now
		}
		if err != nil {
			return fmt.Errorf("%w: reading %s at %d: %w", ErrStorage, p.id, plan.from, err)
		}
		if !req.ReadCommitted || res.Size == 0 {
			return nil
		}
		again, err := p.hotAborted(plan.from, res.Next, res)
		if !again && err == nil {
			return nil
		}
		if req.Chunks != nil {
			*req.Chunks = hotlog.ReleaseChunks(*req.Chunks, known)
		}
		if err != nil {
			return err
		}
	}
}

// readHot reads what was planned.
func (p *Partition) readHot(plan readPlan, req *ReadRequest, res *ReadResult) error {
	r := hotlog.Reading{From: plan.from, Limit: plan.bound, MaxBytes: req.MaxBytes, FirstWhole: req.FirstWhole, Buf: req.Buf}
	if req.Chunks != nil {
		r.Lend, r.Chunks = true, *req.Chunks
	}
	err := p.log.ReadInto(&r)
	if req.Chunks != nil {
		*req.Chunks = r.Chunks
	}
	res.Data, res.Size, res.Next = r.Buf, r.Size, r.Next
	return err
}

// ReadCold serves from the bucket, and waits for it as long as ctx allows. A download that outlives ctx goes on into the
// cache, where the next read finds it.
func (p *Partition) ReadCold(ctx context.Context, req *ReadRequest, res *ReadResult) error {
	for range 3 {
		plan, err := p.plan(req, res)
		if err != nil || plan.empty {
			return err
		}
		if !plan.cold {
			return p.Read(req, res)
		}
		again, err := p.readTier(ctx, req, res, plan)
		if err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("%w: %s at %d: the manifest changes faster than it can be read", ErrStorage, p.id, req.Offset)
}

// plan validates the request and decides once where it is served.
func (p *Partition) plan(req *ReadRequest, res *ReadResult) (readPlan, error) {
	*res = ReadResult{Data: req.Buf, HighWatermark: -1, LastStable: -1, LogStart: -1, LeaderEpoch: record.NoEpoch, Diverging: EpochEnd{Epoch: record.NoEpoch}}
	p.mu.Lock()
	defer p.mu.Unlock()
	epoch, follows, err := p.servingLocked(req.AnyReplica && req.Replica == nil)
	if err != nil {
		return readPlan{}, err
	}
	res.LeaderEpoch = epoch
	if err := checkEpoch(req.CurrentEpoch, epoch); err != nil {
		return readPlan{}, err
	}
	if req.Replica != nil {
		return p.planReplica(req, res)
	}
	if follows && p.lacksLocked(req) {
		// A client that is told of an offset out of range, or of logs that part, goes back, to the log start if need be.
		return readPlan{}, fmt.Errorf("%w: %d is beyond what this follower has, up to %d; only the leader can tell that it is nowhere", ErrNotLeader, req.Offset, p.mu.end)
	}
	if req.Offset < p.mu.logStart || req.Offset > p.mu.end {
		return readPlan{}, fmt.Errorf("%w: %d is not in [%d, %d]", ErrOffsetOutOfRange, req.Offset, p.mu.logStart, p.mu.end)
	}
	res.HighWatermark, res.LastStable, res.LogStart = p.mu.hw, p.lsoLocked(), p.mu.logStart
	if !follows && req.LastFetchedEpoch != record.NoEpoch {
		if e := p.epochEndLocked(req.LastFetchedEpoch); e.Epoch != req.LastFetchedEpoch || e.End < req.Offset {
			if e.End == record.NoOffset {
				return readPlan{}, fmt.Errorf("%w: last fetched epoch %d is unknown here", ErrOffsetOutOfRange, req.LastFetchedEpoch)
			}
			res.Diverging = e
			return readPlan{empty: true}, nil
		}
	}
	plan := readPlan{from: req.Offset, bound: p.mu.hw}
	if req.ReadCommitted {
		plan.bound = res.LastStable
	}
	if req.Offset >= plan.bound {
		res.Bounded, plan.empty = true, true
		return plan, nil
	}
	if req.Offset < p.log.Start() {
		res.Cold, plan.cold = true, true
	}
	return plan, nil
}

// servingLocked gives the epoch in which this replica may serve reads: as the leader, or as a follower where the reader takes that.
func (p *Partition) servingLocked(follower bool) (epoch record.Epoch, follows bool, err error) {
	lead, err := p.leadingLocked()
	switch {
	case err == nil:
		return lead.Epoch, false, nil
	case follower && p.mu.follow != nil && !p.mu.closed && p.broker.MayServe():
		return p.mu.follow.epoch, true, nil
	}
	return record.NoEpoch, false, err
}

// lacksLocked tells that the reader was further than this replica is.
func (p *Partition) lacksLocked(req *ReadRequest) bool {
	if req.Offset > p.mu.end {
		return true
	}
	if req.LastFetchedEpoch == record.NoEpoch {
		return false
	}
	epochs := p.log.Epochs() // the partition's table is a leader's, as of when it began
	if len(epochs) == 0 || req.LastFetchedEpoch < epochs[0].Epoch {
		epochs = record.MergeEpochs(p.mu.head.EpochChain, epochs)
	}
	e := p.epochEndAmong(epochs, req.LastFetchedEpoch)
	return e.Epoch != req.LastFetchedEpoch || e.End < req.Offset
}

// ReadReplica finds an in-sync follower in a client's rack that has everything below an offset, for a client that would rather read
// there (KIP-392). None when this node is in that rack itself.
func (p *Partition) ReadReplica(rack string, o record.Offset) (record.NodeID, bool) {
	if rack == p.broker.cfg.Node.Rack {
		return record.NoNode, false
	}
	img := p.broker.meta.Image()
	p.mu.Lock()
	defer p.mu.Unlock()
	lead, err := p.leadingLocked()
	if err != nil || o < p.mu.logStart || o > p.mu.end {
		return record.NoNode, false
	}
	best, end := record.NoNode, record.NoOffset
	for _, m := range lead.committed.Members {
		f, b := lead.followers[m.Node], img.Broker(m.Node)
		if f != nil && b != nil && b.Rack == rack && b.Incarnation == f.Incarnation && f.end >= o && f.end > end {
			best, end = m.Node, f.end
		}
	}
	return best, best != record.NoNode
}

// Follows tells whether this replica follows, and may serve reads as a follower.
func (p *Partition) Follows() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.follow != nil
}

// planReplica plans a follower's read, under the mutex: where the logs part comes first, then everything that is appended. What is
// only in the bucket the follower does not copy.
func (p *Partition) planReplica(req *ReadRequest, res *ReadResult) (readPlan, error) {
	if req.CurrentEpoch == record.NoEpoch {
		return readPlan{}, fmt.Errorf("%w: a follower's fetch of %s without a leader epoch", ErrUnknownEpoch, p.id)
	}
	res.HighWatermark, res.LastStable, res.LogStart = p.mu.hw, p.lsoLocked(), p.mu.logStart
	if p.divergesLocked(req) {
		if e := p.epochEndLocked(req.LastFetchedEpoch); e.End != record.NoOffset {
			res.Diverging = e
			return readPlan{empty: true}, nil
		}
		return readPlan{}, fmt.Errorf("%w: last fetched epoch %d of node %d is unknown here", ErrOffsetOutOfRange, req.LastFetchedEpoch, req.Replica.Node)
	}
	end := p.log.AppendedEnd()
	switch {
	case req.Offset > p.mu.end || req.Offset < p.mu.logStart:
		return readPlan{}, fmt.Errorf("%w: %d is not in [%d, %d]", ErrOffsetOutOfRange, req.Offset, p.mu.logStart, p.mu.end)
	case req.Offset < p.log.Start():
		return readPlan{}, fmt.Errorf("%w: %d of %s, the hot log begins at %d", ErrTiered, req.Offset, p.id, p.log.Start())
	case req.Offset >= end:
		res.Bounded = true
		return readPlan{empty: true}, nil
	}
	return readPlan{from: req.Offset, bound: end}, nil
}

// checkEpoch compares a client's leader epoch with ours (KIP-320).
func checkEpoch(client, ours record.Epoch) error {
	switch {
	case client == record.NoEpoch || client == ours:
		return nil
	case client < ours:
		return fmt.Errorf("%w: %d, now %d", ErrFencedEpoch, client, ours)
	default:
		return fmt.Errorf("%w: %d, here %d", ErrUnknownEpoch, client, ours)
	}
}

// EndOffsetForEpoch returns the largest epoch known here that is at most e, and where it ends: the start of the next one, or
// the log end for the newest. Unknown: (NoEpoch, NoOffset). current is checked against the partition's leader epoch.
func (p *Partition) EndOffsetForEpoch(e, current record.Epoch) (EpochEnd, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lead, err := p.leadingLocked()
	if err != nil {
		return EpochEnd{Epoch: record.NoEpoch, End: record.NoOffset}, err
	}
	if err := checkEpoch(current, lead.Epoch); err != nil {
		return EpochEnd{Epoch: record.NoEpoch, End: record.NoOffset}, err
	}
	return p.epochEndLocked(e), nil
}

func (p *Partition) epochEndLocked(e record.Epoch) EpochEnd { return p.epochEndAmong(p.mu.epochs, e) }

// epochEndAmong is epochEndLocked by another table.
func (p *Partition) epochEndAmong(epochs []record.EpochStart, e record.Epoch) EpochEnd {
	unknown := EpochEnd{Epoch: record.NoEpoch, End: record.NoOffset}
	if len(epochs) == 0 || e == record.NoEpoch {
		return unknown
	}
	if newest := epochs[len(epochs)-1]; e == newest.Epoch {
		return EpochEnd{Epoch: e, End: p.mu.end}
	} else if e > newest.Epoch {
		return unknown // a request for an epoch that nobody has led yet
	}
	if e < epochs[0].Epoch {
		// Older than all that is left: it ended where the oldest known epoch begins.
		return EpochEnd{Epoch: e, End: max(epochs[0].Start, p.mu.logStart)}
	}
	for i := len(epochs) - 2; i >= 0; i-- {
		if epochs[i].Epoch <= e {
			// An epoch that ended below the log start has nothing left to diverge in: it ends there, as in Kafka.
			return EpochEnd{Epoch: epochs[i].Epoch, End: max(epochs[i+1].Start, p.mu.logStart)}
		}
	}
	return unknown
}

// epochOfLocked is the leader epoch in which offset o was, or will be, written; NoEpoch when the table does not reach back.
func (p *Partition) epochOfLocked(o record.Offset) record.Epoch {
	for i := len(p.mu.epochs) - 1; i >= 0; i-- {
		if p.mu.epochs[i].Start <= o {
			return p.mu.epochs[i].Epoch
		}
	}
	return record.NoEpoch
}
