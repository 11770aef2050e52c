// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varve/varve/record"
)

func TestWaitClosesAfterTheLastAppend(t *testing.T) {
	var w Wait
	w.Init(2)
	a, b := &Pending{wait: &w}, &Pending{wait: &w}
	a.decide(nil)
	select {
	case <-w.C():
		t.Fatal("closed with one append undecided")
	default:
	}
	b.decide(ErrNotLeader)
	<-w.C()
	if b.Base != record.NoOffset || b.Err == nil {
		t.Fatalf("a failed append answers offset %d, error %v", b.Base, b.Err)
	}
}

// TestPendingQueueAgainstSortedSlice runs random adds, removals and takes beside a sorted slice.
func TestPendingQueueAgainstSortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q pendingQueue
		var model []*Pending
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				p := &Pending{need: record.Offset(rapid.IntRange(0, 20).Draw(t, "need"))}
				q.add(p)
				at, _ := slices.BinarySearchFunc(model, p.need+1, func(x *Pending, need record.Offset) int { return int(x.need - need) })
				model = slices.Insert(model, at, p)
			case 1:
				if len(model) > 0 {
					i := rapid.IntRange(0, len(model)-1).Draw(t, "victim")
					q.remove(model[i])
					model = slices.Delete(model, i, i+1)
				}
			case 2:
				end := record.Offset(rapid.IntRange(0, 20).Draw(t, "end"))
				var got []*Pending
				for p := q.take(end); p != nil; p = p.next {
					if p.queue != nil {
						t.Fatal("taken, but still marked as waiting")
					}
					got = append(got, p)
				}
				n := 0
				for n < len(model) && model[n].need <= end {
					n++
				}
				if !slices.Equal(got, model[:n]) {
					t.Fatalf("take(%d) gave %d pendings, want %d", end, len(got), n)
				}
				model = model[n:]
			}
			var left []*Pending
			var prev *Pending
			for p := q.head; p != nil; prev, p = p, p.next {
				if p.prev != prev || p.queue != &q {
					t.Fatal("links are broken")
				}
				left = append(left, p)
			}
			if q.tail != prev || !slices.Equal(left, model) {
				t.Fatalf("queue holds %d, want %d", len(left), len(model))
			}
		}
	})
}
