// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve/varve/record"
)

// crashed is the disk as a power failure leaves it that loses nothing, or everything that was not synced.
func crashed(fs *vfs.MemFS, percent int) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 1))})
}

// storedFrame is where a test finds a frame.
type storedFrame struct {
	frameHeader
	name  string
	start int64
}

// framesOf lists the valid frames on a disk, in the order of the log.
func framesOf(t *testing.T, fs vfs.FS) (frames []storedFrame) {
	t.Helper()
	store, _, err := readStoreFile(fs, "data")
	check(t, err)
	s := fileSet{fs: fs, dir: "data"}
	check(t, s.list())
	for _, f := range s.sorted() {
		in, err := fs.Open(f.name)
		check(t, err)
		for at := int64(0); ; {
			var b [frameHeaderLen]byte
			if ok, err := readFull(in, b[:], at); !ok {
				check(t, err)
				break
			}
			h, ok, err := parseFrameHeader(b[:], &store.storeID, f.number)
			check(t, err)
			if !ok {
				break
			}
			frames = append(frames, storedFrame{h, f.name, at})
			at = h.next(at)
		}
		check(t, in.Close())
	}
	return frames
}

// flip changes a byte of a file.
func flip(t *testing.T, fs vfs.FS, name string, at int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	check(t, err)
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xff
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	check(t, f.Sync())
	check(t, f.Close())
}

// damages are places in a frame.
func damages(f storedFrame) map[string]int64 {
	return map[string]int64{
		"magic": f.start, "sequence": f.start + 30, "header's checksum": f.start + 46, "first batch": f.start + frameHeaderLen,
		"last batch": f.start + frameHeaderLen + int64(f.data) - 1, "pebble's batch": f.start + f.len() - 3,
	}
}

// fiveFrames is a disk with a frame for each of five batches.
func fiveFrames(t *testing.T) *vfs.MemFS {
	fs := vfs.NewCrashableMem()
	d := mustOpen(t, "data", small(fs))
	w := newWatch()
	l := mustLog(t, d, 1, w)
	for i := range record.Offset(5) {
		check(t, l.Append(makeBatch(i, 0, 1, 3000, byte(i)), 1, []byte("state")))
		w.waitDurable(i + 1)
	}
	left := crashed(fs, 0)
	check(t, d.Close())
	return left
}

// endAfterOpen opens a disk, appends one batch, and tells where the log ended before. What was appended survives the next crash.
func endAfterOpen(t *testing.T, fs *vfs.MemFS) record.Offset {
	t.Helper()
	d := mustOpen(t, "data", small(fs))
	w := newWatch()
	l := mustLog(t, d, 1, w)
	end := l.AppendedEnd()
	check(t, l.Append(makeBatch(end, 0, 1, 2000, 0x77), -1, nil))
	w.waitDurable(end + 1)
	again := crashed(fs, 100)
	check(t, d.Close())
	d = mustOpen(t, "data", small(again))
	defer d.Close()
	l = mustLog(t, d, 1, nil)
	if l.AppendedEnd() != end+1 {
		t.Fatalf("the log ended at %d, a batch was appended, and then it ends at %d", end, l.AppendedEnd())
	}
	n := 0
	check(t, l.Scan(0, end+1, func(b record.Batch) error {
		if n++; b.BaseOffset() == end && b[len(b)-1] != 0x77 {
			return fmt.Errorf("batch at %d is a stale one", end)
		}
		return nil
	}))
	return end
}

// TestTornFrame: a damaged frame that nothing proves to have been synced is where the log ends.
func TestTornFrame(t *testing.T) {
	disk := fiveFrames(t)
	frames := framesOf(t, disk)
	for name, at := range damages(frames[len(frames)-1]) {
		t.Run(name, func(t *testing.T) {
			left := crashed(disk, 0)
			flip(t, left, frames[len(frames)-1].name, at)
			if end := endAfterOpen(t, left); end != 4 {
				t.Fatalf("the log ends at %d", end)
			}
		})
	}
}

// TestCorruptFrame: a damaged frame that a later one proves to have been synced is corruption, and nothing is touched.
func TestCorruptFrame(t *testing.T) {
	disk := fiveFrames(t)
	frames := framesOf(t, disk)
	bad := frames[len(frames)-4]
	for name, at := range damages(bad) {
		t.Run(name, func(t *testing.T) {
			left := crashed(disk, 0)
			flip(t, left, bad.name, at)
			before := left.String()
			_, err := Open("data", small(left))
			wantErr(t, err, ErrCorrupt)
			if !strings.Contains(err.Error(), fmt.Sprintf("offset %d of %s", bad.start, left.PathBase(bad.name))) {
				t.Errorf("does not say where: %v", err)
			}
			for line := range strings.Lines(before) {
				if strings.Contains(line, logFileSuffix) && !strings.Contains(left.String(), line) {
					t.Errorf("%q is gone", line)
				}
			}
		})
	}
}

// TestLostFile: a log file that is missing is corruption by name, whether it is to be replayed or only pointed to.
func TestLostFile(t *testing.T) {
	for _, clean := range []bool{false, true} {
		fs := vfs.NewCrashableMem()
		o := small(fs)
		o.fileBytes = 16 << 10
		d := mustOpen(t, "data", o)
		w := newWatch()
		l := mustLog(t, d, 1, w)
		for i := range record.Offset(20) {
			check(t, l.Append(makeBatch(i, 0, 1, 6000, byte(i)), -1, nil))
			w.waitDurable(i + 1)
		}
		left := crashed(fs, 0)
		check(t, d.Close())
		if clean {
			left = crashed(fs, 0)
		}
		frames := framesOf(t, left)
		name := frames[len(frames)/2].name
		check(t, left.Remove(name))
		_, err := Open("data", small(left))
		wantErr(t, err, ErrCorrupt)
		if clean && !strings.Contains(err.Error(), name) {
			t.Errorf("does not name the file: %v", err)
		}
	}
}

// stallFS holds up the syncs of log files while told to.
type stallFS struct {
	vfs.FS
	stalled  atomic.Bool
	release  chan struct{}
	manifest func() // called ahead of each write to a manifest
	flushed  atomic.Bool
}

func (s *stallFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.OpenReadWrite(name, c, o...)
	if err != nil || !isWAL(name) {
		return f, err
	}
	return &stallFile{f, s}, nil
}

func (s *stallFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, c)
	if err == nil && strings.Contains(name, "MANIFEST") && s.manifest != nil {
		return &writeHook{f, s.manifest}, nil
	}
	if err == nil && strings.HasSuffix(name, ".sst") {
		s.flushed.Store(true)
	}
	return f, err
}

type stallFile struct {
	vfs.File
	fs *stallFS
}

func (f *stallFile) SyncData() error {
	if f.fs.stalled.Load() {
		<-f.fs.release
	}
	return f.File.SyncData()
}

type writeHook struct {
	vfs.File
	before func()
}

func (w *writeHook) Write(b []byte) (int, error) {
	w.before()
	return w.File.Write(b)
}

// TestFlushWaitsForSync: Pebble must not make pointers durable to what the log has not synced.
func TestFlushWaitsForSync(t *testing.T) {
	mem := vfs.NewCrashableMem()
	fs := &stallFS{FS: mem, release: make(chan struct{})}
	fs.manifest = func() {
		if fs.stalled.Load() {
			t.Error("a manifest is written while the log is not synced")
		}
	}
	d := mustOpen(t, "data", small(fs))
	w := newWatch()
	l := mustLog(t, d, 1, w)
	check(t, l.Append(makeBatch(0, 0, 1, 1000, 1), -1, nil))
	w.waitDurable(1)
	fs.stalled.Store(true)
	fs.flushed.Store(false)
	check(t, l.Append(makeBatch(1, 0, 1, 1000, 2), -1, nil))
	w.waitAppended(2)
	flushed, err := d.p.AsyncFlush()
	check(t, err)
	for !fs.flushed.Load() {
		time.Sleep(time.Millisecond)
	}
	for range 20 { // let the flush get as far as it can; too short only weakens the test
		time.Sleep(time.Millisecond)
		again := mustOpen(t, "data", small(crashed(mem, 0)))
		if end := mustLog(t, again, 1, nil).AppendedEnd(); end != 1 {
			t.Fatalf("the log ends at %d after a crash", end)
		}
		check(t, again.Close())
	}
	fs.stalled.Store(false)
	close(fs.release)
	<-flushed
	check(t, d.Close())
}

func (w *watch) waitAppended(end record.Offset) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.appended != end {
		w.cond.Wait()
	}
}

// TestStaleFrame: two frames are on their way to the disk, the first is lost and the second is not. The log ends before both, for ever.
func TestStaleFrame(t *testing.T) {
	mem := vfs.NewCrashableMem()
	fs := &stallFS{FS: mem, release: make(chan struct{})}
	d := mustOpen(t, "data", small(fs))
	w := newWatch()
	l := mustLog(t, d, 1, w)
	check(t, l.Append(makeBatch(0, 0, 1, 1000, 1), -1, nil))
	w.waitDurable(1)
	fs.stalled.Store(true)
	for i := range record.Offset(2) {
		check(t, l.Append(makeBatch(1+i, 0, 1, 1000, 2), -1, nil))
		w.waitAppended(2 + i)
	}
	left := crashed(mem, 100)
	fs.stalled.Store(false)
	close(fs.release)
	check(t, d.Close())
	frames := framesOf(t, left)
	lost := frames[len(frames)-2]
	flip(t, left, lost.name, lost.start+frameHeaderLen)
	if end := endAfterOpen(t, left); end != 1 {
		t.Fatalf("the log ends at %d", end)
	}
}

// TestUsedFile: a file that is written over still holds frames of its last use. They are nobody's, whatever name it has.
func TestUsedFile(t *testing.T) {
	disk := fiveFrames(t)
	frames := framesOf(t, disk)
	s := fileSet{fs: disk, dir: "data"}
	check(t, s.list())
	next := "data/" + logFileName(s.last+1)
	copyFile(t, disk, frames[len(frames)-1].name, next)
	if end := endAfterOpen(t, disk); end != 5 {
		t.Fatalf("the log ends at %d", end)
	}

	// And in use: many files, written over again and again, and a crash at any time.
	fs := vfs.NewCrashableMem()
	o := small(fs)
	o.fileBytes, o.rewriteAfter, o.eager = 16<<10, time.Nanosecond, true
	d := mustOpen(t, "data", o)
	w := newWatch()
	l := mustLog(t, d, 1, w)
	for i := range record.Offset(400) {
		check(t, l.Append(makeBatch(i, 0, 1, 2000, byte(i)), -1, nil))
		w.waitDurable(i + 1)
		if i%5 == 4 {
			check(t, l.Trim(i-3))
		}
		if i%50 == 49 {
			again := mustOpen(t, "data", small(crashed(fs, 50)))
			l := mustLog(t, again, 1, nil)
			check(t, l.Scan(l.Start(), i+1, func(b record.Batch) error {
				if b[len(b)-1] != byte(b.BaseOffset()) {
					return fmt.Errorf("batch %d has another's bytes", b.BaseOffset())
				}
				return nil
			}))
			if l.AppendedEnd() != i+1 {
				t.Fatalf("end %d of %d", l.AppendedEnd(), i+1)
			}
			check(t, again.Close())
		}
	}
	names, err := fs.List("data")
	check(t, err)
	if d.files.last < 40 || len(names) > 40 {
		t.Errorf("%d log files were begun and %d names are there: none was written over", d.files.last, len(names))
	}
	check(t, d.Close())
}

func copyFile(t *testing.T, fs vfs.FS, from, to string) {
	t.Helper()
	check(t, vfs.Copy(fs, from, to))
	f, err := fs.Open(to)
	check(t, err)
	check(t, f.Sync())
	check(t, f.Close())
}

// TestScanKeepsFiles: what a Scan has yet to read stays on disk, though it was trimmed, and goes when the Scan is over.
func TestScanKeepsFiles(t *testing.T) {
	fs := vfs.NewMem()
	o := small(fs)
	o.fileBytes, o.rewriteAfter, o.eager = 1<<20, time.Nanosecond, true
	d := mustOpen(t, "data", o)
	defer d.Close()
	w := newWatch()
	l := mustLog(t, d, 1, w)
	end := record.Offset(0)
	put := func(n int) {
		for range n {
			check(t, l.Append(makeBatch(end, 0, 1, 256<<10, byte(end)), -1, nil))
			end++
			w.waitDurable(end)
		}
	}
	put(20)
	first := d.files.sorted()[0].name
	seen := record.Offset(0)
	check(t, l.Scan(0, 20, func(b record.Batch) error {
		if b.BaseOffset() != seen || b[len(b)-1] != byte(seen) {
			return fmt.Errorf("batch %d where %d is due", b.BaseOffset(), seen)
		}
		if seen == 0 { // the rest is not read yet
			check(t, l.Trim(end))
			put(40)
			check(t, l.Trim(end-1))
			if got := len(d.files.sorted()); got < 10 {
				return fmt.Errorf("%d files left", got)
			}
		}
		seen++
		return nil
	}))
	if seen != 20 {
		t.Fatalf("%d batches", seen)
	}
	deadline := time.Now().Add(time.Minute)
	for d.files.get(1) != nil {
		if time.Now().After(deadline) {
			t.Fatalf("%s is still there", first)
		}
		put(1) // a flush lets it go
		check(t, l.Trim(end-1))
	}
}

// TestRewriteBesideChanges moves batches all the time while their logs are appended to, trimmed, truncated, reset and dropped.
func TestRewriteBesideChanges(t *testing.T) {
	fs := vfs.NewMem()
	o := small(fs)
	o.fileBytes, o.rewriteAfter, o.eager = 64<<10, time.Nanosecond, true
	d := mustOpen(t, "data", o)
	const logs = 6
	twins := make([]*twin, logs)
	var all sync.WaitGroup
	for i := range logs {
		twins[i] = newTwin()
		all.Go(func() {
			if err := changeALot(d, i, twins[i]); err != nil {
				t.Errorf("log %d: %v", i, err)
			}
		})
	}
	all.Wait()
	compare := func() {
		for i := range logs {
			l, err := d.OpenLog(partition(i), nil)
			if errors.Is(err, ErrOpen) {
				d.mu.Lock()
				l, err = d.mu.logs[partition(i)], nil
				d.mu.Unlock()
			}
			check(t, err)
			got, err := describeLog(l)
			if want := twins[i].String(); err != nil || got != want {
				t.Fatalf("log %d, error %v\n got %s\nwant %s", i, err, got, want)
			}
		}
	}
	compare()
	if d.stats.movedBytes.Load() == 0 {
		t.Error("nothing was moved")
	}
	var live int64
	for _, f := range d.files.sorted() {
		live += f.live
	}
	if live != d.LiveBytes() {
		t.Errorf("the files count %d live bytes, the logs %d", live, d.LiveBytes())
	}
	check(t, d.Close())
	d = mustOpen(t, "data", o)
	compare()
	check(t, d.Close())
}

func changeALot(d *DB, n int, w *twin) error {
	rng := rand.New(rand.NewPCG(uint64(n), 3))
	l, err := d.OpenLog(partition(n), nil)
	if err != nil {
		return err
	}
	for step := range 250 {
		for range 1 + rng.IntN(6) {
			b := makeBatch(w.end, max(w.current, 0), 1+rng.IntN(3), 300+rng.IntN(4000), byte(step))
			w.append(b, -1, nil)
			if err := l.Append(b, -1, nil); err != nil {
				return err
			}
		}
		wait, err := l.AdoptEpoch(0)
		if err == nil {
			err = wait()
		}
		if err != nil {
			return err
		}
		to := w.start + record.Offset(rng.Int64N(int64(w.end-w.start)+1))
		switch k := rng.IntN(60); {
		case k == 0:
			*w = *newTwin()
			if err = d.Drop(l.ID()); err == nil {
				l, err = d.OpenLog(l.ID(), nil)
			}
		case k == 1:
			w.reset(to, nil, nil)
			err = l.Reset(to, nil, nil)
		case k < 10:
			w.truncate(to)
			err = l.Truncate(to)
		case k < 25:
			w.trim(to)
			err = l.Trim(to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestOlderFormat: a store whose batches lie in Pebble is refused, with what to do, and not touched.
func TestOlderFormat(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	check(t, os.MkdirAll(dir, 0o755))
	check(t, os.WriteFile(filepath.Join(dir, storeFileName), []byte("varve hot log\nformat 1\nstore 0f1e2d3c4b5a69788796a5b4c3d2e1f0\nboots 3\n"), 0o644))
	_, err := Open(dir, small(nil))
	wantErr(t, err, ErrOlderFormat)
	if !strings.Contains(err.Error(), "format 1") || !strings.Contains(err.Error(), "drain") {
		t.Fatalf("unclear: %v", err)
	}
	left, err := os.ReadDir(dir)
	check(t, err)
	if i := slices.IndexFunc(left, func(e os.DirEntry) bool { return e.Name() != storeFileName && e.Name() != "LOCK" }); i >= 0 {
		t.Fatalf("%s was made", left[i].Name())
	}
}

// TestOpenFilesBounded: reading many files keeps few open.
func TestOpenFilesBounded(t *testing.T) {
	fs := vfs.NewMem()
	o := small(fs)
	o.fileBytes = 8 << 10
	d := mustOpen(t, "data", o)
	defer d.Close()
	d.files.maxOpen = 8
	w := newWatch()
	l := mustLog(t, d, 1, w)
	const n = 100
	for i := range record.Offset(n) {
		check(t, l.Append(makeBatch(i, 0, 1, 6000, byte(i)), -1, nil))
		w.waitDurable(i + 1)
	}
	for range 2 {
		got, err := l.Read(0, n, 1<<20, true, nil)
		if check(t, err); len(got) != n*6000 {
			t.Fatalf("%d bytes", len(got))
		}
	}
	d.files.mu.Lock()
	defer d.files.mu.Unlock()
	if d.files.open > d.files.maxOpen {
		t.Errorf("%d files are open", d.files.open)
	}
}

// TestTrimNotDurable: a file stays while a power failure could bring back the keys that point into it.
func TestTrimNotDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	fs := &stallFS{FS: mem, release: make(chan struct{})}
	o := small(fs)
	o.fileBytes = 16 << 10
	d := mustOpen(t, "data", o)
	w := newWatch()
	l := mustLog(t, d, 1, w)
	const n = 30
	for i := range record.Offset(n) {
		check(t, l.Append(makeBatch(i, 0, 1, 4000, byte(i)), -1, nil))
		w.waitDurable(i + 1)
	}
	check(t, d.p.Flush())
	fs.stalled.Store(true)
	trimmed := make(chan error)
	go func() { trimmed <- l.Trim(n) }()
	for l.Start() != n {
		time.Sleep(time.Millisecond)
	}
	for range 20 { // let the reclaimer do what it would do; too short only weakens the test
		d.wakeReclaimer()
		time.Sleep(time.Millisecond)
	}
	again := mustOpen(t, "data", small(crashed(mem, 0)))
	got, err := mustLog(t, again, 1, nil).Read(0, n, 1<<20, true, nil)
	if check(t, err); len(got) != n*4000 {
		t.Errorf("%d bytes after a crash", len(got))
	}
	check(t, again.Close())
	fs.stalled.Store(false)
	close(fs.release)
	check(t, <-trimmed)
	check(t, d.Close())
}

// TestMoveAfterTruncate: batches that were read to be moved, and truncated since, do not come back.
func TestMoveAfterTruncate(t *testing.T) {
	d := mustOpen(t, "data", small(vfs.NewMem()))
	defer d.Close()
	w := newWatch()
	l := mustLog(t, d, 1, w)
	for i := range record.Offset(4) {
		check(t, l.Append(makeBatch(i, 0, 1, 500, 1), -1, nil))
	}
	w.waitDurable(4)
	r := &opRest{}
	_, _, err := d.readMove(d.head.file, part{l, 0, 0, 2000}, 0, r)
	if check(t, err); len(r.moves) != 4 {
		t.Fatalf("%d batches to move", len(r.moves))
	}
	check(t, l.Truncate(2))
	check(t, l.Append(makeBatch(2, 0, 1, 500, 2), -1, nil))
	check(t, l.change(opMove, r, nil))
	if err := r.wait(); err != errLookAgain {
		t.Fatalf("moved: %v", err)
	}
	got, err := l.Read(2, 4, 1<<20, true, nil)
	if check(t, err); len(got) != 500 || got[499] != 2 {
		t.Fatalf("%d bytes", len(got))
	}
}

// TestPebbleWritesDuringReplay: Pebble compacts as soon as it is open. Whoever asks then what is synced waits for nothing.
func TestPebbleWritesDuringReplay(t *testing.T) {
	for sequence := range uint64(200) {
		var s syncedTo
		s.moved.L = &s.mu
		done := make(chan error)
		go func() { done <- s.wait() }()
		s.begin(sequence)
		check(t, <-done)
		check(t, s.wait())
	}
}
