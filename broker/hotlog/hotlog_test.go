// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve/varve/record"
)

// makeBatch is a stamped batch of records whose payload is filled with seed. Only the header fields matter here.
func makeBatch(base record.Offset, epoch record.Epoch, records, size int, seed byte) record.Batch {
	size = max(size, record.HeaderSize)
	b := make([]byte, size)
	for i := record.HeaderSize; i < size; i++ {
		b[i] = seed
	}
	binary.BigEndian.PutUint32(b[8:], uint32(size-12))
	b[16] = 2
	binary.BigEndian.PutUint32(b[23:], uint32(records-1))
	binary.BigEndian.PutUint32(b[57:], uint32(records))
	batch := record.Batch(b)
	batch.Stamp(base, epoch)
	return batch
}

func partition(n int) record.PartitionID {
	return record.PartitionID{Topic: record.TopicID{0xaa, byte(n >> 8)}, Index: int32(n)}
}

// watch is an Observer that remembers and can be waited for.
type watch struct {
	mu                sync.Mutex
	cond              *sync.Cond
	appended, durable record.Offset
	order             []string // violations of the callbacks' order
}

func newWatch() *watch {
	w := &watch{}
	w.cond = sync.NewCond(&w.mu)
	return w
}

func (w *watch) Appended(end record.Offset) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.appended = end
	w.cond.Broadcast()
}

func (w *watch) Durable(end record.Offset) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end > w.appended {
		w.order = append(w.order, fmt.Sprintf("durable %d before appended %d", end, w.appended))
	}
	w.durable = end
	w.cond.Broadcast()
}

func (w *watch) waitDurable(end record.Offset) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.durable != end {
		w.cond.Wait()
	}
}

// small keeps the tests' memory low.
func small(fs vfs.FS) Options {
	return Options{FS: fs, MemTableBytes: 1 << 20, CacheBytes: 1 << 20}
}

func mustOpen(t testing.TB, dir string, o Options) *DB {
	t.Helper()
	d, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustLog(t testing.TB, d *DB, n int, obs Observer) *Log {
	t.Helper()
	l, err := d.OpenLog(partition(n), obs)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func TestAppendReadReopen(t *testing.T) {
	fs := vfs.NewMem()
	d := mustOpen(t, "data", small(fs))
	w := newWatch()
	l := mustLog(t, d, 1, w)
	var all []byte
	for i := range 10 {
		b := makeBatch(record.Offset(i*3), record.Epoch(i/4), 3, 200+i, byte(i))
		all = append(all, b...)
		check(t, l.Append(b, 7, []byte{byte(i)}))
	}
	l.SetHighWatermark(12)
	w.waitDurable(30)
	verify := func(l *Log) {
		t.Helper()
		if l.Start() != 0 || l.AppendedEnd() != 30 || l.DurableEnd() != 30 || l.Bytes() != int64(len(all)) {
			t.Fatalf("start %d, ends %d %d, %d bytes", l.Start(), l.AppendedEnd(), l.DurableEnd(), l.Bytes())
		}
		got, err := l.Read(0, 30, 1<<20, true, nil)
		if check(t, err); !bytes.Equal(got, all) {
			t.Fatalf("read %d bytes, want %d", len(got), len(all))
		}
		got, err = l.Read(4, 9, 1<<20, false, []byte("x"))
		if check(t, err); !bytes.Equal(got[1:], all[200:200+201+202]) {
			t.Fatalf("read from 4 to 9: %d bytes", len(got))
		}
		got, err = l.Read(29, 30, 10, true, nil)
		if check(t, err); len(got) != 209 {
			t.Fatalf("first whole: %d bytes", len(got))
		}
		got, err = l.Read(29, 30, 10, false, nil)
		if check(t, err); len(got) != 0 {
			t.Fatalf("too small: %d bytes", len(got))
		}
		if got := l.BytesFrom(15); got != 205+206+207+208+209 {
			t.Fatalf("bytes from 15: %d", got)
		}
		want := []record.EpochStart{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 12}, {Epoch: 2, Start: 24}}
		if fmt.Sprint(l.Epochs()) != fmt.Sprint(want) || l.Meta().CurrentEpoch != 2 {
			t.Fatalf("epochs %v, current %d", l.Epochs(), l.Meta().CurrentEpoch)
		}
		check(t, l.Producers(func(pid int64, state []byte) error {
			if pid != 7 || !bytes.Equal(state, []byte{9}) {
				t.Fatalf("producer %d: %v", pid, state)
			}
			return nil
		}))
	}
	verify(l)
	check(t, d.Close())
	wantErr(t, l.Append(makeBatch(30, 2, 1, 100, 0), -1, nil), ErrClosed)
	_, err := l.Read(0, 30, 10, true, nil)
	wantErr(t, err, ErrClosed)
	if len(w.order) > 0 {
		t.Fatal(w.order)
	}
	d = mustOpen(t, "data", small(fs))
	defer d.Close()
	l = mustLog(t, d, 1, nil)
	verify(l)
	if hw := l.Meta().HighWatermark; hw != 12 {
		t.Fatalf("high watermark %d", hw)
	}
}

func TestRefusals(t *testing.T) {
	d := mustOpen(t, "data", small(vfs.NewMem()))
	defer d.Close()
	l := mustLog(t, d, 1, nil)
	_, err := d.OpenLog(partition(1), nil)
	wantErr(t, err, ErrOpen)
	wantErr(t, l.Append(makeBatch(5, 0, 1, 100, 0), -1, nil), ErrNotContiguous)
	check(t, l.Append(makeBatch(0, 3, 1, 100, 0), -1, nil))
	wantErr(t, l.Append(makeBatch(1, 2, 1, 100, 0), -1, nil), ErrEpoch)
	_, err = l.BeginEpoch(3, 1)
	wantErr(t, err, ErrEpoch)
	_, err = l.BeginEpoch(4, 0)
	wantErr(t, err, ErrNotContiguous)
	wait, err := l.BeginEpoch(4, 1)
	check(t, err)
	check(t, wait())
	wantErr(t, l.Trim(9), ErrOutOfRange)
	check(t, l.Trim(1))
	wantErr(t, l.Truncate(0), ErrTrimmed)
	_, err = l.Read(0, 9, 100, true, nil)
	wantErr(t, err, ErrTrimmed)
	check(t, d.Drop(l.ID()))
	wantErr(t, l.Append(makeBatch(1, 4, 1, 100, 0), -1, nil), ErrClosed)
	_, err = l.Read(1, 9, 100, true, nil)
	wantErr(t, err, ErrClosed)
	again := mustLog(t, d, 1, nil)
	if again.AppendedEnd() != 0 || len(again.Epochs()) != 0 {
		t.Fatalf("dropped log came back: end %d, epochs %v", again.AppendedEnd(), again.Epochs())
	}
}

func TestQueueFull(t *testing.T) {
	block := make(chan struct{})
	d := mustOpen(t, "data", small(vfs.NewMem()))
	l := mustLog(t, d, 1, blocker{block})
	var err error
	n := 0
	taken := d.o.MaxBatchBytes / opOverhead // what the one batch that the committer stands with may hold
	for ; n <= maxQueuedOps+taken && err == nil; n++ {
		err = l.Append(makeBatch(record.Offset(n), 0, 1, 61, 0), -1, nil)
	}
	wantErr(t, err, ErrQueueFull)
	close(block)
	check(t, d.Close())
}

// blocker stands in the committer's way, which a real Observer must never do.
type blocker struct{ until chan struct{} }

func (b blocker) Appended(record.Offset) { <-b.until }
func (b blocker) Durable(record.Offset)  {}

func TestTruncate(t *testing.T) {
	fs := vfs.NewMem()
	d := mustOpen(t, "data", small(fs))
	w := newWatch()
	l := mustLog(t, d, 1, w)
	for i := range 6 {
		check(t, l.Append(makeBatch(record.Offset(i*2), record.Epoch(i), 2, 100, byte(i)), int64(i), []byte{1}))
	}
	check(t, l.Truncate(7)) // inside the batch [6,8)
	if l.AppendedEnd() != 6 || l.DurableEnd() != 6 || l.Bytes() != 300 {
		t.Fatalf("ends %d %d, %d bytes", l.AppendedEnd(), l.DurableEnd(), l.Bytes())
	}
	verify := func(l *Log) {
		t.Helper()
		if fmt.Sprint(l.Epochs()) != "[{0 0} {1 2} {2 4}]" || l.Meta().CurrentEpoch != 5 || !l.Meta().ProducersStale {
			t.Fatalf("epochs %v, meta %+v", l.Epochs(), l.Meta())
		}
		var pids []int64
		check(t, l.Producers(func(pid int64, _ []byte) error { pids = append(pids, pid); return nil }))
		if fmt.Sprint(pids) != "[0 1 2]" {
			t.Fatalf("producers %v", pids)
		}
	}
	verify(l)
	check(t, d.Close())
	d = mustOpen(t, "data", small(fs))
	defer d.Close()
	l = mustLog(t, d, 1, w)
	verify(l)
	check(t, l.ReplaceProducers([]Producer{{ID: 9, State: []byte("nine")}}))
	if l.Meta().ProducersStale {
		t.Fatal("still stale")
	}
	check(t, l.Append(makeBatch(6, 5, 1, 100, 0), -1, nil))
	w.waitDurable(7)
	if fmt.Sprint(l.Epochs()) != "[{0 0} {1 2} {2 4} {5 6}]" {
		t.Fatalf("epochs %v", l.Epochs())
	}
}

func TestReset(t *testing.T) {
	fs := vfs.NewMem()
	d := mustOpen(t, "data", small(fs))
	l := mustLog(t, d, 1, nil)
	check(t, l.Append(makeBatch(0, 7, 5, 100, 0), 3, []byte{1}))
	check(t, l.Reset(1000, []record.EpochStart{{Epoch: 2, Start: 10}, {Epoch: 4, Start: 900}}, []Producer{{ID: 5, State: []byte("five")}}))
	verify := func(l *Log) {
		t.Helper()
		if l.Start() != 1000 || l.AppendedEnd() != 1000 || l.DurableEnd() != 1000 || l.Bytes() != 0 || fmt.Sprint(l.Epochs()) != "[{2 10} {4 900}]" || l.Meta().CurrentEpoch != 7 {
			t.Fatalf("[%d, %d) durable %d, %d bytes, epochs %v, meta %+v", l.Start(), l.AppendedEnd(), l.DurableEnd(), l.Bytes(), l.Epochs(), l.Meta())
		}
		check(t, l.Producers(func(pid int64, state []byte) error {
			if pid != 5 || string(state) != "five" {
				t.Fatalf("producer %d %s", pid, state)
			}
			return nil
		}))
	}
	verify(l)
	check(t, d.Close())
	d = mustOpen(t, "data", small(fs))
	defer d.Close()
	l = mustLog(t, d, 1, nil)
	verify(l)
	check(t, l.Append(makeBatch(1000, 7, 1, 100, 0), -1, nil))
	check(t, l.Truncate(1001))
}

func TestIdentity(t *testing.T) {
	fs := vfs.NewMem()
	d := mustOpen(t, "data", small(fs))
	first := d.Identity()
	if first.Boots != 1 || first.Node != -1 || first.StoreID == [16]byte{} {
		t.Fatalf("%+v", first)
	}
	check(t, d.SetIdentity("cluster", 3))
	check(t, d.SetWitness(77, 1234))
	if _, err := Open("data", small(fs)); !errors.Is(err, ErrLocked) {
		t.Fatalf("second open: %v", err)
	}
	check(t, d.Close())
	d = mustOpen(t, "data", small(fs))
	defer d.Close()
	if got := d.Identity(); got != (Identity{StoreID: first.StoreID, Boots: 2, ClusterID: "cluster", Node: 3}) {
		t.Fatalf("%+v", got)
	}
	if c, r := d.Witness(); c != 77 || r != 1234 {
		t.Fatalf("witness %d %d", c, r)
	}
}

// TestNewerFormat writes what a later version would, below this package.
func TestNewerFormat(t *testing.T) {
	for name, mark := range map[string]func(*pebble.DB) error{
		"store": func(p *pebble.DB) error { return p.Set(keyFormat, []byte{0, 0, 0, 3}, pebble.Sync) },
		"value": func(p *pebble.DB) error {
			return p.Set(keyIdentity, append([]byte{2}, make([]byte, 40)...), pebble.Sync)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			check(t, mustOpen(t, "data", small(fs)).Close())
			p, err := pebble.Open("data", &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatValueSeparation})
			check(t, err)
			check(t, mark(p))
			check(t, p.Close())
			_, err = Open("data", small(fs))
			wantErr(t, err, ErrNewerFormat)
			if !bytes.Contains([]byte(err.Error()), []byte("data")) || !bytes.Contains([]byte(err.Error()), []byte("format")) {
				t.Fatalf("names nothing: %v", err)
			}
			// The refusal must leave the lock free.
			lock, err := pebble.LockDirectory("data", fs)
			check(t, err)
			check(t, lock.Close())
		})
	}
}

// TestNewerStoreFile is refused before Pebble touches anything.
func TestNewerStoreFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	check(t, mustOpen(t, dir, small(nil)).Close())
	name := filepath.Join(dir, storeFileName)
	check(t, os.WriteFile(name, []byte("varve hot log\nformat 3\nwhatever\n"), 0o644))
	before, err := os.ReadDir(dir)
	check(t, err)
	_, err = Open(dir, small(nil))
	wantErr(t, err, ErrNewerFormat)
	after, err := os.ReadDir(dir)
	check(t, err)
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Fatalf("the directory changed from %v to %v", before, after)
	}
}

func TestForeignDirectory(t *testing.T) {
	fs := vfs.NewMem()
	p, err := pebble.Open("data", &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatValueSeparation})
	check(t, err)
	check(t, p.Set([]byte("k"), []byte("v"), pebble.Sync))
	check(t, p.Close())
	_, err = Open("data", small(fs))
	wantErr(t, err, ErrCorrupt)
}

func TestPartitions(t *testing.T) {
	fs := vfs.NewMem()
	d := mustOpen(t, "data", small(fs))
	for _, n := range []int{5, 1, 300} {
		l := mustLog(t, d, n, nil)
		check(t, l.Append(makeBatch(0, 0, 1, 100, 0), 1, []byte{1}))
	}
	check(t, d.Drop(partition(5)))
	check(t, d.Close())
	d = mustOpen(t, "data", small(fs))
	defer d.Close()
	ids, err := d.Partitions()
	check(t, err)
	if len(ids) != 2 || ids[0] != partition(1) || ids[1] != partition(300) {
		t.Fatalf("%v", ids)
	}
	check(t, d.Drop(partition(300))) // not open
	if ids, err = d.Partitions(); err != nil || len(ids) != 1 {
		t.Fatalf("%v, %v", ids, err)
	}
}

// TestLargeBesideSmall queues large requests first: small ones of other logs must not wait for all of them.
func TestLargeBesideSmall(t *testing.T) {
	o := small(vfs.NewMem())
	o.MaxBatchBytes = 64 << 10
	d := mustOpen(t, "data", o)
	defer d.Close()
	var mu sync.Mutex
	var order []int
	all := sync.WaitGroup{}
	note := func(n int) Observer {
		return callback(func() { mu.Lock(); order = append(order, n); mu.Unlock(); all.Done() })
	}
	gate := make(chan struct{})
	first := mustLog(t, d, 0, blocker{gate})
	check(t, first.Append(makeBatch(0, 0, 1, 100, 0), -1, nil))
	time.Sleep(10 * time.Millisecond) // let the committer reach the gate; too early only weakens the test
	const larges, smalls = 8, 20
	all.Add(larges + smalls)
	for n := range larges {
		check(t, mustLog(t, d, 1+n, note(1+n)).Append(makeBatch(0, 0, 1, 200<<10, 0), -1, nil))
	}
	for n := range smalls {
		check(t, mustLog(t, d, 100+n, note(100+n)).Append(makeBatch(0, 0, 1, 500, 0), -1, nil))
	}
	close(gate)
	all.Wait()
	late := 0
	for _, n := range order[:smalls+2] {
		if n >= 100 {
			late++
		}
	}
	if late != smalls {
		t.Fatalf("small ones waited for more than two large ones: %v", order)
	}
}

type callback func()

func (c callback) Appended(record.Offset) { c() }
func (c callback) Durable(record.Offset)  {}

// TestSynctest opens, appends and closes in two bubbles of one process: what Pebble keeps in globals must not belong to the first.
func TestSynctest(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			fs := vfs.NewMem()
			for range 2 {
				d := mustOpen(t, "data", small(fs))
				w := newWatch()
				l := mustLog(t, d, 1, w)
				for i := range 100 {
					base := l.AppendedEnd()
					check(t, l.Append(makeBatch(base, 0, 1, 10000, byte(i)), 1, []byte{1}))
					w.waitDurable(base + 1)
				}
				time.Sleep(time.Minute)
				check(t, l.Trim(l.AppendedEnd()-10))
				time.Sleep(time.Minute)
				check(t, d.Close())
			}
		})
	}
}

// TestDiscard: what a start made goes when it is refused, as long as it belongs to no node; nothing else does.
func TestDiscard(t *testing.T) {
	fs := vfs.NewMem()
	check(t, fs.MkdirAll("data", 0o755))
	f, err := fs.Create("data/others", vfs.WriteCategoryUnspecified)
	check(t, err)
	check(t, f.Close())
	names := func() string {
		t.Helper()
		all, err := fs.List("data")
		check(t, err)
		return strings.Join(all, " ")
	}
	d := mustOpen(t, "data", small(fs))
	if _, err := Open("data", small(fs)); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	check(t, d.Discard())
	if left := names(); left != "others" {
		t.Errorf("left: %s", left)
	}

	check(t, mustOpen(t, "data", small(fs)).Close())
	before := names()
	check(t, mustOpen(t, "data", small(fs)).Discard()) // of an earlier start
	d = mustOpen(t, "data", small(fs))
	if n := d.Identity().Boots; n != 3 || !strings.Contains(before, storeFileName) {
		t.Errorf("%d boots, %s", n, before)
	}
	check(t, d.Close())
	check(t, fs.RemoveAll("data"))

	d = mustOpen(t, "data", small(fs))
	check(t, d.SetIdentity("cluster", 1))
	check(t, d.Discard()) // of a node
	d = mustOpen(t, "data", small(fs))
	if id := d.Identity(); id.Boots != 2 || id.ClusterID != "cluster" {
		t.Errorf("%+v", id)
	}
	check(t, d.Close())
}
