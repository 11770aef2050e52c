// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/binary"
	"fmt"

	"github.com/varve/varve/record"
)

// Formats of a stored producer entry; docs/formats/producer.md has the layouts. A producer that never was transactional is stored as
// it was before there were transactions.
const (
	producerFormat = 1
	txnFormat      = 2 // with what is known of its transactions
	abortFormat    = 3 // under the key of an abort marker: that, and the entry as of the marker
)

const (
	producerHeadBytes  = 1 + 2 + 8 + 1
	producerBatchBytes = 4 + 4 + 8 + 8
	txnBytes           = 4 + 2 + 1 + 8 + 8 + 8
	abortHeadBytes     = 1 + 8
	maxProducerBytes   = abortHeadBytes + producerHeadBytes + txnBytes + producerWindow*producerBatchBytes
)

// abortKey is the bit that tells the key of an abort marker's entry, its offset otherwise, from a producer id. Ids count up from 0.
const abortKey int64 = 1 << 62

// encode appends the stored form:
//
//	format u8 | epoch i16 | last used i64 | count u8
//	format 2 only: coordinator epoch i32 | transaction epoch i16 | fresh u8 | at i64 | first i64 | marker i64
//	count × { first sequence i32 | last sequence i32 | base offset i64 | append time i64 }
func (p *producer) encode(dst []byte) []byte {
	format := byte(producerFormat)
	if p.transactional() {
		format = txnFormat
	}
	dst = append(dst, format)
	dst = binary.BigEndian.AppendUint16(dst, uint16(p.epoch))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.lastUsed))
	dst = append(dst, byte(p.n))
	if format == txnFormat {
		dst = binary.BigEndian.AppendUint32(dst, uint32(p.coordinatorEpoch))
		dst = binary.BigEndian.AppendUint16(dst, uint16(p.txnEpoch))
		fresh := byte(0)
		if p.fresh {
			fresh = 1
		}
		dst = append(dst, fresh)
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.at))
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.first))
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.marker))
	}
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
	p := newProducer(0, 0)
	if len(v) < producerHeadBytes {
		return p, fmt.Errorf("broker: producer entry of %d bytes is cut short", len(v))
	}
	if v[0] > txnFormat {
		return p, fmt.Errorf("broker: producer entry has format %d, this binary reads up to %d: start a newer varve", v[0], txnFormat)
	}
	p.epoch = int16(binary.BigEndian.Uint16(v[1:]))
	p.lastUsed = int64(binary.BigEndian.Uint64(v[3:]))
	n, head := int(v[11]), producerHeadBytes
	if v[0] == txnFormat {
		head += txnBytes
	}
	if n > producerWindow || len(v) != head+n*producerBatchBytes {
		return p, fmt.Errorf("broker: producer entry with %d batches has %d bytes", n, len(v))
	}
	if v[0] == txnFormat {
		t := v[producerHeadBytes:]
		p.coordinatorEpoch = int32(binary.BigEndian.Uint32(t))
		p.txnEpoch, p.fresh = int16(binary.BigEndian.Uint16(t[4:])), t[6] != 0
		p.at, p.first = record.Offset(binary.BigEndian.Uint64(t[7:])), record.Offset(binary.BigEndian.Uint64(t[15:]))
		p.marker = record.Offset(binary.BigEndian.Uint64(t[23:]))
	}
	p.n = int8(n)
	for i := range p.batches[:n] {
		e := v[head+i*producerBatchBytes:]
		p.batches[i] = sentBatch{
			firstSeq: int32(binary.BigEndian.Uint32(e)), lastSeq: int32(binary.BigEndian.Uint32(e[4:])),
			base: record.Offset(binary.BigEndian.Uint64(e[8:])), timestamp: int64(binary.BigEndian.Uint64(e[16:])),
		}
	}
	return p, nil
}

// encodeAbort appends the entry of an abort marker: format u8 | producer id i64 | the producer's entry as of the marker.
func (p *producer) encodeAbort(dst []byte, pid int64) []byte {
	dst = append(dst, abortFormat)
	dst = binary.BigEndian.AppendUint64(dst, uint64(pid))
	return p.encode(dst)
}

func decodeAbort(v []byte) (pid int64, p producer, err error) {
	if len(v) < abortHeadBytes {
		return 0, p, fmt.Errorf("broker: entry of an abort marker of %d bytes is cut short", len(v))
	}
	if v[0] != abortFormat {
		return 0, p, fmt.Errorf("broker: entry of an abort marker has format %d, this binary reads %d: start a newer varve", v[0], abortFormat)
	}
	pid = int64(binary.BigEndian.Uint64(v[1:]))
	if p, err = decodeProducer(v[abortHeadBytes:]); err == nil && (p.first < 0 || p.marker < 0 || pid < 0) {
		err = fmt.Errorf("broker: entry of an abort marker without a transaction that it ended")
	}
	return pid, p, err
}
