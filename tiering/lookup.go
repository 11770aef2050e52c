// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"errors"
	"fmt"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/segment"
)

// TimeOffset is a record found by time.
type TimeOffset struct {
	Offset    record.Offset
	Timestamp int64
	Epoch     record.Epoch
}

// errStop ends an iteration over batches.
var errStop = errors.New("stop")

// OffsetForTime finds the first record at or above from (and the log start) whose timestamp is at or above ts, below limit. false: there
// is none there. Per segment it visits it costs the index and one data GET, both of which may be in memory; it visits a second segment
// only when the first has no such record.
func (r *Reader) OffsetForTime(ctx context.Context, v *View, ts int64, from, limit record.Offset) (TimeOffset, bool, error) {
	from = max(from, v.Manifest.LogStart)
	for from < min(limit, v.Manifest.TieredEnd) {
		e, ok, err := v.Manifest.Locate(manifest.Query{Kind: manifest.ByTime, Time: ts, Offset: from}, r.pageLoader(ctx))
		if err != nil || !ok || e.Base >= limit {
			return TimeOffset{}, false, err
		}
		x, err := r.index(ctx, v, &e)
		if err != nil {
			return TimeOffset{}, false, err
		}
		found, ok, err := r.timeInSegment(ctx, object{view: v, entry: &e, index: x}, ts, segment.Range{Base: from, End: limit})
		if err != nil {
			return TimeOffset{}, false, err
		}
		if ok {
			return found, found.Offset < limit, nil
		}
		from = e.End
	}
	return TimeOffset{}, false, nil
}

// timeInSegment reads candidate chunks until one has the record or begins past the range. Only a chunk that the range's base cuts can disappoint,
// and the first read runs on to the next candidate in that case, so a second read is needed only across more than runOnBytes.
func (r *Reader) timeInSegment(ctx context.Context, o object, ts int64, in segment.Range) (found TimeOffset, ok bool, err error) {
	from := in.Base
	span, more := o.index.TimeSpan(ts, from, 0, runOnBytes)
	for more && !ok && err == nil && o.index.Chunks[span.First].Base < in.End {
		err = r.eachBatch(ctx, o, span, func(b record.Batch) error {
			if b.MaxTimestamp() < ts {
				return nil
			}
			at, t, hit, err := b.FirstAtOrAfter(ts, from)
			if err != nil {
				return err
			}
			if hit {
				found, ok = TimeOffset{at, t, b.LeaderEpoch()}, true
				return errStop
			}
			return nil
		})
		span, more = o.index.TimeSpan(ts, from, span.Last+1, runOnBytes)
	}
	return found, ok, err
}

// eachBatch calls fn for the data batches of a span.
func (r *Reader) eachBatch(ctx context.Context, o object, span segment.Span, fn func(record.Batch) error) error {
	blocks, err := r.groups.run(ctx, o, o.group(span.First), o.group(span.Last))
	if err != nil {
		return err
	}
	defer releaseAll(blocks)
	g := o.group(span.First)
	for _, b := range blocks {
		first, last := max(span.First, g.first), min(span.Last, g.last)
		rest := b.from(first - g.first)
		if last < g.last {
			rest = rest[:b.starts[last+1-g.first]-b.starts[first-g.first]]
		}
		for len(rest) > 0 {
			batch, more, err := record.Split(rest)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
			rest = more
			if batch.IsControl() {
				continue
			}
			if err := fn(batch); err != nil {
				if errors.Is(err, errStop) {
					return nil
				}
				return r.corrupt(o.entry.Object, o.entry.Pos+o.index.Chunks[first].Pos, o.index.SpanBytes(segment.Span{First: first, Last: last}), err)
			}
		}
		if g.last < span.Last {
			g = o.group(g.last + 1)
		}
	}
	return nil
}

// MaxTimestamp finds a record with the largest timestamp at or above the log start. It costs no GET unless the log start cuts a segment
// whose maximum lies below it. false: no record has a timestamp.
func (r *Reader) MaxTimestamp(ctx context.Context, v *View) (TimeOffset, bool, error) {
	l, err := v.Manifest.LargestTimestamp(r.pageLoader(ctx))
	if err != nil {
		return TimeOffset{}, false, err
	}
	best := TimeOffset{record.NoOffset, segment.NoTimestamp, record.NoEpoch}
	if l.HasBest {
		best = TimeOffset{l.Best.OffsetOfMax, l.Best.MaxTimestamp, l.Best.EpochAt(l.Best.OffsetOfMax)}
	}
	if l.HasCut {
		x, err := r.index(ctx, v, &l.Cut)
		if err != nil {
			return TimeOffset{}, false, err
		}
		if err := r.maxInSegment(ctx, object{view: v, entry: &l.Cut, index: x}, v.Manifest.LogStart, &best); err != nil {
			return TimeOffset{}, false, err
		}
	}
	return best, best.Offset != record.NoOffset, nil
}

// maxInSegment raises best by the records at or above from: first the chunk that from cuts, if it can matter, then the best whole chunk.
func (r *Reader) maxInSegment(ctx context.Context, o object, from record.Offset, best *TimeOffset) error {
	first, ok := o.index.ForOffset(from)
	if !ok {
		return nil
	}
	whole := -1
	cs := o.index.Chunks
	for i := first; i < len(cs); i++ {
		if cs[i].Base >= from && cs[i].MaxTimestamp > best.Timestamp && (whole < 0 || cs[i].MaxTimestamp > cs[whole].MaxTimestamp) {
			whole = i
		}
	}
	if cs[first].Base < from && cs[first].MaxTimestamp > best.Timestamp && (whole < 0 || cs[first].MaxTimestamp > cs[whole].MaxTimestamp) {
		if err := r.maxInChunk(ctx, o, first, from, best); err != nil {
			return err
		}
	}
	if whole >= 0 && cs[whole].MaxTimestamp > best.Timestamp {
		return r.maxInChunk(ctx, o, whole, from, best)
	}
	return nil
}

func (r *Reader) maxInChunk(ctx context.Context, o object, chunk int, from record.Offset, best *TimeOffset) error {
	return r.eachBatch(ctx, o, segment.Span{First: chunk, Last: chunk}, func(b record.Batch) error {
		if b.MaxTimestamp() <= best.Timestamp || b.LastOffset() < from {
			return nil
		}
		at, t, err := b.OffsetOfMaxTimestamp()
		if err == nil && at < from { // the batch that from cuts: only its upper records count
			at, t = record.NoOffset, segment.NoTimestamp
			err = b.Each(func(rec *record.Record) bool {
				ts := rec.Timestamp
				if b.IsLogAppendTime() {
					ts = b.MaxTimestamp()
				}
				if rec.Offset >= from && ts > t {
					at, t = rec.Offset, ts
				}
				return true
			})
		}
		if err != nil {
			return err
		}
		if t > best.Timestamp {
			*best = TimeOffset{at, t, b.LeaderEpoch()}
		}
		return nil
	})
}
