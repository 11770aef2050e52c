// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// batch is a record batch to be built. The zero value is not useful: start from records.
type batch struct {
	times   []int64 // one record each
	codec   kgo.CompressionCodecType
	flags   uint16 // of the attributes, beside the codec
	pid     int64
	epoch   int16
	seq     int32
	noKey   int    // index of a record without key; -1: none
	size    int    // of each value
	payload []byte // instead of the records
	header  func(b []byte)
	broken  bool // the CRC is left wrong
}

func records(n int) batch {
	b := batch{pid: -1, epoch: -1, seq: -1, noKey: -1, size: 20}
	for i := range n {
		b.times = append(b.times, startOfRun+int64(i))
	}
	return b
}

// at is records with those times, counted from the start of the run.
func at(times ...int64) batch {
	b := records(0)
	for _, t := range times {
		b.times = append(b.times, startOfRun+t)
	}
	return b
}

func (b batch) with(change func(*batch)) batch {
	change(&b)
	return b
}

func (b batch) producer(pid int64, epoch int16, seq int32) batch {
	b.pid, b.epoch, b.seq = pid, epoch, seq
	return b
}

// patched changes the header before the CRC is taken.
func (b batch) patched(header func([]byte)) batch {
	b.header = header
	return b
}

// records of the body, uncompressed.
func (b batch) body() []byte {
	var body []byte
	for i, t := range b.times {
		r := kmsg.Record{TimestampDelta64: t - b.times[0], OffsetDelta: int32(i), Key: fmt.Appendf(nil, "key %d", i), Value: bytes.Repeat([]byte{'v'}, b.size)}
		if i == b.noKey {
			r.Key = nil
		}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // a length of zero takes one byte
		body = r.AppendTo(body)
	}
	return body
}

func (b batch) build() []byte {
	body := b.body()
	if b.codec != kgo.CodecNone {
		body = compress(b.codec, body)
	}
	if b.payload != nil {
		body = b.payload
	}
	out := make([]byte, 61, 61+len(body))
	first, last := startOfRun, startOfRun
	for i, t := range b.times {
		if i == 0 {
			first, last = t, t
		}
		last = max(last, t)
	}
	binary.BigEndian.PutUint32(out[8:], uint32(49+len(body)))
	out[16] = 2
	binary.BigEndian.PutUint16(out[21:], uint16(b.codec)|b.flags)
	binary.BigEndian.PutUint32(out[23:], uint32(len(b.times)-1))
	binary.BigEndian.PutUint64(out[27:], uint64(first))
	binary.BigEndian.PutUint64(out[35:], uint64(last))
	binary.BigEndian.PutUint64(out[43:], uint64(b.pid))
	binary.BigEndian.PutUint16(out[51:], uint16(b.epoch))
	binary.BigEndian.PutUint32(out[53:], uint32(b.seq))
	binary.BigEndian.PutUint32(out[57:], uint32(len(b.times)))
	out = append(out, body...)
	if b.header != nil {
		b.header(out)
	}
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	if b.broken {
		out[17] ^= 0xff
	}
	return out
}

func compress(codec kgo.CompressionCodecType, body []byte) []byte {
	codecs := map[kgo.CompressionCodecType]kgo.CompressionCodec{
		kgo.CodecGzip: kgo.GzipCompression(), kgo.CodecSnappy: kgo.SnappyCompression(), kgo.CodecLz4: kgo.Lz4Compression(), kgo.CodecZstd: kgo.ZstdCompression(),
	}
	c, err := kgo.DefaultCompressor(codecs[codec])
	if err != nil {
		panic(err)
	}
	out, _ := c.Compress(new(bytes.Buffer), body)
	return bytes.Clone(out)
}

// put32 writes an integer into a header.
func put32(offset int, v uint32) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint32(b[offset:], v) }
}
