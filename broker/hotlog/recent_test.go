// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve/varve/record"
)

// TestRecentFind: whatever is asked for, the places are those of a plain list, or none where the first one is not kept.
func TestRecentFind(t *testing.T) {
	const most = 4
	var r recent
	var all []place
	for n := range 3 * most {
		p := place{base: record.Offset(10 + 3*n), delta: 2, at: pointer{1, uint32(n), 5}}
		r.add(p, most)
		all = append(all, p)
		kept := all[max(0, len(all)-most):]
		end := p.next()
		for from := record.Offset(8); from < end; from++ {
			for bound := from + 1; bound <= end; bound++ {
				var want []place
				for _, p := range kept {
					if kept[0].base <= from && p.next() > from && p.base < bound {
						want = append(want, p)
					}
				}
				if got := r.find(nil, from, bound); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("after %d batches [%d,%d): %v, want %v", n+1, from, bound, got, want)
				}
			}
		}
	}
	if r.forget(); len(r.find(nil, 10, 100)) != 0 {
		t.Error("places that are forgotten")
	}
}

// TestReadOfRecent: the places of what was written last are known, and a read takes what it finds from where that lies now.
func TestReadOfRecent(t *testing.T) {
	o := small(vfs.NewMem())
	o.fileBytes, o.rewriteAfter, o.recentPlaces = 64<<10, time.Hour, 8 // the reclaimer moves nothing of its own accord
	d := mustOpen(t, "data", o)
	defer d.Close()
	w := newWatch()
	l, other := mustLog(t, d, 1, w), mustLog(t, d, 2, nil)
	var want []byte
	put := func(fill byte) {
		t.Helper()
		end := l.AppendedEnd()
		b := makeBatch(end, 0, 1, 1000, fill)
		check(t, l.Append(b, -1, nil))
		w.waitDurable(end + 1)
		want = append(want, b...)
	}
	read := func(from record.Offset, known bool) {
		t.Helper()
		got, err := l.Read(from, l.AppendedEnd(), 1<<20, true, nil)
		if err != nil || !bytes.HasSuffix(want, got) || len(got) != 1000*int(l.AppendedEnd()-from) {
			t.Fatalf("read at %d: %d bytes, %v", from, len(got), err)
		}
		done, err := l.walkRecent(new(cursor), from, l.AppendedEnd(), func(dataKey, pointer) (bool, error) { return true, nil })
		if done != known || err != nil {
			t.Fatalf("at %d: place known %v, want %v, %v", from, done, known, err)
		}
	}
	for n := range 10 {
		put(byte(n))
	}
	read(2, true)
	read(1, false)

	check(t, l.Truncate(5))
	want = want[:5*len(want)/10]
	read(3, false)
	put(50)
	read(5, true)
	read(4, false)

	// What is left of the first file moves.
	d.files.mu.Lock()
	first := l.w.extents[0].file
	d.files.mu.Unlock()
	for end := record.Offset(0); !isSealed(d, first); end++ {
		check(t, other.Append(makeBatch(end, 0, 1, 30<<10, 1), -1, nil))
		wait, err := other.AdoptEpoch(0)
		check(t, err)
		check(t, wait())
		check(t, other.Trim(end))
	}
	if moved, err := d.rewrite(first); moved == 0 || err != nil {
		t.Fatalf("%d bytes moved, %v", moved, err)
	}
	read(5, false)
	put(51)
	read(6, true)

	check(t, l.Reset(l.AppendedEnd(), nil, nil))
	put(52)
	read(7, true)
}

func isSealed(d *DB, f *logFile) bool {
	d.files.mu.Lock()
	defer d.files.mu.Unlock()
	return f.sealed
}
