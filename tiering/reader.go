// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/segment"
)

// ReaderConfig of a Reader; zero values are the defaults of limits.go.
type ReaderConfig struct {
	CacheBytes      int64         // data in memory that nobody is reading right now
	IndexCacheBytes int64         // decoded indexes and pages
	InFlightBytes   int64         // memory of GETs under way; reserved before a GET is sent
	GetDeadline     time.Duration // of one GET, scaled up by size; at most half the GC grace
	Logger          *slog.Logger
	Registerer      prometheus.Registerer
}

func (c *ReaderConfig) setDefaults() {
	for _, f := range []struct {
		v *int64
		d int64
	}{{&c.CacheBytes, DefaultCacheBytes}, {&c.IndexCacheBytes, DefaultIndexCacheBytes}, {&c.InFlightBytes, DefaultInFlightBytes}} {
		if *f.v <= 0 {
			*f.v = f.d
		}
	}
	if c.GetDeadline <= 0 {
		c.GetDeadline = DefaultGetDeadline
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Reader reads from the bucket. A read waits for the store no longer than its ctx; what it has asked for goes on under a deadline of its
// own and is found in the cache by the next read (E10). All methods may be called concurrently.
type Reader struct {
	cfg     ReaderConfig
	store   objstore.Store
	metrics *readerMetrics
	base    context.Context // of flights: ends with Close
	stop    context.CancelFunc
	indexes *cache[segment.Attempt, *segment.Index]
	folded  *cache[segment.Attempt, []manifest.Entry]
	groups  *groupCache
	outage  outage
}

// NewReader makes a Reader of the store. Close ends what it has under way.
func NewReader(cfg ReaderConfig, store objstore.Store) *Reader {
	cfg.setDefaults()
	base, stop := context.WithCancel(context.Background())
	r := &Reader{cfg: cfg, store: store, metrics: newReaderMetrics(cfg.Registerer), base: base, stop: stop}
	r.outage.log = cfg.Logger
	r.indexes = newCache[segment.Attempt, *segment.Index](base, cfg.IndexCacheBytes, maxFlights)
	r.folded = newCache[segment.Attempt, []manifest.Entry](base, cfg.IndexCacheBytes, maxFlights)
	r.groups = newGroupCache(r)
	return r
}

// Close ends every GET and returns when none runs any more. Reads fail from then on.
func (r *Reader) Close() error {
	r.stop()
	r.indexes.wait()
	r.folded.wait()
	r.groups.wait()
	return nil
}

// ReadRequest asks for batches of the tiered part.
type ReadRequest struct {
	View       *View
	Offset     record.Offset // at or above the view's log start
	Limit      record.Offset // batches at or above it are not given
	MaxBytes   int
	FirstWhole bool // give the first batch whatever its size
	Aborted    bool // collect aborted transactions
	Buf        []byte
	Trouble    *Trouble // not nil: tells while the read waits whether the bucket fails
}

// ReadResult is what a read gives. Buf with the batches appended; Next is where to go on, at or above Offset also when nothing was
// appended because nothing is left there.
type ReadResult struct {
	Data    []byte
	Next    record.Offset
	Aborted []segment.Aborted // sorted by first offset, complete for [Offset, Next)
}

// Read appends whole batches from the one that holds Offset on, in ascending order, skipping nothing that exists. It waits for the
// first; beyond it gives what is in memory. On an error nothing is given.
func (r *Reader) Read(ctx context.Context, q ReadRequest) (ReadResult, error) {
	m := q.View.Manifest
	if q.Offset < m.LogStart || q.Offset >= m.TieredEnd {
		return ReadResult{}, fmt.Errorf("%w: %s offset %d, [%d, %d)", ErrOutOfRange, q.View.ID, q.Offset, m.LogStart, m.TieredEnd)
	}
	ctx = withTrouble(ctx, q.Trouble)
	limit := min(q.Limit, m.TieredEnd)
	res := ReadResult{Data: q.Buf, Next: q.Offset}
	start := len(q.Buf)
	for res.Next < limit {
		e, x, err := r.locate(ctx, q.View, manifest.Query{Kind: manifest.ByOffset, Offset: res.Next})
		if err != nil {
			if len(res.Data) > start {
				break // what was read is right; the next read meets the error
			}
			return ReadResult{}, err
		}
		more, err := r.readSegment(ctx, q, e, x, limit, start, &res)
		if err != nil {
			return ReadResult{}, err
		}
		if !more {
			break
		}
	}
	if q.Aborted && res.Next > q.Offset {
		var err error
		if res.Aborted, err = r.aborted(ctx, q.View, q.Offset, res.Next); err != nil {
			return ReadResult{}, err
		}
	}
	return res, nil
}

// readSegment goes on within one segment. more: the segment is done and there is room.
func (r *Reader) readSegment(ctx context.Context, q ReadRequest, e manifest.Entry, x *segment.Index, limit record.Offset, start int, res *ReadResult) (bool, error) {
	seg := object{view: q.View, entry: &e, index: x}
	for res.Next < min(e.End, limit) {
		chunk, ok := x.ForOffset(res.Next)
		if !ok {
			break // compacted away to the end of the segment
		}
		g := seg.group(chunk)
		var b *block
		if len(res.Data) > start {
			if b = r.groups.peek(seg, g); b == nil {
				r.groups.ahead(seg, g, g, 1)
				return false, nil
			}
		} else {
			var err error
			if b, err = r.groups.one(ctx, seg, g); err != nil {
				return false, err
			}
		}
		full := appendBatches(q, b, chunk-g.first, limit, start, res)
		r.groups.readahead(seg, g, b, res.Next)
		b.release()
		if full {
			return false, nil
		}
	}
	res.Next = max(res.Next, min(e.End, limit))
	return true, nil
}

// appendBatches copies from chunk number `from` of the block on; full: no more may follow.
func appendBatches(q ReadRequest, b *block, from int, limit record.Offset, start int, res *ReadResult) (full bool) {
	rest := b.from(from)
	for len(rest) > 0 {
		batch, more, err := record.Split(rest)
		if err != nil {
			return true // cannot happen: the block was verified when it came
		}
		rest = more
		if batch.LastOffset() < res.Next {
			continue
		}
		if batch.BaseOffset() >= limit {
			res.Next = max(res.Next, limit)
			return true
		}
		if have := len(res.Data) - start; have+len(batch) > q.MaxBytes && !(have == 0 && q.FirstWhole) {
			return true
		}
		res.Data = append(res.Data, batch...)
		res.Next = batch.NextOffset()
	}
	res.Next = max(res.Next, b.end)
	return false
}

// locate finds the segment and its index.
func (r *Reader) locate(ctx context.Context, v *View, q manifest.Query) (manifest.Entry, *segment.Index, error) {
	e, ok, err := v.Manifest.Locate(q, r.pageLoader(ctx))
	if err != nil {
		return e, nil, err
	}
	if !ok {
		return e, nil, fmt.Errorf("%w: no segment of %s at %d", ErrOutOfRange, v.ID, q.Offset)
	}
	x, err := r.index(ctx, v, &e)
	return e, x, err
}

// aborted collects what [from, to) needs, from those segments that have any (E2, E4). An abort may be listed only in a segment far above, but
// not beyond one that reaches to and was sealed when everything that began below to was over: that one, and those before it, list all.
func (r *Reader) aborted(ctx context.Context, v *View, from, to record.Offset) ([]segment.Aborted, error) {
	var out []segment.Aborted
	var failed error
	err := v.Manifest.Walk(from, r.pageLoader(ctx), func(e *manifest.Entry) bool {
		more := e.End < to || e.FirstUnstable != record.NoOffset && e.FirstUnstable < to
		if !e.HasAborted {
			return more
		}
		x, err := r.index(ctx, v, e)
		if err != nil {
			failed = err
			return false
		}
		out = x.AbortedIn(from, to, out)
		return more
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, fmt.Errorf("aborted transactions of %s: %w", v.ID, err)
	}
	slices.SortFunc(out, func(a, b segment.Aborted) int {
		if a.First != b.First {
			return int(min(max(a.First-b.First, -1), 1))
		}
		return int(min(max(a.Marker-b.Marker, -1), 1))
	})
	return slices.Compact(out), nil
}

// Epochs gives the leader-epoch chain up to the view's tiered end, and Producers the snapshot there, for a replica that starts from it (W2).
func (r *Reader) Epochs(ctx context.Context, v *View) ([]record.EpochStart, error) {
	_, x, err := r.newest(ctx, v)
	if err != nil {
		return nil, err
	}
	return x.Epochs, nil
}

// Producers gives the producer snapshot at the view's tiered end.
func (r *Reader) Producers(ctx context.Context, v *View) ([]segment.Producer, error) {
	e, x, err := r.newest(ctx, v)
	if err != nil {
		return nil, err
	}
	if x.Producers.Count == 0 {
		return nil, nil
	}
	gctx, cancel := context.WithTimeout(ctx, objstore.Deadline(r.cfg.GetDeadline, 0, int64(x.Producers.Len)))
	defer cancel()
	b, err := r.get(gctx, getIndex, e.Object, e.Pos+x.Producers.Pos, int64(x.Producers.Len), nil)
	if err != nil {
		return nil, err
	}
	ps, err := segment.DecodeProducers(b, x.Producers)
	if err != nil {
		return nil, r.corrupt(e.Object, e.Pos+x.Producers.Pos, int64(x.Producers.Len), err)
	}
	return ps, nil
}

func (r *Reader) newest(ctx context.Context, v *View) (manifest.Entry, *segment.Index, error) {
	return r.locate(ctx, v, manifest.Query{Kind: manifest.ByOffset, Offset: v.Manifest.TieredEnd - 1})
}

// Page reads a folded page, cached.
func (r *Reader) Page(ctx context.Context, p manifest.Page) ([]manifest.Entry, error) {
	return r.folded.get(ctx, p.Attempt, func(ctx context.Context) ([]manifest.Entry, int64, error) {
		var entries []manifest.Entry
		err := r.checked(ctx, getPage, p.Object, 0, p.Len, func(b []byte) (err error) {
			entries, err = manifest.ReadPage(&p, b)
			return err
		})
		return entries, 4 * p.Len, err
	})
}

func (r *Reader) pageLoader(ctx context.Context) manifest.PageLoader {
	return func(p manifest.Page) ([]manifest.Entry, error) { return r.Page(ctx, p) }
}

// index gives the index of a segment, cached; it costs one exact GET.
func (r *Reader) index(ctx context.Context, v *View, e *manifest.Entry) (*segment.Index, error) {
	return r.indexes.get(ctx, e.Attempt, func(ctx context.Context) (*segment.Index, int64, error) {
		var x *segment.Index
		n := int64(e.FooterLen)
		err := r.checked(ctx, getIndex, e.Object, e.Pos+e.Len-n, n, func(b []byte) (err error) {
			if x, err = segment.ReadIndex(b, e.Len); err == nil {
				err = sameSegment(x, v.ID, e)
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		return x, x.MemBytes(), nil
	})
}

// sameSegment: the object is the one the manifest means.
func sameSegment(x *segment.Index, id record.PartitionID, e *manifest.Entry) error {
	i := &x.Info
	if i.Attempt != e.Attempt || i.Topic != id.Topic || i.Partition != id.Index || i.Base != e.Base || i.End != e.End {
		return fmt.Errorf("%w: it is [%d, %d) of %s-%d, attempt %s; the manifest says [%d, %d) of %s, attempt %s", segment.ErrCorrupt,
			i.Base, i.End, i.Topic, i.Partition, i.Attempt, e.Base, e.End, id, e.Attempt)
	}
	return nil
}
