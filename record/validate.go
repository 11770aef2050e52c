// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
)

// NoTimestamp is Kafka's "no timestamp known".
const NoTimestamp int64 = -1

// Rules is what a topic demands of a batch.
type Rules struct {
	// MaxBytes is max.message.bytes: the whole batch, compressed, with offset and length.
	MaxBytes int
	// MaxDecompressed bounds what the records decompress to. Zero, or more than MaxDecompressedBytes, is MaxDecompressedBytes.
	MaxDecompressed int
	// LogAppendTime gives the batch the time Now instead of checking the records' own.
	LogAppendTime bool
	// Now is the wall clock in milliseconds since the epoch.
	Now int64
	// BeforeMax and AfterMax are message.timestamp.before.max.ms and …after.max.ms.
	BeforeMax, AfterMax int64
	// RequireKeys is set for compacted topics.
	RequireKeys bool
	// Compression is the codec to store, or KeepCodec.
	Compression int8
	// Level is that codec's level, 0 for its default.
	Level int
	// AllowZstd is false for Produce before version 7.
	AllowZstd bool
}

// Reason is why a batch was refused.
type Reason int8

// The reasons. All are definite: the batch is not in the log.
const (
	// CorruptMessage: the bytes were damaged on the way. Sending them again may help.
	CorruptMessage Reason = iota + 1
	// InvalidRecord: the producer built what cannot be stored.
	InvalidRecord
	// InvalidTimestamp: records are further from the broker's clock than the topic allows.
	InvalidTimestamp
	// MessageTooLarge: the batch, or what it decompresses to, is larger than allowed.
	MessageTooLarge
	// UnsupportedCompression: a codec that does not exist, or not in this version of the request.
	UnsupportedCompression
)

var reasonNames = [...]string{
	CorruptMessage: "corrupt message", InvalidRecord: "invalid record", InvalidTimestamp: "invalid timestamp",
	MessageTooLarge: "message too large", UnsupportedCompression: "unsupported compression",
}

func (r Reason) String() string {
	if r < CorruptMessage || int(r) >= len(reasonNames) {
		return "reason " + strconv.Itoa(int(r))
	}
	return reasonNames[r]
}

// RecordError is what is wrong with one record of a batch.
type RecordError struct {
	Index   int32
	Message string
}

// Rejection is why a batch was refused. One bad record refuses the whole batch; Records then names the bad ones, up to a bound.
type Rejection struct {
	Reason  Reason
	Message string
	Records []RecordError
}

func (r *Rejection) Error() string { return "record: " + r.Reason.String() + ": " + r.Message }

func reject(reason Reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Validate checks the record set of one partition of a produce request, which must hold exactly one batch, and returns the
// batch to store. Half a batch behind it is dropped, as Kafka does.
//
// The batch is raw itself, changed in place where the topic wants another timestamp type or the header told a wrong maximum
// timestamp, or a new batch when the topic's compression.type differs. raw must not be used for anything else afterwards,
// whatever the outcome.
func Validate(raw []byte, rules *Rules) (Batch, *Rejection) {
	b, rej := onlyBatch(raw, rules.AllowZstd)
	if rej != nil {
		return nil, rej
	}
	if rej := checkHeader(b, rules.MaxBytes); rej != nil {
		return nil, rej
	}
	keep := rules.Compression == KeepCodec || Codec(rules.Compression) == b.Codec()
	if keep && b.Codec() == None {
		maxTime, rej := checkRecords(b, b[HeaderSize:], rules)
		if rej != nil {
			return nil, rej
		}
		return b.settle(rules, maxTime, false), nil
	}
	s := getScratch()
	defer s.release()
	data, err := s.records(b, rules.decompressedLimit())
	if err != nil {
		return nil, rejectPayload(b.Codec(), err)
	}
	maxTime, rej := checkRecords(b, data, rules)
	if rej != nil {
		return nil, rej
	}
	if keep {
		return b.settle(rules, maxTime, false), nil
	}
	if b, rej = recompress(b, data, rules); rej != nil {
		return nil, rej
	}
	return b.settle(rules, maxTime, true), nil
}

func (r *Rules) decompressedLimit() int {
	if r.MaxDecompressed <= 0 {
		return MaxDecompressedBytes
	}
	return min(r.MaxDecompressed, MaxDecompressedBytes)
}

// onlyBatch finds the one whole batch in raw. The steps and their order are Kafka's.
func onlyBatch(raw []byte, allowZstd bool) (Batch, *Rejection) {
	n, rej := wholeBatch(raw)
	switch {
	case rej != nil:
		return nil, rej
	case n == 0:
		return nil, reject(InvalidRecord, "the record set of %d bytes holds no whole batch", len(raw))
	}
	b := Batch(raw[:n:n])
	if b.Magic() != magicV2 {
		return nil, reject(InvalidRecord, "the batch has magic %d, only %d is accepted", b.Magic(), magicV2)
	}
	if n < HeaderSize {
		return nil, reject(CorruptMessage, "the batch has %d bytes, a header alone takes %d", n, HeaderSize)
	}
	if !allowZstd && b.Codec() == Zstd {
		return nil, reject(UnsupportedCompression, "this version of the produce request does not know zstd")
	}
	switch n, rej := wholeBatch(raw[n:]); {
	case rej != nil:
		return nil, rej
	case n > 0:
		return nil, reject(InvalidRecord, "the record set holds more than one batch")
	}
	return b, nil
}

// wholeBatch is the size of the whole batch that buf starts with, 0 when it starts with less.
func wholeBatch(buf []byte) (int, *Rejection) {
	const (
		throughMagic = 17
		smallest     = 14 // what the oldest format's smallest message takes
	)
	if len(buf) < lengthOffset {
		return 0, nil
	}
	n := int(int32(binary.BigEndian.Uint32(buf[8:])))
	if n < smallest {
		return 0, reject(CorruptMessage, "the batch length field is %d", n)
	}
	if len(buf) < throughMagic {
		return 0, nil
	}
	if magic := Batch(buf).Magic(); magic < 0 || magic > magicV2 {
		return 0, reject(CorruptMessage, "the batch has magic %d, which does not exist", magic)
	}
	if n > len(buf)-lengthOffset {
		return 0, nil
	}
	return n + lengthOffset, nil
}

// checkHeader looks at all that needs no decompression, in Kafka's order.
func checkHeader(b Batch, maxBytes int) *Rejection {
	switch {
	case b.BaseOffset() != 0:
		return reject(InvalidRecord, "the batch has base offset %d, a producer sends 0", b.BaseOffset())
	case len(b) > maxBytes:
		return reject(MessageTooLarge, "the batch has %d bytes, max.message.bytes is %d", len(b), maxBytes)
	case !b.CRCValid():
		return reject(CorruptMessage, "the batch's CRC is %#08x, its bytes give %#08x", b.CRC(), crc32.Checksum(b[CRCCoveredFrom:], castagnoli))
	case !b.Codec().Valid():
		return reject(UnsupportedCompression, "the batch has the unknown codec %d", b.Codec())
	case b.RecordCount() <= 0 || int64(b.LastOffsetDelta())+1 != int64(b.RecordCount()):
		return reject(InvalidRecord, "the batch has %d records and last offset delta %d", b.RecordCount(), b.LastOffsetDelta())
	case b.IsControl():
		return reject(InvalidRecord, "clients may not write control records")
	case b.Attributes()&DeleteHorizonBit != 0:
		return reject(InvalidRecord, "clients may not write a delete horizon")
	case b.ProducerID() > NoProducerID && b.BaseSequence() < 0:
		return reject(InvalidRecord, "the batch has producer id %d but base sequence %d", b.ProducerID(), b.BaseSequence())
	case b.ProducerID() <= NoProducerID && b.IsTransactional():
		// Kafka stores it. No marker can ever end that transaction.
		return reject(InvalidRecord, "the batch is transactional without a producer id")
	}
	return nil
}

// rejectPayload tells why the records did not decompress. The CRC was right: the producer sent them so, and sending them again
// does not help.
func rejectPayload(c Codec, err error) *Rejection {
	if errors.Is(err, ErrTooLarge) {
		return reject(MessageTooLarge, "the %v records decompress to more than allowed", c)
	}
	return reject(InvalidRecord, "the %v records do not decompress: %v", c, err)
}

// checkRecords looks at each record's structure, offset delta, key and timestamp, and returns the largest timestamp. Keys and
// values are passed over. Bad keys and timestamps are collected, bad structure ends the walk.
func checkRecords(b Batch, data []byte, rules *Rules) (maxTime int64, rej *Rejection) {
	count, base := b.RecordCount(), b.BaseTimestamp()
	earliest, latest := rules.window()
	maxTime = NoTimestamp
	var f fields
	at := 0
	for i := range count {
		next, fault := f.parse(data, at)
		if fault != "" {
			return 0, reject(InvalidRecord, "record %d of %d: %s", i, count, fault)
		}
		at = next
		if f.offsetDelta != i {
			rej = rej.with(InvalidRecord, i, "offset delta "+strconv.Itoa(int(f.offsetDelta))+" in place of the record's index")
			rej.Message = "record " + strconv.Itoa(int(i)) + ": " + faultDelta
			return 0, rej
		}
		t := base + f.timestampDelta
		maxTime = max(maxTime, t)
		if rules.RequireKeys && f.key.n < 0 {
			rej = rej.with(InvalidRecord, i, "a record of a compacted topic needs a key")
		}
		if (t < earliest || t > latest) && t != NoTimestamp {
			rej = rej.with(InvalidTimestamp, i, "timestamp "+strconv.FormatInt(t, 10)+" is out of range ["+
				strconv.FormatInt(earliest, 10)+", "+strconv.FormatInt(latest, 10)+"]")
		}
	}
	if at != len(data) {
		return 0, reject(InvalidRecord, "%d records take %d of %d bytes: %s", count, at, len(data), faultRest)
	}
	return maxTime, rej
}

// window is the range of record timestamps that the topic accepts.
func (r *Rules) window() (earliest, latest int64) {
	if r.LogAppendTime {
		return math.MinInt64, math.MaxInt64
	}
	// Now is not before 1970, so only the sum can overflow.
	earliest, latest = r.Now-r.BeforeMax, r.Now+r.AfterMax
	if latest < r.Now {
		latest = math.MaxInt64
	}
	return earliest, latest
}

// with adds a record's error. A bad timestamp decides the reason of the whole, as in Kafka.
func (r *Rejection) with(reason Reason, index int32, message string) *Rejection {
	if r == nil {
		r = &Rejection{Reason: reason}
	}
	if reason == InvalidTimestamp {
		r.Reason = reason
	}
	r.Message = "one or more records are refused: the batch has an " + r.Reason.String()
	if len(r.Records) < maxRecordErrors {
		r.Records = append(r.Records, RecordError{Index: index, Message: message})
	}
	return r
}

// recompress builds the batch with the topic's codec. The records' own bytes stay as they are; the caller settles the CRC.
func recompress(b Batch, data []byte, rules *Rules) (Batch, *Rejection) {
	target := Codec(rules.Compression)
	out := make([]byte, HeaderSize, HeaderSize+max(len(b)-HeaderSize, len(data)/2))
	copy(out, b[:HeaderSize])
	out, err := compress(out, target, rules.Level, data)
	if err != nil {
		return nil, reject(InvalidRecord, "compressing the records with %v: %v", target, err)
	}
	if len(out) > rules.MaxBytes {
		return nil, reject(MessageTooLarge, "the batch has %d bytes with %v, max.message.bytes is %d", len(out), target, rules.MaxBytes)
	}
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-lengthOffset))
	binary.BigEndian.PutUint16(out[21:], uint16(b.Attributes()&^CodecMask|int16(target)))
	return Batch(out), nil
}

// settle sets the timestamp type and the maximum timestamp, and the CRC if anything that it covers has changed. The records'
// own timestamps stay: readers of a LogAppendTime batch use its maximum.
func (b Batch) settle(rules *Rules, maxTime int64, changed bool) Batch {
	attributes := b.Attributes() &^ LogAppendTimeBit
	if rules.LogAppendTime {
		attributes, maxTime = attributes|LogAppendTimeBit, rules.Now
	}
	if !changed && attributes == b.Attributes() && maxTime == b.MaxTimestamp() {
		return b
	}
	binary.BigEndian.PutUint16(b[21:], uint16(attributes))
	binary.BigEndian.PutUint64(b[35:], uint64(maxTime))
	b.seal()
	return b
}

// seal writes the CRC.
func (b Batch) seal() {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[CRCCoveredFrom:], castagnoli))
}
