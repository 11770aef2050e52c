// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/varve/varve/record"
)

// TestHotIndexNeverHidesARecord compares candidates with every batch, over random timestamps, sizes, trims and joins.
func TestHotIndexNeverHidesARecord(t *testing.T) {
	type stored struct {
		base, next record.Offset
		max        int64
	}
	header := make(record.Batch, record.HeaderSize)
	rapid.Check(t, func(t *rapid.T) {
		x, tail := &hotIndex{}, (*hotIndex)(nil)
		var all []stored
		end := record.Offset(0)
		n := rapid.IntRange(1, 3*hotIndexGroup).Draw(t, "batches")
		split := rapid.IntRange(0, n).Draw(t, "split")
		for i := range n {
			if i == split {
				tail = &hotIndex{next: end}
			}
			ts := int64(rapid.IntRange(0, 50).Draw(t, "ts"))
			b := batchOf(header, end, 1, ts, rapid.SampledFrom([]int{100, hotIndexChunkBytes / 2, hotIndexChunkBytes, 3 * hotIndexChunkBytes}).Draw(t, "size"))
			if tail != nil {
				tail.add(b)
			} else {
				x.add(b)
			}
			all = append(all, stored{end, b.NextOffset(), ts})
			end = b.NextOffset()
		}
		if tail != nil {
			x.join(tail)
		}
		start := record.Offset(rapid.IntRange(0, n).Draw(t, "trim"))
		x.trim(start)
		from := record.Offset(rapid.IntRange(int(start), n).Draw(t, "from"))
		ts := int64(rapid.IntRange(0, 51).Draw(t, "wanted"))
		want := record.NoOffset
		for _, s := range all {
			if s.base >= from && s.max >= ts {
				want = s.base
				break
			}
		}
		got := record.NoOffset
		for i := x.candidate(x.at(from), ts); i >= 0; i = x.candidate(i+1, ts) {
			for _, s := range all {
				if s.base >= max(from, x.chunks[i].base) && s.base < x.end(i) && s.max >= ts {
					got = s.base
					break
				}
			}
			if got != record.NoOffset {
				break
			}
		}
		if got != want {
			t.Fatalf("first batch from %d with %d or more is at %d, the index leads to %d", from, ts, want, got)
		}
		largest := int64(noTimestamp)
		for _, s := range all {
			if s.base >= from {
				largest = max(largest, s.max)
			}
		}
		if l := x.largest(from, end); l > largest {
			t.Fatalf("largest is %d, the index says %d", largest, l)
		}
	})
}

// batchOf makes the header of a batch with n records; its length is claimed, not there.
func batchOf(header record.Batch, base record.Offset, n int, ts int64, size int) record.Batch {
	b := make(record.Batch, size)
	copy(b, header)
	b.Stamp(base, 0)
	for i := range 8 {
		b[35+i] = byte(uint64(ts) >> (56 - 8*i))
	}
	b[26] = byte(n - 1)
	return b
}
