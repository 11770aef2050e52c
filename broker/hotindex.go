// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"math"
	"sort"

	"github.com/varve/varve/record"
)

// noTimestamp is below every timestamp, Kafka's "none" (-1) included.
const noTimestamp = math.MinInt64

// hotIndex tells which stretches of a partition's hot log can hold a timestamp: about 64 KiB a chunk, with the largest
// timestamp in each. It is built by one scan at the first lookup by time and kept up by appends from then on, so a partition
// that nobody asks by time pays nothing. Timestamps may come in any order, so only maxima prune, exactly.
//
// Not safe for concurrent use: the partition's mutex guards it, and no lookup in it touches the disk.
type hotIndex struct {
	chunks []hotChunk
	groups []int64 // largest timestamp of hotIndexGroup chunks each, the last group partly filled
	next   record.Offset
	filled int // bytes in the last chunk
}

type hotChunk struct {
	base record.Offset
	max  int64
}

// add notes an appended batch. Control batches hold no records that a lookup may find.
func (x *hotIndex) add(b record.Batch) {
	ts := int64(noTimestamp)
	if !b.IsControl() {
		ts = b.MaxTimestamp()
	}
	if len(x.chunks) == 0 || x.filled >= hotIndexChunkBytes {
		x.open(b.BaseOffset())
		x.filled = 0
	}
	x.filled += len(b)
	x.next = b.NextOffset()
	x.raise(ts)
}

func (x *hotIndex) raise(ts int64) {
	last := &x.chunks[len(x.chunks)-1]
	last.max = max(last.max, ts)
	group := &x.groups[len(x.groups)-1]
	*group = max(*group, ts)
}

// join appends an index that begins where x ends.
func (x *hotIndex) join(tail *hotIndex) {
	for _, c := range tail.chunks {
		x.open(c.base)
		x.raise(c.max)
	}
	x.next, x.filled = tail.next, tail.filled
}

func (x *hotIndex) open(base record.Offset) {
	if len(x.chunks)%hotIndexGroup == 0 {
		x.groups = append(x.groups, noTimestamp)
	}
	x.chunks = append(x.chunks, hotChunk{base: base, max: noTimestamp})
}

// at is the number of the chunk that holds offset o, or the first one behind it.
func (x *hotIndex) at(o record.Offset) int {
	i := sort.Search(len(x.chunks), func(i int) bool { return x.chunks[i].base > o })
	return max(0, i-1)
}

// end is the first offset behind chunk i.
func (x *hotIndex) end(i int) record.Offset {
	if i+1 < len(x.chunks) {
		return x.chunks[i+1].base
	}
	return x.next
}

// candidate returns the first chunk from number i on that may hold a timestamp of at least ts, or -1.
func (x *hotIndex) candidate(i int, ts int64) int {
	for i < len(x.chunks) {
		if i%hotIndexGroup == 0 && x.groups[i/hotIndexGroup] < ts {
			i += hotIndexGroup
			continue
		}
		if x.chunks[i].max >= ts {
			return i
		}
		i++
	}
	return -1
}

// largest returns the largest timestamp of the chunks wholly in [from, to).
func (x *hotIndex) largest(from, to record.Offset) int64 {
	ts := int64(noTimestamp)
	for i := x.at(from); i < len(x.chunks) && x.chunks[i].base < to; i++ {
		if x.chunks[i].base >= from && x.end(i) <= to {
			ts = max(ts, x.chunks[i].max)
		}
	}
	return ts
}

// trim forgets chunks that end at or below start, in whole groups so that the upper level stays aligned.
func (x *hotIndex) trim(start record.Offset) {
	drop := 0
	for (drop+1)*hotIndexGroup < len(x.chunks) && x.chunks[(drop+1)*hotIndexGroup].base <= start {
		drop++
	}
	if drop > 0 {
		x.chunks = append([]hotChunk(nil), x.chunks[drop*hotIndexGroup:]...)
		x.groups = append([]int64(nil), x.groups[drop:]...)
	}
}
