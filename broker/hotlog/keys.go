// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"encoding/binary"
	"fmt"

	"github.com/varve/varve/record"
)

// The layout is docs/formats/hot-log.md.
const (
	storeFormat = 2
	valueFormat = 1

	spaceStore     = 0x00
	spacePartition = 0x01

	kindMeta     = 0x01
	kindEpoch    = 0x02
	kindProducer = 0x03
	kindData     = 0x04
	kindEnd      = 0x05 // behind the data
	kindExtent   = 0x05

	partitionPrefixLen = 1 + 16 + 4
	kindPrefixLen      = partitionPrefixLen + 1
	epochKeyLen        = kindPrefixLen + 4
	producerKeyLen     = kindPrefixLen + 8
	dataSeekKeyLen     = kindPrefixLen + 8
	dataKeyLen         = kindPrefixLen + 8 + 8 + 4
	extentKeyLen       = kindPrefixLen + 8 + 8

	metaValueLen     = 2 + 5*8 + 4
	epochValueLen    = 1 + 8
	producerValueMin = 1 + 8

	flagProducersStale = 0x01
)

var (
	keyFormat   = []byte{spaceStore, 'f'}
	keyIdentity = []byte{spaceStore, 'i'}
	keyWitness  = []byte{spaceStore, 'w'}
	keyApplied  = []byte{spaceStore, 'a'}
	keyStamp    = []byte{spaceStore, 's'}
)

// prefix is everything of a partition's keys up to the kind.
type prefix [partitionPrefixLen]byte

func makePrefix(id record.PartitionID) (p prefix) {
	p[0] = spacePartition
	copy(p[1:], id.Topic[:])
	binary.BigEndian.PutUint32(p[17:], uint32(id.Index))
	return p
}

func (p *prefix) id() (id record.PartitionID) {
	copy(id.Topic[:], p[1:17])
	id.Index = int32(binary.BigEndian.Uint32(p[17:]))
	return id
}

// kind appends the prefix of one kind of key.
func (p *prefix) kind(dst []byte, kind byte) []byte { return append(append(dst, p[:]...), kind) }

func (p *prefix) epochKey(dst []byte, e record.Epoch) []byte {
	return binary.BigEndian.AppendUint32(p.kind(dst, kindEpoch), uint32(e))
}

func (p *prefix) producerKey(dst []byte, pid int64) []byte {
	return binary.BigEndian.AppendUint64(p.kind(dst, kindProducer), uint64(pid))
}

func (p *prefix) extentKey(dst []byte, base record.Offset, position int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(p.kind(dst, kindExtent), uint64(base)), uint64(position))
}

// dataSeek is a key at or before the one of the batch with this base offset and after all earlier ones.
func (p *prefix) dataSeek(dst []byte, o record.Offset) []byte {
	return binary.BigEndian.AppendUint64(p.kind(dst, kindData), uint64(o))
}

// putDataKey fills a key of dataKeyLen bytes.
func (p *prefix) putDataKey(dst []byte, k dataKey) {
	copy(dst, p[:])
	dst[partitionPrefixLen] = kindData
	binary.BigEndian.PutUint64(dst[kindPrefixLen:], uint64(k.base))
	binary.BigEndian.PutUint64(dst[kindPrefixLen+8:], uint64(k.position))
	binary.BigEndian.PutUint32(dst[kindPrefixLen+16:], uint32(k.delta))
}

// dataKey is what a batch's key says about it.
type dataKey struct {
	base     record.Offset
	position int64
	delta    int32
}

func (k dataKey) next() record.Offset { return k.base + record.Offset(k.delta) + 1 }

func parseDataKey(key []byte) (k dataKey, err error) {
	if len(key) != dataKeyLen || key[partitionPrefixLen] != kindData {
		return k, fmt.Errorf("%w: data key %x has %d bytes, %d expected", ErrCorrupt, key, len(key), dataKeyLen)
	}
	k.base = record.Offset(binary.BigEndian.Uint64(key[kindPrefixLen:]))
	k.position = int64(binary.BigEndian.Uint64(key[kindPrefixLen+8:]))
	k.delta = int32(binary.BigEndian.Uint32(key[kindPrefixLen+16:]))
	if k.base < 0 || k.position < 0 || k.delta < 0 {
		return k, fmt.Errorf("%w: data key %x holds a negative number", ErrCorrupt, key)
	}
	return k, nil
}

func checkValue(key, value []byte, atLeast int) error {
	if len(value) == 0 || value[0] != valueFormat {
		return fmt.Errorf("%w: value of key %x has format %v, this binary knows %d", ErrNewerFormat, key, value[:min(1, len(value))], valueFormat)
	}
	if len(value) < atLeast {
		return fmt.Errorf("%w: value of key %x has %d bytes, at least %d expected", ErrCorrupt, key, len(value), atLeast)
	}
	return nil
}

// stored is the content of a meta value. The committer's copy is always what the last applied batch left behind.
type stored struct {
	start, kept                 record.Offset
	startPosition, keptPosition int64
	highWatermark               record.Offset
	currentEpoch                record.Epoch
	producersStale              bool
}

func (m *stored) put(dst []byte) {
	dst[0], dst[1] = valueFormat, 0
	if m.producersStale {
		dst[1] |= flagProducersStale
	}
	binary.BigEndian.PutUint64(dst[2:], uint64(m.start))
	binary.BigEndian.PutUint64(dst[10:], uint64(m.startPosition))
	binary.BigEndian.PutUint64(dst[18:], uint64(m.kept))
	binary.BigEndian.PutUint64(dst[26:], uint64(m.keptPosition))
	binary.BigEndian.PutUint64(dst[34:], uint64(m.highWatermark))
	binary.BigEndian.PutUint32(dst[42:], uint32(m.currentEpoch))
}

func parseMeta(key, value []byte) (m stored, err error) {
	if err := checkValue(key, value, metaValueLen); err != nil {
		return m, err
	}
	m.producersStale = value[1]&flagProducersStale != 0
	m.start = record.Offset(binary.BigEndian.Uint64(value[2:]))
	m.startPosition = int64(binary.BigEndian.Uint64(value[10:]))
	m.kept = record.Offset(binary.BigEndian.Uint64(value[18:]))
	m.keptPosition = int64(binary.BigEndian.Uint64(value[26:]))
	m.highWatermark = record.Offset(binary.BigEndian.Uint64(value[34:]))
	m.currentEpoch = record.Epoch(binary.BigEndian.Uint32(value[42:]))
	if m.start < 0 || m.kept < 0 || m.kept > m.start || m.keptPosition > m.startPosition {
		return m, fmt.Errorf("%w: meta of %x: start %d, kept %d", ErrCorrupt, key, m.start, m.kept)
	}
	return m, nil
}
