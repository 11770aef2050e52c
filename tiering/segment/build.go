// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/varve/varve/record"
)

// builder is pass 1 over the source: it comes to know everything of the range that the footer says.
type builder struct {
	x       *Index
	limit   limit
	next    record.Offset
	maxFrom record.Offset // base offset of the first batch with the maximum timestamp
	maxNext record.Offset
	open    bool // the last chunk takes more batches
	seen    []record.EpochStart
}

// errFull ends pass 1 at the first batch that no longer fits.
var errFull = errors.New("segment: full")

// Build makes a segment of the batches of r, as many as fit into maxBytes of data but at least one; 0 means all of them. It scans
// what the source's outline does not have, plus one batch; the result scans the source each time its body is read, so the source must
// keep giving the range until then (pin it). extra is asked for what belongs to the end that was found.
func Build(id Identity, src Source, r Range, maxBytes int64, extra func(end record.Offset) (Extra, error)) (*Object, error) {
	if r.Base < 0 || r.End <= r.Base {
		return nil, fmt.Errorf("%w: empty range [%d, %d)", ErrSource, r.Base, r.End)
	}
	if len(id.ClusterID) > maxString || len(id.TopicName) > maxString {
		return nil, fmt.Errorf("segment: cluster id or topic name above %d bytes", maxString)
	}
	header := encodeHeader(&id)
	x := &Index{Info: Info{Identity: id, Base: r.Base, End: r.End, DataPos: int64(len(header)), MinTimestamp: NoTimestamp,
		MaxTimestamp: NoTimestamp, OffsetOfMax: record.NoOffset}}
	if maxBytes <= 0 || maxBytes > MaxSegmentBytes {
		maxBytes = MaxSegmentBytes
	}
	b := &builder{x: x, limit: limit{maxBytes, r.End}, next: r.Base}
	err := b.pass(src)
	switch {
	case errors.Is(err, errFull) && b.next > r.Base:
		x.Info.End = b.next
	case err != nil:
		return nil, fmt.Errorf("segment: scan [%d, %d): %w", r.Base, r.End, err)
	case b.next != r.End:
		return nil, fmt.Errorf("%w: batches end at %d, range at %d", ErrSource, b.next, r.End)
	}
	if err := b.findOffsetOfMax(src); err != nil {
		return nil, err
	}
	ext, err := extra(x.Info.End)
	if err != nil {
		return nil, fmt.Errorf("segment: what belongs to the end at %d: %w", x.Info.End, err)
	}
	if err := b.checkEpochs(ext.Epochs); err != nil {
		return nil, err
	}
	x.Info.FirstUnstable, x.Info.SealedAtMillis = ext.FirstUnstable, ext.SealedAtMillis
	return b.finish(header, src, &ext)
}

// pass goes through the range: by the outline where the source has one, by its batches elsewhere.
func (b *builder) pass(src Source) error {
	if o, ok := src.(Outlined); ok {
		for _, part := range o.Outline(b.next, b.limit.End) {
			if part.Base > b.next {
				if err := src.Scan(b.next, part.Base, b.add); err != nil {
					return err
				}
			}
			if b.x.Info.DataBytes+int64(part.Len) > b.limit.Bytes {
				break // some of its batches may fit
			}
			if err := b.take(&part); err != nil {
				return err
			}
		}
	}
	if b.next == b.limit.End {
		return nil
	}
	return src.Scan(b.next, b.limit.End, b.add)
}

// take makes a chunk of the next part.
func (b *builder) take(p *Part) error {
	i := &b.x.Info
	if p.Base != b.next || p.End > b.limit.End || p.Len < record.HeaderSize {
		return fmt.Errorf("%w: part [%d, %d) of %d bytes where [%d, ≤ %d) was due", ErrSource, p.Base, p.End, p.Len, b.next, b.limit.End)
	}
	if err := b.noteEpoch(p.Epoch, p.Base); err != nil {
		return err
	}
	b.x.Chunks = append(b.x.Chunks, Chunk{Base: p.Base, Pos: i.DataPos + i.DataBytes, Len: p.Len, Records: p.Records, MaxTimestamp: p.MaxTimestamp, CRC: p.CRC})
	b.open = false
	if p.MaxTimestamp > i.MaxTimestamp {
		i.MaxTimestamp = p.MaxTimestamp
		b.maxFrom, b.maxNext = p.maxFrom, p.maxNext
	}
	if p.MinTimestamp >= 0 && (i.MinTimestamp == NoTimestamp || p.MinTimestamp < i.MinTimestamp) {
		i.MinTimestamp = p.MinTimestamp
	}
	b.next = p.End
	i.DataBytes += int64(p.Len)
	i.Records += int64(p.Records)
	return nil
}

// limit is where pass 1 ends.
type limit struct {
	Bytes int64
	End   record.Offset
}

// add takes the next batch (W3).
func (b *builder) add(batch record.Batch) error {
	if err := batch.Check(); err != nil {
		return fmt.Errorf("%w: batch at %d: %w", ErrSource, b.next, err)
	}
	base := batch.BaseOffset()
	if b.next == b.x.Info.Base && base < b.next && batch.NextOffset() > b.next {
		base = b.next // the log start cut this batch before it was sealed: it stays whole, what lies below is dead
	}
	if base != b.next || batch.NextOffset() > b.limit.End {
		return fmt.Errorf("%w: batch [%d, %d) where [%d, ≤ %d) was due", ErrSource, base, batch.NextOffset(), b.next, b.limit.End)
	}
	i := &b.x.Info
	if i.DataBytes > 0 && i.DataBytes+int64(len(batch)) > b.limit.Bytes {
		return errFull
	}
	if !b.open {
		b.x.Chunks = append(b.x.Chunks, Chunk{Base: base, Pos: i.DataPos + i.DataBytes, MaxTimestamp: NoTimestamp})
	}
	if err := b.noteEpoch(batch.LeaderEpoch(), base); err != nil {
		return err
	}
	if !batch.IsControl() {
		if err := b.time(batch, base); err != nil {
			return err
		}
	}
	b.next = batch.NextOffset()
	c := &b.x.Chunks[len(b.x.Chunks)-1]
	c.CRC = crc32.Update(c.CRC, castagnoli, batch)
	c.Len += int32(len(batch))
	c.Records += batch.RecordCount()
	b.open = c.Len < ChunkTarget
	i.DataBytes += int64(len(batch))
	i.Records += int64(batch.RecordCount())
	return nil
}

// time notes the timestamps of a data batch, those at or above base.
func (b *builder) time(batch record.Batch, base record.Offset) error {
	i, most := &b.x.Info, batch.MaxTimestamp()
	if base > batch.BaseOffset() && !batch.IsLogAppendTime() {
		most = NoTimestamp
		if err := batch.Each(func(r *record.Record) bool {
			if r.Offset >= base {
				most = max(most, r.Timestamp)
			}
			return true
		}); err != nil {
			return fmt.Errorf("%w: batch at %d: %w", ErrSource, base, err)
		}
	}
	c := &b.x.Chunks[len(b.x.Chunks)-1]
	c.MaxTimestamp = max(c.MaxTimestamp, most)
	if most > i.MaxTimestamp {
		i.MaxTimestamp = most
		b.maxFrom, b.maxNext = base, batch.NextOffset()
	}
	if first := batch.BaseTimestamp(); first >= 0 && (i.MinTimestamp == NoTimestamp || first < i.MinTimestamp) {
		i.MinTimestamp = first
	}
	return nil
}

// noteEpoch: leader epochs never decrease along a log.
func (b *builder) noteEpoch(e record.Epoch, base record.Offset) error {
	n := len(b.seen)
	if n > 0 && e < b.seen[n-1].Epoch {
		return fmt.Errorf("%w: leader epoch %d at %d after %d", ErrSource, e, base, b.seen[n-1].Epoch)
	}
	if n == 0 || e > b.seen[n-1].Epoch {
		b.seen = append(b.seen, record.EpochStart{Epoch: e, Start: base})
	}
	return nil
}

// checkEpochs: the chain says of the batches what they say themselves.
func (b *builder) checkEpochs(chain []record.EpochStart) error {
	for i, s := range b.seen {
		last := b.x.Info.End - 1
		if i+1 < len(b.seen) {
			last = b.seen[i+1].Start - 1
		}
		if first, then := record.EpochAt(chain, s.Start), record.EpochAt(chain, last); first != s.Epoch || then < s.Epoch {
			return fmt.Errorf("%w: batches at [%d, %d] have leader epoch %d, the chain says %d to %d", ErrSource, s.Start, last, s.Epoch, first, then)
		}
	}
	return nil
}

// findOffsetOfMax reads the one batch with the maximum timestamp again, so that pass 1 needs no copy of it (W4).
func (b *builder) findOffsetOfMax(src Source) error {
	if b.x.Info.MaxTimestamp == NoTimestamp {
		return nil
	}
	err := src.Scan(b.maxFrom, b.maxNext, func(batch record.Batch) error {
		o, t, ok, err := batch.FirstAtOrAfter(b.x.Info.MaxTimestamp, b.maxFrom)
		if err != nil {
			return err
		}
		if !ok || t != b.x.Info.MaxTimestamp {
			return fmt.Errorf("%w: header says maximum timestamp %d, records say %d", ErrSource, b.x.Info.MaxTimestamp, t)
		}
		b.x.Info.OffsetOfMax = o
		return nil
	})
	if err == nil && b.x.Info.OffsetOfMax == record.NoOffset {
		err = fmt.Errorf("%w: batch is gone", ErrSource)
	}
	if err != nil {
		return fmt.Errorf("segment: maximum timestamp in batch at %d: %w", b.maxFrom, err)
	}
	return nil
}

func (b *builder) finish(header []byte, src Source, extra *Extra) (*Object, error) {
	x := b.x
	for _, e := range extra.Epochs {
		if e.Start < x.Info.End {
			x.Epochs = append(x.Epochs, e)
		}
	}
	x.Info.Epochs = epochsWithin(x.Epochs, x.Info.Base)
	x.Aborted = slices.Clone(extra.Aborted)
	slices.SortFunc(x.Aborted, compareAborted)
	for _, a := range x.Aborted {
		if a.First >= x.Info.End || a.Marker < x.Info.Base || a.First > a.Marker {
			return nil, fmt.Errorf("segment: aborted transaction [%d, %d] does not belong to [%d, %d)", a.First, a.Marker, x.Info.Base, x.Info.End)
		}
	}
	x.Info.HasAborted = len(x.Aborted) > 0
	producers, err := encodeProducers(extra.Producers, &x.Producers)
	if err != nil {
		return nil, err
	}
	x.Producers.Pos = x.Info.DataPos + x.Info.DataBytes
	for _, c := range x.Chunks {
		x.Info.DataCRC = joinCRC(x.Info.DataCRC, c.CRC, int64(c.Len))
	}
	footer := appendTrailer(encodeFooter(x))
	if len(footer) > MaxFooterBytes {
		return nil, fmt.Errorf("segment: footer of %d bytes, at most %d", len(footer), MaxFooterBytes)
	}
	x.Info.FooterLen = int64(len(footer))
	tail := append(producers, footer...)
	x.Info.Bytes = x.Producers.Pos + int64(len(tail))
	crc := crc32.Update(joinCRC(crc32.Checksum(header, castagnoli), x.Info.DataCRC, x.Info.DataBytes), castagnoli, tail)
	return &Object{Info: x.Info, index: x, header: header, tail: tail, src: src, crc: crc}, nil
}

func compareAborted(a, b Aborted) int {
	return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Marker, b.Marker), cmp.Compare(a.ProducerID, b.ProducerID))
}

// epochsWithin cuts the chain to the epoch in force at base and those that start above it.
func epochsWithin(chain []record.EpochStart, base record.Offset) []record.EpochStart {
	from := 0
	for i, e := range chain {
		if e.Start <= base {
			from = i
		}
	}
	return slices.Clone(chain[from:])
}

// snapshotEncoder compresses producer snapshots, one at a time. There is one for the process: an encoder is 350 KiB, which would be most of an
// upload's garbage.
var snapshotEncoder = newSnapshotEncoder()

// newSnapshotEncoder uses the encoder once: what it makes at its first use would belong to the synctest bubble of the test that has it.
func newSnapshotEncoder() *zstd.Encoder {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(64<<10))
	if err != nil {
		panic("segment: the options of the encoder: " + err.Error()) // they are constant
	}
	enc.EncodeAll([]byte{0}, nil)
	return enc
}

func encodeProducers(ps []Producer, ext *Extent) ([]byte, error) {
	sorted := slices.Clone(ps)
	slices.SortFunc(sorted, func(a, b Producer) int { return cmp.Compare(a.ID, b.ID) })
	raw := putU32(nil, uint32(len(sorted)))
	for _, p := range sorted {
		raw = putU32(putI64(raw, p.ID), uint32(len(p.State)))
		raw = append(raw, p.State...)
		if len(raw) > MaxProducersRaw {
			return nil, fmt.Errorf("segment: producer snapshot above %d bytes", MaxProducersRaw)
		}
	}
	out := snapshotEncoder.EncodeAll(raw, nil)
	if int64(len(out)) > math.MaxUint32 {
		return nil, fmt.Errorf("segment: producer snapshot of %d bytes", len(out))
	}
	*ext = Extent{Len: uint32(len(out)), Raw: uint32(len(raw)), CRC: crc32.Checksum(out, castagnoli), Count: uint32(len(sorted))}
	return out, nil
}

// DecodeProducers reads the bytes of the extent.
func DecodeProducers(b []byte, ext Extent) ([]Producer, error) {
	if len(b) != int(ext.Len) || crc32.Checksum(b, castagnoli) != ext.CRC {
		return nil, corrupt("producer snapshot checksum")
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxProducersRaw))
	if err != nil {
		return nil, fmt.Errorf("segment: producer snapshot: %w", err)
	}
	defer dec.Close()
	raw, err := dec.DecodeAll(b, nil)
	if err != nil || len(raw) != int(ext.Raw) || len(raw) < 4 {
		return nil, corrupt("producer snapshot: %d bytes of %d: %v", len(raw), ext.Raw, err)
	}
	n := binary.BigEndian.Uint32(raw)
	if n != ext.Count || int64(n)*12 > int64(len(raw)) {
		return nil, corrupt("producer snapshot of %d entries in %d bytes", n, len(raw))
	}
	c := cursor{b: raw[4:]}
	ps := make([]Producer, n)
	for i := range ps {
		ps[i].ID = c.i64()
		ps[i].State = c.take(int(c.u32()))
		if i > 0 && ps[i].ID <= ps[i-1].ID {
			return nil, corrupt("producer snapshot order")
		}
	}
	if !c.done() {
		return nil, corrupt("producer snapshot fields")
	}
	return ps, nil
}
