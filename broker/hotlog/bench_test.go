// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/varve/varve/record"
)

// ack is one closed-loop appender: it waits until its last batch is durable.
type ack struct{ c chan record.Offset }

func (a ack) Appended(record.Offset)    {}
func (a ack) Durable(end record.Offset) { a.c <- end }

// closedLoop runs n appenders, each to a log of its own, until total appends are durable, and trims as a broker does that keeps keep bytes in all.
func closedLoop(b *testing.B, d *DB, n, size, total int, keep int64) {
	var all sync.WaitGroup
	for i := range n {
		a := ack{make(chan record.Offset, 1)}
		l, err := d.OpenLog(partition(i), a)
		check(b, err)
		all.Go(func() {
			batch := makeBatch(0, 0, 1, size, 0x5a)
			for k := range total / n {
				batch.Stamp(record.Offset(k), 0)
				if err := l.Append(batch, 1, batch[:60]); err != nil {
					b.Error(err)
					return
				}
				<-a.c
				if dead := l.Bytes() - keep/int64(n); dead > max(1<<20, keep/int64(n)) {
					if err := l.Trim(l.Start() + record.Offset(dead/int64(size))); err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
}

// appendFile is the yardstick: one file, and the same group commit without anything else.
type appendFile struct {
	f       *os.File
	mu      sync.Mutex
	waiting []*fileAppend
	wake    chan struct{}
	done    chan struct{}
	// again, if any, is told of each memtable's worth of bytes: they are to be written once more.
	again chan struct{}
}

type fileAppend struct {
	b []byte
	c chan struct{}
}

func (a *appendFile) run() {
	defer close(a.done)
	var buf []byte
	unflushed := 0
	for range a.wake {
		a.mu.Lock()
		take := a.waiting
		a.waiting = nil
		a.mu.Unlock()
		buf = buf[:0]
		for _, w := range take {
			buf = append(buf, w.b...)
		}
		if len(buf) == 0 {
			continue
		}
		if _, err := a.f.Write(buf); err != nil {
			panic(err)
		}
		if err := unix.Fdatasync(int(a.f.Fd())); err != nil {
			panic(err)
		}
		for _, w := range take {
			w.c <- struct{}{}
		}
		if unflushed += len(buf); a.again != nil && unflushed >= DefaultMemTableBytes {
			unflushed -= DefaultMemTableBytes
			a.again <- struct{}{}
		}
	}
}

func (a *appendFile) append(w *fileAppend) {
	a.mu.Lock()
	a.waiting = append(a.waiting, w)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
	<-w.c
}

// writeAgain does what a flush does to the disk: a memtable's worth to a file of its own, the pages pushed out on the way, one sync.
// It keeps two such files, as the trims of closedLoop do. A full channel holds the appends back, as a fourth memtable does.
func writeAgain(b *testing.B, dir string, again <-chan struct{}) {
	piece := makeBatch(0, 0, 1, 128<<10, 0x5a)
	for i := 0; ; i++ {
		if _, more := <-again; !more {
			return
		}
		name := func(i int) string { return filepath.Join(dir, fmt.Sprint("again", i)) }
		f, err := vfs.Default.Create(name(i), vfs.WriteCategoryUnspecified)
		if err != nil {
			b.Error(err)
			return
		}
		f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: 512 << 10})
		for n := 0; n < DefaultMemTableBytes && err == nil; n += len(piece) {
			_, err = f.Write(piece)
		}
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			b.Error(err)
		}
		if i >= 2 {
			_ = os.Remove(name(i - 2))
		}
	}
}

// fileLoop is closedLoop on the yardstick; twice writes every byte again, behind the acknowledgements. The caller removes dir.
func (c appendCase) fileLoop(b *testing.B, dir string, twice bool) time.Duration {
	check(b, os.MkdirAll(dir, 0o755))
	f, err := os.Create(filepath.Join(dir, "append"))
	check(b, err)
	a := &appendFile{f: f, wake: make(chan struct{}, 1), done: make(chan struct{})}
	var behind sync.WaitGroup
	if twice {
		a.again = make(chan struct{}, 2)
		behind.Go(func() { writeAgain(b, dir, a.again) })
	}
	began := time.Now()
	go a.run()
	var all sync.WaitGroup
	for range c.appenders {
		all.Go(func() {
			w := &fileAppend{makeBatch(0, 0, 1, c.size, 0x5a), make(chan struct{}, 1)}
			for range c.bytes / c.size / c.appenders {
				a.append(w)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	close(a.wake)
	<-a.done
	if twice {
		close(a.again)
	}
	behind.Wait()
	check(b, f.Close())
	return took
}

// BenchmarkAppend compares synced appends with the append file. ratio is ours by the file's. The file appends each byte once and
// Pebble writes it twice, to its log and by the flush, so ratio-twice compares with a file whose bytes are written again as well:
// what is missing there to 1 is not the disk's. The trims leave 128 to 256 MiB, less than the product keeps. The three take turns,
// and the figures are medians, because a disk changes from one moment to the next; ratio-least and ratio-most tell how much.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []appendCase{{128 << 10, 8, 384 << 20, 768 << 20}, {16 << 10, 64, 256 << 20, 768 << 20}, {1 << 10, 64, 32 << 20, 16 << 20}} {
		b.Run(fmt.Sprintf("%dKiBx%d", c.size>>10, c.appenders), func(b *testing.B) {
			var ours, once, twice []time.Duration
			var ratio, ratioTwice, amplification []float64
			for b.Loop() {
				for round := range appendRounds {
					dir := b.TempDir()
					var took [3]time.Duration
					for turn := range took {
						switch who := (turn + round) % len(took); who {
						case 0:
							var perByte float64
							took[who], perByte = c.appendRun(b, filepath.Join(dir, "data"))
							amplification = append(amplification, perByte)
						default:
							took[who] = c.fileLoop(b, filepath.Join(dir, fmt.Sprint("file", who)), who == 2)
						}
					}
					ours, once, twice = append(ours, took[0]), append(once, took[1]), append(twice, took[2])
					ratio = append(ratio, took[1].Seconds()/took[0].Seconds())
					ratioTwice = append(ratioTwice, took[2].Seconds()/took[0].Seconds())
					check(b, os.RemoveAll(dir)) // not before: a file that goes holds up the syncs of its neighbours
				}
			}
			mbps := func(t []time.Duration) float64 { return float64(c.bytes) / 1e6 / median(t).Seconds() }
			b.ReportMetric(mbps(ours), "MB/s-hotlog")
			b.ReportMetric(mbps(once), "MB/s-file")
			b.ReportMetric(mbps(twice), "MB/s-twice")
			b.ReportMetric(middle(ratio), "ratio")
			b.ReportMetric(slices.Min(ratio), "ratio-least")
			b.ReportMetric(slices.Max(ratio), "ratio-most")
			b.ReportMetric(middle(ratioTwice), "ratio-twice")
			b.ReportMetric(middle(amplification), "written/byte")
		})
	}
}

// appendRounds is how often the three of BenchmarkAppend take their turns in one iteration: each goes first once.
const appendRounds = 3

// appendCase is a load of closed-loop appenders: bytes in batches of size.
// warm is written before: memory touched for the first time falsifies, and so do the logs of the first memtables. Pebble begins with
// 256 KiB, doubles up to its full size, and writes over the logs of those first: until they have their full size, which takes about
// 768 MiB, each sync has to note how they grew.
type appendCase struct{ size, appenders, bytes, warm int }

// appendRun times appends to a warm store, and tells how many bytes Pebble wrote for each meanwhile.
func (c appendCase) appendRun(b *testing.B, dir string) (took time.Duration, perByte float64) {
	d := mustOpen(b, dir, Options{})
	defer func() { check(b, d.Close()) }()
	closedLoop(b, d, c.appenders, c.size, c.warm/c.size, 128<<20)
	for i := range c.appenders {
		check(b, d.Drop(partition(i)))
	}
	before := d.Metrics().WrittenBytes
	began := time.Now()
	closedLoop(b, d, c.appenders, c.size, c.bytes/c.size, 128<<20)
	took = time.Since(began)
	return took, float64(d.Metrics().WrittenBytes-before) / float64(c.bytes)
}

func middle(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

func median[T ~int64](v []T) T { return quantile(v, 0.5) }

func quantile[T ~int64](v []T, q float64) T {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[min(len(v)-1, int(float64(len(v))*q))]
}

// BenchmarkAppendAllocs counts what an append costs the garbage collector with 64 appenders: 2 at most, the yardstick's channel included.
func BenchmarkAppendAllocs(b *testing.B) {
	d := mustOpen(b, filepath.Join(b.TempDir(), "data"), Options{})
	defer func() { check(b, d.Close()) }()
	const n = 64
	b.ReportAllocs()
	var turn [n]chan bool
	var all sync.WaitGroup
	for i := range n {
		a := ack{make(chan record.Offset, 1)}
		l, err := d.OpenLog(partition(i), a)
		check(b, err)
		turn[i] = make(chan bool)
		batch := makeBatch(0, 0, 1, 1024, 0x5a)
		go func() {
			for range turn[i] {
				batch.Stamp(l.AppendedEnd(), 0)
				check(b, l.Append(batch, 1, batch[:60]))
				<-a.c
				all.Done()
			}
		}()
	}
	for b.Loop() { // one round of 64 appends
		all.Add(n)
		for i := range n {
			turn[i] <- true
		}
		all.Wait()
	}
	for i := range n {
		close(turn[i])
	}
}

// readBench fills a log and reads a MiB at a time.
func readBench(b *testing.B, size int, flushed bool) {
	dir := filepath.Join(b.TempDir(), "data")
	d := mustOpen(b, dir, Options{})
	w := newWatch()
	l := mustLog(b, d, 1, w)
	const total = 32 << 20
	n := record.Offset(total / size)
	for i := range n {
		check(b, l.Append(makeBatch(i, 0, 1, size, 1), -1, nil))
	}
	w.waitDurable(n)
	if flushed {
		check(b, d.Close())
		d = mustOpen(b, dir, Options{}) // replays into an sst
		l = mustLog(b, d, 1, nil)
	}
	defer func() { check(b, d.Close()) }()
	buf := make([]byte, 0, 2<<20)
	run := record.Offset(1 << 20 / size)
	b.SetBytes(int64(run) * int64(size))
	b.ReportAllocs()
	at := record.Offset(0)
	for b.Loop() {
		got, err := l.Read(at, n, 1<<20, true, buf)
		if err != nil || len(got) != int(run)*size {
			b.Fatalf("%d bytes, %v", len(got), err)
		}
		if at += run; at+run > n {
			at = 0
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 128 << 10} {
		b.Run(fmt.Sprintf("memtable/%dKiB", size>>10), func(b *testing.B) { readBench(b, size, false) })
		b.Run(fmt.Sprintf("sst/%dKiB", size>>10), func(b *testing.B) { readBench(b, size, true) })
	}
}

// BenchmarkSeekAfterTrims compares the median read of one small batch before and after 10,000 trims of 64 KiB each.
func BenchmarkSeekAfterTrims(b *testing.B) {
	d := mustOpen(b, filepath.Join(b.TempDir(), "data"), Options{})
	defer func() { check(b, d.Close()) }()
	w := newWatch()
	l := mustLog(b, d, 1, w)
	next := record.Offset(0)
	put := func(n int) {
		for range n {
			check(b, l.Append(makeBatch(next, 0, 1, 16<<10, 1), -1, nil))
			next++
		}
		w.waitDurable(next)
	}
	buf := make([]byte, 0, 64<<10)
	seek := func() time.Duration {
		var took []time.Duration
		for range 2000 {
			began := time.Now()
			_, err := l.Read(next-20, next-19, 32<<10, true, buf)
			took = append(took, time.Since(began))
			check(b, err)
		}
		return median(took)
	}
	put(64)
	before := seek()
	var after, during time.Duration
	for b.Loop() {
		for i := range 10000 {
			put(4)
			check(b, l.Trim(next-64))
			if i == 5000 {
				during = seek()
			}
		}
		after = seek()
	}
	b.ReportMetric(float64(before.Nanoseconds()), "ns-before")
	b.ReportMetric(float64(during.Nanoseconds()), "ns-halfway")
	b.ReportMetric(float64(after.Nanoseconds()), "ns-after")
	b.ReportMetric(float64(after)/float64(before), "ratio")
}

// BenchmarkSmallBesideLarge looks at the acknowledgements of 1 KiB appends while others append 64 MiB: as one batch and as 64 of 1 MiB.
func BenchmarkSmallBesideLarge(b *testing.B) {
	for _, c := range []struct{ batches, size int }{{1, 64 << 20}, {64, 1 << 20}} {
		b.Run(fmt.Sprintf("%dx%dMiB", c.batches, c.size>>20), func(b *testing.B) {
			d := mustOpen(b, filepath.Join(b.TempDir(), "data"), Options{})
			defer func() { check(b, d.Close()) }()
			stop := make(chan struct{})
			var large sync.WaitGroup
			var largeTook []time.Duration
			large.Go(func() { largeRequests(b, d, c.batches, c.size, stop, &largeTook) })
			a := ack{make(chan record.Offset, 1)}
			l := mustLog(b, d, 9999, a)
			var took []time.Duration
			batch := makeBatch(0, 0, 1, 1<<10, 1)
			for b.Loop() {
				began := time.Now()
				batch.Stamp(l.AppendedEnd(), 0)
				check(b, l.Append(batch, -1, nil))
				<-a.c
				took = append(took, time.Since(began))
				time.Sleep(2 * time.Millisecond)
			}
			close(stop)
			large.Wait()
			b.ReportMetric(float64(quantile(took, 0.5).Microseconds()), "us-p50")
			b.ReportMetric(float64(quantile(took, 0.99).Microseconds()), "us-p99")
			b.ReportMetric(float64(quantile(took, 1).Microseconds()), "us-max")
			if len(largeTook) > 0 {
				b.ReportMetric(float64(median(largeTook).Microseconds()), "us-large-p50")
				b.ReportMetric(float64(quantile(largeTook, 1).Microseconds()), "us-large-max")
			}
		})
	}
}

// largeRequests appends requests of some batches, each to a log of its own, one request after the other.
func largeRequests(b *testing.B, d *DB, batches, size int, stop chan struct{}, took *[]time.Duration) {
	a := ack{make(chan record.Offset, batches)}
	var logs []*Log
	var bodies []record.Batch
	for i := range batches {
		l, err := d.OpenLog(partition(i), a)
		if err != nil {
			b.Error(err)
			return
		}
		logs, bodies = append(logs, l), append(bodies, makeBatch(0, 0, 1, size, 0x5a))
	}
	for k := record.Offset(0); ; k++ {
		began := time.Now()
		for i, l := range logs {
			bodies[i].Stamp(k, 0)
			if err := l.Append(bodies[i], -1, nil); err != nil {
				b.Error(err)
				return
			}
		}
		for range logs {
			<-a.c
		}
		*took = append(*took, time.Since(began))
		for _, l := range logs {
			if err := l.Trim(k); err != nil {
				b.Error(err)
			}
		}
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// BenchmarkIdleLogs measures the heap of 1,000 open logs and the time to open 10,000.
func BenchmarkIdleLogs(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "data")
	d := mustOpen(b, dir, Options{})
	const n = 10000
	for i := range n {
		check(b, mustLog(b, d, i, nil).Append(makeBatch(0, 0, 1, 2000, 1), 1, []byte("state")))
	}
	check(b, d.Close())
	for b.Loop() {
		d := mustOpen(b, dir, Options{})
		before := heap()
		began := time.Now()
		for i := range n {
			mustLog(b, d, i, nil)
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/n, "us/open")
		b.ReportMetric(float64(heap()-before)/n, "B/log")
		check(b, d.Close())
	}
}
