// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/objstore"
)

// value reads a counter.
func value(m prometheus.Metric) float64 {
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		panic(err)
	}
	return out.GetCounter().GetValue()
}

// counting counts GETs and what is under way.
type counting struct {
	objstore.Store
	gets  atomic.Int64
	bytes atomic.Int64
	now   atomic.Int64
	most  atomic.Int64
	hold  chan struct{} // nil: do not wait
}

func (c *counting) Get(ctx context.Context, key string, off, n int64, dst []byte) ([]byte, error) {
	c.gets.Add(1)
	c.bytes.Add(n)
	if now := c.now.Add(n); now > c.most.Load() {
		c.most.Store(now)
	}
	defer c.now.Add(-n)
	if c.hold != nil {
		select {
		case <-c.hold:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", objstore.ErrUnavailable, ctx.Err())
		}
	}
	return c.Store.Get(ctx, key, off, n, dst)
}

// took gives the GETs since the last call.
func (c *counting) took() int64 { return c.gets.Swap(0) }

// TestEveryTime: every t and t±1 of a log, from random log starts, equals a linear search and costs what it may: per segment visited one GET of the index
// and one of data, and a second segment only when the first has no such record at or above the log start.
func TestEveryTime(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	x := makeTier(t, rng, tierOptions{batches: 400, records: 5, value: 6000, spread: 500, segment: 250_000})
	c := &counting{Store: x.store}
	most := int64(0)
	for ts := int64(998); ts < 1503; ts++ {
		start := record.Offset(0)
		if ts%3 > 0 {
			start = record.Offset(rng.Int64N(int64(x.v.Head.TieredEnd)))
		}
		v := x.from(t, start)
		r := NewReader(ReaderConfig{}, c)
		c.took()
		x.checkLookup(t, r, v, ts, 0)
		gets, visited := c.took(), x.visited(v, ts)
		if gets > 2*visited {
			t.Fatalf("log start %d, time %d: %d GETs for %d segments", start, ts, gets, visited)
		}
		most = max(most, gets)
		c.took()
		x.checkLookup(t, r, v, ts, 0)
		if gets := c.took(); gets != 0 {
			t.Fatalf("%d GETs for the same lookup again", gets)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d segments, at most %d GETs", len(x.v.Manifest.Entries), most)
	if most < 4 {
		t.Error("no lookup went on to a second segment: the test shows nothing about that")
	}
}

// visited is how many segments a lookup may visit: those whose maximum promises a record, up to the first that has one.
func (x *tier) visited(v *View, ts int64) int64 {
	n := int64(0)
	for i := range v.Manifest.Entries {
		e := &v.Manifest.Entries[i]
		if e.End <= v.Manifest.LogStart || e.MaxTimestamp < ts {
			continue
		}
		n++
		for _, c := range x.recs[e.Base:e.End] {
			if !c.control && c.offset >= v.Manifest.LogStart && c.timestamp >= ts {
				return n
			}
		}
	}
	return n
}

// TestTimeLimit: what lies at or above the limit is somebody else's (the hot log's): it is not found, and costs nothing.
func TestTimeLimit(t *testing.T) {
	x := makeTier(t, rand.New(rand.NewPCG(35, 36)), tierOptions{batches: 200, records: 5, value: 6000, spread: 500, segment: 250_000})
	c := &counting{Store: x.store}
	for i, e := range x.v.Manifest.Entries {
		r := NewReader(ReaderConfig{}, c)
		c.took()
		got, ok, err := r.OffsetForTime(t.Context(), x.v, 1490, e.Base, e.Base)
		if err != nil || ok || c.took() != 0 {
			t.Fatalf("segment %d: %v %v %v", i, got, ok, err)
		}
		for limit := e.Base + 1; limit < e.End; limit += 7 {
			want := slices.IndexFunc(x.recs, func(c rec) bool { return c.offset >= e.Base && c.offset < limit && c.timestamp >= 1490 })
			got, ok, err := r.OffsetForTime(t.Context(), x.v, 1490, e.Base, limit)
			if err != nil || ok != (want >= 0) || ok && got.Offset != x.recs[want].offset {
				t.Fatalf("[%d, %d): %v %v %v, model %d", e.Base, limit, got, ok, err, want)
			}
		}
		_ = r.Close()
	}
}

// TestMaxTimestampGets: no GET unless log start cut the maximum away.
func TestMaxTimestampGets(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	x := makeTier(t, rng, tierOptions{batches: 300, records: 5, value: 3000, spread: 1 << 40, segment: 1 << 20})
	c := &counting{Store: x.store}
	free := 0
	for o := record.Offset(0); o < x.v.Head.TieredEnd; o += 3 {
		v := x.from(t, o)
		r := NewReader(ReaderConfig{}, c)
		c.took()
		x.checkMax(t, r, v)
		l, err := v.Manifest.LargestTimestamp(nil)
		if err != nil {
			t.Fatal(err)
		}
		switch gets := c.took(); {
		case !l.HasCut && gets != 0, gets > 3:
			t.Fatalf("log start %d: %d GETs", o, gets)
		case gets == 0:
			free++
		}
		_ = r.Close()
	}
	if free == 0 || free > int(x.v.Head.TieredEnd/3) {
		t.Errorf("%d of %d without a GET", free, x.v.Head.TieredEnd/3)
	}
}

// TestSequential: a reader from start to end has most of it brought before it asks; a random reader has nothing brought.
func TestSequential(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	x := makeTier(t, rng, tierOptions{batches: 1500, records: 2, value: 16_000, spread: 100, segment: 7 << 20})
	c := &counting{Store: x.store}
	reg := prometheus.NewRegistry()
	r := NewReader(ReaderConfig{CacheBytes: 12 << 20, Registerer: reg}, c)
	got := readThrough(t, r, x.v, 0, 300_000)
	if want := bytes.Join(asBytes(x.p.all), nil); !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, not %d", len(got), len(want))
	}
	data, ahead := value(r.metrics.gets.WithLabelValues(getData)), value(r.metrics.gets.WithLabelValues(getPrefetch))
	t.Logf("%d MB in %d segments: %v data GETs, %v ahead, %d in all", len(got)>>20, len(x.v.Manifest.Entries), data, ahead, c.took())
	if ahead < data {
		t.Errorf("%v GETs on demand, %v ahead", data, ahead)
	}
	if b := c.bytes.Load(); b > int64(len(got))*11/10 {
		t.Errorf("%d bytes got for %d", b, len(got))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = NewReader(ReaderConfig{}, c)
	c.took()
	for i := range 20 {
		o := x.v.Manifest.Entries[i%len(x.v.Manifest.Entries)].Base
		if _, err := r.Read(t.Context(), ReadRequest{View: x.v, Offset: o, Limit: x.v.Head.TieredEnd, MaxBytes: 1000, FirstWhole: true}); err != nil {
			t.Fatal(err)
		}
	}
	if n := value(r.metrics.gets.WithLabelValues(getPrefetch)); n != 0 {
		t.Errorf("%v GETs ahead of random reads", n)
	}
	_ = r.Close()
}

func asBytes(bs []record.Batch) [][]byte {
	out := make([][]byte, len(bs))
	for i, b := range bs {
		out[i] = b
	}
	return out
}

// TestWaiterLeaves is protocols 6.5: a read slower than the fetch waits goes on, and the next fetch finds it; nothing is asked for twice.
func TestWaiterLeaves(t *testing.T) {
	x := makeTier(t, rand.New(rand.NewPCG(17, 18)), tierOptions{batches: 20, records: 2, value: 1000, spread: 100, segment: 1 << 20})
	synctest.Test(t, func(t *testing.T) {
		slow := objstore.Fault(x.store, objstore.FaultOptions{})
		slow.Add(objstore.Rule{Op: objstore.OpGet, Effect: objstore.Slow, Delay: 3 * time.Second})
		c := &counting{Store: slow}
		r := NewReader(ReaderConfig{}, c)
		tries := 0
		for began := time.Now(); ; tries++ {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			res, err := r.Read(ctx, ReadRequest{View: x.v, Offset: 0, Limit: x.v.Head.TieredEnd, MaxBytes: 1 << 20, FirstWhole: true})
			cancel()
			if err == nil {
				if res.Next != x.v.Head.TieredEnd {
					t.Fatalf("next %d", res.Next)
				}
				break
			}
			if !errors.Is(err, ErrUnavailable) || time.Since(began) > 10*time.Second {
				t.Fatalf("after %s: %v", time.Since(began), err)
			}
		}
		if tries < 10 || c.took() != 2 {
			t.Errorf("%d tries, %d GETs", tries, c.took())
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		_ = slow.Close()
	})
}

// TestSingleFlight: who asks for the same at the same time shares one GET.
func TestSingleFlight(t *testing.T) {
	x := makeTier(t, rand.New(rand.NewPCG(19, 20)), tierOptions{batches: 20, records: 2, value: 1000, spread: 100, segment: 1 << 20})
	synctest.Test(t, func(t *testing.T) {
		slow := objstore.Fault(x.store, objstore.FaultOptions{})
		slow.Add(objstore.Rule{Op: objstore.OpGet, Effect: objstore.Slow, Delay: time.Second})
		c := &counting{Store: slow}
		r := NewReader(ReaderConfig{}, c)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := r.Read(t.Context(), ReadRequest{View: x.v, Offset: 3, Limit: x.v.Head.TieredEnd, MaxBytes: 1 << 20, FirstWhole: true}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := c.took(); n != 2 {
			t.Errorf("%d GETs", n)
		}
		_ = r.Close()
		_ = slow.Close()
	})
}

// TestMemoryBeforeGet is T6: what is under way never exceeds the budget, however many ask, and everybody is served in the end.
func TestMemoryBeforeGet(t *testing.T) {
	x := makeTier(t, rand.New(rand.NewPCG(21, 22)), tierOptions{batches: 600, records: 2, value: 16_000, spread: 100, segment: 1 << 20})
	synctest.Test(t, func(t *testing.T) {
		slow := objstore.Fault(x.store, objstore.FaultOptions{})
		slow.Add(objstore.Rule{Op: objstore.OpGet, Effect: objstore.Slow, Delay: 100 * time.Millisecond})
		c := &counting{Store: slow}
		r := NewReader(ReaderConfig{InFlightBytes: 3 << 20}, c)
		if err := r.warm(t.Context(), x.v); err != nil {
			t.Fatal(err)
		}
		c.most.Store(0)
		var wg sync.WaitGroup
		for _, e := range x.v.Manifest.Entries {
			wg.Go(func() {
				if _, err := r.Read(t.Context(), ReadRequest{View: x.v, Offset: e.Base, Limit: e.End, MaxBytes: 1000, FirstWhole: true}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most := c.most.Load(); most > 3<<20 || most < 2<<20 {
			t.Errorf("%d bytes under way at once", most)
		}
		_ = r.Close()
		_ = slow.Close()
	})
}

// warm reads every index.
func (r *Reader) warm(ctx context.Context, v *View) error {
	for i := range v.Manifest.Entries {
		if _, err := r.index(ctx, v, &v.Manifest.Entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// TestFlightLimit: reads whose waiters have left are bounded too.
func TestFlightLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, stop := context.WithCancel(t.Context())
		c := newCache[int, int](base, 100, 5)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		load := func(ctx context.Context) (int, int64, error) { <-ctx.Done(); return 0, 0, ctx.Err() }
		for i := range 5 {
			if _, err := c.get(gone, i, load); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if _, err := c.get(t.Context(), 5, load); !errors.Is(err, ErrUnavailable) || errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		stop()
		c.wait()
	})
}

// TestCacheIsBounded: the least recently used goes first, and errors are not kept.
func TestCacheIsBounded(t *testing.T) {
	c := newCache[int, int](t.Context(), 10, 5)
	loads := 0
	get := func(k int, err error) {
		v, got := c.get(t.Context(), k, func(context.Context) (int, int64, error) { loads++; return 2 * k, 4, err })
		if got != nil && err == nil || err == nil && v != 2*k {
			t.Fatalf("%d %v", v, got)
		}
	}
	get(1, nil)
	get(2, nil)
	get(1, nil)
	get(3, nil) // 2 goes
	get(1, nil)
	if loads != 3 || c.mu.size > 10 {
		t.Fatalf("%d loads, %d bytes", loads, c.mu.size)
	}
	get(2, nil)
	get(9, errors.New("x"))
	get(9, nil)
	if loads != 6 {
		t.Fatalf("%d loads", loads)
	}
}

// TestCorrupt: a read of bad bytes fails with object and range, a metric and one log line; other segments go on, and nothing wrong is kept.
func TestCorrupt(t *testing.T) {
	x := makeTier(t, rand.New(rand.NewPCG(23, 24)), tierOptions{batches: 200, records: 2, value: 8000, spread: 100, segment: 300_000})
	bad := x.v.Manifest.Entries[1]
	for _, part := range []string{"data", "footer"} {
		off := bad.Len - 30
		if part == "data" {
			off = 1000
		}
		var logs bytes.Buffer
		reg := prometheus.NewRegistry()
		store := &flipping{Store: x.store, key: bad.Object, at: off}
		r := NewReader(ReaderConfig{Logger: slog.New(slog.NewTextHandler(&logs, nil)), Registerer: reg}, store)
		q := ReadRequest{View: x.v, Offset: bad.Base, Limit: x.v.Head.TieredEnd, MaxBytes: 1 << 20, FirstWhole: true}
		_, err := r.Read(t.Context(), q)
		var ce *CorruptError
		if !errors.Is(err, ErrCorrupt) || !errors.As(err, &ce) || ce.Object != bad.Object || off < ce.Off || off >= ce.Off+ce.Len {
			t.Fatalf("%s: %v", part, err)
		}
		if n := value(r.metrics.corrupt); n != 1 {
			t.Errorf("%s: metric %v", part, n)
		}
		if lines := strings.Split(strings.TrimSpace(logs.String()), "\n"); len(lines) != 1 || !strings.Contains(lines[0], bad.Object) {
			t.Errorf("%s: log %q", part, lines)
		}
		q.Offset, q.Limit = x.v.Manifest.Entries[2].Base, x.v.Manifest.Entries[2].End
		if _, err := r.Read(t.Context(), q); err != nil {
			t.Errorf("%s: the next segment: %v", part, err)
		}
		// A read that begins before the bad segment gives what is good.
		q.Offset, q.Limit = 0, x.v.Head.TieredEnd
		if res, err := r.Read(t.Context(), q); err != nil || res.Next > bad.End {
			t.Errorf("%s: %d %v", part, res.Next, err)
		}
		store.calm.Store(true)
		q.Offset = bad.Base
		if res, err := r.Read(t.Context(), q); err != nil || !bytes.HasPrefix(bytes.Join(asBytes(x.want(bad.Base, q.Limit)), nil), res.Data) {
			t.Errorf("%s: after repair: %v", part, err)
		}
		_ = r.Close()
	}
}

// flipping flips one bit of one byte of one object, whenever it is read.
type flipping struct {
	objstore.Store
	key  string
	at   int64
	calm atomic.Bool
}

func (f *flipping) Get(ctx context.Context, key string, off, n int64, dst []byte) ([]byte, error) {
	b, err := f.Store.Get(ctx, key, off, n, dst)
	if err == nil && key == f.key && !f.calm.Load() && f.at >= off && f.at < off+n {
		b[int64(len(dst))+f.at-off] ^= 4
	}
	return b, err
}

func TestReadErrors(t *testing.T) {
	x := makeTier(t, rand.New(rand.NewPCG(25, 26)), tierOptions{batches: 50, records: 2, value: 8000, spread: 100, segment: 100_000})
	r := NewReader(ReaderConfig{}, x.store)
	v := x.from(t, 10)
	read := func(o record.Offset) error {
		_, err := r.Read(t.Context(), ReadRequest{View: v, Offset: o, Limit: v.Head.TieredEnd, MaxBytes: 1000, FirstWhole: true})
		return err
	}
	for o, want := range map[record.Offset]error{9: ErrOutOfRange, 10: nil, v.Head.TieredEnd - 1: nil, v.Head.TieredEnd: ErrOutOfRange} {
		if err := read(o); !errors.Is(err, want) {
			t.Errorf("offset %d: %v, not %v", o, err, want)
		}
	}
	gone := x.v.Manifest.Entries[3]
	if err := x.store.Delete(t.Context(), []string{gone.Object})[0]; err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = NewReader(ReaderConfig{}, x.store) // nothing is in memory
	if err := read(gone.Base); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	// An object that belongs to another partition is not read as this one's.
	other := *v
	other.ID.Index = 99
	if _, err := NewReader(ReaderConfig{}, x.store).Read(t.Context(), ReadRequest{View: &other, Offset: 20, Limit: 30, MaxBytes: 1, FirstWhole: true}); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := read(10); !errors.Is(err, ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

// TestStartFromTier is W2: a replica with nothing gets the epoch chain and the producers at the tiered end.
func TestStartFromTier(t *testing.T) {
	x := makeTier(t, rand.New(rand.NewPCG(27, 28)), tierOptions{batches: 200, records: 2, value: 2000, spread: 100, segment: 100_000})
	r := NewReader(ReaderConfig{}, x.store)
	epochs, err := r.Epochs(t.Context(), x.v)
	if err != nil || !slices.Equal(epochs, slices.DeleteFunc(slices.Clone(x.p.chain), func(e record.EpochStart) bool { return e.Start >= x.v.Head.TieredEnd })) {
		t.Errorf("%v %v, log %v", epochs, err, x.p.chain)
	}
	ps, err := r.Producers(t.Context(), x.v)
	if err != nil || len(ps) != 1 || string(ps[0].State) != fmt.Sprint("state at ", x.v.Head.TieredEnd) {
		t.Errorf("%v %v", ps, err)
	}
	_ = r.Close()
}

// TestAbortedCostNoMoreIndexes: what was aborted far above costs a reader at the beginning nothing: the segment that it reads was sealed when
// all that began below its end was over, and lists it (E2).
func TestAbortedCostNoMoreIndexes(t *testing.T) {
	x := makeTier(t, rand.New(rand.NewPCG(33, 34)), tierOptions{batches: 600, records: 2, value: 2000, spread: 100, segment: 60_000, aborts: true})
	c := &counting{Store: x.store}
	r := NewReader(ReaderConfig{}, c)
	defer func() { _ = r.Close() }()
	with := 0
	for i := range x.v.Manifest.Entries {
		if x.v.Manifest.Entries[i].HasAborted {
			with++
		}
	}
	if with < 5 {
		t.Fatalf("%d segments with aborted transactions: the test tests nothing", with)
	}
	if _, err := r.Read(t.Context(), ReadRequest{View: x.v, Limit: x.v.Head.TieredEnd, MaxBytes: 1, FirstWhole: true, Aborted: true}); err != nil {
		t.Fatal(err)
	}
	r.groups.running.Wait() // it reads ahead
	if got := value(r.metrics.gets.WithLabelValues(getIndex)); got != 2 {
		t.Errorf("%v indexes were read, want that of the first segment and, read ahead, of the second", got)
	}
}

// TestHammer: many readers over a cache of a few groups; buffers are poisoned when they are given back, so a block used after it was released shows.
func TestHammer(t *testing.T) {
	x := makeTier(t, rand.New(rand.NewPCG(29, 30)), tierOptions{batches: 500, records: 2, value: 16_000, spread: 1000, segment: 3 << 20})
	r := NewReader(ReaderConfig{CacheBytes: 4 << 20, IndexCacheBytes: 8 << 10, InFlightBytes: 8 << 20}, x.store)
	var wg sync.WaitGroup
	for g := range uint64(12) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g, 31))
			o := record.Offset(0)
			for range 25 {
				if rng.IntN(5) == 0 || o >= x.v.Head.TieredEnd {
					o = record.Offset(rng.Int64N(int64(x.v.Head.TieredEnd)))
				}
				q := ReadRequest{View: x.v, Offset: o, Limit: x.v.Head.TieredEnd, MaxBytes: 500_000, FirstWhole: true, Buf: []byte("prefix")}
				res, err := r.Read(t.Context(), q)
				if err != nil {
					t.Error(err)
					return
				}
				x.checkRead(t, q, res)
				o = res.Next
				if rng.IntN(4) == 0 {
					x.checkLookup(t, r, x.v, 1000+rng.Int64N(1001), 0)
				}
			}
		})
	}
	wg.Wait()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	c := r.groups
	if c.mu.size > 4<<20 || len(c.mu.pending) != 0 || c.mu.flights != 0 || len(c.mu.free) > maxFreeBuffers {
		t.Errorf("%d bytes, %d pending, %d flights, %d free", c.mu.size, len(c.mu.pending), c.mu.flights, len(c.mu.free))
	}
	for _, e := range c.mu.items {
		if refs := e.Value.(*block).refs.Load(); refs != 1 {
			t.Fatalf("a block nobody reads has %d references", refs)
		}
	}
}

// BenchmarkColdRead reads 64 MiB in sequence from memory: what the reader itself costs.
func BenchmarkColdRead(b *testing.B) {
	x := makeTier(b, rand.New(rand.NewPCG(33, 34)), tierOptions{batches: 4000, records: 1, value: 32_000, spread: 1000, segment: 64 << 20})
	poison = false
	r := NewReader(ReaderConfig{}, x.store)
	buf := make([]byte, 0, 2<<20)
	n := int64(0)
	runtime.GC()
	b.ReportAllocs()
	for b.Loop() {
		for o := record.Offset(0); o < x.v.Head.TieredEnd; {
			res, err := r.Read(b.Context(), ReadRequest{View: x.v, Offset: o, Limit: x.v.Head.TieredEnd, MaxBytes: 1 << 20, FirstWhole: true, Buf: buf[:0]})
			if err != nil {
				b.Fatal(err)
			}
			n, o = n+int64(len(res.Data)), res.Next
		}
	}
	b.SetBytes(n / int64(b.N))
	_ = r.Close()
}

var _ io.Closer = (*Reader)(nil)
