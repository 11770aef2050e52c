// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A frame is one commit in a log file: header, record batches, and the Pebble batch that points to them. The layout is
// docs/formats/hot-log.md.
const (
	frameMagic     = 0x56486c66 // "VHlf"
	frameFormat    = 1
	frameHeaderLen = 48
	// frameAlign: frames begin at multiples of it, so that a search for one need not look everywhere.
	frameAlign = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameHeader says what follows. A frame is valid only in the file, and for the store, that it was written for.
type frameHeader struct {
	file     uint32
	data     uint32 // bytes of record batches
	meta     uint32 // bytes of the Pebble batch behind them
	body     uint32 // CRC-32C of both
	sequence uint64
	synced   uint64 // every frame up to this sequence was on disk when this one was written
}

func (h *frameHeader) len() int64 { return frameHeaderLen + int64(h.data) + int64(h.meta) }

// next is where a frame behind one that begins at start begins.
func (h *frameHeader) next(start int64) int64 { return alignFrame(start + h.len()) }

func alignFrame(n int64) int64 { return (n + frameAlign - 1) &^ (frameAlign - 1) }

// put fills the first frameHeaderLen bytes. The checksum begins with the store's id, which no producer of records knows: bytes in
// a record batch cannot pass for a frame.
func (h *frameHeader) put(dst []byte, store *[16]byte) {
	binary.BigEndian.PutUint32(dst, frameMagic)
	binary.BigEndian.PutUint32(dst[4:], frameFormat)
	binary.BigEndian.PutUint32(dst[8:], h.file)
	binary.BigEndian.PutUint32(dst[12:], h.data)
	binary.BigEndian.PutUint32(dst[16:], h.meta)
	binary.BigEndian.PutUint32(dst[20:], h.body)
	binary.BigEndian.PutUint64(dst[24:], h.sequence)
	binary.BigEndian.PutUint64(dst[32:], h.synced)
	binary.BigEndian.PutUint32(dst[40:], 0)
	binary.BigEndian.PutUint32(dst[44:], headerSum(dst, store))
}

func headerSum(b []byte, store *[16]byte) uint32 {
	return crc32.Update(crc32.Checksum(store[:], castagnoli), castagnoli, b[:44])
}

// parseFrameHeader returns ok false for whatever is not the header of a frame of this store and file.
func parseFrameHeader(b []byte, store *[16]byte, file uint32) (h frameHeader, ok bool, err error) {
	if len(b) < frameHeaderLen || binary.BigEndian.Uint32(b) != frameMagic || binary.BigEndian.Uint32(b[8:]) != file ||
		binary.BigEndian.Uint32(b[44:]) != headerSum(b, store) {
		return h, false, nil
	}
	if format := binary.BigEndian.Uint32(b[4:]); format != frameFormat {
		return h, false, fmt.Errorf("%w: frame format %d, this binary knows %d", ErrNewerFormat, format, frameFormat)
	}
	return frameHeader{
		file: file, data: binary.BigEndian.Uint32(b[12:]), meta: binary.BigEndian.Uint32(b[16:]), body: binary.BigEndian.Uint32(b[20:]),
		sequence: binary.BigEndian.Uint64(b[24:]), synced: binary.BigEndian.Uint64(b[32:]),
	}, true, nil
}

// position is where a frame lies: what the applied key holds about the last one that Pebble has.
type position struct {
	file       uint32
	start, end int64
	sequence   uint64
}

const (
	positionValueLen = 1 + 4 + 8 + 8 + 8
	// appliedRecordLen is what the applied key takes in a Pebble batch: kind, two lengths, key and value.
	appliedRecordLen = 1 + 1 + 2 + 1 + positionValueLen
)

func (p *position) put(dst []byte) []byte {
	dst[0] = valueFormat
	binary.BigEndian.PutUint32(dst[1:], p.file)
	binary.BigEndian.PutUint64(dst[5:], uint64(p.start))
	binary.BigEndian.PutUint64(dst[13:], uint64(p.end))
	binary.BigEndian.PutUint64(dst[21:], p.sequence)
	return dst
}

func parsePosition(value []byte) (p position, err error) {
	if err := checkValue(keyApplied, value, positionValueLen); err != nil {
		return p, err
	}
	p.file = binary.BigEndian.Uint32(value[1:])
	p.start, p.end = int64(binary.BigEndian.Uint64(value[5:])), int64(binary.BigEndian.Uint64(value[13:]))
	p.sequence = binary.BigEndian.Uint64(value[21:])
	if p.start < 0 || p.end < p.start {
		return p, fmt.Errorf("%w: applied position [%d,%d) of log file %d", ErrCorrupt, p.start, p.end, p.file)
	}
	return p, nil
}

// pointer is the value of a data key: where the batch lies.
type pointer struct {
	file, offset, size uint32
}

const pointerValueLen = 1 + 4 + 4 + 4

func (p pointer) put(dst []byte) {
	dst[0] = valueFormat
	binary.BigEndian.PutUint32(dst[1:], p.file)
	binary.BigEndian.PutUint32(dst[5:], p.offset)
	binary.BigEndian.PutUint32(dst[9:], p.size)
}

func parsePointer(key, value []byte) (p pointer, err error) {
	if err := checkValue(key, value, pointerValueLen); err != nil {
		return p, err
	}
	return pointer{binary.BigEndian.Uint32(value[1:]), binary.BigEndian.Uint32(value[5:]), binary.BigEndian.Uint32(value[9:])}, nil
}
