// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
)

// at sets big-endian bytes at an index.
func at(i int, bytes ...byte) func(Batch) {
	return func(b Batch) { copy(b[i:], bytes) }
}

func TestValidateRejects(t *testing.T) {
	ok := three(t, None)
	huge := bytes.Repeat([]byte{0}, 100_000)
	bomb := func(c Codec) Batch {
		b := Builder{Codec: c}
		b.Add(1000, nil, huge)
		return build(t, &b)
	}
	keyless := Builder{}
	keyless.Add(1000, []byte("k"), nil)
	keyless.Add(1000, nil, []byte("v"))
	keyless.Add(1000, nil, []byte("v"))
	noKeys := build(t, &keyless)
	gap := Builder{}
	gap.Add(1000, nil, nil)
	gap.Skip(1)
	gap.Add(1000, nil, nil)
	sparse := edit(build(t, &gap), func(b Batch) { binary.BigEndian.PutUint32(b[23:], 1) })
	records := ok[HeaderSize:]

	cases := []struct {
		name    string
		raw     []byte
		rules   func(*Rules)
		want    Reason
		message string
		bad     []int32
	}{
		{name: "null", raw: nil, want: InvalidRecord, message: "no whole batch"},
		{name: "empty", raw: []byte{}, want: InvalidRecord, message: "no whole batch"},
		{name: "11 bytes", raw: ok[:11], want: InvalidRecord, message: "no whole batch"},
		{name: "half a batch", raw: ok[:len(ok)-1], want: InvalidRecord, message: "no whole batch"},
		{name: "two batches", raw: slices.Concat(ok, ok), want: InvalidRecord, message: "more than one"},
		{name: "garbage behind", raw: slices.Concat(ok, make([]byte, 30)), want: CorruptMessage, message: "length field is 0"},
		{name: "negative length", raw: edit(ok, at(8, 0xff, 0xff, 0xff, 0xff)), want: CorruptMessage, message: "length field is -1"},
		{name: "length below a header", raw: edit(ok, at(8, 0, 0, 0, 48)), want: CorruptMessage, message: "60 bytes"},
		{name: "magic 1", raw: edit(ok, at(16, 1)), want: InvalidRecord, message: "magic 1"},
		{name: "magic 3", raw: edit(ok, at(16, 3)), want: CorruptMessage, message: "magic 3"},
		{name: "zstd too early", raw: three(t, Zstd), rules: func(r *Rules) { r.AllowZstd = false }, want: UnsupportedCompression, message: "zstd"},
		{name: "base offset", raw: edit(ok, at(7, 1)), want: InvalidRecord, message: "base offset 1"},
		{name: "too large", raw: ok, rules: func(r *Rules) { r.MaxBytes = len(ok) - 1 }, want: MessageTooLarge, message: "max.message.bytes"},
		{name: "too large and broken", raw: flip(ok, 70), rules: func(r *Rules) { r.MaxBytes = 10 }, want: MessageTooLarge, message: "max.message.bytes"},
		{name: "flipped bit", raw: flip(ok, 70), want: CorruptMessage, message: "CRC"},
		{name: "flipped bit in the count", raw: flip(ok, 60), want: CorruptMessage, message: "CRC"},
		{name: "codec 5", raw: edit(ok, at(22, 5)), want: UnsupportedCompression, message: "codec 5"},
		{name: "codec 7", raw: edit(ok, at(22, 7)), want: UnsupportedCompression, message: "codec 7"},
		{name: "no records", raw: withRecords(ok, None, 0, nil), want: InvalidRecord, message: "0 records"},
		{name: "negative count", raw: edit(ok, at(57, 0xff)), want: InvalidRecord, message: "records and last offset delta 2"},
		{name: "last offset delta", raw: edit(ok, at(26, 3)), want: InvalidRecord, message: "last offset delta 3"},
		{name: "count and delta wrap", raw: edit(edit(ok, at(57, 0x80, 0, 0, 0)), at(23, 0x7f, 0xff, 0xff, 0xff)), want: InvalidRecord, message: "last offset delta 2147483647"},
		{name: "control", raw: edit(ok, at(22, ControlBit)), want: InvalidRecord, message: "control"},
		{name: "delete horizon", raw: edit(ok, at(22, DeleteHorizonBit)), want: InvalidRecord, message: "delete horizon"},
		{name: "producer without sequence", raw: edit(ok, at(43, 0, 0, 0, 0, 0, 0, 0, 5)), want: InvalidRecord, message: "base sequence -1"},
		{name: "transaction without producer", raw: edit(ok, at(22, TransactionalBit)), want: InvalidRecord, message: "without a producer id"},
		{name: "fewer records", raw: withRecords(ok, None, 4, records), want: InvalidRecord, message: faultEnd},
		{name: "more records", raw: withRecords(ok, None, 2, records), want: InvalidRecord, message: faultRest},
		{name: "a byte more", raw: withRecords(ok, None, 3, append(bytes.Clone(records), 0)), want: InvalidRecord, message: faultRest},
		{name: "offset deltas with a gap", raw: sparse, want: InvalidRecord, message: faultDelta, bad: []int32{1}},
		{name: "compressed offset deltas with a gap", raw: recode(t, sparse, Lz4), want: InvalidRecord, message: faultDelta, bad: []int32{1}},
		{name: "compacted without key", raw: noKeys, rules: func(r *Rules) { r.RequireKeys = true }, want: InvalidRecord, message: "invalid record", bad: []int32{1, 2}},
		{name: "too early", raw: ok, rules: func(r *Rules) { r.Now, r.BeforeMax = 3000, 1500 }, want: InvalidTimestamp, message: "invalid timestamp", bad: []int32{0}},
		{name: "too late", raw: ok, rules: func(r *Rules) { r.Now, r.AfterMax = 1500, 499 }, want: InvalidTimestamp, message: "invalid timestamp", bad: []int32{1, 2}},
		{name: "time decides the reason", raw: noKeys, rules: func(r *Rules) { r.RequireKeys, r.Now, r.AfterMax = true, 0, 1 },
			want: InvalidTimestamp, message: "invalid timestamp", bad: []int32{0, 1, 1, 2, 2}},
		{name: "undecodable gzip", raw: withRecords(ok, Gzip, 3, []byte("garbage")), want: InvalidRecord, message: "gzip"},
		{name: "undecodable snappy", raw: withRecords(ok, Snappy, 3, []byte("garbage")), want: InvalidRecord, message: "snappy"},
		{name: "undecodable lz4", raw: withRecords(ok, Lz4, 3, []byte("garbage")), want: InvalidRecord, message: "lz4"},
		{name: "undecodable zstd", raw: withRecords(ok, Zstd, 3, []byte("garbage")), want: InvalidRecord, message: "zstd"},
		{name: "no compressed bytes", raw: withRecords(ok, Zstd, 3, nil), want: InvalidRecord, message: faultEnd},
		{name: "decodable garbage", raw: recode(t, withRecords(ok, None, 3, []byte("garbage of some length")), Snappy), want: InvalidRecord, message: "record 0 of 3"},
		{name: "grows when recompressed", raw: bomb(Zstd), rules: func(r *Rules) { r.Compression, r.MaxBytes = int8(None), 90_000 },
			want: MessageTooLarge, message: "with none"},
	}
	for _, c := range []Codec{Gzip, Snappy, Lz4, Zstd} {
		cases = append(cases, struct {
			name    string
			raw     []byte
			rules   func(*Rules)
			want    Reason
			message string
			bad     []int32
		}{name: "bomb of " + c.String(), raw: bomb(c), rules: func(r *Rules) { r.MaxDecompressed = len(huge) },
			want: MessageTooLarge, message: "decompress to more"})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rules := openRules()
			if c.rules != nil {
				c.rules(rules)
			}
			b, rej := Validate(bytes.Clone(c.raw), rules)
			if rej == nil || b != nil {
				t.Fatalf("accepted %x", []byte(b))
			}
			var bad []int32
			for _, e := range rej.Records {
				bad = append(bad, e.Index)
			}
			if rej.Reason != c.want || !strings.Contains(rej.Error(), c.message) || !slices.Equal(bad, c.bad) {
				t.Fatalf("got %v, records %v; want %v with %q, records %v", rej, rej.Records, c.want, c.message, c.bad)
			}
		})
	}
}

func flip(b Batch, i int) Batch {
	b = Batch(bytes.Clone(b))
	b[i] ^= 4
	return b
}

// recode compresses the records of an uncompressed batch as they are.
func recode(tb testing.TB, b Batch, c Codec) Batch {
	tb.Helper()
	data, err := compress(nil, c, 0, b[HeaderSize:])
	if err != nil {
		tb.Fatal(err)
	}
	return withRecords(b, c, b.RecordCount(), data)
}

func TestValidateKeepsTheBytes(t *testing.T) {
	for _, c := range allCodecs {
		for _, p := range []*Producer{nil, {ID: 0, Epoch: 0, Sequence: 0}, {ID: 7, Epoch: 3, Sequence: math.MaxInt32, Transactional: true}} {
			b := Builder{Codec: c, LeaderEpoch: NoEpoch}
			if p != nil {
				b.SetProducer(*p)
			}
			b.Add(1000, nil, nil)
			b.Add(900, []byte{}, []byte("v"), Header{Key: "h"}, Header{Key: "", Value: []byte("x")})
			b.Add(NoTimestamp, []byte("k"), []byte{})
			raw := build(t, &b)
			want := bytes.Clone(raw)
			got, rej := Validate(raw, openRules())
			if rej != nil {
				t.Fatalf("%v %v: %v", c, p, rej)
			}
			if &got[0] != &raw[0] || !bytes.Equal(got, want) {
				t.Fatalf("%v %v: the batch was changed or copied", c, p)
			}
		}
	}
}

func TestValidateDropsHalfABatchBehind(t *testing.T) {
	b := three(t, None)
	for _, n := range []int{1, 11, 16, 17, len(b) - 1} {
		got, rej := Validate(slices.Concat(b, b[:n]), openRules())
		if rej != nil || !bytes.Equal(got, b) || cap(got) != len(b) {
			t.Fatalf("%d bytes behind: %v, %d bytes kept of capacity %d", n, rej, len(got), cap(got))
		}
	}
}

func TestValidateAcceptsTheLargestBatch(t *testing.T) {
	raw := three(t, None)
	for _, target := range []int8{KeepCodec, int8(Snappy)} {
		rules := openRules()
		rules.Compression = target
		stored, rej := Validate(bytes.Clone(raw), rules)
		if rej != nil {
			t.Fatal(rej)
		}
		rules.MaxBytes = max(len(raw), len(stored))
		if _, rej := Validate(bytes.Clone(raw), rules); rej != nil {
			t.Errorf("a batch of %d bytes, stored in %d, with max.message.bytes %d: %v", len(raw), len(stored), rules.MaxBytes, rej)
		}
	}
}

func TestValidateSettlesTimestamps(t *testing.T) {
	for _, c := range allCodecs {
		ok := three(t, c)
		wrongMax := edit(ok, func(b Batch) { binary.BigEndian.PutUint64(b[35:], 9999) })
		clientBit := edit(ok, at(22, byte(c)|LogAppendTimeBit))
		for name, raw := range map[string]Batch{"right": ok, "wrong maximum": wrongMax, "client's bit": clientBit} {
			got, rej := Validate(bytes.Clone(raw), openRules())
			if rej != nil || !bytes.Equal(got, ok) {
				t.Errorf("%v, %s: %v, want the batch with maximum 3000 and the bit clear", c, name, rej)
			}
			rules := openRules()
			rules.LogAppendTime, rules.Now, rules.AfterMax, rules.BeforeMax = true, 77, 0, 0
			got, rej = Validate(bytes.Clone(raw), rules)
			if rej != nil {
				t.Fatalf("%v, %s: %v", c, name, rej)
			}
			if err := got.Check(); err != nil || !got.IsLogAppendTime() || got.MaxTimestamp() != 77 || got.BaseTimestamp() != 1000 || got.Codec() != c {
				t.Errorf("%v, %s: %v, append time %v, maximum %d, base %d", c, name, err, got.IsLogAppendTime(), got.MaxTimestamp(), got.BaseTimestamp())
			}
			if !bytes.Equal(got[HeaderSize:], ok[HeaderSize:]) {
				t.Errorf("%v, %s: records changed", c, name)
			}
			for _, r := range all(t, got) {
				if r.Timestamp != 77 {
					t.Errorf("%v, %s: record at %d has timestamp %d", c, name, r.Offset, r.Timestamp)
				}
			}
		}
	}
}

func TestValidateTimestampLimits(t *testing.T) {
	one := func(ts int64) Batch {
		b := Builder{}
		b.Add(ts, nil, nil)
		return build(t, &b)
	}
	for _, c := range []struct {
		ts, now, before, after int64
		ok                     bool
	}{
		{ts: 1000, now: 2000, before: 1000, after: 0, ok: true},
		{ts: 999, now: 2000, before: 1000, after: 0},
		{ts: 2500, now: 2000, before: 0, after: 500, ok: true},
		{ts: 2501, now: 2000, before: 0, after: 500},
		{ts: NoTimestamp, now: 2000, before: 0, after: 0, ok: true},
		{ts: 0, now: 2000, before: math.MaxInt64, after: 0, ok: true},
		{ts: math.MaxInt64, now: 2000, before: 0, after: math.MaxInt64, ok: true},
		{ts: math.MaxInt64, now: 2000, before: math.MaxInt64, after: 3_600_000},
		{ts: math.MinInt64, now: 2000, before: 1000, after: 0},
	} {
		rules := openRules()
		rules.Now, rules.BeforeMax, rules.AfterMax = c.now, c.before, c.after
		if _, rej := Validate(one(c.ts), rules); (rej == nil) != c.ok {
			t.Errorf("%+v: %v", c, rej)
		}
	}
}

func TestRejectionIsBounded(t *testing.T) {
	b := Builder{}
	for range 10 * maxRecordErrors {
		b.Add(1, nil, nil)
	}
	rules := openRules()
	rules.RequireKeys = true
	_, rej := Validate(build(t, &b), rules)
	if rej == nil || len(rej.Records) != maxRecordErrors {
		t.Fatalf("%v with %d records, want %d", rej, len(rej.Records), maxRecordErrors)
	}
}

func TestValidateRecompresses(t *testing.T) {
	for _, from := range allCodecs {
		for _, to := range allCodecs {
			raw := three(t, from)
			want := all(t, raw)
			rules := openRules()
			rules.Compression = int8(to)
			got, rej := Validate(bytes.Clone(raw), rules)
			if rej != nil {
				t.Fatalf("%v to %v: %v", from, to, rej)
			}
			if err := got.Check(); err != nil || got.Codec() != to || got.MaxTimestamp() != 3000 || got.RecordCount() != 3 {
				t.Fatalf("%v to %v: %v, codec %v", from, to, err, got.Codec())
			}
			if !equal(all(t, got), want) {
				t.Fatalf("%v to %v: records changed", from, to)
			}
			if from == to && !bytes.Equal(got, raw) {
				t.Fatalf("%v: recompressed with its own codec", from)
			}
		}
	}
}

func TestValidateDoesNotAllocate(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector makes sync.Pool drop items at random")
	}
	for _, c := range allCodecs {
		batch := sample(t, c, 256<<10, 1024)
		rules := openRules()
		n := testing.AllocsPerRun(50, func() {
			if _, rej := Validate(batch, rules); rej != nil {
				t.Fatal(rej)
			}
			if err := batch.Each(func(*Record) bool { return true }); err != nil {
				t.Fatal(err)
			}
			if _, _, ok, err := batch.FirstAtOrAfter(1100, 0); !ok || err != nil {
				t.Fatal(ok, err)
			}
		})
		if n != 0 {
			t.Errorf("%v: %v allocations per batch", c, n)
		}
	}
}
