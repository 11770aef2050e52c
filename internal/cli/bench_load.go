// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// stampBytes is what e2e writes at the beginning of a value: the run's id and when the record was due.
const stampBytes = 16

const defaultE2ERate = 1000

// window is the span that is measured; what falls outside is warm-up or tail.
type window struct{ from, to time.Time }

func (w window) has(t time.Time) bool { return !t.Before(w.from) && t.Before(w.to) }

// payload gives values of random bytes, cut from one pool so that making them costs nothing.
type payload struct {
	pool []byte
	size int
	at   int
}

func newPayload(size int) *payload {
	p := &payload{pool: make([]byte, max(1<<20, 2*size)), size: size}
	rand.Read(p.pool)
	return p
}

func (p *payload) next() []byte {
	p.at = (p.at + 64) % (len(p.pool) - p.size)
	return p.pool[p.at : p.at+p.size]
}

// sending writes records until its window ends: paced by rate, or as fast as the client takes them.
type sending struct {
	client  *kgo.Client
	topic   string
	payload *payload
	rate    float64 // records per second of this client; 0: closed loop
	window  window
	stamp   func(value []byte, due time.Time) []byte // nil: values as they are
	records *atomic.Int64                            // acknowledged and within the window
	ack     *histogram
}

func (s *sending) run(ctx context.Context) error {
	var once sync.Once
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	for n := 0; ; n++ {
		due := time.Now()
		if s.rate > 0 {
			due = start.Add(time.Duration(float64(n) / s.rate * float64(time.Second)))
			if wait := time.Until(due); wait > 0 {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
			}
		}
		if !due.Before(s.window.to) || ctx.Err() != nil {
			break
		}
		value := s.payload.next()
		if s.stamp != nil {
			value = s.stamp(value, due)
		}
		s.client.Produce(ctx, &kgo.Record{Topic: s.topic, Value: value, Partition: -1}, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { failed = err; cancel() })
				return
			}
			now := time.Now()
			counts := now // a closed loop counts what was done within the window, an open one what was due within it
			if s.rate > 0 {
				counts = due
			}
			if s.window.has(counts) {
				s.records.Add(1)
				s.ack.add(now.Sub(due))
			}
		})
	}
	if err := s.client.Flush(ctx); err != nil && failed == nil {
		return err
	}
	return failed // written before Flush saw the record gone
}

func (r *benchRun) producers(ctx context.Context, n int) ([]*kgo.Client, func(), error) {
	var clients []*kgo.Client
	closeAll := func() {
		for _, c := range clients {
			c.Close()
		}
	}
	for range n {
		opts, err := r.flags.produce.options(r.topic)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		cl, err := r.conn.open(ctx, opts...)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		clients = append(clients, cl)
	}
	return clients, closeAll, nil
}

func (r *benchRun) produce(ctx context.Context, _ *admin) (measured, error) {
	m := measured{Workload: benchProduce, Loop: "closed"}
	clients, closeAll, err := r.producers(ctx, r.flags.clients)
	if err != nil {
		return m, err
	}
	defer closeAll()
	var records atomic.Int64
	h := new(histogram)
	w := r.window()
	g, ctx := errgroup.WithContext(ctx)
	for _, cl := range clients {
		s := &sending{client: cl, topic: r.topic, payload: newPayload(r.flags.recordBytes), window: w, records: &records, ack: h,
			rate: float64(r.flags.rate) / float64(len(clients))}
		g.Go(func() error { return s.run(ctx) })
	}
	err = g.Wait()
	m.rate(records.Load(), records.Load()*int64(r.flags.recordBytes), w.to.Sub(w.from))
	m.LatencyMs = map[string]latency{"ack with client queue": latencyOf(h)}
	if r.flags.rate > 0 {
		m.Loop = fmt.Sprintf("open, %d/s", r.flags.rate)
		m.Note = shortfall(m.PerSecond, float64(r.flags.rate))
		m.LatencyMs = map[string]latency{"due to ack": latencyOf(h)}
	}
	return m, err
}

func (r *benchRun) window() window {
	from := time.Now().Add(r.flags.warmup)
	return window{from, from.Add(r.flags.duration)}
}

// shortfall says so when an open loop did not get through what was due.
func shortfall(achieved, wanted float64) string {
	if achieved < 0.98*wanted {
		return fmt.Sprintf("fell short of %.0f/s", wanted)
	}
	return ""
}

func (r *benchRun) consume(ctx context.Context, adm *admin) (measured, error) {
	m := measured{Workload: benchConsume, Loop: "closed"}
	reader, spans, err := r.reader(ctx, adm, specEarliest)
	if err != nil {
		return m, err
	}
	defer reader.Close()
	if len(spans) == 0 {
		return m, errors.New("the topic is empty; run the produce workload first, or name a --topic with data")
	}
	start := time.Now()
	var records, bytes int64
	for len(spans) > 0 {
		fetches := reader.PollRecords(ctx, maxPollRecords)
		if err := fetches.Err(); err != nil {
			return m, err
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			rec := iter.Next()
			s := spans[rec.Partition]
			if s == nil || rec.Offset >= s.end {
				continue
			}
			records++
			bytes += int64(len(rec.Key) + len(rec.Value))
			if rec.Offset+1 >= s.end {
				delete(spans, rec.Partition)
			}
		}
	}
	m.rate(records, bytes, time.Since(start))
	return m, nil
}

// reader opens a consumer of all partitions from a special offset and tells what lies between there and the end.
func (r *benchRun) reader(ctx context.Context, adm *admin, from int64) (*kgo.Client, map[int32]*span, error) {
	askCtx, cancel := r.conn.within(ctx)
	defer cancel()
	partitions, err := topicPartitions(askCtx, adm, r.topic, nil)
	if err != nil {
		return nil, nil, err
	}
	starts, err := listOffsets(askCtx, adm, r.topic, partitions, from, readUncommitted)
	if err != nil {
		return nil, nil, err
	}
	ends, err := listOffsets(askCtx, adm, r.topic, partitions, specLatest, readUncommitted)
	if err != nil {
		return nil, nil, err
	}
	spans, at := map[int32]*span{}, map[int32]kgo.Offset{}
	for _, p := range partitions {
		at[p] = kgo.NewOffset().At(starts[p].offset)
		if starts[p].offset < ends[p].offset {
			spans[p] = &span{starts[p].offset, ends[p].offset}
		}
	}
	cl, err := r.conn.open(ctx, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: at}), kgo.KeepControlRecords(), kgo.FetchMaxBytes(maxFetchBytes))
	return cl, spans, err
}

func (r *benchRun) endToEnd(ctx context.Context, adm *admin) (measured, error) {
	rate := r.flags.rate
	if rate == 0 {
		rate = defaultE2ERate
	}
	m := measured{Workload: benchE2E, Loop: fmt.Sprintf("open, %d/s", rate)}
	reader, _, err := r.reader(ctx, adm, specLatest)
	if err != nil {
		return m, err
	}
	defer reader.Close()
	clients, closeAll, err := r.producers(ctx, r.flags.clients)
	if err != nil {
		return m, err
	}
	defer closeAll()
	var run [8]byte
	rand.Read(run[:])
	var acked atomic.Int64
	ack, seen := new(histogram), new(histogram)
	w := r.window()
	readCtx, stopReading := context.WithCancel(ctx)
	defer stopReading()
	read := make(chan error, 1)
	go func() { read <- watchStamps(readCtx, reader, run, w, seen) }()
	g, sendCtx := errgroup.WithContext(ctx)
	for _, cl := range clients {
		s := &sending{client: cl, topic: r.topic, payload: newPayload(r.flags.recordBytes), window: w, records: &acked, ack: ack,
			rate: float64(rate) / float64(len(clients)), stamp: stampWith(run)}
		g.Go(func() error { return s.run(sendCtx) })
	}
	err = g.Wait()
	// All is acknowledged now, so what is still unread is on its way to the reader.
	for deadline := time.Now().Add(r.conn.timeout); err == nil && seen.count.Load() < acked.Load() && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	stopReading()
	err = errors.Join(err, <-read)
	m.rate(acked.Load(), acked.Load()*int64(r.flags.recordBytes), w.to.Sub(w.from))
	m.LatencyMs = map[string]latency{"due to ack": latencyOf(ack), "due to consumer": latencyOf(seen)}
	m.Note = shortfall(m.PerSecond, float64(rate))
	return m, err
}

func stampWith(run [8]byte) func([]byte, time.Time) []byte {
	return func(value []byte, due time.Time) []byte {
		stamped := append([]byte(nil), value...)
		copy(stamped, run[:])
		binary.BigEndian.PutUint64(stamped[8:], uint64(due.UnixNano()))
		return stamped
	}
}

// watchStamps measures when records that were due within the window arrive.
func watchStamps(ctx context.Context, reader *kgo.Client, run [8]byte, w window, seen *histogram) error {
	for {
		fetches := reader.PollRecords(ctx, maxPollRecords)
		now := time.Now()
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			v := iter.Next().Value
			if len(v) < stampBytes || [8]byte(v[:8]) != run {
				continue
			}
			if due := time.Unix(0, int64(binary.BigEndian.Uint64(v[8:]))); w.has(due) {
				seen.add(now.Sub(due))
			}
		}
	}
}
