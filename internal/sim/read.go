// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/varve/varve/record"
)

const (
	latest          = -1
	earliest        = -2
	maxTimestamp    = -3
	earliestLocal   = -4
	latestTiered    = -5
	earliestPending = -6
)

func (r *run) list(p part, ts int64) (f found) {
	err := r.raw.until(fmt.Sprintf("ListOffsets(%d) of %s", ts, p), func(ctx context.Context) (err error) {
		f, err = r.raw.listOffsets(ctx, p, ts)
		return err
	})
	if err != nil {
		r.w.failf("ListOffsets(%d) of %s: %v", ts, p, err)
	}
	return f
}

// bounds are log start and high watermark as ListOffsets tells them.
func (r *run) bounds(p part) (start, hw record.Offset) {
	start, end := r.list(p, earliest).offset, r.list(p, latest)
	if !r.w.failed() {
		r.h.sawMarks(p, end.epoch, start, end.offset, true)
	}
	return start, end.offset
}

var errEmpty = errors.New("nothing came, though there is something")

// fetch reads once at an offset that exists and checks what any fetch must keep (S26, S27, S10, S12). Below the log start: out is true.
func (r *run) fetch(p part, from record.Offset, maxBytes int32) (f fetched, out bool) {
	before, led := r.w.marks(p.id)
	err := r.raw.untilOr("V2, V8", fmt.Sprintf("fetch of %s from %d", p, from), func(ctx context.Context) (err error) {
		if f, err = r.raw.fetch(ctx, p, from, maxBytes); err != nil {
			return err
		}
		known := r.h.highest(p)
		r.h.sawMarks(p, f.epoch, f.logStart, f.hw, false)
		if len(f.batches) == 0 && from < max(f.hw, known) {
			return errEmpty // the store was slower than the fetch may wait, or a new leader does not know yet what is committed
		}
		return nil
	})
	if err != nil {
		if !errors.Is(err, codeOffsetOutOfRange) {
			r.w.failf("fetch of %s from %d: %v", p, from, err)
			r.checkObjects(p) // why not
		}
		return f, true
	}
	after, still := r.w.marks(p.id)
	cold := led && from < before.Local                  // the local start only grows
	hot := still && led && !cold && from >= after.Local // it was local before and after
	if len(f.batches) > 0 && cold {
		r.w.cover.hit(ColdFetch)
	} else if len(f.batches) > 0 && hot {
		r.w.cover.hit(HotFetch)
	}
	r.checkBatches(p, from, &f, cold, before.Local, hot)
	return f, false
}

// checkBatches checks an answer to a fetch (S8, S10, S27) and notes what it gave.
func (r *run) checkBatches(p part, from record.Offset, f *fetched, cold bool, local record.Offset, hot bool) {
	for i, b := range f.batches {
		switch {
		case i == 0 && (b.BaseOffset() > from || b.LastOffset() < from):
			r.w.failf("S27: fetch of %s from %d begins with [%d, %d]", p, from, b.BaseOffset(), b.LastOffset())
		case i > 0 && b.BaseOffset() != f.batches[i-1].NextOffset():
			r.w.failf("S10: fetch of %s: %d follows %d", p, b.BaseOffset(), f.batches[i-1].LastOffset())
		case i > 0 && b.LeaderEpoch() < f.batches[i-1].LeaderEpoch():
			r.w.failf("S8: fetch of %s: epoch %d at %d follows %d", p, b.LeaderEpoch(), b.BaseOffset(), f.batches[i-1].LeaderEpoch())
		case b.NextOffset() > f.hw:
			r.w.failf("S27: fetch of %s gives %d, the high watermark is %d", p, b.LastOffset(), f.hw)
		}
		r.h.sawBatch(p, b, cold && b.NextOffset() <= local, hot)
	}
}

// each gives the records of batches at or above from to fn.
func (r *run) each(p part, batches []record.Batch, from record.Offset, fn func(o record.Offset, rec logRecord)) (next record.Offset) {
	next = from
	for _, b := range batches {
		err := b.Each(func(x *record.Record) bool {
			r.h.sawRecord(p, x.Offset, x.Timestamp, x.Key, x.Value)
			if x.Offset >= from {
				if x.Offset != next {
					r.w.failf("S10: %s: record %d follows %d", p, x.Offset, next-1)
				}
				next = x.Offset + 1
				fn(x.Offset, logRecord{string(x.Key), x.Timestamp, b.LeaderEpoch(), r.h.hash(x.Value)})
			}
			return true
		})
		if err != nil {
			r.w.failf("S26: batch at %d of %s: %v", b.BaseOffset(), p, err)
		}
	}
	return next
}

// peek reads a bit of a partition from somewhere, and at the edges of what there is.
func (r *run) peek(p part, rng *rand.Rand) {
	start, hw := r.bounds(p)
	if r.w.failed() {
		return
	}
	if _, out := r.fetch(p, hw+1000, 4096); !out {
		r.w.failf("S27: fetch of %s from %d is no error, the high watermark is %d", p, hw+1000, hw)
	}
	if start > 0 {
		if _, out := r.fetch(p, start-1, 4096); !out {
			r.w.failf("S27: fetch of %s from %d is no error, the log starts at %d", p, start-1, start)
		}
	}
	if hw == start {
		return
	}
	from := start + record.Offset(rng.Int64N(int64(hw-start)))
	f, out := r.fetch(p, from, int32(1<<rng.IntN(17)))
	switch {
	case r.w.failed():
	case out && p.topic != aged:
		r.w.failf("S27: fetch of %s from %d of [%d, %d) is out of range", p, from, start, hw)
	}
	r.each(p, f.batches, from, func(record.Offset, logRecord) {})
}

// scan reads a whole partition: content[i] is the record at start+i. Where retention is at work it begins again when the start has moved.
func (r *run) scan(p part, maxBytes int32) (start record.Offset, content []logRecord, size int) {
again:
	start, hw := r.bounds(p)
	content, size = nil, 0
	for next := start; next < hw && !r.w.failed(); {
		f, out := r.fetch(p, next, maxBytes)
		switch {
		case r.w.failed():
			return start, content, size
		case out && p.topic == aged:
			goto again
		case out:
			r.w.failf("S1: fetch of %s from %d of [%d, %d) is out of range", p, next, start, hw)
			return start, content, size
		case len(f.batches) == 0:
			r.w.failf("V2: fetch of %s from %d of [%d, %d) gives nothing", p, next, start, hw)
			return start, content, size
		}
		for _, b := range f.batches {
			size += len(b)
		}
		next = r.each(p, f.batches, next, func(_ record.Offset, rec logRecord) { content = append(content, rec) })
	}
	if p.topic == aged {
		if now, _ := r.bounds(p); now != start && !r.w.failed() {
			goto again
		}
	}
	if p.topic == own {
		r.checkOwn(p, start, content)
	}
	return start, content, size
}

// checkOwn compares with what is known offset by offset: the i-th record that was sent is at i.
func (r *run) checkOwn(p part, start record.Offset, content []logRecord) {
	sent := r.h.sent(p)
	if got := int(start) + len(content); got != len(sent) && !r.w.failed() {
		r.w.failf("S1, S5: %s ends at %d, %d records were acknowledged", p, got, len(sent))
		return
	}
	for i, rec := range content {
		if s := sent[int(start)+i]; s.key != rec.key || s.hash != rec.hash || s.timestamp != rec.timestamp {
			r.w.failf("S1: %s at %d: %q, want %q", p, int(start)+i, rec.key, s.key)
			return
		}
	}
}

// lookups compares ListOffsets with a search through all records (S13).
func (r *run) lookups(p part, rng *rand.Rand) {
	start, content, _ := r.scan(p, 1<<20)
	if len(content) == 0 || r.w.failed() {
		return
	}
	times := []int64{0, 1 << 60}
	if p.topic == own && start > 0 {
		sent := r.h.sent(p)
		for range 3 { // of records that were deleted: those must not be found any more
			times = append(times, sent[rng.Int64N(int64(start))].timestamp)
		}
	}
	for range 8 {
		rec := content[rng.IntN(len(content))]
		times = append(times, rec.timestamp-1, rec.timestamp, rec.timestamp+1)
	}
	newest := slices.MaxFunc(content, func(a, b logRecord) int { return cmp.Compare(a.timestamp, b.timestamp) }).timestamp
	times = append(times, newest, newest+1)
	for _, ts := range times {
		want := found{record.NoOffset, -1, -1}
		for i, rec := range content {
			if rec.timestamp >= ts {
				want = found{start + record.Offset(i), rec.timestamp, rec.epoch}
				break
			}
		}
		got := r.list(p, ts)
		if r.w.failed() {
			return
		}
		if m, ok := r.w.marks(p.id); ok && want.offset >= 0 && want.offset < m.Local {
			r.w.cover.hit(ColdTime)
		}
		if want.offset < 0 {
			got.epoch = -1 // that of none is the current one
		}
		if got != want && !r.moved(p, start, start+record.Offset(len(content))) {
			r.w.failf("S13: ListOffsets(%d) of %s [%d, %d): got %+v, want %+v", ts, p, start, int(start)+len(content), got, want)
		}
		if p.topic == own {
			fmt.Fprintf(&r.result, "%s at %d: %d\n", p, ts, got.offset)
		}
	}
	r.specials(p, start, content, newest)
}

func (r *run) specials(p part, start record.Offset, content []logRecord, newest int64) {
	end := start + record.Offset(len(content))
	m, ok := r.w.marks(p.id)
	if ok && m.Local > start {
		r.w.cover.hit(ColdMaxTimestamp)
	}
	most, local, tiered, pending := r.list(p, maxTimestamp), r.list(p, earliestLocal), r.list(p, latestTiered), r.list(p, earliestPending)
	if after, leads := r.w.marks(p.id); r.w.knobs.several() && (!leads || after.Epoch != m.Epoch) {
		ok = false // another node has another local start
	}
	if r.w.failed() || r.moved(p, start, end) {
		return
	}
	if most.offset < start || most.offset >= end || most.timestamp != newest || content[most.offset-start].timestamp != newest {
		r.w.failf("S13: largest timestamp of %s [%d, %d): got %+v, want %d", p, start, end, most, newest)
	}
	if local.offset < start || local.offset > end || local.offset < m.Local && ok {
		r.w.failf("S13: local start of %s [%d, %d): got %d, was %d", p, start, end, local.offset, m.Local)
	}
	if tiered.offset >= 0 && tiered.offset < start || tiered.offset >= end {
		r.w.failf("S13: last tiered of %s [%d, %d): got %d", p, start, end, tiered.offset)
	}
	if pending.offset < start || pending.offset > end || ok && pending.offset < m.TieredEnd || pending.offset <= tiered.offset {
		r.w.failf("S13: first untiered of %s [%d, %d): got %d, tiered end was %d, last tiered %d", p, start, end, pending.offset, m.TieredEnd, tiered.offset)
	}
}

// moved tells whether retention has moved the log start away meanwhile, or acks=1 records that came before have been committed since.
func (r *run) moved(p part, start, end record.Offset) bool {
	if p.topic != aged && p.topic != mix {
		return false
	}
	nowStart, nowEnd := r.bounds(p)
	return nowStart != start || nowEnd != end
}
