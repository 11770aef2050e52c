// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Trouble tells, while a read waits for the bucket, whether a try of what it waits for has failed. A store that is slow and one that is away look the
// same to a reader that leaves early; this tells them apart. The zero value is ready; one belongs to one read.
type Trouble struct{ awaited atomic.Pointer[tries] }

// Err is the last failure of what the read waits for, or waited for when it left; nil: none of its tries has failed.
func (t *Trouble) Err() error {
	if at := t.awaited.Load(); at != nil {
		return at.last()
	}
	return nil
}

// tries is what is known of the requests that one flight has under way.
type tries struct{ err atomic.Pointer[error] }

func (t *tries) failed(err error) { t.err.Store(&err) }

func (t *tries) last() error {
	if err := t.err.Load(); err != nil {
		return *err
	}
	return nil
}

type troubleKey struct{}

func withTrouble(ctx context.Context, t *Trouble) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, troubleKey{}, t)
}

// awaits notes what the read of ctx waits for from here on; nil: for nothing.
func awaits(ctx context.Context, at *tries) {
	if t, ok := ctx.Value(troubleKey{}).(*Trouble); ok {
		t.awaited.Store(at)
	}
}

// outage is what the log says about a bucket that does not answer: one line every outageLogEvery of the node's reads and one of its uploads,
// whatever many requests fail.
type outage struct {
	log *slog.Logger

	mu struct {
		sync.Mutex
		since, logged time.Time // zero: it answers
	}
}

// failed notes a failed request, or a failed try of one. attrs are pairs for the log.
func (o *outage) failed(err error, attrs ...any) {
	if errors.Is(err, context.Canceled) {
		return
	}
	o.mu.Lock()
	now := time.Now()
	if o.mu.since.IsZero() {
		o.mu.since = now
	}
	since, tell := o.mu.since, o.mu.logged.IsZero() || now.Sub(o.mu.logged) >= outageLogEvery
	if tell {
		o.mu.logged = now
	}
	o.mu.Unlock()
	if tell {
		o.log.Warn("the bucket does not answer", append(attrs, "since", since.UTC().Format(time.RFC3339), "error", err)...)
	}
}

// answered notes that the bucket did.
func (o *outage) answered() {
	o.mu.Lock()
	o.mu.since = time.Time{}
	o.mu.Unlock()
}

// stepTrouble is what a partition's steps have met since the bucket last answered them.
type stepTrouble struct {
	since time.Time
	err   error // the last
}

func (t *stepTrouble) String() string {
	return fmt.Sprintf("the bucket does not answer since %s: %v", t.since.UTC().Format(time.RFC3339), t.err)
}

// tryFailed notes a failed try of the step in progress, long before the step gives up.
func (h *Handle) tryFailed(err error) {
	t := &stepTrouble{since: time.Now(), err: err}
	if before := h.trouble.Load(); before != nil {
		t.since = before.since
	}
	h.trouble.Store(t)
	h.a.outage.failed(err, "topic", h.term.TopicName, "partition", h.term.ID.String())
}

// answered notes that the bucket has taken what the step in progress had for it.
func (h *Handle) answered() {
	h.trouble.Store(nil)
	h.a.outage.answered()
}

// lateError is the error of a request that took longer than a request may. It is not the reader's deadline that passed, so it must not look like it.
func lateError(what string, err error) error {
	return fmt.Errorf("%w: %s: no answer in time: %v", ErrUnavailable, what, err)
}
