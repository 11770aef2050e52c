// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/mem"
	"github.com/varve/varve/tiering/segment"
)

// rec is one record of the naive model.
type rec struct {
	offset    record.Offset
	timestamp int64
	epoch     record.Epoch
	control   bool
}

// tier is a partition whose whole log lies in a bucket, beside the model.
type tier struct {
	p     *fakePartition
	store *mem.Store
	recs  []rec
	v     *View
}

type tierOptions struct {
	batches, records, value int
	spread                  int64
	segment                 int64
	page                    int // 0: nothing is folded
	aborts                  bool
}

// makeTier builds a random log with epochs, codecs, control batches and timestamps out of order, cut into segments.
func makeTier(t testing.TB, rng *rand.Rand, o tierOptions) *tier {
	t.Helper()
	x := &tier{p: newPartition(t), store: mem.NewStore()}
	x.p.lead(1)
	open := map[int64]record.Offset{}
	for range o.batches {
		if rng.IntN(25) == 0 {
			x.p.lead(x.p.epoch + 1 + record.Epoch(rng.IntN(2)))
		}
		pid := int64(rng.IntN(3))
		if first, ok := open[pid]; o.aborts && ok && rng.IntN(4) == 0 {
			x.control(t, pid)
			x.p.aborted = append(x.p.aborted, segment.Aborted{ProducerID: pid, First: first, Marker: x.p.end() - 1})
			delete(open, pid)
			continue
		}
		if o.aborts && rng.IntN(6) == 0 {
			if _, ok := open[pid]; !ok {
				open[pid] = x.p.end()
			}
		}
		ts := make([]int64, 1+rng.IntN(o.records))
		for i := range ts {
			ts[i] = 1000 + rng.Int64N(o.spread)
			x.recs = append(x.recs, rec{x.p.end() + record.Offset(i), ts[i], x.p.epoch, false})
		}
		x.p.add(record.Codec(rng.IntN(5)), rng.IntN(o.value+1), ts...)
	}
	x.build(t, o)
	return x
}

// control appends an abort marker, whose timestamp must never be found.
func (x *tier) control(t testing.TB, pid int64) {
	t.Helper()
	b, err := record.Marker{}.Batch(record.Producer{ID: pid, Epoch: 1}, 1<<50)
	if err != nil {
		t.Fatal(err)
	}
	x.p.mu.Lock()
	b.Stamp(x.p.end(), x.p.epoch)
	x.recs = append(x.recs, rec{b.BaseOffset(), 1 << 50, x.p.epoch, true})
	x.p.push(b)
}

// build seals everything, sizes at random around o.segment, and folds.
func (x *tier) build(t testing.TB, o tierOptions) {
	t.Helper()
	m, err := manifest.New(0, 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	id := record.PartitionID{Topic: record.TopicID{3}, Index: 1}
	x.p.view = &View{}
	for n := byte(1); m.TieredEnd < x.p.end(); n++ {
		pin, err := x.p.Pin(m.TieredEnd, x.p.end())
		if err != nil {
			t.Fatal(err)
		}
		ident := segment.Identity{ClusterID: "c", Topic: id.Topic, Partition: id.Index, TopicName: "orders", Attempt: segment.Attempt{n, byte(m.TieredEnd), byte(m.TieredEnd >> 8)}}
		obj, err := segment.Build(ident, pin, segment.Range{Base: m.TieredEnd, End: x.p.end()}, o.segment, pin.Extra)
		if err != nil {
			t.Fatal(err)
		}
		e := manifest.FromInfo(&obj.Info, ObjectKey(&obj.Info), obj.CRC32C())
		if err := x.store.Create(t.Context(), e.Object, obj, objstore.PutOptions{CRC32C: obj.CRC32C()}); err != nil {
			t.Fatal(err)
		}
		pin.Release()
		if m, err = m.Apply(manifest.Append{Entry: e}); err != nil {
			t.Fatal(err)
		}
		for o.page > 0 && len(m.Entries) > o.page+1 {
			p, body, err := manifest.BuildPage(segment.Attempt{n, 1, 1, 1, 1}, fmt.Sprint("page/", n), m.Entries[:o.page])
			if err != nil {
				t.Fatal(err)
			}
			if err := x.store.Create(t.Context(), p.Object, objstore.Bytes(body), objstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			if m, err = m.Apply(manifest.Fold{Page: p}); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.v = &View{ID: id, Head: metadata.Head{TieredEnd: m.TieredEnd}, Manifest: m}
}

// from is the view after log start moved.
func (x *tier) from(t testing.TB, logStart record.Offset) *View {
	t.Helper()
	m, err := x.v.Manifest.Apply(manifest.AdvanceStart{To: logStart})
	if err != nil {
		t.Fatal(err)
	}
	return &View{ID: x.v.ID, Head: metadata.Head{LogStart: m.LogStart, TieredEnd: m.TieredEnd}, Manifest: m}
}

// want is what a read from o below limit may give: all batches from the one that holds o.
func (x *tier) want(o, limit record.Offset) []record.Batch {
	var out []record.Batch
	for _, b := range x.p.all {
		if b.LastOffset() >= o && b.BaseOffset() < limit {
			out = append(out, b)
		}
	}
	return out
}

// retriable are the errors a read may have.
func retriable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt)
}

func TestReadsAgainstModel(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 9))
		x := makeTier(t, rng, tierOptions{batches: 300, records: 8, value: 3000, spread: 300, segment: 400_000, page: 4, aborts: true})
		faulty := objstore.Fault(x.store, objstore.FaultOptions{Seed: seed, MaxDelay: time.Millisecond, Rates: []objstore.Rate{
			{Effect: objstore.Unavailable, Probability: 0.05}, {Effect: objstore.Truncated, Probability: 0.05}, {Effect: objstore.FlippedBit, Probability: 0.1},
			{Effect: objstore.NotThere, Probability: 0.05}, {Effect: objstore.Slow, Probability: 0.05}, {Effect: objstore.LostReply, Probability: 0.05}}})
		r := NewReader(ReaderConfig{CacheBytes: 2 << 20, IndexCacheBytes: 4 << 10, InFlightBytes: 3 << 20, Logger: quiet()}, faulty)
		failures := 0
		for range 400 {
			start := record.Offset(rng.Int64N(int64(x.v.Head.TieredEnd)))
			v := x.from(t, start)
			o := start + record.Offset(rng.Int64N(int64(v.Head.TieredEnd-start)))
			q := ReadRequest{View: v, Offset: o, Limit: min(o+1+record.Offset(rng.IntN(300)), v.Head.TieredEnd), MaxBytes: rng.IntN(200_000),
				FirstWhole: rng.IntN(4) > 0, Aborted: rng.IntN(2) == 0, Buf: []byte("prefix")}
			res, err := r.Read(t.Context(), q)
			if err != nil {
				failures++
				if !retriable(err) {
					t.Fatal(err)
				}
				continue
			}
			x.checkRead(t, q, res)
		}
		for range 300 {
			v := x.from(t, record.Offset(rng.Int64N(int64(x.v.Head.TieredEnd))))
			failures += x.checkLookup(t, r, v, 995+rng.Int64N(312), record.Offset(rng.Int64N(int64(x.v.Head.TieredEnd))))
			failures += x.checkMax(t, r, v)
		}
		if failures == 0 || failures > 600 {
			t.Errorf("seed %d: %d failed reads", seed, failures)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		_ = faulty.Close()
	}
}

func (x *tier) checkRead(t *testing.T, q ReadRequest, res ReadResult) {
	t.Helper()
	want := x.want(q.Offset, q.Limit)
	data, ok := bytes.CutPrefix(res.Data, []byte("prefix"))
	if !ok {
		t.Fatal("Buf was not appended to")
	}
	size, next := 0, q.Offset
	for len(data) > 0 {
		b := want[0]
		if !bytes.HasPrefix(data, b) {
			t.Fatalf("read at %d: other bytes at %d", q.Offset, b.BaseOffset())
		}
		size, next, data, want = size+len(b), b.NextOffset(), data[len(b):], want[1:]
	}
	if size > q.MaxBytes && !(q.FirstWhole && next == x.want(q.Offset, q.Limit)[0].NextOffset()) {
		t.Fatalf("%d bytes, at most %d", size, q.MaxBytes)
	}
	if q.FirstWhole && size == 0 {
		t.Fatalf("read at %d gave nothing", q.Offset)
	}
	if res.Next != next && !(res.Next == q.Limit && next > q.Offset && len(want) == 0) {
		t.Fatalf("read at %d: next %d, data ends at %d, limit %d", q.Offset, res.Next, next, q.Limit)
	}
	if !q.Aborted {
		return
	}
	var aborted []segment.Aborted
	for _, a := range x.p.aborted {
		if a.First < res.Next && a.Marker >= q.Offset && res.Next > q.Offset {
			aborted = append(aborted, a)
		}
	}
	slices.SortFunc(aborted, func(a, b segment.Aborted) int { return int(a.First - b.First) })
	if !slices.Equal(aborted, res.Aborted) {
		t.Fatalf("aborted in [%d, %d): %v, not %v", q.Offset, res.Next, res.Aborted, aborted)
	}
}

// checkLookup compares a time lookup with a linear search; it counts a retriable failure.
func (x *tier) checkLookup(t *testing.T, r *Reader, v *View, ts int64, from record.Offset) int {
	t.Helper()
	got, ok, err := r.OffsetForTime(t.Context(), v, ts, from, v.Head.TieredEnd)
	if err != nil {
		if !retriable(err) {
			t.Fatal(err)
		}
		return 1
	}
	i := slices.IndexFunc(x.recs, func(c rec) bool {
		return !c.control && c.offset >= max(from, v.Manifest.LogStart) && c.timestamp >= ts
	})
	if ok != (i >= 0) || ok && got != (TimeOffset{x.recs[i].offset, x.recs[i].timestamp, x.recs[i].epoch}) {
		t.Fatalf("log start %d, time %d from %d: %v %v, model %d", v.Manifest.LogStart, ts, from, got, ok, i)
	}
	return 0
}

func (x *tier) checkMax(t *testing.T, r *Reader, v *View) int {
	t.Helper()
	got, ok, err := r.MaxTimestamp(t.Context(), v)
	if err != nil {
		if !retriable(err) {
			t.Fatal(err)
		}
		return 1
	}
	most := segment.NoTimestamp
	for _, c := range x.recs {
		if !c.control && c.offset >= v.Manifest.LogStart {
			most = max(most, c.timestamp)
		}
	}
	if ok != (most >= 0) || ok && (got.Timestamp != most || got.Offset < v.Manifest.LogStart || x.recs[got.Offset].timestamp != most || x.recs[got.Offset].epoch != got.Epoch) {
		t.Fatalf("log start %d: %v %v, model %d", v.Manifest.LogStart, got, ok, most)
	}
	return 0
}
