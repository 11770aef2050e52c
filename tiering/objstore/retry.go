// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// RetryOptions of Retry; zero values are the defaults of limits.go.
type RetryOptions struct {
	Tries                   int
	BackoffBase, BackoffMax time.Duration
	// TryDeadline and MinRate (bytes per second) give each try a deadline.
	TryDeadline time.Duration
	MinRate     int64
	// Jitter returns a number in [0,1); nil: a random one.
	Jitter func() float64
}

// Retry tries again what is retriable: everything that is ErrUnavailable, and the lost answers of Delete and AbortUpload,
// which are idempotent. A Create whose outcome is unknown is returned at once: CreateResolved settles it.
func Retry(s Store, o RetryOptions) Store {
	if o.Tries <= 0 {
		o.Tries = DefaultTries
	}
	if o.BackoffBase <= 0 {
		o.BackoffBase = DefaultBackoffBase
	}
	if o.BackoffMax <= 0 {
		o.BackoffMax = DefaultBackoffMax
	}
	return &retrying{inner: s, o: o}
}

type retrying struct {
	inner Store
	o     RetryOptions
}

// backoff returns a random pause below base·2^try, at most limit.
func backoff(base, limit time.Duration, try int, jitter func() float64) time.Duration {
	d := limit
	if try < 30 && base<<try < limit && base<<try > 0 {
		d = base << try
	}
	if jitter == nil {
		jitter = rand.Float64
	}
	return time.Duration(jitter() * float64(d))
}

// do runs fn until it succeeds, fails for good, the tries are used up or ctx ends.
func (r *retrying) do(ctx context.Context, bytes int64, again func(error) bool, fn func(context.Context) error) error {
	for try := 0; ; try++ {
		tctx, cancel := context.WithTimeout(ctx, Deadline(r.o.TryDeadline, r.o.MinRate, bytes))
		err := fn(tctx)
		cancel()
		if err == nil || !again(err) || ctx.Err() != nil {
			return err
		}
		if try+1 >= r.o.Tries {
			return fmt.Errorf("after %d tries: %w", r.o.Tries, err)
		}
		tryFailed(ctx, err)
		if pause(ctx, backoff(r.o.BackoffBase, r.o.BackoffMax, try, r.o.Jitter)) != nil {
			return err
		}
	}
}

func unavailable(err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome)
}

func unavailableOrLost(err error) bool { return !settled(err) }

func (r *retrying) Create(ctx context.Context, key string, body Body, o PutOptions) error {
	return r.do(ctx, body.Size(), unavailable, func(ctx context.Context) error { return r.inner.Create(ctx, key, body, o) })
}

func (r *retrying) Get(ctx context.Context, key string, off, n int64, dst []byte) ([]byte, error) {
	out := dst
	err := r.do(ctx, n, unavailable, func(ctx context.Context) (err error) {
		out, err = r.inner.Get(ctx, key, off, n, dst)
		return err
	})
	return out, err
}

func (r *retrying) Stat(ctx context.Context, key string) (Info, error) {
	var info Info
	err := r.do(ctx, 0, unavailable, func(ctx context.Context) (err error) {
		info, err = r.inner.Stat(ctx, key)
		return err
	})
	return info, err
}

// List goes on after the last key that fn has seen, so that fn sees none twice. A page delivered begins the count of tries anew.
func (r *retrying) List(ctx context.Context, prefix, startAfter string, fn func(Info) error) error {
	for {
		var last string
		var fnErr error
		err := r.do(ctx, 0, func(err error) bool { return fnErr == nil && last == "" && unavailable(err) }, func(ctx context.Context) error {
			return r.inner.List(ctx, prefix, startAfter, func(i Info) error {
				fnErr = fn(i)
				last = i.Key
				return fnErr
			})
		})
		if err == nil || fnErr != nil || last == "" || !unavailable(err) || ctx.Err() != nil {
			return err
		}
		startAfter = last
	}
}

// Delete tries only the keys again that failed (faults D9).
func (r *retrying) Delete(ctx context.Context, keys []string) []error {
	out := make([]error, len(keys))
	todo := make([]int, len(keys))
	for i := range todo {
		todo[i] = i
	}
	_ = r.do(ctx, 0, unavailableOrLost, func(ctx context.Context) error {
		batch := make([]string, len(todo))
		for i, at := range todo {
			batch[i] = keys[at]
		}
		left := todo[:0]
		var first error
		for i, err := range r.inner.Delete(ctx, batch) {
			at := todo[i]
			if out[at] = err; err != nil && unavailableOrLost(err) {
				left = append(left, at)
				first = err
			}
		}
		todo = left
		return first
	})
	return out
}

func (r *retrying) AbortUpload(ctx context.Context, key, uploadID string) error {
	return r.do(ctx, 0, unavailableOrLost, func(ctx context.Context) error { return r.inner.AbortUpload(ctx, key, uploadID) })
}

func (r *retrying) Close() error { return r.inner.Close() }
