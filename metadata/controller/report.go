// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"slices"
	"time"

	"github.com/varve/varve/metadata"
)

// BytesIn gives, for each partition that a node leads, a number that grows by what comes in, in bytes. Where it starts does not matter.
type BytesIn func() map[metadata.PartitionID]int64

// sample is what BytesIn said at a time.
type sample struct {
	at    time.Time
	bytes map[metadata.PartitionID]int64
}

// reporter makes rates out of samples and decides when they are worth a report.
type reporter struct {
	samples []sample
	sent    map[metadata.PartitionID]int64
	sentAt  time.Time
}

// add takes a sample and gives the report that should be put now; false: none.
func (r *reporter) add(now time.Time, bytes map[metadata.PartitionID]int64) ([]metadata.PartitionLoad, bool) {
	r.samples = append(r.samples, sample{now, bytes})
	if len(r.samples) > samplesKept {
		r.samples = slices.Delete(r.samples, 0, 1)
	}
	loads := r.rates()
	if !r.worth(now, loads) {
		return nil, false
	}
	r.sent, r.sentAt = make(map[metadata.PartitionID]int64, len(loads)), now
	for _, l := range loads {
		r.sent[l.ID] = l.Rate
	}
	return loads, true
}

// failed makes the next sample be reported.
func (r *reporter) failed() { r.sent, r.sentAt = nil, time.Time{} }

// rates are the loads of what is led now, over as long a time as it was led of that which the samples span. The busiest come first.
func (r *reporter) rates() (out []metadata.PartitionLoad) {
	last := r.samples[len(r.samples)-1]
	for id, bytes := range last.bytes {
		from := len(r.samples) - 1
		for from > 0 {
			before, led := r.samples[from-1].bytes[id]
			if !led || before > bytes {
				break
			}
			from--
		}
		span := last.at.Sub(r.samples[from].at).Seconds()
		if span <= 0 {
			continue // led since a moment ago
		}
		if rate := int64(float64(bytes-r.samples[from].bytes[id]) / span); rate >= leastRate {
			out = append(out, metadata.PartitionLoad{ID: id, Rate: rate})
		}
	}
	slices.SortFunc(out, func(a, b metadata.PartitionLoad) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), compareIDs(a.ID, b.ID))
	})
	return out[:min(len(out), maxReported)]
}

// worth tells whether the loads differ enough from those reported last. Nothing is reported as long as nothing comes in.
func (r *reporter) worth(now time.Time, loads []metadata.PartitionLoad) bool {
	total, before, gone := int64(0), int64(0), int64(0)
	for _, rate := range r.sent {
		before, gone = before+rate, gone+rate
	}
	changed := int64(0)
	for _, l := range loads {
		old := r.sent[l.ID]
		total, changed, gone = total+l.Rate, changed+max(l.Rate-old, old-l.Rate), gone-old
	}
	changed += gone
	share := float64(changed) / float64(max(1, total, before))
	switch {
	case changed == 0:
		return false
	case now.Sub(r.sentAt) >= driftEvery:
		return share > driftChange
	}
	return now.Sub(r.sentAt) >= reportEvery && share > reportChange
}
