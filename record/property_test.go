// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"hash/crc32"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func nullable(t *rapid.T, label string) []byte {
	if rapid.Bool().Draw(t, label+" null") {
		return nil
	}
	// A few long ones, so that lengths take one, two and three bytes.
	n := rapid.SampledFrom([]int{0, 1, 5, 63, 64, 200, 9000}).Draw(t, label+" length")
	return bytes.Repeat([]byte{rapid.Byte().Draw(t, label)}, n)
}

func drawRecords(t *rapid.T) []seen {
	base := rapid.Int64Range(0, 1<<42).Draw(t, "base time")
	out := make([]seen, rapid.IntRange(1, 100).Draw(t, "records"))
	for i := range out {
		out[i] = seen{Offset: Offset(i), Timestamp: base + rapid.Int64Range(-1<<40, 1<<40).Draw(t, "time"), Key: nullable(t, "key"), Value: nullable(t, "value")}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			out[i].Headers = append(out[i].Headers, Header{Key: rapid.StringN(0, 5, 20).Draw(t, "header"), Value: nullable(t, "header value")})
		}
	}
	return out
}

func TestBuildValidateRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(allCodecs).Draw(t, "codec")
		want := drawRecords(t)
		b := Builder{Codec: codec, LeaderEpoch: NoEpoch}
		maxTime, firstMax := int64(math.MinInt64), Offset(0)
		for _, r := range want {
			b.Add(r.Timestamp, r.Key, r.Value, r.Headers...)
			if r.Timestamp > maxTime {
				maxTime, firstMax = r.Timestamp, r.Offset
			}
		}
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		crossCheck(t, batch)
		rules := openRules()
		rules.AfterMax = math.MaxInt64
		rules.Compression = int8(rapid.IntRange(-1, int(Zstd)).Draw(t, "compression.type"))
		stored, rej := Validate(bytes.Clone(batch), rules)
		if rej != nil {
			t.Fatal(rej)
		}
		if err := stored.Check(); err != nil {
			t.Fatal(err)
		}
		if rules.Compression == KeepCodec && maxTime >= NoTimestamp && !bytes.Equal(stored, batch) {
			t.Fatal("the batch was changed")
		}
		stored.Stamp(5000, 3)
		var got []seen
		if err := stored.Each(func(r *Record) bool {
			s := seen{Offset: r.Offset - 5000, Timestamp: r.Timestamp, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
			r.EachHeader(func(key, value []byte) bool {
				s.Headers = append(s.Headers, Header{Key: string(key), Value: bytes.Clone(value)})
				return true
			})
			got = append(got, s)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if !equal(got, want) {
			t.Fatalf("read %+v", got)
		}
		if o, ts, err := stored.OffsetOfMaxTimestamp(); maxTime >= 0 && (o != 5000+firstMax || ts != maxTime || err != nil) {
			t.Fatalf("maximum %d at %d (%v), want %d at %d", ts, o, err, maxTime, firstMax)
		}
		searchLikeANaiveOne(t, stored, want)
	})
}

func searchLikeANaiveOne(t *rapid.T, stored Batch, want []seen) {
	pick := rapid.SampledFrom(want).Draw(t, "searched")
	ts := max(0, pick.Timestamp+rapid.Int64Range(-1, 1).Draw(t, "beside"))
	from := Offset(rapid.IntRange(0, len(want)).Draw(t, "from"))
	expect := NoOffset
	for _, r := range want {
		if r.Offset >= from && r.Timestamp >= ts {
			expect = r.Offset + 5000
			break
		}
	}
	if o, _, ok, err := stored.FirstAtOrAfter(ts, 5000+from); o != expect || ok != (expect >= 0) || err != nil {
		t.Fatalf("first at or after %d from %d: %d %v %v, want %d", ts, from, o, ok, err, expect)
	}
}

// crossCheck compares the batch with what franz-go's protocol package makes of it, and of its records.
func crossCheck(t *rapid.T, b Batch) {
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatalf("kmsg: %v", err)
	}
	if int(k.Length)+12 != len(b) || k.Magic != 2 || uint32(k.CRC) != crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)) ||
		k.FirstOffset != int64(b.BaseOffset()) || k.PartitionLeaderEpoch != int32(b.LeaderEpoch()) || k.Attributes != b.Attributes() ||
		k.LastOffsetDelta != b.LastOffsetDelta() || k.FirstTimestamp != b.BaseTimestamp() || k.MaxTimestamp != b.MaxTimestamp() ||
		k.ProducerID != b.ProducerID() || k.ProducerEpoch != b.ProducerEpoch() || k.FirstSequence != b.BaseSequence() || k.NumRecords != b.RecordCount() {
		t.Fatalf("kmsg reads another header: %+v", k)
	}
	if got := k.AppendTo(nil); !bytes.Equal(got, b) {
		t.Fatal("kmsg writes another batch")
	}
	var s scratch
	data, err := s.records(b, MaxDecompressedBytes)
	if err != nil {
		t.Fatal(err)
	}
	c := newCursor(b, data)
	for at := 0; ; at = c.at {
		more, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return
		}
		var r kmsg.Record
		if err := r.ReadFrom(data[at:c.at]); err != nil {
			t.Fatalf("kmsg: %v", err)
		}
		if r.TimestampDelta64 != c.f.timestampDelta || r.OffsetDelta != c.f.offsetDelta || len(r.Headers) != int(c.f.headerCount) ||
			!bytes.Equal(r.Key, c.f.key.of(data)) || !bytes.Equal(r.Value, c.f.value.of(data)) {
			t.Fatalf("kmsg reads another record: %+v, we %+v", r, c.f)
		}
		if got := r.AppendTo(nil); !bytes.Equal(got, data[at:c.at]) {
			t.Fatalf("kmsg writes another record: %x, we %x", got, data[at:c.at])
		}
	}
}

func TestVarintBounds(t *testing.T) {
	for _, c := range []struct {
		in   []byte
		v    int32
		next int
	}{
		{[]byte{0}, 0, 1}, {[]byte{1}, -1, 1}, {[]byte{0x7f}, -64, 1}, {[]byte{0x80, 1}, 64, 2}, {[]byte{0x80, 0x80, 1}, 8192, 3},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, math.MinInt32, 5}, {[]byte{0xfe, 0xff, 0xff, 0xff, 0x0f}, math.MaxInt32, 5},
		{[]byte{0x80, 0x80, 0x80, 0x80, 0}, 0, 5}, {[]byte{0xff, 0xff, 0xff, 0xff, 0x1f}, 0, -1}, {[]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0}, 0, -1},
		{nil, 0, -1}, {[]byte{0x80}, 0, -1}, {[]byte{0x80, 0x80, 0x80}, 0, -1},
	} {
		if v, next := varint(c.in, 0); v != c.v || next != c.next {
			t.Errorf("varint(%x) = %d, %d; want %d, %d", c.in, v, next, c.v, c.next)
		}
		if v, next := varlong(c.in, 0); c.next > 0 && (v != int64(c.v) || next != c.next) {
			t.Errorf("varlong(%x) = %d, %d; want %d, %d", c.in, v, next, c.v, c.next)
		}
	}
	if _, next := varint([]byte{0}, -1); next != -1 {
		t.Error("varint at -1 reads on")
	}
	if _, next := varlong([]byte{0}, -1); next != -1 {
		t.Error("varlong at -1 reads on")
	}
}
