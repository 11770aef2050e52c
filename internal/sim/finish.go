// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/segment"
)

// finish is FIN: no more faults, everything must work again in time, then all is read and compared.
func (r *run) finish(ctx context.Context) {
	began := time.Now()
	for i, p := range append([]part{r.parts[mix][0]}, r.parts[own]...) {
		r.producers[max(0, i-1)].send(ctx, p, epoch.UnixMilli()+int64(100*i), 100)
		if i > 0 {
			r.ownSent[i-1]++
		}
	}
	r.flush(ctx)
	// A producer that was told to wait by a quota waits, as Kafka's do, also when the quota is gone: there is no bound to that.
	if until := epoch.Add(time.Duration(r.throttled.Load())); until.After(began) {
		began = until
	}
	for _, p := range r.every() {
		r.scan(p, 1<<20)
	}
	r.awaitInSync(began)
	if d := time.Since(began); d > recovery && !r.w.failed() {
		r.w.failf("V1: %v after the last fault everything works again, %v are allowed", d, recovery)
	}
	r.checkController()
	r.checkFreed(ctx)
	r.awaitTier()
	rng := rand.New(rand.NewPCG(r.w.seed, 0xf1))
	for _, p := range r.every() {
		if r.w.failed() {
			return
		}
		start, content, size := r.scan(p, 4096)
		r.lookups(p, rng)
		r.h.checkEnd(p, start, content)
		r.checkRetention(p, start, content, size)
		r.checkObjects(p)
		r.checkReplicas(p, start, start+record.Offset(len(content)))
		if p.topic == own {
			for i, rec := range content {
				fmt.Fprintf(&r.result, "%s %d: %s %d\n", p, int(start)+i, rec.key, rec.timestamp)
			}
		}
		if len(content) > 0 && content[len(content)-1].epoch-content[0].epoch >= 2 {
			r.w.cover.hit(ManyEpochs)
		}
	}
}

// awaitTier waits until all is in the bucket, and out of the hot log where it may not stay (V4).
func (r *run) awaitTier() {
	if !r.w.knobs.Tier {
		return
	}
	deadline := time.Now().Add(settling)
	for _, p := range slices.Concat(r.parts[own], r.parts[mix], r.parts[risked]) {
		for {
			m, ok := r.w.marks(p.id)
			if ok && m.TieredEnd >= m.HW && m.Local >= m.HW {
				break
			}
			if time.Now().After(deadline) {
				r.w.failf("V4: %s after %v: %+v", p, settling, m)
				return
			}
			time.Sleep(time.Second)
		}
		if h, ok := r.w.head(p.id); ok && len(h.Pages) > 0 {
			r.w.cover.hit(PagesFolded)
		}
	}
}

// checkRetention is the lower bound of S20.
func (r *run) checkRetention(p part, start record.Offset, content []logRecord, size int) {
	if p.topic != aged {
		return
	}
	if start > 0 {
		r.w.cover.hit(RetentionMoved)
		if size < r.aging.bytes {
			r.w.failf("S20: retention left %d bytes of %s, retention.bytes is %d", size, p, r.aging.bytes)
		}
	}
	now := time.Now().UnixMilli()
	for _, s := range r.h.sent(p) {
		if r.aging.millis > 0 && s.err == nil && s.returned > 0 && s.offset < start && s.timestamp+int64(r.aging.millis) >= now {
			r.w.failf("S20: %q at %d of %s is gone after %d ms", s.key, s.offset, p, now-s.timestamp)
		}
	}
	if r.aging.millis > 0 && r.w.knobs.Tier && len(content) > 0 && now-content[len(content)-1].timestamp > int64(r.aging.millis)+60_000 {
		r.w.failf("V5: %s: retention left what is %d ms old", p, now-content[len(content)-1].timestamp)
	}
}

// checkObjects is S22: every object that the manifest names is there, as large as it says.
func (r *run) checkObjects(p part) {
	lives := r.w.lives()
	if len(lives) == 0 {
		r.w.failf("V1: no node runs")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	values, _, err := lives[0].meta.Segments(ctx, p.id, 0)
	for i := 1; err != nil; i++ { // a node may be cut off for some seconds more, from before the last fault
		if ctx.Err() != nil {
			r.w.failf("V1: the segments of %s cannot be listed: %v", p, err)
			return
		}
		time.Sleep(100 * time.Millisecond)
		values, _, err = lives[i%len(lives)].meta.Segments(ctx, p.id, 0)
	}
	for _, v := range values {
		e, err := manifest.DecodeEntry(v.Value)
		if err != nil {
			r.w.failf("S22: entry of %s at %d: %v", p, v.Base, err)
			continue
		}
		if e.DataBytes > 2*segment.ChunkTarget {
			r.w.cover.hit(ManyChunks)
		}
		var info objstore.Info
		if info, err = r.w.bucket.Stat(ctx, e.Object); err != nil || info.Size < e.Pos+e.Len {
			r.w.failf("S22: object %s of %s has %d bytes, its entry says %d: %v", e.Object, p, info.Size, e.Pos+e.Len, err)
		}
	}
}

// awaitConsumer: the consumer gets to the end of all it consumes (V1), unless all that is left for it was deleted.
func (r *run) awaitConsumer() {
	deadline := time.Now().Add(recovery)
	for _, p := range append(append([]part(nil), r.parts[own]...), r.parts[mix]...) {
		for !r.w.failed() {
			next, hw := r.h.behind(p)
			if next >= hw || r.h.mayBeGone(p, hw) {
				break
			}
			if time.Now().After(deadline) {
				r.w.failf("V1: the consumer of %s is at %d, the high watermark is %d", p, next, hw)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}
