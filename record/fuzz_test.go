// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"testing"
)

// seeds are batches of every codec, of ours and of others, and broken ones.
func seeds(f *testing.F, add func(Batch)) {
	for _, c := range allCodecs {
		b := three(f, c)
		add(b)
		add(unhex(f, javaBatches[c]))
		add(unhex(f, librdkafkaBatches[c]))
		add(b[:len(b)-3])
		add(withRecords(b, c, 3, []byte("garbage")))
		add(edit(b, at(22, byte(c)|LogAppendTimeBit)))
	}
	marker, err := Marker{Commit: true}.Batch(Producer{ID: 1}, 5)
	if err != nil {
		f.Fatal(err)
	}
	add(marker)
}

// FuzzValidate: whatever is accepted is a batch that reads, is stored unchanged but for the settled fields, and is accepted again.
// The CRC is made right first, or the fuzzer would never come past it.
func FuzzValidate(f *testing.F) {
	seeds(f, func(b Batch) { f.Add([]byte(b), int8(KeepCodec), false, false) })
	seeds(f, func(b Batch) { f.Add([]byte(b), int8(Lz4), true, true) })
	f.Fuzz(func(t *testing.T, raw []byte, compression int8, logAppend, keys bool) {
		if len(raw) >= HeaderSize {
			if first, _, err := Split(raw); err == nil {
				first.seal()
			}
		}
		rules := openRules()
		rules.Compression, rules.LogAppendTime, rules.RequireKeys = max(compression%int8(codecs), KeepCodec), logAppend, keys
		rules.MaxDecompressed = 1 << 20
		in := bytes.Clone(raw)
		b, rej := Validate(in, rules)
		if rej != nil {
			if b != nil || rej.Reason < CorruptMessage || rej.Reason > UnsupportedCompression || rej.Message == "" {
				t.Fatalf("rejected with %+v and batch %x", rej, []byte(b))
			}
			return
		}
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
		n := int32(0)
		if err := b.Each(func(r *Record) bool {
			if r.Offset != Offset(n) || keys && r.Key == nil {
				t.Fatalf("record %d: offset %d, key %v", n, r.Offset, r.Key)
			}
			n++
			return true
		}); err != nil || n != b.RecordCount() {
			t.Fatalf("read %d of %d records: %v", n, b.RecordCount(), err)
		}
		if rules.Compression == KeepCodec && !bytes.Equal(b[HeaderSize:], raw[HeaderSize:len(b)]) {
			t.Fatal("the records were changed")
		}
		again, rej := Validate(bytes.Clone(b), rules)
		if rej != nil || !bytes.Equal(again, b) {
			t.Fatalf("the second time: %v", rej)
		}
	})
}

// FuzzEach: reading any bytes ends, within the batch, and the short way of parsing agrees with the careful one.
func FuzzEach(f *testing.F) {
	seeds(f, func(b Batch) { f.Add([]byte(b)) })
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, _, err := Split(raw)
		if err != nil {
			return
		}
		n := 0
		_ = b.Each(func(r *Record) bool {
			n++
			headers := 0
			r.EachHeader(func([]byte, []byte) bool { headers++; return true })
			if headers != r.HeaderCount() {
				t.Fatalf("%d of %d headers", headers, r.HeaderCount())
			}
			return n < 10_000
		})
		if _, _, _, err := b.FirstAtOrAfter(0, b.BaseOffset()); err != nil {
			_ = err.Error()
		}
		for at := HeaderSize; at < len(b); {
			var quick, careful fields
			next, fault := quick.parse(b, at)
			if wantNext, wantFault := careful.parseAny(b, at); next != wantNext || fault != wantFault || fault == "" && !same(&quick, &careful) {
				t.Fatalf("at %d: %d %q %+v, carefully %d %q %+v", at, next, fault, quick, wantNext, wantFault, careful)
			}
			if fault != "" {
				return
			}
			at = next
		}
	})
}

func same(a, b *fields) bool {
	return a.timestampDelta == b.timestampDelta && a.offsetDelta == b.offsetDelta && a.headerCount == b.headerCount &&
		a.key == b.key && a.value == b.value && a.headers == b.headers
}
