// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/varve/varve/record"
)

// log is a Source over batches in memory that counts its scans.
type log struct {
	batches []record.Batch
	scans   int
	broken  func(scan int, b record.Batch) record.Batch // what a scan gives instead
}

func (l *log) Scan(from, limit record.Offset, fn func(record.Batch) error) error {
	l.scans++
	for _, b := range l.batches {
		if b.LastOffset() < from || b.BaseOffset() >= limit {
			continue
		}
		if l.broken != nil {
			if b = l.broken(l.scans, b); b == nil {
				continue
			}
		}
		if err := fn(b); err != nil {
			return err
		}
	}
	return nil
}

func (l *log) end() record.Offset { return l.batches[len(l.batches)-1].NextOffset() }

type sample struct {
	offset    record.Offset
	timestamp int64
	epoch     record.Epoch
	control   bool
}

type logOptions struct {
	base    record.Offset
	batches int
	records int // at most, per batch
	value   int // bytes at most
	spread  int64
	epochs  bool
	control bool
}

// makeLog builds a random log of all codecs with timestamps out of order.
func makeLog(t testing.TB, rng *rand.Rand, o logOptions) (*log, []sample, []record.EpochStart) {
	t.Helper()
	l := &log{}
	var samples []sample
	epoch, next := record.Epoch(3), o.base
	chain := []record.EpochStart{{Epoch: 1, Start: 0}, {Epoch: 3, Start: o.base}}
	for i := range o.batches {
		if o.epochs && i > 0 && rng.IntN(8) == 0 {
			epoch += record.Epoch(1 + rng.IntN(3))
			chain = append(chain, record.EpochStart{Epoch: epoch, Start: next})
		}
		if o.control && rng.IntN(6) == 0 {
			b, err := record.Marker{}.Batch(record.Producer{ID: 9, Epoch: 1}, 1<<60)
			if err != nil {
				t.Fatal(err)
			}
			b.Stamp(next, epoch)
			l.batches = append(l.batches, b)
			samples = append(samples, sample{next, 1 << 60, epoch, true})
			next = b.NextOffset()
			continue
		}
		rb := record.Builder{Codec: record.Codec(rng.IntN(5)), BaseOffset: next, LeaderEpoch: epoch}
		appendTime := int64(-1)
		if rng.IntN(5) == 0 {
			appendTime = 1000 + rng.Int64N(o.spread)
			rb.SetLogAppendTime(appendTime)
		}
		for range 1 + rng.IntN(o.records) {
			ts := 1000 + rng.Int64N(o.spread)
			value := make([]byte, rng.IntN(o.value+1))
			for j := range value {
				value[j] = byte(rng.UintN(256))
			}
			rb.Add(ts, nil, value)
			if appendTime >= 0 {
				ts = appendTime
			}
			samples = append(samples, sample{next, ts, epoch, false})
			next++
		}
		b, err := rb.Build()
		if err != nil {
			t.Fatal(err)
		}
		l.batches = append(l.batches, b)
	}
	return l, samples, chain
}

func testIdentity() Identity {
	return Identity{ClusterID: "abcdefghijklmnopqrstuv", Gen: 2, Topic: record.TopicID{1, 2}, TopicName: "orders", Partition: 7, LeaderEpoch: 9, Attempt: Attempt{4, 5, 6}}
}

func extra(chain []record.EpochStart) func(record.Offset) (Extra, error) {
	return func(end record.Offset) (Extra, error) {
		return Extra{Epochs: chain, Producers: []Producer{{ID: 42, State: []byte("state of 42")}, {ID: 7, State: nil}},
			Aborted: []Aborted{{ProducerID: 9, First: end - 1, Marker: end - 1}, {ProducerID: 9, First: 0, Marker: end + 3}}, FirstUnstable: record.NoOffset, SealedAtMillis: 123456}, nil
	}
}

func mustBuild(t testing.TB, l *log, chain []record.EpochStart) *Object {
	t.Helper()
	o, err := Build(testIdentity(), l, Range{l.batches[0].BaseOffset(), l.end()}, 0, extra(chain))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func readBody(t testing.TB, o *Object) []byte {
	t.Helper()
	r, err := o.Open()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		l, samples, chain := makeLog(t, rng, logOptions{base: record.Offset(rng.IntN(1000)), batches: 1 + rng.IntN(200), records: 20, value: 600, spread: 5000, epochs: true, control: true})
		o := mustBuild(t, l, chain)
		b := readBody(t, o)
		if int64(len(b)) != o.Size() || crc32.Checksum(b, castagnoli) != o.CRC32C() {
			t.Fatalf("round %d: %d bytes, size says %d; or checksum", round, len(b), o.Size())
		}
		if again := readBody(t, o); !bytes.Equal(again, b) {
			t.Fatal("a second pass gave other bytes")
		}
		id, n, err := ReadHeader(b)
		if err != nil || id != testIdentity() {
			t.Fatalf("header: %v %v", id, err)
		}
		x := readIndex(t, b)
		if !bytes.Equal(b[n:int64(n)+x.Info.DataBytes], bytes.Join(asBytes(l.batches), nil)) {
			t.Fatal("data is not byte-identical")
		}
		if fmt.Sprint(x.Info) != fmt.Sprint(o.Info) || x.Info.Records != int64(len(samples)) || x.Info.Base != samples[0].offset || x.Info.End != l.end() {
			t.Fatalf("info\n%v\n%v", x.Info, o.Info)
		}
		checkInfo(t, x, samples)
		for i, c := range x.Chunks {
			if err := x.VerifyChunk(i, b[c.Pos:c.Pos+int64(c.Len)]); err != nil {
				t.Fatal(err)
			}
			if i+1 < len(x.Chunks) && c.Len < ChunkTarget {
				t.Fatalf("chunk %d closed at %d bytes", i, c.Len)
			}
		}
		p := x.Producers
		ps, err := DecodeProducers(b[p.Pos:p.Pos+int64(p.Len)], p)
		if err != nil || len(ps) != 2 || ps[0].ID != 7 || string(ps[1].State) != "state of 42" {
			t.Fatalf("producers %v %v", ps, err)
		}
	}
}

func checkInfo(t *testing.T, x *Index, samples []sample) {
	t.Helper()
	most := NoTimestamp
	for _, s := range samples {
		if !s.control {
			most = max(most, s.timestamp)
		}
		if e := x.EpochAt(s.offset); e != s.epoch {
			t.Fatalf("epoch at %d is %d, not %d", s.offset, e, s.epoch)
		}
	}
	if x.Info.MaxTimestamp != most {
		t.Fatalf("maximum timestamp %d, not %d", x.Info.MaxTimestamp, most)
	}
	if most != NoTimestamp && samples[x.Info.OffsetOfMax-samples[0].offset].timestamp != most {
		t.Fatalf("offset %d does not have the maximum timestamp", x.Info.OffsetOfMax)
	}
}

func asBytes(bs []record.Batch) [][]byte {
	out := make([][]byte, len(bs))
	for i, b := range bs {
		out[i] = b
	}
	return out
}

// readIndex reads it as a reader without a manifest does: a guess, then exactly.
func readIndex(t testing.TB, b []byte) *Index {
	t.Helper()
	n := min(int64(len(b)), TrailerLen)
	for {
		x, err := ReadIndex(b[int64(len(b))-n:], int64(len(b)))
		var more *NeedMore
		if errors.As(err, &more) && more.Bytes > n {
			n = more.Bytes
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

// TestOffsetLookup compares with a linear search, for every offset and the two around the ends.
func TestOffsetLookup(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	l, samples, chain := makeLog(t, rng, logOptions{base: 50, batches: 300, records: 30, value: 900, spread: 100, control: true})
	b := readBody(t, mustBuild(t, l, chain))
	x := readIndex(t, b)
	if len(x.Chunks) < 10 {
		t.Fatalf("only %d chunks", len(x.Chunks))
	}
	for o := samples[0].offset; o < l.end(); o++ {
		i, ok := x.ForOffset(o)
		if !ok || o < x.Chunks[i].Base || o >= x.ChunkEnd(i) {
			t.Fatalf("offset %d: chunk %d %v", o, i, ok)
		}
	}
	if _, ok := x.ForOffset(l.end()); ok {
		t.Fatal("the end is found")
	}
}

// TestTimeLookup is exact for timestamps out of order: every t and t±1, random log starts, against a linear search, in one read.
func TestTimeLookup(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 12 {
		l, samples, chain := makeLog(t, rng, logOptions{base: 10, batches: 150, records: 12, value: 2500, spread: int64(1 + rng.IntN(400)), control: true})
		b := readBody(t, mustBuild(t, l, chain))
		x := readIndex(t, b)
		for ts := int64(998); ts < 1402; ts++ {
			from := samples[0].offset + record.Offset(rng.IntN(len(samples)))
			if ts%7 == 0 {
				from = 0
			}
			want := slices.IndexFunc(samples, func(s sample) bool { return !s.control && s.offset >= from && s.timestamp >= ts })
			got, reads := findTime(t, b, x, ts, from)
			if want < 0 {
				if got != record.NoOffset {
					t.Fatalf("round %d ts %d from %d: found %d, there is none", round, ts, from, got)
				}
			} else if got != samples[want].offset {
				t.Fatalf("round %d ts %d from %d: found %d, not %d", round, ts, from, got, samples[want].offset)
			}
			if reads > 1 {
				t.Fatalf("round %d ts %d from %d: %d reads", round, ts, from, reads)
			}
		}
	}
}

// findTime follows TimeSpan as a reader does and counts its reads.
func findTime(t *testing.T, object []byte, x *Index, ts int64, from record.Offset) (found record.Offset, reads int) {
	t.Helper()
	s, ok := x.TimeSpan(ts, from, 0, 1<<40)
	for ok {
		reads++
		first := x.Chunks[s.First].Pos
		for rest := object[first : first+x.SpanBytes(s)]; len(rest) > 0; {
			b, more, err := record.Split(rest)
			if err != nil {
				t.Fatal(err)
			}
			rest = more
			o, _, hit, err := b.FirstAtOrAfter(ts, from)
			if err != nil {
				t.Fatal(err)
			}
			if hit {
				return o, reads
			}
		}
		s, ok = x.TimeSpan(ts, from, s.Last+1, 1<<40)
	}
	return record.NoOffset, reads
}

// TestCutBatch: the log start may lie inside the first batch; lookups see nothing below it.
func TestCutBatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	for range 40 {
		l, samples, chain := makeLog(t, rng, logOptions{base: 100, batches: 60, records: 12, value: 3000, spread: 200, control: true})
		base := l.batches[3].BaseOffset() + record.Offset(rng.Int64N(int64(l.batches[3].LastOffset()-l.batches[3].BaseOffset())+1))
		o, err := Build(testIdentity(), l, Range{base, l.end()}, 0, extra(chain))
		if err != nil {
			t.Fatal(err)
		}
		b := readBody(t, o)
		x := readIndex(t, b)
		for i, c := range x.Chunks {
			if err := x.VerifyChunk(i, b[c.Pos:c.Pos+int64(c.Len)]); err != nil {
				t.Fatal(err)
			}
		}
		live := samples[base-samples[0].offset:]
		checkInfo(t, x, live)
		if x.Info.Base != base || x.Chunks[0].Base != base {
			t.Fatalf("base %d, first chunk %d, log start %d", x.Info.Base, x.Chunks[0].Base, base)
		}
		for ts := int64(998); ts < 1203; ts++ {
			want := slices.IndexFunc(live, func(s sample) bool { return !s.control && s.timestamp >= ts })
			got, reads := findTime(t, b, x, ts, base)
			if want < 0 && got != record.NoOffset || want >= 0 && got != live[want].offset || reads > 1 {
				t.Fatalf("ts %d from %d: found %d in %d reads, model %d", ts, base, got, reads, want)
			}
		}
	}
}

func TestBuildStopsAtMaxBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	l, _, chain := makeLog(t, rng, logOptions{base: 0, batches: 100, records: 5, value: 300, spread: 10})
	for _, maxBytes := range []int64{1, 500, 5000, 1 << 30} {
		o, err := Build(testIdentity(), l, Range{0, l.end()}, maxBytes, extra(chain))
		if err != nil {
			t.Fatal(err)
		}
		one := o.Info.End == l.batches[0].NextOffset()
		if o.Info.DataBytes > maxBytes && !one {
			t.Fatalf("%d bytes, at most %d", o.Info.DataBytes, maxBytes)
		}
		next := int64(0)
		for _, b := range l.batches {
			if b.BaseOffset() == o.Info.End {
				next = int64(len(b))
			}
		}
		if o.Info.End < l.end() && o.Info.DataBytes+next <= maxBytes {
			t.Fatalf("stopped at %d bytes, the next batch of %d fits into %d", o.Info.DataBytes, next, maxBytes)
		}
		if x := readIndex(t, readBody(t, o)); x.Info.End != o.Info.End {
			t.Fatal("end of the index")
		}
	}
}

// TestBuildRefuses: whatever is wrong with the source fails pass 1 or the body, never becomes an object (W3).
func TestBuildRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	l, _, chain := makeLog(t, rng, logOptions{base: 5, batches: 200, records: 5, value: 2000, spread: 10, epochs: true})
	r := Range{5, l.end()}
	middle := l.batches[100].BaseOffset()
	flip := func(b record.Batch) record.Batch {
		c := slices.Clone(b)
		c[len(c)-1] ^= 1
		return c
	}
	tests := map[string]func(scan int, b record.Batch) record.Batch{
		"bad CRC": func(_ int, b record.Batch) record.Batch {
			if b.BaseOffset() == middle {
				return flip(b)
			}
			return b
		},
		"gap": func(_ int, b record.Batch) record.Batch {
			if b.BaseOffset() == middle {
				return nil
			}
			return b
		},
		"missing end": func(_ int, b record.Batch) record.Batch {
			if b.NextOffset() == l.end() {
				return nil
			}
			return b
		},
		"repeated": func(_ int, b record.Batch) record.Batch {
			if b.BaseOffset() == middle {
				return l.batches[99]
			}
			return b
		},
		"epoch back": func(_ int, b record.Batch) record.Batch {
			if b.BaseOffset() == middle {
				c := slices.Clone(b)
				c.Stamp(middle, 0)
				return c
			}
			return b
		},
		"epoch not in the chain": func(_ int, b record.Batch) record.Batch {
			if b.NextOffset() == l.end() {
				c := slices.Clone(b)
				c.Stamp(b.BaseOffset(), 1000)
				return c
			}
			return b
		},
	}
	for name, broken := range tests {
		l.broken = broken
		if _, err := Build(testIdentity(), l, r, 0, extra(chain)); !errors.Is(err, ErrSource) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.broken = nil
	o := mustBuild(t, l, chain)
	other := func(scan int, b record.Batch) record.Batch {
		if b.BaseOffset() != middle {
			return b
		}
		// A valid batch at the same offset with the same length but other bytes: only the checksum of pass 1 can tell.
		c := slices.Clone(b)
		c.Stamp(middle, b.LeaderEpoch()+1)
		return c
	}
	for name, broken := range map[string]func(int, record.Batch) record.Batch{"pass 2 other bytes": other, "pass 2 gone": tests["gap"]} {
		l.broken = broken
		body, err := o.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, body); !errors.Is(err, ErrSource) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBodySeeks(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	l, _, chain := makeLog(t, rng, logOptions{base: 0, batches: 200, records: 10, value: 2000, spread: 10})
	o := mustBuild(t, l, chain)
	want := readBody(t, o)
	r, err := o.Open()
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		at := rng.Int64N(o.Size())
		if _, err := r.(io.Seeker).Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, min(rng.Int64N(100_000), o.Size()-at))
		if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want[at:at+int64(len(got))]) {
			t.Fatalf("read at %d: %v", at, err)
		}
	}
}

// TestBodyByAnyBuffer: chunks come straight into a large buffer and by way of the body's own into a small one, with the same bytes.
func TestBodyByAnyBuffer(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	l, _, chain := makeLog(t, rng, logOptions{base: 0, batches: 200, records: 10, value: 2000, spread: 10})
	o := mustBuild(t, l, chain)
	want := readBody(t, o)
	for _, size := range []int{1000, 32 << 10, ChunkTarget, ChunkTarget + 30<<10, bodyGroup, 1 << 20, len(want)} {
		r, err := o.Open()
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{r}, make([]byte, size)); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("buffer of %d: %d bytes of %d, %v", size, got.Len(), len(want), err)
		}
	}
}

// TestBuildMemory: building and streaming a segment costs its index, not its data (W4).
func TestBuildMemory(t *testing.T) {
	b := record.Builder{LeaderEpoch: 3}
	value := make([]byte, 16<<10)
	b.Add(1000, nil, value)
	one, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	src := repeat{one, 8192} // 128 MiB
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	o, err := Build(testIdentity(), src, Range{0, 8192}, 0, extra([]record.EpochStart{{Epoch: 3, Start: 0}}))
	if err != nil {
		t.Fatal(err)
	}
	body, err := o.Open()
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{body}, make([]byte, 32<<10))
	if err != nil || n != o.Size() || n < 128<<20 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d MiB segment: %d KiB allocated in all", n>>20, allocated>>10)
	if allocated > 4<<20 {
		t.Fatalf("%d bytes allocated", allocated)
	}
}

// repeat is a source of n copies of one batch, stamped in place.
type repeat struct {
	b record.Batch
	n record.Offset
}

func (r repeat) Scan(from, limit record.Offset, fn func(record.Batch) error) error {
	for o := from; o < min(limit, r.n); o++ {
		r.b.Stamp(o, 3)
		if err := fn(r.b); err != nil {
			return err
		}
	}
	return nil
}

func TestAborted(t *testing.T) {
	x := &Index{Aborted: []Aborted{{1, 10, 20}, {2, 12, 13}, {1, 30, 35}}}
	for _, c := range []struct {
		from, to record.Offset
		want     int
	}{{0, 10, 0}, {0, 11, 1}, {14, 40, 2}, {21, 30, 0}, {20, 21, 1}, {13, 31, 3}, {36, 99, 0}} {
		if got := x.AbortedIn(c.from, c.to, nil); len(got) != c.want {
			t.Errorf("[%d, %d): %v", c.from, c.to, got)
		}
	}
}

func TestNewerFormatIsNamed(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	l, _, chain := makeLog(t, rng, logOptions{batches: 2, records: 2, value: 10, spread: 10})
	b := readBody(t, mustBuild(t, l, chain))
	b[len(b)-TrailerLen+5] = 2
	_, err := ReadIndex(b, int64(len(b)))
	if !errors.Is(err, ErrNewerFormat) || err.Error() != "segment: newer format: segment has format 2, this binary reads up to 1" {
		t.Fatal(err)
	}
	b[9] = 3
	if _, _, err := ReadHeader(b); !errors.Is(err, ErrNewerFormat) {
		t.Fatal(err)
	}
}

// TestFlippedBits: any one bit of footer, trailer, producer snapshot or header flipped is an error; of the data, an error of its chunk.
func TestFlippedBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	l, _, chain := makeLog(t, rng, logOptions{batches: 40, records: 4, value: 9000, spread: 10, epochs: true})
	b := readBody(t, mustBuild(t, l, chain))
	x := readIndex(t, b)
	for at := range b {
		inData := at >= int(x.Info.DataPos) && at < int(x.Producers.Pos)
		if inData && rng.IntN(200) != 0 {
			continue
		}
		for bit := range 8 {
			b[at] ^= 1 << bit
			if err := readAll(b, x, inData); err == nil {
				t.Fatalf("byte %d of %d: bit %d flipped unseen", at, len(b), bit)
			}
			b[at] ^= 1 << bit
		}
	}
	if err := readAll(b, x, true); err != nil {
		t.Fatal(err)
	}
}

// readAll reads header, index and producers, and the data by the known good index.
func readAll(b []byte, good *Index, data bool) error {
	if _, _, err := ReadHeader(b); err != nil {
		return err
	}
	x, err := ReadIndex(b[int64(len(b))-good.Info.FooterLen:], int64(len(b)))
	if err != nil {
		return err
	}
	p := x.Producers
	if _, err := DecodeProducers(b[p.Pos:p.Pos+int64(p.Len)], p); err != nil {
		return err
	}
	if !data {
		return nil
	}
	for i, c := range good.Chunks {
		if err := good.VerifyChunk(i, b[c.Pos:c.Pos+int64(c.Len)]); err != nil {
			return err
		}
	}
	return nil
}

// FuzzReadIndex: any bytes give an error or an index within its bounds, also when the checksum has been made to hold.
func FuzzReadIndex(f *testing.F) {
	rng := rand.New(rand.NewPCG(17, 18))
	l, _, chain := makeLog(f, rng, logOptions{batches: 30, records: 4, value: 9000, spread: 10, epochs: true})
	b := readBody(f, mustBuild(f, l, chain))
	x := readIndex(f, b)
	f.Add(b[int64(len(b))-x.Info.FooterLen:], int64(len(b)), true)
	f.Add([]byte(tailMagic), int64(8), false)
	f.Fuzz(func(t *testing.T, tail []byte, size int64, fix bool) {
		if fix && len(tail) >= TrailerLen {
			tail = appendTrailer(slices.Clone(tail[:len(tail)-TrailerLen]))
		}
		x, err := ReadIndex(tail, size)
		if err != nil {
			return
		}
		for o := x.Info.Base - 1; o < x.Info.Base+50; o++ {
			if i, ok := x.ForOffset(o); ok && (i < 0 || i >= len(x.Chunks)) {
				t.Fatalf("chunk %d of %d", i, len(x.Chunks))
			}
			if s, ok := x.TimeSpan(1000, o, 0, 1<<20); ok && (s.Last >= len(x.Chunks) || x.SpanBytes(s) <= 0) {
				t.Fatalf("span %v", s)
			}
		}
		for _, c := range x.Chunks {
			if c.Pos < 0 || c.Pos+int64(c.Len) > size {
				t.Fatalf("chunk %v in %d bytes", c, size)
			}
		}
		_, _ = DecodeProducers(tail[:min(len(tail), int(x.Producers.Len))], x.Producers)
	})
}
