// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/varve/varve/record"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	headMagic = "VARVESEG"
	tailMagic = "VARVSEGE"

	sectionInfo     = 1
	sectionIdentity = 2
	sectionChunks   = 3
	sectionEpochs   = 4
	sectionAborted  = 5

	chunkLen   = 8 + 8 + 4 + 8 + 4 + 4
	epochLen   = 4 + 8
	abortedLen = 8 + 8 + 8
	infoLen    = 12*8 + 5*4
	// headPrefix is magic, format and length.
	headPrefix = 8 + 2 + 4
)

func putI64[T ~int64](b []byte, v T) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }
func putI32[T ~int32](b []byte, v T) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func putU32(b []byte, v uint32) []byte      { return binary.BigEndian.AppendUint32(b, v) }
func putU16(b []byte, v uint16) []byte      { return binary.BigEndian.AppendUint16(b, v) }
func putString(b []byte, s string) []byte   { return append(putU16(b, uint16(len(s))), s...) }

// cursor reads fields and remembers whether it ran out of bytes; then it gives zeros, and the caller asks once at the end.
type cursor struct {
	b     []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.short = true
		c.b = nil
		return nil
	}
	head := c.b[:n]
	c.b = c.b[n:]
	return head
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) i64() int64 {
	if b := c.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (c *cursor) str() string {
	n := int(c.u16())
	if n > maxString {
		c.short = true
		return ""
	}
	return string(c.take(n))
}

// done tells whether everything was there and nothing is left.
func (c *cursor) done() bool { return !c.short && len(c.b) == 0 }

func appendIdentity(b []byte, id *Identity) []byte {
	b = putString(b, id.ClusterID)
	b = putI64(b, id.Gen)
	b = append(b, id.Topic[:]...)
	b = putString(b, id.TopicName)
	b = putI32(b, id.Partition)
	b = putI32(b, id.LeaderEpoch)
	return append(b, id.Attempt[:]...)
}

func (c *cursor) identity() Identity {
	var id Identity
	id.ClusterID = c.str()
	id.Gen = c.i64()
	copy(id.Topic[:], c.take(len(id.Topic)))
	id.TopicName = c.str()
	id.Partition = int32(c.u32())
	id.LeaderEpoch = record.Epoch(c.u32())
	copy(id.Attempt[:], c.take(len(id.Attempt)))
	return id
}

func encodeHeader(id *Identity) []byte {
	b := append([]byte(nil), headMagic...)
	b = putU16(b, Format)
	b = putU32(b, 0)
	b = appendIdentity(b, id)
	binary.BigEndian.PutUint32(b[10:], uint32(len(b)+4))
	return putU32(b, crc32.Checksum(b, castagnoli))
}

// ReadHeader reads the header at the start of a segment: whose it is and how long the header is. A tool that has lost the end of an
// object begins here; the read path does not need it.
func ReadHeader(b []byte) (Identity, int, error) {
	if len(b) < headPrefix || string(b[:8]) != headMagic {
		return Identity{}, 0, corrupt("no segment header")
	}
	if f := binary.BigEndian.Uint16(b[8:]); f > Format {
		return Identity{}, 0, newer("header", f)
	} else if f == 0 {
		return Identity{}, 0, corrupt("header of format 0")
	}
	n := int64(binary.BigEndian.Uint32(b[10:]))
	if n < headPrefix+4 || n > maxHeader {
		return Identity{}, 0, corrupt("header length %d", n)
	}
	if n > int64(len(b)) {
		return Identity{}, 0, &NeedMore{Bytes: n}
	}
	if crc32.Checksum(b[:n-4], castagnoli) != binary.BigEndian.Uint32(b[n-4:]) {
		return Identity{}, 0, corrupt("header checksum")
	}
	c := cursor{b: b[headPrefix : n-4]}
	id := c.identity()
	if !c.done() {
		return Identity{}, 0, corrupt("header fields")
	}
	return id, int(n), nil
}

// section frames a payload that fill appends.
func section(b []byte, kind byte, fill func([]byte) []byte) []byte {
	b = append(b, kind, 0, 0, 0, 0)
	at := len(b)
	b = fill(b)
	binary.BigEndian.PutUint32(b[at-4:], uint32(len(b)-at))
	return b
}

func encodeFooter(x *Index) []byte {
	b := make([]byte, 0, 512+len(x.Chunks)*chunkLen+len(x.Epochs)*epochLen+len(x.Aborted)*abortedLen)
	b = section(b, sectionInfo, func(b []byte) []byte { return appendInfo(b, x) })
	b = section(b, sectionIdentity, func(b []byte) []byte { return appendIdentity(b, &x.Info.Identity) })
	b = section(b, sectionChunks, func(b []byte) []byte {
		b = putU32(b, uint32(len(x.Chunks)))
		for i := range x.Chunks {
			c := &x.Chunks[i]
			b = putI64(putI64(b, c.Base), c.Pos)
			b = putI64(putI32(b, c.Len), c.MaxTimestamp)
			b = putU32(putI32(b, c.Records), c.CRC)
		}
		return b
	})
	b = section(b, sectionEpochs, func(b []byte) []byte {
		b = putU32(b, uint32(len(x.Epochs)))
		for _, e := range x.Epochs {
			b = putI64(putI32(b, e.Epoch), e.Start)
		}
		return b
	})
	b = section(b, sectionAborted, func(b []byte) []byte {
		b = putU32(b, uint32(len(x.Aborted)))
		for _, a := range x.Aborted {
			b = putI64(putI64(putI64(b, a.ProducerID), a.First), a.Marker)
		}
		return b
	})
	return b
}

// appendTrailer closes a footer.
func appendTrailer(footer []byte) []byte {
	b := putU32(footer, uint32(len(footer)))
	b = putU16(b, Format)
	b = putU32(b, crc32.Checksum(b, castagnoli))
	return append(b, tailMagic...)
}

func appendInfo(b []byte, x *Index) []byte {
	i, p := &x.Info, &x.Producers
	b = putI64(putI64(b, i.Base), i.End)
	b = putU32(putI64(putI64(b, i.DataPos), i.DataBytes), i.DataCRC)
	b = putI64(b, i.Records)
	b = putI64(putI64(putI64(b, i.MinTimestamp), i.MaxTimestamp), i.OffsetOfMax)
	b = putI64(putI64(b, i.FirstUnstable), i.SealedAtMillis)
	b = putI64(b, p.Pos)
	return putU32(putU32(putU32(putU32(b, p.Len), p.CRC), p.Raw), p.Count)
}

func (c *cursor) info(x *Index) {
	i, p := &x.Info, &x.Producers
	i.Base, i.End = record.Offset(c.i64()), record.Offset(c.i64())
	i.DataPos, i.DataBytes, i.DataCRC = c.i64(), c.i64(), c.u32()
	i.Records = c.i64()
	i.MinTimestamp, i.MaxTimestamp, i.OffsetOfMax = c.i64(), c.i64(), record.Offset(c.i64())
	i.FirstUnstable, i.SealedAtMillis = record.Offset(c.i64()), c.i64()
	p.Pos = c.i64()
	p.Len, p.CRC, p.Raw, p.Count = c.u32(), c.u32(), c.u32(), c.u32()
}
