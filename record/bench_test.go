// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// sample is a batch of size bytes of records whose values have valueBytes half-compressible bytes.
func sample(tb testing.TB, c Codec, size, valueBytes int) Batch {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	b := Builder{Codec: c}
	value := make([]byte, valueBytes)
	for b.Bytes() < size {
		for i := range value {
			value[i] = byte('a' + rng.IntN(8))
		}
		b.Add(1000+int64(b.Count()), nil, value)
	}
	batch, err := b.Build()
	if err != nil {
		tb.Fatal(err)
	}
	return batch
}

func openRules() *Rules {
	return &Rules{MaxBytes: 64 << 20, Now: 1 << 40, BeforeMax: 1 << 62, AfterMax: 3_600_000, Compression: KeepCodec, AllowZstd: true}
}

func BenchmarkValidate(b *testing.B) {
	for _, c := range []Codec{None, Gzip, Snappy, Lz4, Zstd} {
		for _, size := range []int{16 << 10, 256 << 10} {
			for _, value := range []int{100, 1024} {
				batch := sample(b, c, size, value)
				rules := openRules()
				var plain scratch
				data, err := plain.records(batch, MaxDecompressedBytes)
				if err != nil {
					b.Fatal(err)
				}
				b.Run(fmt.Sprintf("codec=%v/batch=%dKiB/record=%d", c, size>>10, value), func(b *testing.B) {
					b.SetBytes(int64(len(data)))
					b.ReportAllocs()
					for b.Loop() {
						if _, rej := Validate(batch, rules); rej != nil {
							b.Fatal(rej)
						}
					}
				})
			}
		}
	}
}

func BenchmarkCheckRecords(b *testing.B) {
	for _, value := range []int{100, 1024} {
		batch := sample(b, None, 256<<10, value)
		rules := openRules()
		b.Run(fmt.Sprintf("record=%d", value), func(b *testing.B) {
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				if _, rej := checkRecords(batch, batch[HeaderSize:], rules); rej != nil {
					b.Fatal(rej)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch.RecordCount()), "ns/record")
		})
	}
}

func BenchmarkEach(b *testing.B) {
	batch := sample(b, None, 256<<10, 1024)
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if err := batch.Each(func(*Record) bool { return true }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecompress(b *testing.B) {
	for _, c := range []Codec{Gzip, Snappy, Lz4, Zstd} {
		batch := sample(b, None, 256<<10, 1024)
		rules := openRules()
		rules.Compression = int8(c)
		b.Run(c.String(), func(b *testing.B) {
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				if _, rej := Validate(bytes.Clone(batch), rules); rej != nil {
					b.Fatal(rej)
				}
			}
		})
	}
}
