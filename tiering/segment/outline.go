// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"hash/crc32"
	"slices"
	"sort"

	"github.com/varve/varve/record"
)

// Part is a run of whole batches of one leader epoch as it was noted when they came: what a builder would find by reading them.
type Part struct {
	Base, End        record.Offset
	Epoch            record.Epoch
	Len              int32
	Records          int32
	CRC              uint32 // CRC-32C of all its bytes
	MinTimestamp     int64  // the smallest batch base timestamp, not below 0; NoTimestamp: none
	MaxTimestamp     int64  // over data records; NoTimestamp: none
	maxFrom, maxNext record.Offset
}

// Outlined is a Source that knows something of its range without reading it.
type Outlined interface {
	Source
	// Outline gives parts that lie wholly within [from, limit), ascending. Between them there may be gaps.
	Outline(from, limit record.Offset) []Part
}

// Outline notes parts of the size of a chunk while batches are appended, so that a segment can be described without reading them
// again. It costs about 100 bytes per 64 KiB, and is bounded. The zero value is empty; it is not safe for concurrent use.
type Outline struct {
	parts []Part
}

// smallBatch is what is cheaper to read than to join by its own checksum.
const smallBatch = 4 << 10

// Add notes the next batch, which has been validated: its checksum holds. One that does not continue the batch before begins anew.
func (o *Outline) Add(b record.Batch) {
	base, next, epoch := b.BaseOffset(), b.NextOffset(), b.LeaderEpoch()
	n := len(o.parts)
	if n > 0 && o.parts[n-1].End != base {
		o.parts, n = o.parts[:0], 0
	}
	if n == maxParts {
		n = copy(o.parts, o.parts[n/2:]) // what is forgotten is read again
		o.parts = o.parts[:n]
	}
	if n == 0 || o.parts[n-1].Len >= ChunkTarget || o.parts[n-1].Epoch != epoch {
		o.parts = append(o.parts, Part{Base: base, Epoch: epoch, MinTimestamp: NoTimestamp, MaxTimestamp: NoTimestamp})
		n++
	}
	p := &o.parts[n-1]
	p.End = next
	p.Len += int32(len(b))
	p.Records += b.RecordCount()
	if len(b) < smallBatch {
		p.CRC = crc32.Update(p.CRC, castagnoli, b)
	} else {
		p.CRC = joinCRC(crc32.Update(p.CRC, castagnoli, b[:record.CRCCoveredFrom]), b.CRC(), int64(len(b)-record.CRCCoveredFrom))
	}
	if b.IsControl() {
		return
	}
	if most := b.MaxTimestamp(); most > p.MaxTimestamp {
		p.MaxTimestamp, p.maxFrom, p.maxNext = most, base, next
	}
	if first := b.BaseTimestamp(); first >= 0 && (p.MinTimestamp == NoTimestamp || first < p.MinTimestamp) {
		p.MinTimestamp = first
	}
}

// Within appends the parts that lie wholly within [from, limit).
func (o *Outline) Within(from, limit record.Offset, dst []Part) []Part {
	first := sort.Search(len(o.parts), func(i int) bool { return o.parts[i].Base >= from })
	last := sort.Search(len(o.parts), func(i int) bool { return o.parts[i].End > limit })
	if first >= last {
		return dst
	}
	return append(dst, o.parts[first:last]...)
}

// Trim forgets what begins below start.
func (o *Outline) Trim(start record.Offset) {
	n := sort.Search(len(o.parts), func(i int) bool { return o.parts[i].Base >= start })
	if n == 0 {
		return
	}
	rest := o.parts[n:]
	if len(rest) < cap(o.parts)/4 {
		o.parts = slices.Clone(rest) // or the longest backlog would be remembered for ever
		return
	}
	o.parts = o.parts[:copy(o.parts, rest)]
}
