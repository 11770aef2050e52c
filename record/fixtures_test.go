// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// raceDetector tells that sync.Pool drops items at random, so that allocations cannot be counted.
var raceDetector bool

var allCodecs = []Codec{None, Gzip, Snappy, Lz4, Zstd}

func build(tb testing.TB, b *Builder) Batch {
	tb.Helper()
	batch, err := b.Build()
	if err != nil {
		tb.Fatalf("building: %v", err)
	}
	return batch
}

// three is a batch of three records with keys, at 1000, 3000 and 2000.
func three(tb testing.TB, c Codec) Batch {
	tb.Helper()
	b := Builder{Codec: c}
	for i, t := range []int64{1000, 3000, 2000} {
		b.Add(t, []byte{'k', byte('0' + i)}, bytes.Repeat([]byte{'v'}, 40))
	}
	return build(tb, &b)
}

// edit changes a copy of the batch and gives it a right CRC again.
func edit(b Batch, change func(Batch)) Batch {
	b = Batch(bytes.Clone(b))
	change(b)
	b.seal()
	return b
}

// withRecords puts other bytes in the place of the records.
func withRecords(b Batch, c Codec, count int32, records []byte) Batch {
	out := Batch(append(bytes.Clone(b[:HeaderSize]), records...))
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-lengthOffset))
	binary.BigEndian.PutUint16(out[21:], uint16(c))
	binary.BigEndian.PutUint32(out[23:], uint32(count-1))
	binary.BigEndian.PutUint32(out[57:], uint32(count))
	out.seal()
	return out
}

// seen is a record that outlives its view.
type seen struct {
	Offset     Offset
	Timestamp  int64
	Key, Value []byte
	Headers    []Header
}

func all(tb testing.TB, b Batch) []seen {
	tb.Helper()
	var out []seen
	err := b.Each(func(r *Record) bool {
		s := seen{Offset: r.Offset, Timestamp: r.Timestamp, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
		r.EachHeader(func(key, value []byte) bool {
			s.Headers = append(s.Headers, Header{Key: string(key), Value: bytes.Clone(value)})
			return true
		})
		out = append(out, s)
		return true
	})
	if err != nil {
		tb.Fatalf("reading: %v", err)
	}
	return out
}
