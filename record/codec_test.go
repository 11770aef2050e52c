// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

func unhex(tb testing.TB, s string) Batch {
	tb.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestBatchesOfOtherClients(t *testing.T) {
	java := []seen{
		{Offset: 0, Timestamp: 1700000000000, Key: []byte("k0"), Value: bytes.Repeat([]byte("v"), 120),
			Headers: []Header{{Key: "h", Value: []byte("x")}, {Key: "n"}}},
		{Offset: 1, Timestamp: 1700000000005, Value: bytes.Repeat([]byte("w"), 90)},
		{Offset: 2, Timestamp: 1700000000003, Key: []byte("k2")},
	}
	for _, c := range allCodecs {
		raw := unhex(t, javaBatches[c])
		got, rej := Validate(bytes.Clone(raw), &Rules{MaxBytes: 1 << 20, Now: 1700000000005, BeforeMax: 5, Compression: KeepCodec, AllowZstd: true})
		if rej != nil || !bytes.Equal(got, raw) || got.Codec() != c {
			t.Fatalf("Java, %v: %v", c, rej)
		}
		if !equal(all(t, got), java) {
			t.Errorf("Java, %v: read %+v", c, all(t, got))
		}
		raw = unhex(t, librdkafkaBatches[c])
		rules := openRules()
		rules.Now = raw.MaxTimestamp()
		if got, rej = Validate(bytes.Clone(raw), rules); rej != nil || !bytes.Equal(got, raw) || got.Codec() != c {
			t.Fatalf("librdkafka, %v: %v", c, rej)
		}
		for i, r := range all(t, got) {
			if string(r.Key) != "k"+string(rune('0'+i)) || string(r.Value) != strings.Repeat("librdkafka-", 8) {
				t.Errorf("librdkafka, %v: record %d is %q = %q", c, i, r.Key, r.Value)
			}
		}
	}
}

// payloads has what stresses block borders: empty, tiny, incompressible, repetitive, around the block sizes.
func payloads() [][]byte {
	rng := rand.New(rand.NewPCG(3, 4))
	var out [][]byte
	for _, n := range []int{0, 1, 11, 12, 13, 100, xerialBlockBytes, xerialBlockBytes + 1, lz4BlockBytes - 1, lz4BlockBytes, lz4BlockBytes + 1, 300_000} {
		noise := make([]byte, n)
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		out = append(out, noise, bytes.Repeat([]byte("ab"), n))
	}
	return out
}

func TestCodecsRoundTripAtEveryLevel(t *testing.T) {
	levels := map[Codec][]int{Gzip: {-1, 0, 1, 9, 50}, Snappy: {0}, Lz4: {0, 1, 5, 9, 17}, Zstd: {0, -5, 3, 7, 22}}
	for c, ls := range levels {
		for _, level := range ls {
			for _, want := range payloads() {
				packed, err := compress([]byte("prefix"), c, level, want)
				if err != nil || !bytes.HasPrefix(packed, []byte("prefix")) {
					t.Fatalf("%v level %d: %v", c, level, err)
				}
				got, err := decompress(nil, c, packed[len("prefix"):], max(len(want), 1))
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%v level %d of %d bytes: %v", c, level, len(want), err)
				}
			}
		}
	}
}

func TestDecompressionBound(t *testing.T) {
	for _, c := range []Codec{Gzip, Snappy, Lz4, Zstd} {
		for _, n := range []int{2, 1000, firstScratch, firstScratch + 1, 3 << 20} {
			packed, err := compress(nil, c, 0, make([]byte, n))
			if err != nil {
				t.Fatal(err)
			}
			if out, err := decompress(nil, c, packed, n-1); !errors.Is(err, ErrTooLarge) || cap(out) > 2*n+(4<<20) {
				t.Errorf("%v: %d bytes into %d: %v, a buffer of %d", c, n, n-1, err, cap(out))
			}
			if out, err := decompress(nil, c, packed, n); err != nil || len(out) != n {
				t.Errorf("%v: %d bytes into as many: %v", c, n, err)
			}
			if _, err := decompress(nil, c, packed[:len(packed)-1], n); !errors.Is(err, ErrUndecodable) {
				t.Errorf("%v: %d bytes without the last compressed one: %v", c, n, err)
			}
		}
	}
}

// Streaming producers do not write the content size, so the buffer has to be found by trying.
func TestZstdFrameWithoutSize(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var packed bytes.Buffer
	zw, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(want, 10_000) {
		if _, err := zw.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	var h zstd.Header
	if err := h.Decode(packed.Bytes()); err != nil || h.HasFCS {
		t.Fatalf("the frame tells its size (%v): the test shows nothing", err)
	}
	if got, err := decompress(nil, Zstd, packed.Bytes(), 2<<20); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d of %d bytes: %v", len(got), len(want), err)
	}
	for _, limit := range []int{len(want) - 1, len(want) / 2, 1000} {
		if out, err := decompress(nil, Zstd, packed.Bytes(), limit); !errors.Is(err, ErrTooLarge) || cap(out) > limit+zstdSlack {
			t.Fatalf("over the bound of %d: %v, a buffer of %d", limit, err, cap(out))
		}
	}
}

func xerial(version byte, blocks ...[]byte) []byte {
	out := append([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}, 0, 0, 0, version, 0, 0, 0, 1)
	for _, b := range blocks {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(b))), b...)
	}
	return out
}

func TestSnappyShapes(t *testing.T) {
	// Nine bytes: a literal "a", a copy of four at offset 1, and the extension's repeat of four.
	repeats := []byte{9, 0<<2 | 0, 'a', 1 | 0<<2, 1, 1 | 0<<2 | 0<<5, 0}
	a, b := bytes.Repeat([]byte("abcd"), 500), []byte("tail")
	want := slices.Concat(a, b)
	framed := xerial(1, s2.EncodeSnappy(nil, a), s2.EncodeSnappy(nil, b))
	for name, src := range map[string][]byte{"bare": s2.EncodeSnappy(nil, want), "framed": framed} {
		if got, err := decompress(nil, Snappy, src, len(want)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, src := range map[string][]byte{
		"version 0":      xerial(0, s2.EncodeSnappy(nil, a)),
		"cut length":     framed[:18],
		"cut block":      framed[:len(framed)-1],
		"negative block": append(xerial(1), 0xff, 0xff, 0xff, 0xff),
		"empty":          {},
		"lying length":   {0xff, 0xff, 0xff, 0x07, 0},
		"repeat (S2)":    repeats,
		"copy of 0":      {5, 0<<2 | 0, 'a', 2 | 3<<2, 0, 0},
		"long copy of 0": {5, 0<<2 | 0, 'a', 3 | 3<<2, 0, 0, 0, 0},
	} {
		if _, err := decompress(nil, Snappy, src, 1<<30); !errors.Is(err, ErrUndecodable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s2.Decode(nil, repeats); err != nil {
		t.Errorf("the library refuses repeats itself, which makes our check needless: %v", err)
	}
	if out, _ := decompress(nil, Snappy, []byte{0xff, 0xff, 0xff, 0x07, 0, 'a'}, 1<<30); cap(out) > firstScratch {
		t.Errorf("a lying length costs %d bytes", cap(out))
	}
}

func TestXXH32(t *testing.T) {
	for in, want := range map[string]uint32{"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff, "0123456789abcdef": 0xc2c45b69,
		"Nobody inspects the spammish repetition": 0xe2293b2f} {
		if got := xxh32([]byte(in)); got != want {
			t.Errorf("xxh32(%q) = %#x, want %#x", in, got, want)
		}
	}
}

// lz4Frame is a frame as the library writes it, with the options that producers use.
func lz4Frame(tb testing.TB, data []byte, options ...lz4.Option) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := lz4.NewWriter(&out)
	if err := w.Apply(options...); err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func TestLz4Frames(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdefghij"), 20_000)
	plain := lz4Frame(t, want, lz4.ChecksumOption(false), lz4.BlockSizeOption(lz4.Block64Kb))
	summed := lz4Frame(t, want, lz4.ChecksumOption(true), lz4.BlockChecksumOption(true), lz4.BlockSizeOption(lz4.Block256Kb), lz4.SizeOption(uint64(len(want))))
	wrongSum := bytes.Clone(summed)
	wrongSum[len(wrongSum)-1] ^= 1
	for name, src := range map[string][]byte{"plain": plain, "checksums, size, 256 KiB": summed, "4 MiB blocks": lz4Frame(t, want),
		"wrong content checksum, which Kafka does not verify": wrongSum} {
		if got, err := decompress(nil, Lz4, src, len(want)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	set := func(src []byte, i int, c byte, rehash bool) []byte {
		src = bytes.Clone(src)
		src[i] = c
		if rehash {
			src[6] = byte(xxh32(src[4:6]) >> 8)
		}
		return src
	}
	for name, src := range map[string][]byte{
		"empty":            {},
		"magic":            set(plain, 0, 0, false),
		"header checksum":  set(plain, 6, plain[6]^1, false),
		"linked blocks":    set(plain, 4, plain[4]&^lz4Independent, true),
		"version":          set(plain, 4, plain[4]^lz4VersionMask, true),
		"dictionary":       set(plain, 4, plain[4]|1, true),
		"block size":       set(plain, 5, 3<<4, true),
		"reserved bits":    set(plain, 5, plain[5]|1, true),
		"block length":     set(plain, 9, 0x7f, false),
		"no end mark":      plain[:len(plain)-4],
		"bytes behind":     append(bytes.Clone(plain), 0),
		"cut checksum":     summed[:len(summed)-1],
		"block checksum":   set(summed, len(summed)-10, summed[len(summed)-10]^1, false),
		"garbage in block": append(plain[:7:7], 3, 0, 0, 0, 0xff, 0xff, 0xff, 0, 0, 0, 0),
	} {
		if _, err := decompress(nil, Lz4, src, 1<<30); !errors.Is(err, ErrUndecodable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What we write, the library's strict reader accepts.
	for _, data := range payloads() {
		packed, err := compress(nil, Lz4, 0, data)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(lz4.NewReader(bytes.NewReader(packed))); err != nil || !bytes.Equal(got, data) {
			t.Errorf("frame of %d bytes: %v", len(data), err)
		}
	}
}

func TestScratchIsNotKeptWhenHuge(t *testing.T) {
	s := &scratch{buf: make([]byte, maxPooledScratch+1)}
	s.release()
	if s.buf != nil {
		t.Fatalf("a scratch of %d bytes went back to the pool", cap(s.buf))
	}
}
