// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/varve/varve/record"
)

// TestTimeTableAgainstScan compares a table with the definition, over records in any order of time.
func TestTimeTableAgainstScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type rec struct {
			offset record.Offset
			ts     int64
		}
		var all []rec
		next := record.Offset(rapid.IntRange(0, 100).Draw(t, "start"))
		table := &timeTable{base: next}
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			var b record.Builder
			b.BaseOffset = next
			appendTime := rapid.IntRange(0, 3).Draw(t, "kind") == 0
			stamp := int64(rapid.IntRange(0, 30).Draw(t, "stamp"))
			if appendTime {
				b.SetLogAppendTime(stamp)
			}
			n := rapid.IntRange(1, 5).Draw(t, "records")
			for range n {
				ts := int64(rapid.IntRange(0, 30).Draw(t, "ts"))
				b.Add(ts, nil, []byte("v"))
				if appendTime {
					ts = stamp
				}
				all = append(all, rec{next, ts})
				next++
			}
			batch, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			if err := table.add(batch); err != nil {
				t.Fatal(err)
			}
		}
		for ts := int64(-1); ts <= 31; ts++ {
			want := noTimeOffset.Offset
			for _, r := range all {
				if r.ts >= ts {
					want = r.offset
					break
				}
			}
			if got, _ := table.first(ts); got.Offset != want {
				t.Fatalf("first record from %d on is at %d, the table says %d", ts, want, got.Offset)
			}
		}
	})
}

func TestTimeTablesStayBounded(t *testing.T) {
	var c timeTables
	big := &timeTable{deltas: make([]int32, 1<<14), times: make([]int64, 1<<14)}
	for i := range 200 {
		c.put(timeTableKey{base: record.Offset(i)}, big)
	}
	if c.mu.bytes > maxTimeTableBytes || len(c.mu.entries) != c.mu.order.Len() || len(c.mu.entries) == 0 {
		t.Fatalf("%d bytes in %d entries, at most %d", c.mu.bytes, len(c.mu.entries), maxTimeTableBytes)
	}
	if _, ok := c.get(timeTableKey{base: 199}); !ok {
		t.Fatal("the newest entry is gone")
	}
	if _, ok := c.get(timeTableKey{base: 0}); ok {
		t.Fatal("the oldest entry is still there")
	}
}
