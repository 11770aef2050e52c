// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varve/varve/record"
)

// diskUseEnv holds how many MiB each load of TestDiskUse writes. `make bench` sets it.
const diskUseEnv = "VARVE_HOTLOG_DISK_MIB"

// diskLoad is one shape of load: which partition gets the next batch, how large, and how much of it stays.
type diskLoad struct {
	name  string
	share float64 // of the bytes that the environment asks for
	next  func(i int) (partition, size int)
	keep  int64 // live bytes per partition, trimmed in steps of a MiB or the half of keep; 0 keeps all
	slow  func(partition int) bool
}

func diskLoads() []diskLoad {
	hotAndSlow := func(size int) func(int) (int, int) {
		return func(i int) (int, int) {
			if i%9 == 8 { // 8 hot batches are a MiB
				return 1 + i/9%1000, size
			}
			return 0, 128 << 10
		}
	}
	slow := func(p int) bool { return p > 0 }
	never := func(int) bool { return false }
	return []diskLoad{
		{"one hot", 1, func(int) (int, int) { return 0, 128 << 10 }, 128 << 20, never},
		{"64 even", 1, func(i int) (int, int) { return i % 64, 64 << 10 }, 2 << 20, never},
		{"one hot, 1000 slow of 1 KiB", 1, hotAndSlow(1 << 10), 128 << 20, slow},
		{"one hot, 1000 slow of 16 KiB", 1, hotAndSlow(16 << 10), 128 << 20, slow},
		{"64 of 300 bytes", 0.25, func(i int) (int, int) { return i % 64, 300 }, 2 << 20, never},
	}
}

// TestDiskUse writes much more than it keeps and looks at what the disk holds: within 30 s after the load at most three times
// what is live plus 1 GiB. Slow partitions are trimmed by age only, so not at all here.
func TestDiskUse(t *testing.T) {
	mib, err := strconv.Atoi(os.Getenv(diskUseEnv))
	if err != nil {
		t.Skipf("%s is not set to a number of MiB to write per load (make bench does)", diskUseEnv)
	}
	for _, load := range diskLoads() {
		t.Run(load.name, func(t *testing.T) { runDiskLoad(t, load, int64(float64(mib)*load.share)<<20) })
	}
}

func runDiskLoad(t *testing.T, load diskLoad, total int64) {
	dir := filepath.Join(t.TempDir(), "data")
	d := mustOpen(t, dir, Options{})
	defer func() { check(t, d.Close()) }()
	var peak, now atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			now.Store(dirBytes(dir))
			peak.Store(max(peak.Load(), now.Load()))
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	began := time.Now()
	feed(t, d, load, total)
	took := time.Since(began)
	deadline := time.Now().Add(30 * time.Second)
	bound := func() int64 { return 3*d.Metrics().LiveBytes + 1<<30 }
	var within time.Duration = -1
	for time.Now().Before(deadline) {
		if now.Load() <= bound() && within < 0 {
			within = time.Until(deadline)
		}
		time.Sleep(200 * time.Millisecond)
	}
	close(stop)
	<-stopped
	m := d.Metrics()
	gib := func(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }
	fmt.Printf("%-30s wrote %s at %.0f MB/s, live %s, disk peak %s, after 30 s %s, in bound after %v, write amplification %.2f, %d compactions, %d stalls\n",
		load.name, gib(total), float64(total)/1e6/took.Seconds(), gib(m.LiveBytes), gib(peak.Load()), gib(now.Load()), (30*time.Second - within).Round(100*time.Millisecond), m.WriteAmplification(), m.Compactions, m.Stalls)
	if now.Load() > bound() {
		t.Errorf("disk %s after 30 s, bound %s", gib(now.Load()), gib(bound()))
	}
}

// feed appends without waiting for each batch, trims as it goes, and returns when all is durable.
func feed(t *testing.T, d *DB, load diskLoad, total int64) {
	const window = 16 << 20
	type source struct {
		log     *Log
		end     record.Offset
		durable atomic.Int64
		trimmed int64
		bytes   int64
	}
	var inFlight atomic.Int64
	moved := make(chan struct{}, 1)
	sources := map[int]*source{}
	batches := map[int]record.Batch{}
	for i, sent := 0, int64(0); sent < total; i++ {
		p, size := load.next(i)
		s := sources[p]
		if s == nil {
			s = &source{}
			s.log = mustLog(t, d, p, observe{durable: func(end record.Offset) {
				inFlight.Add(-(int64(end) - s.durable.Swap(int64(end))) * int64(size))
				select {
				case moved <- struct{}{}:
				default:
				}
			}})
			sources[p] = s
		}
		for inFlight.Load() > window {
			<-moved
		}
		inFlight.Add(int64(size))
		// The content may be shared by all: only base offset and epoch differ, and they lie in the first 16 bytes.
		b := makeShared(batches, size, s.end)
		check(t, s.log.Append(b, 1, []byte("state of a producer")))
		s.end++
		s.bytes += int64(size)
		sent += int64(size)
		if step := min(1<<20, load.keep/2); !load.slow(p) && s.bytes-s.trimmed > load.keep+step && s.log.Bytes() > load.keep+step {
			to := s.log.Start() + record.Offset(step/int64(size))
			check(t, s.log.Trim(to))
			s.trimmed = s.bytes - s.log.Bytes()
		}
	}
	for inFlight.Load() > 0 {
		<-moved
	}
}

func makeShared(made map[int]record.Batch, size int, base record.Offset) record.Batch {
	b := made[size]
	if b == nil {
		b = makeBatch(0, 0, 1, size, 0x5a)
		made[size] = b
	}
	own := append(record.Batch(nil), b...)
	own.Stamp(base, 0)
	return own
}

type observe struct{ appended, durable func(record.Offset) }

func (o observe) Appended(end record.Offset) {
	if o.appended != nil {
		o.appended(end)
	}
}

func (o observe) Durable(end record.Offset) {
	if o.durable != nil {
		o.durable(end)
	}
}

func dirBytes(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && e.Name() != "RESERVE" {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil // files come and go while we look
	})
	return n
}
