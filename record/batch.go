// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// HeaderSize is the length of a record batch's header in bytes, up to and with the record count.
const HeaderSize = 61

// lengthOffset is how many bytes precede what the batch length field counts.
const lengthOffset = 12

// CRCCoveredFrom is where the bytes begin that a batch's CRC covers: what the leader stamps lies before.
const CRCCoveredFrom = 21

// Attribute bits of a record batch.
const (
	CodecMask         = 0x07
	LogAppendTimeBit  = 0x08
	TransactionalBit  = 0x10
	ControlBit        = 0x20
	DeleteHorizonBit  = 0x40
	magicV2           = 2
	minBatchLengthFld = HeaderSize - lengthOffset
)

// NoProducerID marks a batch that no idempotent producer wrote.
const NoProducerID int64 = -1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is one whole record batch of format 2, as on the wire, viewed in place. Header accessors do not check bounds beyond
// what the slice does: a Batch comes from Split, Validate or a log that holds only valid ones.
//
//	baseOffset i64 | batchLength i32 | partitionLeaderEpoch i32 | magic i8 | crc u32 | attributes i16 | lastOffsetDelta i32 |
//	baseTimestamp i64 | maxTimestamp i64 | producerId i64 | producerEpoch i16 | baseSequence i32 | recordCount i32 | records
type Batch []byte

func (b Batch) i16(at int) int16 { return int16(binary.BigEndian.Uint16(b[at:])) }
func (b Batch) i32(at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
func (b Batch) i64(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }

func (b Batch) BaseOffset() Offset     { return Offset(b.i64(0)) }
func (b Batch) LeaderEpoch() Epoch     { return Epoch(b.i32(12)) }
func (b Batch) Magic() int8            { return int8(b[16]) }
func (b Batch) CRC() uint32            { return binary.BigEndian.Uint32(b[17:]) }
func (b Batch) Attributes() int16      { return b.i16(21) }
func (b Batch) LastOffsetDelta() int32 { return b.i32(23) }
func (b Batch) BaseTimestamp() int64   { return b.i64(27) }
func (b Batch) MaxTimestamp() int64    { return b.i64(35) }
func (b Batch) ProducerID() int64      { return b.i64(43) }
func (b Batch) ProducerEpoch() int16   { return b.i16(51) }
func (b Batch) BaseSequence() int32    { return b.i32(53) }
func (b Batch) RecordCount() int32     { return b.i32(57) }

// Size is the number of bytes of the batch as its length field says.
func (b Batch) Size() int { return int(b.i32(8)) + lengthOffset }

// LastOffset is the offset of the batch's last record; after compaction that record itself may be gone.
func (b Batch) LastOffset() Offset { return b.BaseOffset() + Offset(b.LastOffsetDelta()) }

// NextOffset is the first offset behind the batch.
func (b Batch) NextOffset() Offset { return b.LastOffset() + 1 }

func (b Batch) IsControl() bool       { return b.Attributes()&ControlBit != 0 }
func (b Batch) IsTransactional() bool { return b.Attributes()&TransactionalBit != 0 }
func (b Batch) IsLogAppendTime() bool { return b.Attributes()&LogAppendTimeBit != 0 }

// CRCValid tells whether the stored CRC-32C covers the bytes from the attributes to the end.
func (b Batch) CRCValid() bool { return crc32.Checksum(b[CRCCoveredFrom:], castagnoli) == b.CRC() }

// Stamp writes the base offset and the leader epoch in place. Neither is covered by the CRC (R2).
func (b Batch) Stamp(base Offset, epoch Epoch) {
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[12:], uint32(epoch))
}

// Split cuts the first whole batch off buf by its length field. It checks the length only, not the content.
func Split(buf []byte) (first Batch, rest []byte, err error) {
	if len(buf) < lengthOffset {
		return nil, nil, fmt.Errorf("%w: %d bytes left where a batch header begins", ErrShort, len(buf))
	}
	n := int(int32(binary.BigEndian.Uint32(buf[8:])))
	if n < minBatchLengthFld {
		return nil, nil, fmt.Errorf("%w: batch length field %d, at least %d expected", ErrMalformed, n, minBatchLengthFld)
	}
	if n > len(buf)-lengthOffset {
		return nil, nil, fmt.Errorf("%w: batch of %d bytes, %d there", ErrShort, n+lengthOffset, len(buf))
	}
	return Batch(buf[: n+lengthOffset : n+lengthOffset]), buf[n+lengthOffset:], nil
}
