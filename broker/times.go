// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/record"
)

// Kafka's special timestamps of ListOffsets.
const (
	SpecialLatest          int64 = -1
	SpecialEarliest        int64 = -2
	SpecialMaxTimestamp    int64 = -3
	SpecialEarliestLocal   int64 = -4
	SpecialLatestTiered    int64 = -5
	SpecialEarliestPending int64 = -6
)

// TimeOffset is the answer to a lookup: a record's offset and timestamp, and the leader epoch it was written in. Offset is
// NoOffset and Timestamp -1 when there is none.
type TimeOffset struct {
	Offset    record.Offset
	Timestamp int64
	Epoch     record.Epoch
}

var noTimeOffset = TimeOffset{Offset: record.NoOffset, Timestamp: -1, Epoch: record.NoEpoch}

// LookupRequest is what all lookups of ListOffsets share.
type LookupRequest struct {
	CurrentEpoch  record.Epoch
	ReadCommitted bool
}

// span is the part of the log that a lookup may answer from, taken from one snapshot.
type span struct {
	from, bound record.Offset // [log start, HW or LSO)
	local       record.Offset // below it the data is in the bucket only
	unstable    bool          // an open transaction bounds it, below the high watermark
}

func (p *Partition) lookupSpan(r LookupRequest, current bool) (span, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lead, err := p.leadingLocked()
	if err != nil {
		return span{}, err
	}
	if err := checkEpoch(r.CurrentEpoch, lead.Epoch); err != nil {
		return span{}, err
	}
	if current && !lead.isr.Known() {
		return span{}, ErrOffsetNotAvailable
	}
	s := span{from: p.mu.logStart, bound: p.mu.hw, local: max(p.log.Start(), p.mu.logStart)}
	if r.ReadCommitted {
		s.bound = p.lsoLocked()
		s.unstable = s.bound < p.mu.hw
	}
	return s, nil
}

// Special answers the special timestamps other than SpecialMaxTimestamp.
func (p *Partition) Special(what int64, r LookupRequest) (TimeOffset, error) {
	s, err := p.lookupSpan(r, what == SpecialLatest)
	if err != nil {
		return noTimeOffset, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	lead, err := p.leadingLocked()
	if err != nil {
		return noTimeOffset, err
	}
	at := func(o record.Offset) TimeOffset {
		return TimeOffset{Offset: o, Timestamp: -1, Epoch: p.epochOfLocked(o)}
	}
	tiered := p.mu.head.TieredEnd
	switch what {
	case SpecialLatest:
		return TimeOffset{Offset: s.bound, Timestamp: -1, Epoch: lead.Epoch}, nil
	case SpecialEarliest:
		return at(s.from), nil
	case SpecialEarliestLocal:
		return at(s.local), nil
	case SpecialLatestTiered:
		if tiered == 0 || tiered <= p.mu.logStart {
			return noTimeOffset, nil
		}
		return at(tiered - 1), nil
	case SpecialEarliestPending:
		return at(max(tiered, p.mu.logStart)), nil
	default:
		return noTimeOffset, fmt.Errorf("%w: %d", ErrUnsupportedSpecial, what)
	}
}

// OffsetForTime returns the first record at or above the log start, and below what the reader may see, whose timestamp is at
// least ts (S13). It waits for the bucket, up to ctx, if the answer is there.
func (p *Partition) OffsetForTime(ctx context.Context, ts int64, r LookupRequest) (TimeOffset, error) {
	for range 3 {
		s, err := p.lookupSpan(r, true)
		if err != nil {
			return noTimeOffset, err
		}
		if s.from < s.local {
			found, ok, err := p.tierOffsetForTime(ctx, ts, s)
			if err != nil || ok {
				return found, err
			}
		}
		found, err := p.hotOffsetForTime(ctx, ts, s.local, s.bound)
		if errors.Is(err, hotlog.ErrTrimmed) {
			continue // evicted meanwhile: look in the bucket
		}
		return found, err
	}
	return noTimeOffset, fmt.Errorf("%w: %s is evicted faster than it can be searched", ErrStorage, p.id)
}

// MaxTimestamp returns a record with the largest timestamp below what the reader may see, the first such record of its tier.
func (p *Partition) MaxTimestamp(ctx context.Context, r LookupRequest) (TimeOffset, error) {
	for range 3 {
		s, err := p.lookupSpan(r, true)
		if err != nil {
			return noTimeOffset, err
		}
		best := noTimeOffset
		if s.from < s.local {
			best, err = p.tierMaxTimestamp(ctx, s)
			if errors.Is(err, errOldSpan) {
				continue
			}
			if err != nil {
				return noTimeOffset, err
			}
		}
		hot, err := p.hotMaxTimestamp(ctx, s.local, s.bound)
		if errors.Is(err, hotlog.ErrTrimmed) {
			continue
		}
		if err != nil {
			return noTimeOffset, err
		}
		if best.Offset == record.NoOffset || hot.Timestamp > best.Timestamp {
			best = hot
		}
		return best, nil
	}
	return noTimeOffset, fmt.Errorf("%w: %s is evicted faster than it can be searched", ErrStorage, p.id)
}

func (p *Partition) hotOffsetForTime(ctx context.Context, ts int64, from, bound record.Offset) (TimeOffset, error) {
	if from >= bound {
		return noTimeOffset, nil
	}
	if err := p.needTimes(ctx); err != nil {
		return noTimeOffset, err
	}
	at := from
	for at < bound {
		s, ok, err := p.timeCandidate(at, ts)
		if err != nil {
			return noTimeOffset, err
		}
		if !ok || s.start >= bound {
			break
		}
		var found TimeOffset
		if s.whole && s.end <= bound {
			found, err = p.tableForTime(ts, s)
		} else {
			found, err = p.scanForTime(ts, max(s.start, from), min(s.end, bound), bound)
		}
		if err != nil || found.Offset != record.NoOffset {
			return found, err
		}
		at = s.end
	}
	return noTimeOffset, nil
}

// tableForTime answers from the table of a whole stretch of committed log, which it makes by one scan if it is not kept.
func (p *Partition) tableForTime(ts int64, s stretch) (TimeOffset, error) {
	key := timeTableKey{p.id, s.start}
	table, ok := p.broker.tables.get(key)
	if !ok {
		table = &timeTable{base: s.start}
		err := p.log.Scan(s.start, s.end, func(b record.Batch) error {
			err := table.add(b)
			if err != nil && !errors.Is(err, errMixedEpochs) {
				err = fmt.Errorf("%w: batch at %d of %s: %w", ErrStorage, b.BaseOffset(), p.id, err)
			}
			return err
		})
		if errors.Is(err, errMixedEpochs) {
			return p.scanForTime(ts, s.start, s.end, s.end)
		}
		if err != nil {
			return noTimeOffset, err
		}
		p.broker.tables.put(key, table)
	}
	found, _ := table.first(ts)
	return found, nil
}

// timeCandidate returns the first stretch of the hot log, from at on, that may hold a timestamp of at least ts.
func (p *Partition) timeCandidate(at record.Offset, ts int64) (s stretch, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.mu.times
	if x == nil {
		return stretch{}, false, fmt.Errorf("%w: %s was truncated", ErrNotLeader, p.id)
	}
	i := x.candidate(x.at(at), ts)
	if i < 0 {
		return stretch{}, false, nil
	}
	base, end := x.chunks[i].base, x.end(i)
	// The last chunk still grows, so nothing about it may be kept.
	s = stretch{start: max(base, at), end: end, whole: base >= at && i+1 < len(x.chunks)}
	return s, end > at, nil
}

// stretch is a part of the hot log that may hold what a lookup wants. whole: it is a chunk that will not change any more.
type stretch struct {
	start, end record.Offset
	whole      bool
}

// errOldSpan: data was sealed since the span was taken. Take it again.
var errOldSpan = errors.New("sealed meanwhile")

// errFound ends a scan early.
var errFound = errors.New("found")

func (p *Partition) scanForTime(ts int64, from, to, bound record.Offset) (TimeOffset, error) {
	found := noTimeOffset
	err := p.log.Scan(from, to, func(b record.Batch) error {
		if b.IsControl() || b.MaxTimestamp() < ts {
			return nil
		}
		o, t, ok, err := b.FirstAtOrAfter(ts, from)
		if err != nil {
			return fmt.Errorf("%w: batch at %d of %s: %w", ErrStorage, b.BaseOffset(), p.id, err)
		}
		if ok && o < bound {
			found = TimeOffset{Offset: o, Timestamp: t, Epoch: b.LeaderEpoch()}
			return errFound
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return noTimeOffset, err
	}
	return found, nil
}

func (p *Partition) hotMaxTimestamp(ctx context.Context, from, bound record.Offset) (TimeOffset, error) {
	best := noTimeOffset
	if from >= bound {
		return best, nil
	}
	if err := p.needTimes(ctx); err != nil {
		return best, err
	}
	// The largest maximum of a chunk that is visible as a whole prunes all chunks below it; those at the edges are scanned.
	p.mu.Lock()
	floor := int64(noTimestamp)
	if p.mu.times != nil {
		floor = p.mu.times.largest(from, bound)
	}
	p.mu.Unlock()
	for at := from; at < bound; {
		s, ok, err := p.timeCandidate(at, max(floor, min(best.Timestamp, math.MaxInt64-1)+1))
		if err != nil {
			return noTimeOffset, err
		}
		if !ok || s.start >= bound {
			break
		}
		err = p.log.Scan(max(s.start, from), min(s.end, bound), func(b record.Batch) error {
			if b.IsControl() || b.MaxTimestamp() <= best.Timestamp {
				return nil
			}
			return p.betterIn(b, from, bound, &best)
		})
		if err != nil {
			return noTimeOffset, err
		}
		at = s.end
	}
	return best, nil
}

// betterIn raises best to the record of b in [from, bound) with the largest timestamp, if that is larger.
func (p *Partition) betterIn(b record.Batch, from, bound record.Offset, best *TimeOffset) error {
	if b.BaseOffset() >= from && b.NextOffset() <= bound {
		o, t, err := b.OffsetOfMaxTimestamp()
		if err != nil {
			return fmt.Errorf("%w: batch at %d of %s: %w", ErrStorage, b.BaseOffset(), p.id, err)
		}
		if t > best.Timestamp {
			*best = TimeOffset{Offset: o, Timestamp: t, Epoch: b.LeaderEpoch()}
		}
		return nil
	}
	err := b.Each(func(r *record.Record) bool {
		if r.Offset >= from && r.Offset < bound && r.Timestamp > best.Timestamp {
			*best = TimeOffset{Offset: r.Offset, Timestamp: r.Timestamp, Epoch: b.LeaderEpoch()}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("%w: batch at %d of %s: %w", ErrStorage, b.BaseOffset(), p.id, err)
	}
	return nil
}

// needTimes builds the time index of the hot log at the first lookup: one scan of what is there; what is appended meanwhile
// gathers in a tail that is joined to it at the end.
func (p *Partition) needTimes(ctx context.Context) error {
	if err := p.buildTimes.Acquire(ctx, 1); err != nil {
		return err // another lookup builds it, and this one's time is over
	}
	defer p.buildTimes.Release(1)
	p.mu.Lock()
	if p.mu.times != nil {
		p.mu.Unlock()
		return nil
	}
	end, cut := p.mu.end, p.mu.timesCut
	p.mu.timesTail = &hotIndex{next: end}
	p.mu.Unlock()

	x := &hotIndex{next: p.log.Start()}
	err := p.waitDurable(ctx, end) // what is still queued cannot be read yet
	if err == nil {
		err = p.log.Scan(p.log.Start(), end, func(b record.Batch) error { x.add(b); return ctx.Err() })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.timesCut != cut {
		return fmt.Errorf("%w: %s was truncated", ErrNotLeader, p.id)
	}
	if err == nil {
		x.join(p.mu.timesTail)
		p.mu.times = x
	}
	p.mu.timesTail = nil
	return err
}

// waitDurable returns once everything below end is durable, or the leadership or ctx ended.
func (p *Partition) waitDurable(ctx context.Context, end record.Offset) error {
	var w Wait
	w.Init(1)
	pend := &Pending{wait: &w}
	p.mu.Lock()
	lead, err := p.leadingLocked()
	wait := err == nil && p.queueLocked(lead, AppendOptions{Acks: 1}, pend, end)
	p.mu.Unlock()
	if !wait {
		return err
	}
	select {
	case <-w.C():
	case <-ctx.Done():
		p.Expire(pend)
		<-w.C()
	}
	return pend.Err
}
