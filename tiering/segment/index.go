// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"encoding/binary"
	"hash/crc32"
	"sort"
	"unsafe"

	"github.com/varve/varve/record"
)

// Index is a decoded footer. It is immutable and shared.
type Index struct {
	Info      Info
	Chunks    []Chunk
	Epochs    []record.EpochStart // the whole chain up to the end
	Aborted   []Aborted
	Producers Extent
}

// ReadIndex reads the index from the last bytes of a segment of that size. A tail that does not hold the whole footer gives *NeedMore.
func ReadIndex(tail []byte, size int64) (*Index, error) {
	if int64(len(tail)) > size || size > 2*MaxSegmentBytes {
		return nil, corrupt("tail of %d bytes of a segment of %d", len(tail), size)
	}
	if len(tail) < TrailerLen {
		if size < TrailerLen {
			return nil, corrupt("segment of %d bytes", size)
		}
		return nil, &NeedMore{Bytes: TrailerLen}
	}
	t := tail[len(tail)-TrailerLen:]
	if string(t[10:]) != tailMagic {
		return nil, corrupt("no segment trailer")
	}
	if f := binary.BigEndian.Uint16(t[4:]); f > Format {
		return nil, newer("segment", f)
	} else if f == 0 {
		return nil, corrupt("segment of format 0")
	}
	n := int64(binary.BigEndian.Uint32(t)) + TrailerLen
	if n > MaxFooterBytes || n > size {
		return nil, corrupt("footer of %d bytes", n)
	}
	if n > int64(len(tail)) {
		return nil, &NeedMore{Bytes: n}
	}
	footer := tail[int64(len(tail))-n:]
	if crc32.Checksum(footer[:n-TrailerLen+6], castagnoli) != binary.BigEndian.Uint32(t[6:]) {
		return nil, corrupt("footer checksum")
	}
	x := &Index{}
	x.Info.Bytes, x.Info.FooterLen = size, n
	if err := x.decode(footer[:n-TrailerLen]); err != nil {
		return nil, err
	}
	return x, x.check()
}

// decode reads the sections; a checksum has been seen to hold, so what fails here was written wrong or forged.
func (x *Index) decode(b []byte) error {
	c := cursor{b: b}
	sections := [...]struct {
		kind byte
		read func(*cursor)
	}{
		{sectionInfo, func(c *cursor) { c.info(x) }},
		{sectionIdentity, func(c *cursor) { x.Info.Identity = c.identity() }},
		{sectionChunks, func(c *cursor) { x.Chunks = readList(c, chunkLen, readChunk) }},
		{sectionEpochs, func(c *cursor) { x.Epochs = readList(c, epochLen, readEpoch) }},
		{sectionAborted, func(c *cursor) { x.Aborted = readList(c, abortedLen, readAborted) }},
	}
	for _, s := range sections {
		kind := c.take(1)
		payload := cursor{b: c.take(int(c.u32()))}
		if c.short || kind[0] != s.kind {
			return corrupt("footer section %d", s.kind)
		}
		if s.read(&payload); !payload.done() {
			return corrupt("fields of footer section %d", s.kind)
		}
	}
	if !c.done() {
		return corrupt("%d bytes behind the footer's sections", len(c.b))
	}
	return nil
}

func readList[T any](c *cursor, size int, read func(*cursor) T) []T {
	n := int64(c.u32())
	if n*int64(size) != int64(len(c.b)) {
		c.short = true
		return nil
	}
	list := make([]T, n)
	for i := range list {
		list[i] = read(c)
	}
	return list
}

func readChunk(c *cursor) Chunk {
	var k Chunk
	k.Base, k.Pos = record.Offset(c.i64()), c.i64()
	k.Len, k.MaxTimestamp = int32(c.u32()), c.i64()
	k.Records, k.CRC = int32(c.u32()), c.u32()
	return k
}

func readEpoch(c *cursor) record.EpochStart {
	e := record.Epoch(c.u32())
	return record.EpochStart{Epoch: e, Start: record.Offset(c.i64())}
}

func readAborted(c *cursor) Aborted {
	pid, first := c.i64(), record.Offset(c.i64())
	return Aborted{ProducerID: pid, First: first, Marker: record.Offset(c.i64())}
}

// check bounds every number before anything is read by it (W1).
func (x *Index) check() error {
	i := &x.Info
	if i.Base < 0 || i.End <= i.Base || i.DataBytes < 0 || i.DataBytes > MaxSegmentBytes || i.DataPos < headPrefix || i.DataPos > maxHeader {
		return corrupt("range [%d, %d), data %d+%d", i.Base, i.End, i.DataPos, i.DataBytes)
	}
	p := &x.Producers
	if p.Pos != i.DataPos+i.DataBytes || p.Pos+int64(p.Len)+i.FooterLen != i.Bytes || p.Raw > MaxProducersRaw {
		return corrupt("parts of the segment do not add up to %d bytes", i.Bytes)
	}
	pos, base, records, most := i.DataPos, i.Base, int64(0), NoTimestamp
	for k := range x.Chunks {
		c := &x.Chunks[k]
		if c.Pos != pos || c.Len < record.HeaderSize || c.Base < base || c.Base >= i.End || c.Records < 0 {
			return corrupt("chunk %d", k)
		}
		pos, base, records, most = pos+int64(c.Len), c.Base+1, records+int64(c.Records), max(most, c.MaxTimestamp)
	}
	if pos != p.Pos || records != i.Records || most != i.MaxTimestamp {
		return corrupt("chunks do not add up to the segment")
	}
	if most != NoTimestamp && (i.OffsetOfMax < i.Base || i.OffsetOfMax >= i.End) {
		return corrupt("maximum timestamp at offset %d", i.OffsetOfMax)
	}
	for k, e := range x.Epochs {
		if e.Start >= i.End || e.Epoch < 0 || k > 0 && (e.Epoch <= x.Epochs[k-1].Epoch || e.Start < x.Epochs[k-1].Start) {
			return corrupt("leader-epoch entry %d", k)
		}
	}
	for k, a := range x.Aborted {
		if a.First >= i.End || a.Marker < i.Base || a.First > a.Marker || k > 0 && compareAborted(x.Aborted[k-1], a) > 0 {
			return corrupt("aborted transaction %d", k)
		}
	}
	i.Epochs, i.HasAborted = epochsWithin(x.Epochs, i.Base), len(x.Aborted) > 0
	return nil
}

// MemBytes is about what the index costs in a cache.
func (x *Index) MemBytes() int64 {
	return int64(unsafe.Sizeof(*x)) + int64(len(x.Chunks))*int64(unsafe.Sizeof(Chunk{})) +
		int64(len(x.Epochs))*32 + int64(len(x.Aborted))*24
}

// ChunkEnd is the first offset that lies behind chunk i.
func (x *Index) ChunkEnd(i int) record.Offset {
	if i+1 < len(x.Chunks) {
		return x.Chunks[i+1].Base
	}
	return x.Info.End
}

// ForOffset is the chunk that holds o or, where o was compacted away, the first record above it; false: o is at or above the end, or
// nothing is left from o on.
func (x *Index) ForOffset(o record.Offset) (int, bool) {
	if o >= x.Info.End || len(x.Chunks) == 0 {
		return 0, false
	}
	i := sort.Search(len(x.Chunks), func(i int) bool { return x.Chunks[i].Base > o })
	return max(i-1, 0), true
}

// ForTime is the first chunk from number `start` on that reaches above from and has a record with a timestamp at or above ts.
func (x *Index) ForTime(ts int64, from record.Offset, start int) (int, bool) {
	if first, ok := x.ForOffset(from); !ok {
		return 0, false
	} else if first > start {
		start = first
	}
	for i := start; i < len(x.Chunks); i++ {
		if x.Chunks[i].MaxTimestamp >= ts {
			return i, true
		}
	}
	return 0, false
}

// Span is a run of chunks [First, Last] that one ranged read covers.
type Span struct{ First, Last int }

// TimeSpan plans the one read of a time lookup: the first candidate chunk and, when from cuts that one, so that its match may lie below
// from, on to the next candidate, unless the read would become longer than maxBytes.
func (x *Index) TimeSpan(ts int64, from record.Offset, start int, maxBytes int64) (Span, bool) {
	first, ok := x.ForTime(ts, from, start)
	if !ok {
		return Span{}, false
	}
	s := Span{First: first, Last: first}
	if x.Chunks[first].Base >= from {
		return s, true
	}
	if next, more := x.ForTime(ts, from, first+1); more && x.SpanBytes(Span{first, next}) <= maxBytes {
		s.Last = next
	}
	return s, true
}

// SpanBytes is how long a span is.
func (x *Index) SpanBytes(s Span) int64 {
	last := &x.Chunks[s.Last]
	return last.Pos + int64(last.Len) - x.Chunks[s.First].Pos
}

// EpochAt is the leader epoch of the batch that holds o.
func (x *Index) EpochAt(o record.Offset) record.Epoch { return record.EpochAt(x.Epochs, o) }

// AbortedIn appends the transactions whose records or marker may lie in [from, to): it needs those that began below to and whose marker
// is at or above from.
func (x *Index) AbortedIn(from, to record.Offset, dst []Aborted) []Aborted {
	for _, a := range x.Aborted {
		if a.First >= to {
			break
		}
		if a.Marker >= from {
			dst = append(dst, a)
		}
	}
	return dst
}

// VerifyChunk checks the bytes of chunk i: its own checksum and the length, magic and CRC of every batch in it (T3).
func (x *Index) VerifyChunk(i int, data []byte) error {
	c := &x.Chunks[i]
	if len(data) != int(c.Len) || crc32.Checksum(data, castagnoli) != c.CRC {
		return corrupt("checksum of chunk %d at %d", i, c.Base)
	}
	next, end := c.Base, x.ChunkEnd(i)
	for rest := data; len(rest) > 0; {
		b, more, err := record.Split(rest)
		if err == nil {
			err = b.Check()
		}
		if err != nil {
			return corrupt("batch in chunk %d at %d: %v", i, next, err)
		}
		// Only the very first batch may begin below the base: the log start had cut it before it was sealed.
		if b.BaseOffset() < next && next != x.Info.Base || b.NextOffset() > end || b.NextOffset() <= next {
			return corrupt("batch [%d, %d) in chunk %d at %d", b.BaseOffset(), b.NextOffset(), i, next)
		}
		next, rest = b.NextOffset(), more
	}
	return nil
}
