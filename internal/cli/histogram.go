// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// subBuckets is how many buckets each power of two is cut into: values are kept within 1/subBuckets of themselves.
const (
	subBits    = 7
	subBuckets = 1 << subBits
)

// histogram counts durations in microseconds, log-linear. It may be added to concurrently.
type histogram struct {
	buckets [(64 - subBits) * subBuckets]atomic.Int64
	count   atomic.Int64
	max     atomic.Int64
}

func (h *histogram) add(d time.Duration) {
	us := max(d.Microseconds(), 0)
	h.buckets[bucketOf(us)].Add(1)
	h.count.Add(1)
	for {
		m := h.max.Load()
		if us <= m || h.max.CompareAndSwap(m, us) {
			return
		}
	}
}

// bucketOf is exact below subBuckets and keeps subBits leading bits above.
func bucketOf(us int64) int {
	shift := max(bits.Len64(uint64(us))-subBits-1, 0)
	return shift*subBuckets + int(us>>shift)
}

// highest is the largest value that falls into a bucket.
func highest(bucket int) int64 {
	shift := max(bucket/subBuckets-1, 0)
	return int64(bucket-shift*subBuckets+1)<<shift - 1
}

// quantile is the smallest duration, within the buckets' precision, that a share q of all is at or below.
func (h *histogram) quantile(q float64) time.Duration {
	total := h.count.Load()
	if total == 0 {
		return 0
	}
	rank, seen := int64(q*float64(total)+0.5), int64(0)
	for i := range h.buckets {
		if seen += h.buckets[i].Load(); seen >= max(rank, 1) {
			return time.Duration(min(highest(i), h.max.Load())) * time.Microsecond
		}
	}
	return time.Duration(h.max.Load()) * time.Microsecond
}
