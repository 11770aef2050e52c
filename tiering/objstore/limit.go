// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
)

// Lane bounds one kind of traffic; zero values are the defaults of limits.go.
type Lane struct {
	// Concurrency is the most requests under way.
	Concurrency int64
	// Bytes is the most bytes of requests under way. A request larger than that runs alone.
	Bytes int64
}

// LimitOptions of Limit. Reads and writes have a lane each, so that uploads at full rate do not delay a cold read.
type LimitOptions struct {
	Reads, Writes Lane
	// Deadline and MinRate (bytes per second) bound a request from its admission on.
	Deadline time.Duration
	MinRate  int64
}

// Limit bounds requests and bytes in flight and gives each request a deadline. It belongs under Retry, so that a pause
// between two tries holds no slot. A request that ctx ends while it waits is ErrUnavailable: it was never sent.
func Limit(s Store, o LimitOptions) Store {
	return &limited{inner: s, o: o, reads: newLane(o.Reads), writes: newLane(o.Writes)}
}

type limited struct {
	inner         Store
	o             LimitOptions
	reads, writes *lane
}

type lane struct {
	requests, bytes *semaphore.Weighted
	maxBytes        int64
}

func newLane(l Lane) *lane {
	if l.Concurrency <= 0 {
		l.Concurrency = DefaultConcurrency
	}
	if l.Bytes <= 0 {
		l.Bytes = DefaultBytesInFlight
	}
	return &lane{requests: semaphore.NewWeighted(l.Concurrency), bytes: semaphore.NewWeighted(l.Bytes), maxBytes: l.Bytes}
}

// admit waits for a slot, then for the bytes: in this order everywhere, so that two requests cannot wait for each other.
func (l *lane) admit(ctx context.Context, op Op, n int64) (release func(), err error) {
	n = min(max(n, 0), l.maxBytes)
	if err := l.requests.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("%s: wait for a request slot: %w: %w", op, ErrUnavailable, err)
	}
	if err := l.bytes.Acquire(ctx, n); err != nil {
		l.requests.Release(1)
		return nil, fmt.Errorf("%s: wait for %d bytes in flight: %w: %w", op, n, ErrUnavailable, err)
	}
	return func() {
		l.bytes.Release(n)
		l.requests.Release(1)
	}, nil
}

// do runs fn admitted and with its deadline.
func (s *limited) do(ctx context.Context, l *lane, op Op, n int64, fn func(context.Context) error) error {
	release, err := l.admit(ctx, op, n)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, Deadline(s.o.Deadline, s.o.MinRate, n))
	defer cancel()
	return fn(ctx)
}

func (s *limited) Create(ctx context.Context, key string, body Body, o PutOptions) error {
	return s.do(ctx, s.writes, OpCreate, body.Size(), func(ctx context.Context) error { return s.inner.Create(ctx, key, body, o) })
}

func (s *limited) Get(ctx context.Context, key string, off, n int64, dst []byte) ([]byte, error) {
	out := dst
	err := s.do(ctx, s.reads, OpGet, n, func(ctx context.Context) (err error) {
		out, err = s.inner.Get(ctx, key, off, n, dst)
		return err
	})
	return out, err
}

func (s *limited) Stat(ctx context.Context, key string) (Info, error) {
	var info Info
	err := s.do(ctx, s.reads, OpStat, 0, func(ctx context.Context) (err error) {
		info, err = s.inner.Stat(ctx, key)
		return err
	})
	return info, err
}

// List holds its slot while the callback runs: a callback must not call the store, or the lane could lock itself up.
func (s *limited) List(ctx context.Context, prefix, startAfter string, fn func(Info) error) error {
	return s.do(ctx, s.reads, OpList, 0, func(ctx context.Context) error { return s.inner.List(ctx, prefix, startAfter, fn) })
}

func (s *limited) Delete(ctx context.Context, keys []string) []error {
	errs := make([]error, len(keys))
	err := s.do(ctx, s.writes, OpDelete, 0, func(ctx context.Context) error {
		copy(errs, s.inner.Delete(ctx, keys))
		return nil
	})
	for i := range errs {
		if err != nil {
			errs[i] = err
		}
	}
	return errs
}

func (s *limited) AbortUpload(ctx context.Context, key, uploadID string) error {
	return s.do(ctx, s.writes, OpAbort, 0, func(ctx context.Context) error { return s.inner.AbortUpload(ctx, key, uploadID) })
}

func (s *limited) Close() error { return s.inner.Close() }
