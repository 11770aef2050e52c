// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/varve/varve/metadata"
)

// feed samples a constant or changing load every five seconds and says at which seconds something was reported.
func feed(r *reporter, from, until int, bytes func(second int) map[metadata.PartitionID]int64) (at []int, last []metadata.PartitionLoad) {
	for second := from; second < until; second += 5 {
		if loads, worth := r.add(time.Unix(int64(1_000_000+second), 0), bytes(second)); worth {
			at, last = append(at, second), loads
		}
	}
	return at, last
}

func TestReports(t *testing.T) {
	w := newWorld()
	a, b := w.id('a', 0), w.id('b', 0)
	grow := func(id metadata.PartitionID, rate int) func(int) map[metadata.PartitionID]int64 {
		return func(second int) map[metadata.PartitionID]int64 {
			return map[metadata.PartitionID]int64{id: int64(second * rate)}
		}
	}
	var r reporter
	if at, _ := feed(&r, 0, 3600, grow(a, 0)); at != nil {
		t.Errorf("idle, reported at %v", at)
	}
	r = reporter{}
	if at, _ := feed(&r, 3600, 7200, grow(a, leastRate/2)); at != nil {
		t.Errorf("next to idle, reported at %v", at)
	}
	r = reporter{}
	at, loads := feed(&r, 0, 3600, grow(a, 100_000))
	if len(at) != 1 || at[0] != 5 || len(loads) != 1 || loads[0] != (metadata.PartitionLoad{ID: a, Rate: 100_000}) {
		t.Errorf("steady load, reported %v at %v", loads, at)
	}
	// A tenth more is told late, a third more as soon as the rate shows it.
	more := func(second int) map[metadata.PartitionID]int64 {
		return map[metadata.PartitionID]int64{a: int64(3600*100_000 + (second-3600)*110_000)}
	}
	if at, loads = feed(&r, 3600, 4000, more); len(at) != 1 || loads[0].Rate < 105_000 {
		t.Errorf("a tenth more, reported %v at %v", loads, at)
	}
	last := 3600*100_000 + 395*110_000
	jump := func(second int) map[metadata.PartitionID]int64 {
		return map[metadata.PartitionID]int64{a: int64(last + (second-3995)*300_000)}
	}
	at, loads = feed(&r, 4000, 4400, jump)
	if len(at) < 2 || len(at) > 5 || at[0] > 4010 || loads[0].Rate < 280_000 {
		t.Errorf("three times as much, reported %v at %v", loads, at)
	}
	for i := 1; i < len(at); i++ {
		if at[i]-at[i-1] < 10 {
			t.Errorf("reports at %v are too near to each other", at)
		}
	}
	// Another partition in its place: the new one by what came in since, the old one not at all. Then nothing.
	if at, loads = feed(&r, 4400, 4500, grow(b, 100_000)); len(at) == 0 || len(loads) != 1 || loads[0] != (metadata.PartitionLoad{ID: b, Rate: 100_000}) {
		t.Errorf("another partition, reported %v at %v", loads, at)
	}
	nothing := func(int) map[metadata.PartitionID]int64 { return nil }
	if at, loads = feed(&r, 4500, 8000, nothing); len(at) != 1 || len(loads) != 0 {
		t.Errorf("nothing led, reported %v at %v", loads, at)
	}
}

// TestReportIsBounded: the busiest are in it.
func TestReportIsBounded(t *testing.T) {
	w := newWorld()
	var r reporter
	var loads []metadata.PartitionLoad
	for i := range 3 {
		bytes := map[metadata.PartitionID]int64{}
		for n := range int32(maxReported + 500) {
			bytes[w.id('a', n)] = int64(i) * 5 * int64(leastRate+n)
		}
		if some, worth := r.add(time.Unix(int64(1_000_000+5*i), 0), bytes); worth {
			loads = some
		}
	}
	if len(loads) != maxReported || loads[0].ID.Index != maxReported+499 || loads[maxReported-1].ID.Index != 500 {
		t.Errorf("%d loads reported", len(loads))
	}
}
