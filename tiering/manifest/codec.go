// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/segment"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const pageMagic = "VARVPAGE"

func putI64[T ~int64](b []byte, v T) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }
func putU32(b []byte, v uint32) []byte      { return binary.BigEndian.AppendUint32(b, v) }
func putU16(b []byte, v uint16) []byte      { return binary.BigEndian.AppendUint16(b, v) }
func putString(b []byte, s string) []byte   { return append(putU16(b, uint16(len(s))), s...) }

// fields reads an encoded value; running out of bytes is remembered and asked for once at the end.
type fields struct {
	b     []byte
	short bool
}

func (f *fields) take(n int) []byte {
	if n < 0 || n > len(f.b) {
		f.short, f.b = true, nil
		return nil
	}
	head := f.b[:n]
	f.b = f.b[n:]
	return head
}

func (f *fields) u16() uint16 {
	if b := f.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (f *fields) u32() uint32 {
	if b := f.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (f *fields) i64() int64 {
	if b := f.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (f *fields) offset() record.Offset { return record.Offset(f.i64()) }

func (f *fields) attempt() (a segment.Attempt) {
	copy(a[:], f.take(len(a)))
	return a
}

func (f *fields) key() string {
	n := int(f.u16())
	if n > maxObjectKey {
		f.short = true
		return ""
	}
	return string(f.take(n))
}

// open checks format number and checksum of a value that begins with the one and ends with the other.
func open(what string, b []byte) (fields, error) {
	if len(b) < 2+4 {
		return fields{}, fmt.Errorf("%w: %s of %d bytes", ErrCorrupt, what, len(b))
	}
	if err := checkFormat(what, binary.BigEndian.Uint16(b)); err != nil {
		return fields{}, err
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(body):]) {
		return fields{}, fmt.Errorf("%w: %s checksum", ErrCorrupt, what)
	}
	return fields{b: body[2:]}, nil
}

func checkFormat(what string, f uint16) error {
	if f > Format {
		return fmt.Errorf("%w: %s has format %d, this binary reads up to %d", ErrNewerFormat, what, f, Format)
	}
	if f == 0 {
		return fmt.Errorf("%w: %s of format 0", ErrCorrupt, what)
	}
	return nil
}

// seal appends the checksum over what was appended from start on.
func seal(b []byte, start int) []byte { return putU32(b, crc32.Checksum(b[start:], castagnoli)) }

// AppendEntry encodes e.
func AppendEntry(b []byte, e *Entry) []byte {
	start := len(b)
	b = putU16(b, Format)
	b = append(b, e.Attempt[:]...)
	b = putString(b, e.Object)
	b = putI64(putI64(b, e.Pos), e.Len)
	b = putI64(putI64(putI64(b, e.Base), e.End), e.DataBytes)
	b = putI64(putI64(putI64(b, e.MinTimestamp), e.MaxTimestamp), e.OffsetOfMax)
	b = putU32(putU32(putI64(b, e.Records), e.FooterLen), e.CRC)
	flags := byte(0)
	if e.HasAborted {
		flags = 1
	}
	b = append(b, flags)
	b = putI64(putI64(putI64(b, e.FirstUnstable), e.SealedAtMillis), e.Gen)
	b = putU32(b, uint32(len(e.Epochs)))
	for _, s := range e.Epochs {
		b = putI64(putU32(b, uint32(s.Epoch)), s.Start)
	}
	return seal(b, start)
}

// DecodeEntry reads what AppendEntry wrote.
func DecodeEntry(b []byte) (Entry, error) {
	f, err := open("manifest entry", b)
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	e.Attempt, e.Object = f.attempt(), f.key()
	e.Pos, e.Len = f.i64(), f.i64()
	e.Base, e.End, e.DataBytes = f.offset(), f.offset(), f.i64()
	e.MinTimestamp, e.MaxTimestamp, e.OffsetOfMax = f.i64(), f.i64(), f.offset()
	e.Records, e.FooterLen, e.CRC = f.i64(), f.u32(), f.u32()
	flags := f.take(1)
	e.FirstUnstable, e.SealedAtMillis, e.Gen = f.offset(), f.i64(), f.i64()
	n := f.u32()
	if f.short || n > maxEntryEpochs || int(n)*12 != len(f.b) || flags[0] > 1 {
		return Entry{}, fmt.Errorf("%w: manifest entry fields", ErrCorrupt)
	}
	e.HasAborted = flags[0] == 1
	if n > 0 {
		e.Epochs = make([]record.EpochStart, n)
	}
	for i := range e.Epochs {
		epoch := record.Epoch(f.u32())
		e.Epochs[i] = record.EpochStart{Epoch: epoch, Start: f.offset()}
	}
	if e.Base < 0 || e.End <= e.Base || e.Pos < 0 || e.Len <= 0 || e.DataBytes < 0 || int64(e.FooterLen) > e.Len {
		return Entry{}, fmt.Errorf("%w: manifest entry [%d, %d) of %d bytes", ErrCorrupt, e.Base, e.End, e.Len)
	}
	return e, nil
}

// AppendPage encodes a page pointer.
func AppendPage(b []byte, p *Page) []byte {
	start := len(b)
	b = putU16(b, Format)
	b = append(b, p.Attempt[:]...)
	b = putString(b, p.Object)
	b = putU32(putI64(b, p.Len), p.CRC)
	b = putI64(putI64(b, p.Base), p.End)
	b = putI64(putU32(b, uint32(p.Count)), p.DataBytes)
	b = putI64(putI64(putI64(b, p.MinTimestamp), p.MaxTimestamp), p.OffsetOfMax)
	b = putU32(putU32(b, uint32(p.MinEpoch)), uint32(p.MaxEpoch))
	return seal(b, start)
}

// DecodePage reads a page pointer.
func DecodePage(b []byte) (Page, error) {
	f, err := open("manifest page pointer", b)
	if err != nil {
		return Page{}, err
	}
	var p Page
	p.Attempt, p.Object = f.attempt(), f.key()
	p.Len, p.CRC = f.i64(), f.u32()
	p.Base, p.End = f.offset(), f.offset()
	count := f.u32()
	p.Count, p.DataBytes = int(count), f.i64()
	p.MinTimestamp, p.MaxTimestamp, p.OffsetOfMax = f.i64(), f.i64(), f.offset()
	p.MinEpoch, p.MaxEpoch = record.Epoch(f.u32()), record.Epoch(f.u32())
	if f.short || len(f.b) != 0 || p.Base < 0 || p.End <= p.Base || count == 0 || count > MaxPageEntries || p.Len <= 0 || p.Len > MaxPageBytes {
		return Page{}, fmt.Errorf("%w: manifest page pointer fields", ErrCorrupt)
	}
	return p, nil
}

// BuildPage makes a page object of entries that tile, and its pointer.
func BuildPage(attempt segment.Attempt, object string, entries []Entry) (Page, []byte, error) {
	if len(entries) == 0 || len(entries) > MaxPageEntries {
		return Page{}, nil, fmt.Errorf("%w: page of %d entries", ErrEdit, len(entries))
	}
	b := putU32(putU16(append([]byte(nil), pageMagic...), Format), uint32(len(entries)))
	p := Page{Attempt: attempt, Object: object, Base: entries[0].Base, End: entries[len(entries)-1].End, Count: len(entries),
		MinTimestamp: segment.NoTimestamp, MaxTimestamp: segment.NoTimestamp, OffsetOfMax: record.NoOffset,
		MinEpoch: record.NoEpoch, MaxEpoch: record.NoEpoch}
	for i := range entries {
		e := &entries[i]
		if i > 0 && e.Base != entries[i-1].End {
			return Page{}, nil, fmt.Errorf("%w: page with a gap [%d, %d)", ErrEdit, entries[i-1].End, e.Base)
		}
		at := len(b)
		b = AppendEntry(putU32(b, 0), e)
		binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
		p.add(e)
	}
	b = seal(b, 0)
	if len(b) > MaxPageBytes {
		return Page{}, nil, fmt.Errorf("%w: page of %d bytes", ErrEdit, len(b))
	}
	p.Len, p.CRC = int64(len(b)), crc32.Checksum(b, castagnoli)
	return p, b, nil
}

// add widens the extremes by e.
func (p *Page) add(e *Entry) {
	p.DataBytes += e.DataBytes
	if e.MaxTimestamp > p.MaxTimestamp {
		p.MaxTimestamp, p.OffsetOfMax = e.MaxTimestamp, e.OffsetOfMax
	}
	if e.MinTimestamp >= 0 && (p.MinTimestamp < 0 || e.MinTimestamp < p.MinTimestamp) {
		p.MinTimestamp = e.MinTimestamp
	}
	if len(e.Epochs) == 0 {
		return
	}
	if p.MinEpoch == record.NoEpoch {
		p.MinEpoch = e.Epochs[0].Epoch
	}
	p.MaxEpoch = max(p.MaxEpoch, e.LastEpoch())
}

// ReadPage decodes a page object and checks it against its pointer.
func ReadPage(p *Page, b []byte) ([]Entry, error) {
	if int64(len(b)) != p.Len || crc32.Checksum(b, castagnoli) != p.CRC || len(b) < len(pageMagic)+2+4+4 || string(b[:8]) != pageMagic {
		return nil, fmt.Errorf("%w: page object %s: length, magic or checksum", ErrCorrupt, p.Object)
	}
	if err := checkFormat("manifest page "+p.Object, binary.BigEndian.Uint16(b[8:])); err != nil {
		return nil, err
	}
	f := fields{b: b[10 : len(b)-4]}
	if n := f.u32(); int64(n) != int64(p.Count) || n > MaxPageEntries {
		return nil, fmt.Errorf("%w: page object %s has %d entries, its pointer says %d", ErrCorrupt, p.Object, n, p.Count)
	}
	entries := make([]Entry, p.Count)
	next := p.Base
	for i := range entries {
		e, err := DecodeEntry(f.take(int(f.u32())))
		if err != nil {
			return nil, fmt.Errorf("page object %s: %w", p.Object, err)
		}
		if e.Base != next {
			return nil, fmt.Errorf("%w: page object %s has a gap at %d", ErrCorrupt, p.Object, next)
		}
		entries[i], next = e, e.End
	}
	if f.short || len(f.b) != 0 || next != p.End {
		return nil, fmt.Errorf("%w: page object %s ends at %d, its pointer says %d", ErrCorrupt, p.Object, next, p.End)
	}
	return entries, nil
}
