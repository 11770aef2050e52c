// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/maphash"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	hashSeed   = maphash.MakeSeed()
)

func hashOf(b []byte) uint64 { return maphash.Bytes(hashSeed, b) }

const (
	batchHead = 12 // base offset and length, which the length does not count
	crcFrom   = 21 // what the checksum covers begins here
	leastSize = 61
)

// decode takes an answer's batches apart, and says of each what is wrong with it. A batch that is cut off at the end is left out, as
// clients do.
func decode(data []byte) (out []batch) {
	for len(data) >= leastSize {
		size := int64(int32(binary.BigEndian.Uint32(data[8:]))) + batchHead
		if size < leastSize {
			return append(out, batch{base: -1, broken: fmt.Sprintf("a batch of %d bytes", size)})
		}
		if size > int64(len(data)) {
			return out
		}
		out = append(out, decodeBatch(data[:size]))
		data = data[size:]
	}
	return out
}

func decodeBatch(data []byte) batch {
	var raw kmsg.RecordBatch
	if err := raw.ReadFrom(data); err != nil {
		return batch{base: -1, broken: err.Error()}
	}
	b := batch{base: raw.FirstOffset, last: raw.FirstOffset + int64(raw.LastOffsetDelta), epoch: raw.PartitionLeaderEpoch, hash: hashOf(data)}
	wrong := func(format string, args ...any) batch {
		b.broken = fmt.Sprintf(format, args...)
		return b
	}
	switch sum := crc32.Checksum(data[crcFrom:], castagnoli); {
	case raw.Magic != 2:
		return wrong("magic %d", raw.Magic)
	case sum != uint32(raw.CRC):
		return wrong("checksum %08x, the batch says %08x", sum, uint32(raw.CRC))
	case raw.Attributes&0x7 != 0:
		return wrong("compressed (%d), and nobody sends that", raw.Attributes)
	case raw.NumRecords != raw.LastOffsetDelta+1:
		return wrong("%d records with a last delta of %d", raw.NumRecords, raw.LastOffsetDelta)
	}
	rest, largest := raw.Records, int64(-1)
	for i := range raw.NumRecords {
		size, used := binary.Varint(rest)
		if used <= 0 || size < 0 || int64(used)+size > int64(len(rest)) {
			return wrong("record %d does not fit", i)
		}
		var r kmsg.Record
		if err := r.ReadFrom(rest[:int64(used)+size]); err != nil {
			return wrong("record %d: %v", i, err)
		}
		rest = rest[int64(used)+size:]
		if r.OffsetDelta != i {
			return wrong("record %d has delta %d", i, r.OffsetDelta)
		}
		at := raw.FirstTimestamp + r.TimestampDelta64
		largest = max(largest, at)
		b.records = append(b.records, observed{offset: b.base + int64(i), id: string(r.Key), timestamp: at, hash: hashOf(r.Value)})
	}
	switch {
	case len(rest) > 0:
		return wrong("%d bytes after its records", len(rest))
	case largest != raw.MaxTimestamp:
		return wrong("largest timestamp %d, its records say %d", raw.MaxTimestamp, largest)
	}
	return b
}
