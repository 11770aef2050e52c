// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/varve/varve/record"
)

func isWAL(path string) bool { return strings.HasSuffix(path, logFileSuffix) }

// TestFailedSync: one sync fails, later ones succeed; nothing is acknowledged from the failure on.
func TestFailedSync(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpFileWriteAt} {
		mem := vfs.NewMem()
		var armed, hit atomic.Bool
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if isWAL(op.Path) && op.Kind == kind && armed.CompareAndSwap(true, false) {
				hit.Store(true)
				return syscall.EIO
			}
			return nil
		}))
		o := small(fs)
		fatal := make(chan error, 10)
		o.Fatal = func(err error) { fatal <- err }
		d := mustOpen(t, "data", o)
		w := newWatch()
		l := mustLog(t, d, 1, w)
		check(t, l.Append(makeBatch(0, 0, 1, 100, 1), -1, nil))
		w.waitDurable(1)
		armed.Store(true)
		check(t, l.Append(makeBatch(1, 0, 1, 100, 2), -1, nil))
		wait, err := l.BeginEpoch(1, 2)
		if err == nil { // the failure may be known already
			err = wait()
		}
		if !hit.Load() {
			// This Pebble does not use that call for its log; the append above went through.
			check(t, err)
			check(t, d.Close())
			continue
		}
		if !errors.Is(err, ErrFailed) && !errors.Is(err, ErrClosed) {
			t.Fatalf("waiter got %v", err)
		}
		if err := <-fatal; !errors.Is(err, syscall.EIO) {
			t.Fatalf("fatal error %v", err)
		}
		wantErr(t, l.Append(makeBatch(2, 1, 1, 100, 3), -1, nil), ErrClosed)
		wantErr(t, l.Truncate(0), ErrClosed)
		wantErr(t, d.Drop(l.ID()), ErrClosed)
		_ = d.Close()
		if w.durable != 1 || l.DurableEnd() != 1 {
			t.Fatalf("%v: durable %d and %d after the failure", kind, w.durable, l.DurableEnd())
		}
		if len(fatal) > 0 {
			t.Fatalf("fatal called again: %v", <-fatal)
		}
		d = mustOpen(t, "data", small(mem))
		l = mustLog(t, d, 1, nil)
		if l.AppendedEnd() < 1 {
			t.Fatal("lost what was durable")
		}
		check(t, d.Close())
		return
	}
	t.Fatal("no fault was injected")
}

// TestFailedWriteUnderLoad: whatever the moment, reported durable means recovered.
func TestFailedWriteUnderLoad(t *testing.T) {
	for after := range 30 {
		mem := vfs.NewCrashableMem()
		var count atomic.Int64
		var on atomic.Bool
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if on.Load() && isWAL(op.Path) && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && count.Add(1) == int64(after+1) {
				return syscall.EIO
			}
			return nil
		}))
		o := small(fs)
		failed := make(chan struct{}, 10)
		o.Fatal = func(error) { failed <- struct{}{} }
		d := mustOpen(t, "data", o)
		w := newWatch()
		l := mustLog(t, d, 1, w)
		on.Store(true)
		var err error
		for i := record.Offset(0); err == nil; i++ {
			for l.DurableEnd() < i-5 && !d.hasFailed() {
				runtime.Gosched()
			}
			// Small, so that no memtable fills (the first has 256 KiB): Pebble ends the process when it rotates a log that has failed.
			err = l.Append(makeBatch(i, 0, 1, 500, 1), -1, nil)
		}
		wantErr(t, err, ErrClosed)
		<-failed
		_ = d.Close()
		clone := mem.CrashClone(vfs.CrashCloneCfg{})
		d = mustOpen(t, "data", small(clone))
		l = mustLog(t, d, 1, nil)
		if l.AppendedEnd() < w.durable {
			t.Fatalf("failure at write %d: %d reported durable, %d there", after, w.durable, l.AppendedEnd())
		}
		check(t, d.Close())
	}
}

func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		usage := func(available uint64) {
			fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: available, TotalBytes: 1 << 30, UsedBytes: 1<<30 - available})
		}
		usage(1 << 29)
		d := mustOpen(t, "data", small(fs))
		defer d.Close()
		if _, err := fs.Stat("data/RESERVE"); err != nil {
			t.Fatal(err)
		}
		w := newWatch()
		l := mustLog(t, d, 1, w)
		n := record.Offset(0)
		appendOne := func() error {
			err := l.Append(makeBatch(n, 0, 1, 1000, 1), -1, nil)
			if err == nil {
				n++
				w.waitDurable(n)
			}
			return err
		}
		for range 20 {
			check(t, appendOne())
		}
		usage(uint64(highWater(1<<30, 1<<20) / 2))
		time.Sleep(diskCheckInterval)
		check(t, appendOne()) // the committer looks when it writes
		wantErr(t, appendOne(), ErrDiskFull)
		if !d.DiskFull() || !d.Metrics().DiskFull {
			t.Fatal("not reported full")
		}
		if _, err := fs.Stat("data/RESERVE"); err == nil {
			t.Fatal("the reserve is still held")
		}
		got, err := l.Read(0, n, 1<<20, true, nil)
		if check(t, err); len(got) != 21*1000 {
			t.Fatalf("read %d bytes", len(got))
		}
		check(t, l.Trim(5))
		check(t, l.Truncate(20))
		n = 20
		check(t, d.Drop(partition(99)))
		wait, err := l.BeginEpoch(1, n)
		check(t, err)
		check(t, wait())
		time.Sleep(time.Minute)
		wantErr(t, appendOne(), ErrDiskFull)
		synctest.Wait() // that asked for a look, too
		usage(1 << 29)
		time.Sleep(diskCheckInterval)
		if !d.DiskFull() { // asks for a look
			t.Fatal("recovered before anybody looked")
		}
		synctest.Wait()
		if d.DiskFull() {
			t.Fatal("still full")
		}
		if err := l.Append(makeBatch(n, 1, 1, 1000, 1), -1, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := fs.Stat("data/RESERVE"); err != nil {
			t.Fatalf("no reserve after recovery: %v", err)
		}
	})
}

// TestReserveBytes: what is held for a full disk is what was asked for, at most.
func TestReserveBytes(t *testing.T) {
	for asked, want := range map[int64]int64{0: maxReserve, 1 << 20: 1 << 20} {
		fs := vfs.NewMem()
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 41, UsedBytes: 1 << 40})
		o := small(fs)
		o.ReserveBytes = asked
		d := mustOpen(t, "data", o)
		if held := d.disk.mu.held; held != want {
			t.Errorf("asked for %d, %d are held", asked, held)
		}
		check(t, d.Close())
	}
}

// TestFullAtStart: a directory on a full disk opens, gives its reserve back, serves and trims.
func TestFullAtStart(t *testing.T) {
	fs := vfs.NewMem()
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 29, TotalBytes: 1 << 30})
	d := mustOpen(t, "data", small(fs))
	check(t, mustLog(t, d, 1, nil).Append(makeBatch(0, 0, 5, 1000, 1), -1, nil))
	check(t, d.Close())
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 10, TotalBytes: 1 << 30})
	d = mustOpen(t, "data", small(fs))
	defer d.Close()
	if _, err := fs.Stat("data/RESERVE"); err == nil {
		t.Fatal("the reserve is still held")
	}
	l := mustLog(t, d, 1, nil)
	wantErr(t, l.Append(makeBatch(5, 0, 1, 100, 1), -1, nil), ErrDiskFull)
	check(t, l.Trim(5))
}

// TestNoSpaceOnce: another program takes the last byte; the write is tried again with the reserve and nothing is lost.
func TestNoSpaceOnce(t *testing.T) {
	var armed atomic.Bool
	mem := vfs.NewMem()
	o := small(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if isWAL(op.Path) && op.Kind == errorfs.OpFileWriteAt && armed.CompareAndSwap(true, false) {
			return syscall.ENOSPC
		}
		return nil
	})))
	o.Fatal = func(err error) { t.Errorf("fatal: %v", err) }
	d := mustOpen(t, "data", o)
	defer d.Close()
	w := newWatch()
	l := mustLog(t, d, 1, w)
	check(t, l.Append(makeBatch(0, 0, 1, 1000, 1), -1, nil))
	w.waitDurable(1) // so that no earlier write is still under way, and meets the fault
	armed.Store(true)
	check(t, l.Append(makeBatch(1, 0, 1, 1000, 1), -1, nil))
	w.waitDurable(2)
	if armed.Load() {
		t.Fatal("no fault was injected")
	}
	wantErr(t, l.Append(makeBatch(2, 0, 1, 1000, 1), -1, nil), ErrDiskFull)
}

func TestHighWater(t *testing.T) {
	for _, c := range []struct{ total, memTable, want int64 }{
		{1 << 40, 64 << 20, maxHighWater},
		{20 << 30, 64 << 20, 1 << 30},
		{1 << 30, 64 << 20, 192 << 20},
		{64 << 20, 16 << 20, 16 << 20},
	} {
		if got := highWater(c.total, c.memTable); got != c.want {
			t.Errorf("highWater(%d, %d) = %d, want %d", c.total, c.memTable, got, c.want)
		}
	}
}

// TestCorruptDirectory damages what Pebble checks at Open.
func TestCorruptDirectory(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"manifest": func(t *testing.T, dir string) {
			check(t, os.WriteFile(one(t, dir, "MANIFEST-*"), []byte("not what Pebble wrote, and too long for a torn header of a chunk"), 0o644))
		},
		"manifest's tail": func(t *testing.T, dir string) {
			// Pebble alone would take this for a torn write and open what was there before.
			m := one(t, dir, "MANIFEST-*")
			info, err := os.Stat(m)
			check(t, err)
			check(t, os.Truncate(m, info.Size()-1))
		},
		"no database": func(t *testing.T, dir string) {
			for _, pattern := range []string{"MANIFEST-*", "marker.*", "CURRENT*", "OPTIONS-*"} {
				files, err := filepath.Glob(filepath.Join(dir, pattern))
				check(t, err)
				for _, f := range files {
					check(t, os.Remove(f))
				}
			}
		},
		"store file": func(t *testing.T, dir string) {
			check(t, os.WriteFile(filepath.Join(dir, storeFileName), []byte("varve hot log\nformat 2\nstore zz"), 0o644))
		},
		"no sst": func(t *testing.T, dir string) {
			check(t, os.Remove(one(t, dir, "*.sst")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			o := small(nil)
			d := mustOpen(t, dir, o)
			l := mustLog(t, d, 1, nil)
			for i := range 100 { // several memtables: the log that held the identity is gone
				check(t, l.Append(makeBatch(record.Offset(i), 0, 1, 50000, 1), -1, nil))
			}
			check(t, d.SetWitness(1, 1))
			check(t, d.p.Flush())
			check(t, d.Close())
			before := dataFiles(t, dir)
			damage(t, dir)
			_, err := Open(dir, o)
			wantErr(t, err, ErrCorrupt)
			if !strings.Contains(err.Error(), dir) {
				t.Fatalf("does not name the directory: %v", err)
			}
			for _, f := range before {
				if _, err := os.Stat(f); err != nil && name != "no sst" {
					t.Errorf("%s was removed from a corrupt directory", f)
				}
			}
		})
	}
}

func dataFiles(t *testing.T, dir string) (files []string) {
	for _, pattern := range []string{"*.sst", "*" + logFileSuffix} {
		m, err := filepath.Glob(filepath.Join(dir, pattern))
		check(t, err)
		files = append(files, m...)
	}
	if len(files) == 0 {
		t.Fatal("no data files to look after")
	}
	return files
}

// TestCorruptData: a flipped bit in stored batches is an error of the read, not of the process.
func TestCorruptData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	o := small(nil)
	d := mustOpen(t, dir, o)
	w := newWatch()
	l := mustLog(t, d, 1, w)
	for i := range 20 {
		if i == 15 { // what comes now is in other frames: the last one's header, which Open looks at, stays whole
			w.waitDurable(15)
		}
		check(t, l.Append(makeBatch(record.Offset(i), 0, 1, 10000, 1), -1, nil))
	}
	check(t, d.Close())
	logs, err := filepath.Glob(filepath.Join(dir, "*"+logFileSuffix))
	check(t, err)
	overwrite(t, logs[0])
	o.Fatal = func(err error) { t.Errorf("fatal: %v", err) }
	d = mustOpen(t, dir, o)
	defer d.Close()
	l = mustLog(t, d, 1, nil)
	_, err = l.Read(0, 20, 1<<20, true, nil)
	wantErr(t, err, ErrCorrupt)
	if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), l.ID().String()) {
		t.Fatalf("names neither the directory nor the partition: %v", err)
	}
}

func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	m, err := filepath.Glob(filepath.Join(dir, pattern))
	check(t, err)
	if len(m) == 0 {
		t.Fatalf("no %s in %s", pattern, dir)
	}
	return m[len(m)-1]
}

// overwrite flips the bytes in the middle fifth of a file.
func overwrite(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	check(t, err)
	for i := len(b) * 2 / 5; i < len(b)*3/5; i++ {
		b[i] ^= 0xff
	}
	check(t, os.WriteFile(file, b, 0o644))
}

const lockHelperEnv = "VARVE_HOTLOG_LOCK_DIR"

// TestLockedByAnotherProcess opens a directory that a child process holds.
func TestLockedByAnotherProcess(t *testing.T) {
	if dir := os.Getenv(lockHelperEnv); dir != "" {
		d := mustOpen(t, dir, small(nil))
		os.Stdout.WriteString("held\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent lets go
		check(t, d.Close())
		return
	}
	dir := filepath.Join(t.TempDir(), "data")
	child := exec.Command(os.Args[0], "-test.run=^TestLockedByAnotherProcess$")
	child.Env = append(os.Environ(), lockHelperEnv+"="+dir)
	in, err := child.StdinPipe()
	check(t, err)
	out, err := child.StdoutPipe()
	check(t, err)
	check(t, child.Start())
	word := make([]byte, 4)
	_, err = out.Read(word)
	check(t, err)
	if string(word) != "held" {
		t.Fatalf("child said %q", word)
	}
	_, err = Open(dir, small(nil))
	wantErr(t, err, ErrLocked)
	if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another process") {
		t.Fatalf("unclear: %v", err)
	}
	check(t, in.Close())
	check(t, child.Wait())
	check(t, mustOpen(t, dir, small(nil)).Close())
}
