// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve/varve/internal/testenv"
	"github.com/varve/varve/metadata/memory"
)

const (
	// In each round the hot log is filled once; then windows without and with uploads take turns while enough is left to upload.
	uploadRounds     = 4
	uploadPairs      = 3
	uploadWindow     = time.Second
	uploadGap        = time.Second // between windows: what was under way ends
	uploadPartitions = 8
	uploadTopic      = "load"
	// uploadBacklog is what lies unsealed when a round begins, uploadEnough what must be left for uploads to be at full rate.
	uploadBacklog = 1 << 30
	uploadEnough  = 128 << 20
	// One record of 4 KiB each 2 ms, whatever the answers take: a producer that waited would hide the delays. A window in which uploads
	// ended sooner counts when it has this many.
	uploadRecord = 4 << 10
	uploadEvery  = 2 * time.Millisecond
	uploadLeast  = 150
	fillRecord   = 128 << 10
)

// BenchmarkProduceBesideUploads: the p99 of acknowledgements while the archiver uploads as fast as it can, against sealing paused,
// in windows that alternate. The bucket is in memory where the system has a place for it, so that uploads do not take the hot log's disk,
// but the processors are shared with it.
func BenchmarkProduceBesideUploads(b *testing.B) {
	for _, kind := range []string{"file", "versitygw"} {
		b.Run(kind, func(b *testing.B) {
			data := b.TempDir()
			ram, err := os.MkdirTemp("/dev/shm", "varve-bench-")
			if err != nil {
				b.Logf("the bucket shares the hot log's disk: %v", err)
				ram = b.TempDir()
			}
			b.Cleanup(func() { _ = os.RemoveAll(ram) })
			bucket := "file://" + ram
			if kind == "versitygw" {
				b.Setenv("TMPDIR", ram)
				s := testenv.VersityGW(b)
				b.Setenv("AWS_ACCESS_KEY_ID", s.AccessKey)
				b.Setenv("AWS_SECRET_ACCESS_KEY", s.SecretKey)
				b.Setenv("AWS_EC2_METADATA_DISABLED", "true")
				bucket = "s3://" + s.Bucket + "/bench?region=us-east-1&path-style=true&endpoint=" + s.Endpoint()
			}
			u := startUploadBench(b, data, bucket)
			u.objects = ram
			for b.Loop() {
				u.measure(b)
			}
		})
	}
}

func p99(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)*99/100]
}

// uploadBench is a whole node in this process, with its truth in memory and everything else as in production.
type uploadBench struct {
	n            *node
	fill, sender *kgo.Client
	value        []byte
	fillValue    []byte
	objects      string       // where the bucket keeps its files
	acked        atomic.Int64 // bytes
	uploaded     float64      // bytes in the windows with uploads,
	seconds      float64      // which took so long
}

func startUploadBench(b *testing.B, data, bucket string) *uploadBench {
	var o nodeOptions
	o.register(pflag.NewFlagSet("bench", pflag.PanicOnError))
	o.nodeID, o.bucket, o.data, o.http = 1, bucket, []string{data}, ""
	o.listeners.listen = "PLAINTEXT://127.0.0.1:0"
	o.set = []string{"varve.hot.bytes=67108864", "varve.segment.max.bytes=8388608"}
	n, err := newNode(b.Context(), &o, memory.New().Client(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() { ended <- n.run(ctx, func(*node) { close(ready) }) }()
	b.Cleanup(func() {
		n.archiver.PauseSealing(true)
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		n.close()
	})
	select {
	case <-ready:
	case err := <-ended:
		b.Fatalf("the node ended: %v", err)
	}
	client := func(opts ...kgo.Opt) *kgo.Client {
		c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(n.bootstrap()), kgo.DefaultProduceTopic(uploadTopic), kgo.ProducerBatchCompression(kgo.NoCompression()),
			kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(c.Close)
		return c
	}
	n.archiver.PauseSealing(true)
	u := &uploadBench{n: n, fill: client(kgo.ProducerBatchMaxBytes(1<<20-1024), kgo.MaxBufferedBytes(32<<20)), sender: client(kgo.ProducerLinger(0)), value: make([]byte, uploadRecord), fillValue: make([]byte, fillRecord)}
	if _, err := kadm.NewClient(u.fill).CreateTopic(b.Context(), uploadPartitions, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, uploadTopic); err != nil {
		b.Fatal(err)
	}
	return u
}

func (u *uploadBench) measure(b *testing.B) {
	var ratios []float64
	var paused, uploading []time.Duration
	for range uploadRounds {
		u.fillUp(b)
		for pair := range uploadPairs {
			var p, q []time.Duration
			if pair%2 == 0 { // neither kind always comes second
				p, q = u.window(b, false), u.window(b, true)
			} else {
				q, p = u.window(b, true), u.window(b, false)
			}
			if len(q) == 0 {
				break // nothing is left to upload
			}
			ratios = append(ratios, float64(p99(q))/float64(p99(p)))
			paused, uploading = append(paused, p...), append(uploading, q...)
		}
		u.dropObjects(b)
	}
	if len(ratios) == 0 {
		b.Fatal("the bucket took everything before anything could be measured")
	}
	if u.uploaded == 0 {
		b.Fatal("no upload ended in any window that is about uploads")
	}
	slices.Sort(ratios)
	b.ReportMetric(p99(paused).Seconds()*1e3, "ms-p99-paused")
	b.ReportMetric(p99(uploading).Seconds()*1e3, "ms-p99-uploading")
	b.ReportMetric(float64(p99(uploading))/float64(p99(paused)), "ratio")
	b.ReportMetric(ratios[len(ratios)/2], "ratio-median-pair")
	b.ReportMetric(float64(len(ratios)), "pairs")
	b.ReportMetric(u.uploaded/u.seconds/(1<<20), "uploaded-MiB/s")
}

// fillUp gives the archiver enough to do.
func (u *uploadBench) fillUp(b *testing.B) {
	for u.unsealed(b) < uploadBacklog {
		for range 128 {
			u.fill.Produce(b.Context(), kgo.SliceRecord(u.fillValue), func(r *kgo.Record, err error) { u.done(b, r, err) })
		}
		if err := u.fill.Flush(b.Context()); err != nil || b.Failed() {
			b.Fatal(err)
		}
	}
	time.Sleep(5 * uploadGap) // what was written reaches the disk
}

// dropObjects removes segments, which nothing reads, from the bucket's memory.
func (u *uploadBench) dropObjects(b *testing.B) {
	err := filepath.WalkDir(u.objects, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if info, err := e.Info(); err != nil || info.Size() < 1<<20 {
			return err
		}
		return os.Remove(path)
	})
	if err != nil {
		b.Fatal(err)
	}
}

// window measures with or without uploads. It is empty when too little is left to upload.
func (u *uploadBench) window(b *testing.B, uploads bool) []time.Duration {
	time.Sleep(uploadGap)
	if !uploads {
		return u.send(b, 0)
	}
	before, begin := u.sealedBytes(b), time.Now()
	u.n.archiver.PauseSealing(false)
	took := u.send(b, uploadEnough)
	lasted, after := time.Since(begin).Seconds(), u.sealedBytes(b)
	u.n.archiver.PauseSealing(true)
	if len(took) < uploadLeast {
		return nil
	}
	u.seconds += lasted
	u.uploaded += after - before
	return took
}

// send sends records at their times until the window is over or less than atLeast bytes are unsealed, and returns how long after its
// time each was acknowledged.
func (u *uploadBench) send(b *testing.B, atLeast float64) []time.Duration {
	const most = int(uploadWindow / uploadEvery)
	acked := make(chan time.Duration, most)
	var exhausted atomic.Bool
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(50 * time.Millisecond); u.unsealed(b) >= atLeast; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
		exhausted.Store(true)
	}()
	begin, sent := time.Now(), 0
	for ; sent < most && !exhausted.Load(); sent++ {
		due := begin.Add(time.Duration(sent) * uploadEvery)
		time.Sleep(time.Until(due))
		u.sender.Produce(b.Context(), kgo.SliceRecord(u.value), func(r *kgo.Record, err error) {
			u.done(b, r, err)
			acked <- time.Since(due)
		})
	}
	close(stop)
	<-stopped
	took := make([]time.Duration, sent)
	for i := range took {
		took[i] = <-acked
	}
	return took
}

func (u *uploadBench) done(b *testing.B, r *kgo.Record, err error) {
	u.acked.Add(int64(len(r.Value)))
	if err != nil {
		b.Error(err)
	}
}

// unsealed is about how much waits for upload.
func (u *uploadBench) unsealed(b *testing.B) float64 {
	return float64(u.acked.Load()) - u.sealedBytes(b)
}

// sealedBytes is the counter of bytes that have settled. To gather all metrics takes milliseconds, in which acknowledgements wait.
func (u *uploadBench) sealedBytes(b *testing.B) float64 {
	var known prometheus.AlreadyRegisteredError
	err := u.n.registry.Register(prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_archiver_sealed_bytes_total", Help: "Bytes of batches in committed segments."}))
	if !errors.As(err, &known) {
		b.Errorf("no counter of sealed bytes: %v", err) // not Fatalf: not always the benchmark's goroutine
		return 0
	}
	var m dto.Metric
	if err := known.ExistingCollector.(prometheus.Counter).Write(&m); err != nil {
		b.Error(err)
	}
	return m.GetCounter().GetValue()
}
