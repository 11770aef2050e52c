// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/varve/varve/record"
)

// producerFormat is the format number of a stored producer entry; docs/formats/producer.md has the layout.
const producerFormat = 1

const (
	producerHeadBytes  = 1 + 2 + 8 + 1
	producerBatchBytes = 4 + 4 + 8 + 8
	maxProducerBytes   = producerHeadBytes + producerWindow*producerBatchBytes
)

// sentBatch is one batch of an idempotent producer that this partition stored.
type sentBatch struct {
	firstSeq, lastSeq int32
	base              record.Offset
	timestamp         int64 // log append time in ms, or -1: what the first answer said
}

func (b *sentBatch) records() int32 {
	if b.lastSeq >= b.firstSeq {
		return b.lastSeq - b.firstSeq + 1
	}
	return math.MaxInt32 - b.firstSeq + b.lastSeq + 2 // the sequence wrapped
}

func (b *sentBatch) next() record.Offset { return b.base + record.Offset(b.records()) }

// producer is what a partition remembers of one idempotent producer.
type producer struct {
	epoch    int16
	n        int8                      // batches known, oldest first
	lastUsed int64                     // ms since the epoch
	batches  [producerWindow]sentBatch // of this epoch
}

// verdict is what the producer window says about a batch.
type verdict struct {
	duplicate *sentBatch // stored already: answer this
	err       error
}

// nextSequence is the sequence after s; Kafka's sequences wrap from MaxInt32 to 0.
func nextSequence(s int32) int32 {
	if s == math.MaxInt32 {
		return 0
	}
	return s + 1
}

// lastSequence is the sequence of a batch's last record.
func lastSequence(first, lastDelta int32) int32 {
	return int32((int64(first) + int64(lastDelta)) & math.MaxInt32)
}

// judge decides about a batch of producer p (nil: unknown, any sequence is accepted).
func judge(p *producer, b record.Batch) verdict {
	if p == nil {
		return verdict{}
	}
	epoch, first := b.ProducerEpoch(), b.BaseSequence()
	last := lastSequence(first, b.LastOffsetDelta())
	if epoch == p.epoch {
		for i := range p.batches[:p.n] {
			if known := &p.batches[i]; known.firstSeq == first && known.lastSeq == last {
				return verdict{duplicate: known}
			}
		}
	}
	switch {
	case epoch < p.epoch:
		return verdict{err: fmt.Errorf("%w: producer %d sent epoch %d, %d is known", ErrInvalidProducerEpoch, b.ProducerID(), epoch, p.epoch)}
	case epoch > p.epoch:
		if first != 0 {
			return verdict{err: fmt.Errorf("%w: producer %d begins epoch %d with sequence %d instead of 0", ErrOutOfOrderSequence, b.ProducerID(), epoch, first)}
		}
	case p.n > 0:
		if want := nextSequence(p.batches[p.n-1].lastSeq); first != want {
			return verdict{err: fmt.Errorf("%w: producer %d sent sequence %d, %d expected", ErrOutOfOrderSequence, b.ProducerID(), first, want)}
		}
	}
	return verdict{}
}

// with returns the producer's entry after it stored b.
func (p *producer) with(b record.Batch, logAppendTime, now int64) producer {
	next := producer{epoch: b.ProducerEpoch(), lastUsed: now}
	if p != nil && p.epoch == next.epoch {
		next.n, next.batches = p.n, p.batches
	}
	if next.n == producerWindow {
		copy(next.batches[:], next.batches[1:])
		next.n--
	}
	next.batches[next.n] = sentBatch{
		firstSeq: b.BaseSequence(), lastSeq: lastSequence(b.BaseSequence(), b.LastOffsetDelta()),
		base: b.BaseOffset(), timestamp: logAppendTime,
	}
	next.n++
	return next
}

// encode appends the stored form:
//
//	format u8 | epoch i16 | last used i64 | count u8 | count × { first sequence i32 | last sequence i32 | base offset i64 | append time i64 }
func (p *producer) encode(dst []byte) []byte {
	dst = append(dst, producerFormat)
	dst = binary.BigEndian.AppendUint16(dst, uint16(p.epoch))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.lastUsed))
	dst = append(dst, byte(p.n))
	for i := range p.batches[:p.n] {
		b := &p.batches[i]
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.firstSeq))
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.lastSeq))
		dst = binary.BigEndian.AppendUint64(dst, uint64(b.base))
		dst = binary.BigEndian.AppendUint64(dst, uint64(b.timestamp))
	}
	return dst
}

func decodeProducer(v []byte) (producer, error) {
	var p producer
	if len(v) < producerHeadBytes {
		return p, fmt.Errorf("broker: producer entry of %d bytes is cut short", len(v))
	}
	if v[0] > producerFormat {
		return p, fmt.Errorf("broker: producer entry has format %d, this binary reads up to %d: start a newer varve", v[0], producerFormat)
	}
	p.epoch = int16(binary.BigEndian.Uint16(v[1:]))
	p.lastUsed = int64(binary.BigEndian.Uint64(v[3:]))
	n := int(v[11])
	if n > producerWindow || len(v) != producerHeadBytes+n*producerBatchBytes {
		return p, fmt.Errorf("broker: producer entry with %d batches has %d bytes", n, len(v))
	}
	p.n = int8(n)
	for i := range p.batches[:n] {
		e := v[producerHeadBytes+i*producerBatchBytes:]
		p.batches[i] = sentBatch{
			firstSeq: int32(binary.BigEndian.Uint32(e)), lastSeq: int32(binary.BigEndian.Uint32(e[4:])),
			base: record.Offset(binary.BigEndian.Uint64(e[8:])), timestamp: int64(binary.BigEndian.Uint64(e[16:])),
		}
	}
	return p, nil
}
