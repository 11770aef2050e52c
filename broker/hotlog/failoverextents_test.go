// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestFailoverExtents: what is appended and removed again while the disk stalls leaves no extent behind when its frames are written
// again: not of a truncate below it, nor of a trim past it.
func TestFailoverExtents(t *testing.T) {
	for name, remove := range map[string]func(*Log) error{
		"truncate": func(l *Log) error { return l.Truncate(1) },
		"trim":     func(l *Log) error { return l.Trim(3) },
		"reset":    func(l *Log) error { return l.Reset(7, nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			disk := newStallingDisk(onlySyncs)
			o := small(disk.over(mem))
			o.WALFailoverDir = "second"
			d := mustOpen(t, "data", o)
			w := newWatch()
			l := mustLog(t, d, 1, w)
			check(t, l.Append(makeBatch(0, 0, 1, 1000, 0), -1, nil))
			check(t, l.Append(makeBatch(1, 0, 1, 1000, 1), -1, nil))
			w.waitDurable(2)
			disk.set(true)
			check(t, l.Append(makeBatch(2, 0, 1, 1000, 2), -1, nil)) // not synced in the first directory
			w.waitAppended(3)
			check(t, remove(l))
			disk.set(false)
			stored, known := extentsOf(t, d, l)
			if stored != known {
				t.Errorf("stored %s\nknown  %s", stored, known)
			}
			check(t, d.Close())
			check(t, mustOpen(t, "data", o).Close())
		})
	}
}

// extentsOf are the extents that Pebble holds and those that the committer knows.
func extentsOf(t *testing.T, d *DB, l *Log) (stored, known string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		d.head.mu.Lock()
		pending := d.head.repoint != nil
		d.head.mu.Unlock()
		if !pending {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the new places are not applied")
		}
	}
	check(t, d.SetWitness(1, 1)) // a commit behind them
	it, err := d.p.NewIter(&pebble.IterOptions{LowerBound: l.prefix.kind(nil, kindExtent), UpperBound: l.prefix.kind(nil, kindExtent+1)})
	check(t, err)
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		file, err := parseExtentValue(it.Key(), it.Value())
		check(t, err)
		stored += fmt.Sprintf(" %x→%d", it.Key()[kindPrefixLen:], file)
	}
	d.files.mu.Lock()
	defer d.files.mu.Unlock()
	for _, e := range l.w.extents {
		known += fmt.Sprintf(" %x→%d", l.prefix.extentKey(nil, e.base, e.position)[kindPrefixLen:], e.file.number)
	}
	return stored, known
}
