// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varve/varve/broker"
)

// coldReads are one fetch request's reads from the bucket: several at a time, none of which holds the others. A read that is not
// done when the answer leaves goes on into the tier's cache, where the next fetch finds it.
type coldReads struct {
	f       *fetchRun
	began   time.Time
	cancel  context.CancelFunc
	waiting []*fetchPart // found cold in this pass
	first   *fetchPart   // stood before everything that has data: gets its first batch whole, whatever the others bring
	running map[*fetchPart]*coldRead
	started []*fetchPart  // in the order of their start
	done    chan struct{} // one token: results are there
	mu      struct {
		sync.Mutex
		results []coldResult
		ended   bool
	}
}

// coldRead is one read under way.
type coldRead struct {
	want    int // bytes set aside for it
	trouble broker.Trouble
}

type coldResult struct {
	fp  *fetchPart
	res broker.ReadResult
	buf *buffer
	err error
}

func (c *coldReads) inFlight() int {
	if c == nil {
		return 0
	}
	return len(c.running)
}

func (c *coldReads) reads(fp *fetchPart) bool {
	if c == nil {
		return false
	}
	_, ok := c.running[fp]
	return ok
}

func (c *coldReads) signal() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.done
}

// queueCold notes that a part's data is in the bucket. It stays in front of the queue until it was read.
func (f *fetchRun) queueCold(fp *fetchPart) {
	if f.cold == nil {
		f.cold = &coldReads{f: f, running: make(map[*fetchPart]*coldRead), done: make(chan struct{}, 1)}
	}
	if f.bytes == 0 && f.cold.first == nil {
		f.cold.first = fp
	}
	f.cold.waiting = append(f.cold.waiting, fp)
	f.limited = append(f.limited, fp)
}

// startCold begins reading what was found cold, as many at a time as the limits allow. What finds no room stays queued.
func (f *fetchRun) startCold(ctx context.Context) {
	c := f.cold
	if c == nil || len(c.waiting) == 0 {
		return
	}
	if c.cancel == nil {
		c.began = time.Now()
		until := f.limits.deadline
		if floor := c.began.Add(coldGrace); until.Before(floor) {
			until = floor
		}
		ctx, c.cancel = context.WithDeadline(ctx, until)
		c.start(ctx)
	}
	c.waiting = c.waiting[:0]
}

// start divides the room that is left among the cold parts. It happens once per request: the reads of a request share one
// deadline, and what comes later has the next request.
func (c *coldReads) start(ctx context.Context) {
	f := c.f
	n := min(len(c.waiting), maxColdPerFetch)
	share := max(f.left/max(n, 1), coldShareMin)
	for _, fp := range c.waiting[:n] {
		want := min(fp.maxBytes, share)
		if fp != c.first {
			want = min(want, max(f.left, 0))
		}
		if want <= 0 && f.bytes > 0 && fp != c.first || !f.s.coldSlots.TryAcquire(1) {
			break
		}
		size := max(min(want, slabMax), minPooled)
		f.a.budget += f.s.fetchMemory.take(int64(size), int64(size))
		read := &coldRead{want: want}
		c.running[fp] = read
		c.started = append(c.started, fp)
		f.left -= want
		req := broker.ReadRequest{
			Offset: fp.offset, MaxBytes: want, FirstWhole: f.bytes == 0 || fp == c.first, ReadCommitted: f.limits.readCommitted,
			CurrentEpoch: fp.current, LastFetchedEpoch: fp.lastEpoch, AnyReplica: f.c.Version >= fetchPreferred,
			Trouble: &read.trouble,
		}
		p, s := fp.p, f.s
		f.a.c.cold.Go(func() {
			defer s.coldSlots.Release(1)
			r := coldResult{fp: fp, buf: getBuffer(size)}
			req.Buf = r.buf.b
			r.err = p.ReadCold(ctx, &req, &r.res)
			c.finish(r)
		})
	}
}

// finish hands a result over, or drops it when the answer has left.
func (c *coldReads) finish(r coldResult) {
	c.mu.Lock()
	ended := c.mu.ended
	if !ended {
		c.mu.results = append(c.mu.results, r)
	}
	c.mu.Unlock()
	if ended {
		r.buf.put()
		return
	}
	select {
	case c.done <- struct{}{}:
	default:
	}
}

// end lets go of the reads that are not done.
func (c *coldReads) end() {
	c.mu.Lock()
	c.mu.ended = true
	for _, r := range c.mu.results {
		r.buf.put()
	}
	c.mu.results = nil
	c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// takeCold takes over what the cold reads have brought.
func (f *fetchRun) takeCold() {
	c := f.cold
	if c == nil {
		return
	}
	c.mu.Lock()
	results := c.mu.results
	c.mu.results = nil
	c.mu.Unlock()
	for _, r := range results {
		f.left += c.running[r.fp].want
		if troubled := c.running[r.fp].trouble.Err(); troubled != nil && errors.Is(r.err, context.DeadlineExceeded) {
			r.err = bucketFails(troubled)
		}
		delete(c.running, r.fp)
		f.takeColdResult(r)
	}
}

// bucketFails is the error of a read that did not come in time because the bucket fails, not because it is slow.
func bucketFails(err error) error { return fmt.Errorf("%w: %v", broker.ErrStorage, err) }

// refuseCold is refuse for a read from the bucket. That the bucket failed stays the answer to this request.
func (f *fetchRun) refuseCold(fp *fetchPart, err error) {
	f.refuse(fp, err)
	fp.res.cold = fp.res.code == codeKafkaStorageError
}

// refuseTroubled answers, when the wait is over, those cold reads with an error whose tries the bucket has failed: a client that got nothing and no
// error would take it that nothing is there yet. Those that are merely slow are in front of the queue next time.
func (f *fetchRun) refuseTroubled() {
	if f.cold == nil {
		return
	}
	for _, fp := range f.cold.started {
		read := f.cold.running[fp]
		if read == nil || fp.removed {
			continue
		}
		if err := read.trouble.Err(); err != nil {
			f.refuseCold(fp, bucketFails(err))
		}
	}
	f.requeueServed()
}

func (f *fetchRun) takeColdResult(r coldResult) {
	fp := r.fp
	data := r.res.Data
	// A first batch above its share is taken only if it is the first of the answer, or has stood before what came first.
	oversize := len(data) > max(f.left, 0) && f.bytes > 0 && fp != f.cold.first
	if r.err != nil || len(data) == 0 || oversize || fp.removed {
		r.buf.put()
		switch {
		case r.err == nil, errors.Is(r.err, context.DeadlineExceeded), errors.Is(r.err, context.Canceled):
			return // not in time: the part is in front of the queue
		}
		f.refuseCold(fp, r.err)
		f.requeueServed()
		return
	}
	r.buf.b = r.buf.b[:0]
	f.a.held = append(f.a.held, r.buf)
	fp.res.ReadResult = r.res
	fp.res.Data = nil
	fp.res.cold = true
	f.took(fp, data, len(data))
	f.set.toBack(fp)
}

func (f *fetchRun) requeueServed() {
	f.set.requeue(nil, f.served)
	clear(f.served)
	f.served = f.served[:0]
}
