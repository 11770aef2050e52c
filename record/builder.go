// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Header is one header of a record to build. A nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Producer is who writes a batch. Sequence is that of the batch's first record.
type Producer struct {
	ID            int64
	Epoch         int16
	Sequence      int32
	Transactional bool
}

// NoProducer is the Producer of batches without idempotence.
var NoProducer = Producer{ID: NoProducerID, Epoch: -1, Sequence: -1}

// Builder builds batches record by record: for tests, markers and tools. What producers sent is never built anew.
// The zero value builds uncompressed batches without a producer. It is not safe for concurrent use.
type Builder struct {
	// Codec and Level are how the records are compressed, Level 0 being the codec's default.
	Codec Codec
	Level int
	// BaseOffset and LeaderEpoch go into the header as they are. A producer sends 0 and -1.
	BaseOffset  Offset
	LeaderEpoch Epoch

	producer    *Producer
	appendTime  *int64
	control     bool
	data        []byte
	count, next int32
	base, max   int64
}

// SetProducer makes the following batches an idempotent producer's.
func (b *Builder) SetProducer(p Producer) { b.producer = &p }

// SetLogAppendTime makes the following batches carry the broker's time.
func (b *Builder) SetLogAppendTime(millis int64) { b.appendTime = &millis }

// Skip leaves out n offsets, as compaction does.
func (b *Builder) Skip(n int32) { b.next += n }

// Count is how many records the batch has so far, Bytes what they take uncompressed.
func (b *Builder) Count() int { return int(b.count) }
func (b *Builder) Bytes() int { return len(b.data) }

// Add appends a record. A nil key or value is null.
func (b *Builder) Add(timestamp int64, key, value []byte, headers ...Header) {
	if b.count == 0 {
		b.base, b.max = timestamp, timestamp
	}
	b.max = max(b.max, timestamp)
	delta := timestamp - b.base
	size := 1 + varintLen(delta) + varintLen(int64(b.next)) + bytesLen(key) + bytesLen(value) + varintLen(int64(len(headers)))
	for _, h := range headers {
		size += varintLen(int64(len(h.Key))) + len(h.Key) + bytesLen(h.Value)
	}
	d := binary.AppendVarint(b.data, int64(size))
	d = append(d, 0)
	d = binary.AppendVarint(d, delta)
	d = binary.AppendVarint(d, int64(b.next))
	d = appendBytes(appendBytes(d, key), value)
	d = binary.AppendVarint(d, int64(len(headers)))
	for _, h := range headers {
		d = append(binary.AppendVarint(d, int64(len(h.Key))), h.Key...)
		d = appendBytes(d, h.Value)
	}
	b.data = d
	b.count++
	b.next++
}

func bytesLen(p []byte) int {
	if p == nil {
		return 1
	}
	return varintLen(int64(len(p))) + len(p)
}

func appendBytes(dst, p []byte) []byte {
	if p == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(p))), p...)
}

// Build returns the batch and makes the builder ready for the next, with the same settings except that an idempotent
// producer's sequence moves on. A batch needs a record, or skipped offsets: compaction may leave it without records.
func (b *Builder) Build() (Batch, error) {
	if b.next <= 0 {
		return nil, errors.New("record: building a batch without offsets")
	}
	head := make([]byte, HeaderSize, HeaderSize+len(b.data))
	out, err := compress(head, b.Codec, b.Level, b.data)
	if err != nil {
		return nil, fmt.Errorf("building a batch of %d records: %w", b.count, err)
	}
	if len(out) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: building a batch of %d bytes", ErrTooLarge, len(out))
	}
	batch := Batch(out)
	b.writeHeader(batch)
	if b.producer != nil && b.producer.Sequence >= 0 {
		// Sequences wrap from 2³¹−1 to 0.
		b.producer.Sequence = int32((int64(b.producer.Sequence) + int64(b.next)) & math.MaxInt32)
	}
	b.data, b.count, b.next, b.base, b.max = b.data[:0], 0, 0, 0, 0
	return batch, nil
}

func (b *Builder) writeHeader(batch Batch) {
	p := NoProducer
	if b.producer != nil {
		p = *b.producer
	}
	attributes, maxTime := int16(b.Codec), b.max
	if b.count == 0 {
		maxTime = NoTimestamp
	}
	if b.appendTime != nil {
		attributes, maxTime = attributes|LogAppendTimeBit, *b.appendTime
	}
	if p.Transactional {
		attributes |= TransactionalBit
	}
	if b.control {
		attributes |= ControlBit
	}
	batch.Stamp(b.BaseOffset, b.LeaderEpoch)
	binary.BigEndian.PutUint32(batch[8:], uint32(len(batch)-lengthOffset))
	batch[16] = magicV2
	binary.BigEndian.PutUint16(batch[21:], uint16(attributes))
	binary.BigEndian.PutUint32(batch[23:], uint32(b.next-1))
	binary.BigEndian.PutUint64(batch[27:], uint64(b.base))
	binary.BigEndian.PutUint64(batch[35:], uint64(maxTime))
	binary.BigEndian.PutUint64(batch[43:], uint64(p.ID))
	binary.BigEndian.PutUint16(batch[51:], uint16(p.Epoch))
	binary.BigEndian.PutUint32(batch[53:], uint32(p.Sequence))
	binary.BigEndian.PutUint32(batch[57:], uint32(b.count))
	batch.seal()
}

// Marker is the control record that ends a transaction on a partition.
type Marker struct {
	Commit           bool
	CoordinatorEpoch int32
}

// Both the key and the value of a marker begin with a version.
const (
	markerVersion    int16 = 0
	markerAbort      int16 = 0
	markerCommit     int16 = 1
	markerKeyBytes         = 4
	markerValueBytes       = 6
)

// Batch builds the marker's batch for the transaction of one producer id and epoch.
func (m Marker) Batch(p Producer, timestamp int64) (Batch, error) {
	kind := markerAbort
	if m.Commit {
		kind = markerCommit
	}
	key := binary.BigEndian.AppendUint16(nil, uint16(markerVersion))
	key = binary.BigEndian.AppendUint16(key, uint16(kind))
	value := binary.BigEndian.AppendUint16(nil, uint16(markerVersion))
	value = binary.BigEndian.AppendUint32(value, uint32(m.CoordinatorEpoch))
	b := Builder{control: true}
	b.SetProducer(Producer{ID: p.ID, Epoch: p.Epoch, Sequence: -1, Transactional: true})
	b.Add(timestamp, key, value)
	return b.Build()
}

// Marker reads the transaction marker of a control batch. ok is false for control records of other kinds.
func (b Batch) Marker() (m Marker, ok bool, err error) {
	if !b.IsControl() {
		return m, false, b.describe(fmt.Errorf("%w: not a control batch", ErrMalformed))
	}
	err = b.Each(func(r *Record) bool {
		if len(r.Key) < markerKeyBytes || len(r.Value) < markerValueBytes {
			return false
		}
		kind := int16(binary.BigEndian.Uint16(r.Key[2:]))
		if kind != markerAbort && kind != markerCommit {
			return false
		}
		m = Marker{Commit: kind == markerCommit, CoordinatorEpoch: int32(binary.BigEndian.Uint32(r.Value[2:]))}
		ok = true
		return false
	})
	return m, ok, err
}
