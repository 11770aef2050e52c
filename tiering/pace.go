// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"io"
	"math"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/varve/varve/tiering/objstore"
)

// pace holds uploads to a rate that follows what comes in. To read, check, hash and send data is all processor time and has no
// hurry, while whoever waits for an acknowledgement does: uploads at full rate would make each record wait for the scheduler. They
// may take leastRate, or headroom times what is appended. The longer a partition has been behind the less its bytes count, half for
// each halving up to maxHalvings: no backlog lasts, and no burst is followed at once.
//
// It also bounds how many uploads read and check at the same time to half of the processors. Nobody holds such a turn while it
// waits for the bucket.
type pace struct {
	turns    chan struct{}
	appended func() int64 // bytes appended to the node's logs so far; nil: not known
	least    float64      // bytes per second

	mu struct {
		sync.Mutex
		limiter *rate.Limiter
		at      time.Time // of the last sample,
		seen    int64     // which was this
		income  float64   // bytes per second, over about incomeWindow
	}
}

func newPace(appended func() int64) *pace {
	processors := runtime.GOMAXPROCS(0)
	p := &pace{turns: make(chan struct{}, max(1, processors/2)), appended: appended, least: float64(processors * leastRate)}
	p.mu.limiter = rate.NewLimiter(rate.Limit(p.least), paceBurst)
	return p
}

// delay takes n bytes of an upload that has been behind for so long and tells how long to wait before they are read.
func (p *pace) delay(n int, behind time.Duration) time.Duration {
	cost := int(float64(n) * math.Exp2(-min(float64(behind)/float64(halving), maxHalvings)))
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.followLocked(now)
	r := p.mu.limiter.ReserveN(now, min(cost, paceBurst))
	return min(r.DelayFrom(now), maxPause)
}

// followLocked sets the rate by what came in.
func (p *pace) followLocked(now time.Time) {
	passed := now.Sub(p.mu.at)
	if p.appended == nil || passed < sampleInterval {
		return
	}
	seen := p.appended()
	if !p.mu.at.IsZero() {
		p.mu.income += (float64(seen-p.mu.seen)/passed.Seconds() - p.mu.income) * -math.Expm1(-float64(passed)/float64(incomeWindow))
	}
	p.mu.at, p.mu.seen = now, seen
	p.mu.limiter.SetLimitAt(now, rate.Limit(max(p.least, headroom*p.mu.income)))
}

// body is an upload's, read at the pace. since is when its partition came to be behind.
func (p *pace) body(ctx context.Context, b objstore.Body, since time.Time) objstore.Body {
	return pacedBody{b, ctx, p, since}
}

type pacedBody struct {
	objstore.Body
	ctx   context.Context
	p     *pace
	since time.Time
}

func (b pacedBody) Open() (io.ReadCloser, error) {
	r, err := b.Body.Open()
	if err != nil {
		return nil, err
	}
	return &pacedReader{ReadCloser: r, b: b, left: b.Size()}, nil
}

type pacedReader struct {
	io.ReadCloser
	b    pacedBody
	left int64 // bytes to be read
	paid int   // bytes that may be read without asking
}

func (r *pacedReader) Read(p []byte) (int, error) {
	if r.paid <= 0 {
		r.paid = int(min(paceBytes, max(r.left, 1)))
		if err := sleep(r.b.ctx, r.b.p.delay(r.paid, time.Since(r.b.since))); err != nil {
			return 0, err
		}
	}
	r.b.p.turns <- struct{}{}
	defer func() { <-r.b.p.turns }()
	n, err := r.ReadCloser.Read(p[:min(len(p), paceBytes)])
	r.paid, r.left = r.paid-n, r.left-int64(n)
	return n, err
}

// sleep waits, or less when ctx ends, whose error it gives.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
