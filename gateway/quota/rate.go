// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math"
	"time"
)

// Windows are those over which a rate is measured: quota.window.num of quota.window.size.seconds.
type Windows struct {
	Num  int
	Size time.Duration
}

// span is how long a value counts.
func (w Windows) span() time.Duration { return time.Duration(w.Num) * w.Size }

// rate is Kafka's: the sum over the windows, divided by the time they cover, which is taken to be all of them but one at least. So
// a client that comes anew may send that many seconds' worth at once. Times are since a start that all rates share.
type rate struct {
	samples []sample // a ring, at most one more than there are windows: values count until they are older than all windows
	current int
}

type sample struct {
	start, last time.Duration
	sum         float64
	n           int64
}

func (r *rate) add(w Windows, now time.Duration, v float64) {
	if len(r.samples) == 0 {
		r.samples = append(r.samples, sample{start: now, last: now})
	}
	s := &r.samples[r.current]
	if now-s.start >= w.Size {
		s = r.advance(w, now)
	}
	s.sum += v
	s.n++
	s.last = now
}

func (r *rate) advance(w Windows, now time.Duration) *sample {
	r.current = (r.current + 1) % (w.Num + 1)
	if r.current >= len(r.samples) {
		r.samples = append(r.samples, sample{})
		r.current = len(r.samples) - 1
	}
	r.samples[r.current] = sample{start: now, last: now}
	return &r.samples[r.current]
}

// expire forgets what is older than all windows.
func (r *rate) expire(w Windows, now time.Duration) {
	for i := range r.samples {
		if s := &r.samples[i]; now-s.last >= w.span() {
			*s = sample{start: now, last: now}
		}
	}
}

// covered is the time that the sum is divided by.
func (r *rate) covered(w Windows, now time.Duration) time.Duration {
	oldest := now
	for i := range r.samples {
		oldest = min(oldest, r.samples[i].start)
	}
	elapsed := now - oldest
	if full, least := int(elapsed/w.Size), w.Num-1; full < least {
		elapsed += time.Duration(least-full) * w.Size
	}
	return max(elapsed, time.Millisecond)
}

func (r *rate) sum() (sum float64, n int64) {
	for i := range r.samples {
		sum += r.samples[i].sum
		n += r.samples[i].n
	}
	return sum, n
}

// perSecond is the rate now.
func (r *rate) perSecond(w Windows, now time.Duration) float64 {
	r.expire(w, now)
	sum, _ := r.sum()
	return sum / r.covered(w, now).Seconds()
}

// delay is how long nothing may come until the rate is at the limit again.
func (r *rate) delay(w Windows, now time.Duration, limit float64) time.Duration {
	v := r.perSecond(w, now)
	if v <= limit {
		return 0
	}
	return toDelay((v - limit) / limit * r.covered(w, now).Seconds())
}

// toDelay is so many seconds, to the millisecond as the protocol has it, and at most what it can say.
func toDelay(seconds float64) time.Duration {
	ms := math.Round(seconds * 1000)
	if ms >= math.MaxInt32 {
		return math.MaxInt32 * time.Millisecond
	}
	return time.Duration(ms) * time.Millisecond
}

// bucket is Kafka's bucket of tokens: it fills with the limit up to what the windows let through, and may go below zero.
type bucket struct {
	tokens float64
	filled time.Duration
	begun  bool
}

func (b *bucket) fill(w Windows, now time.Duration, limit float64) {
	most := limit * w.span().Seconds()
	if !b.begun {
		b.tokens, b.begun = most, true
	}
	b.tokens = min(most, b.tokens+limit*(now-b.filled).Seconds())
	b.filled = now
}

// delay is how long until the tokens are at zero again.
func (b *bucket) delay(limit float64) time.Duration {
	if b.tokens >= 0 {
		return 0
	}
	return toDelay(-b.tokens / limit)
}
