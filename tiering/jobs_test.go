// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := NewJobs(quiet(), nil)
		var runs, slow atomic.Int64
		j.Add(Job{Name: "a", Interval: time.Millisecond, Deadline: time.Second, Run: func(ctx context.Context) error {
			if runs.Add(1) == 3 {
				panic("third")
			}
			if slow.Load() != 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- j.Run(ctx) }()
		time.Sleep(1050 * time.Millisecond)
		if runs.Load() != 10 {
			t.Errorf("%d runs in a second: the interval is at least %s", runs.Load(), MinInterval)
		}
		if err := j.Switch("a", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if runs.Load() != 10 {
			t.Error("it runs although it is off")
		}
		slow.Store(1)
		if err := j.Tick(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) || runs.Load() != 11 {
			t.Errorf("tick: %v, %d runs", err, runs.Load())
		}
		if err := j.Tick(ctx, "b"); !errors.Is(err, ErrUnknownJob) {
			t.Error(err)
		}
		cancel()
		<-done
	})
}
