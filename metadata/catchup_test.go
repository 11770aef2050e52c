// SPDX-License-Identifier: Apache-2.0

package metadata_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
)

// TestCatchUp: after it the image holds what was committed before; those who wait share their reads, but nobody is content with a read that
// began before the call.
func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.New()
		r, other := start(t, server, 1, nil), start(t, server, 2, nil)
		synctest.Wait()
		var reads atomic.Int64
		faults := memory.Faults{DeadWatch: true, Delay: time.Millisecond, Range: func(metadata.RangeRequest) error { reads.Add(1); return nil }}
		r.kv.SetFaults(faults)
		topic := other.topic(t, "t")
		var waiting sync.WaitGroup
		const callers = 1000
		for range callers {
			waiting.Go(func() {
				if err := r.CatchUp(t.Context()); err != nil {
					t.Error(err)
				}
				if r.Image().TopicByID(topic.ID) == nil {
					t.Error("the image does not hold what was committed before the call")
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		if n := reads.Load(); n == 0 || n > 3 {
			t.Errorf("%d calls at a time read the store %d times", callers, n)
		}
		faults.DeadWatch = false
		r.kv.SetFaults(faults)
		waiting.Wait()

		before := reads.Load()
		began := time.Now()
		for i := range 20 {
			topic := other.topic(t, string(rune('A'+i)))
			if err := r.CatchUp(t.Context()); err != nil || r.Image().TopicByID(topic.ID) == nil {
				t.Fatalf("call %d: %v, and the topic is in the image: %v", i, err, r.Image().TopicByID(topic.ID) != nil)
			}
		}
		if n, took := reads.Load()-before, time.Since(began); n != 20 || took < 19*5*time.Millisecond {
			t.Errorf("20 calls one after the other: %d reads in %v", n, took)
		}

		r.kv.SetFaults(memory.Faults{Outage: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.CatchUp(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 2*time.Second {
			t.Errorf("without a store: %v after %v", err, time.Since(began))
		}
		r.kv.SetFaults(memory.Faults{})
	})
}
