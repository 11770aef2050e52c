// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/objstore"
)

// slowBody counts how many read of it at the same time.
type slowBody struct {
	objstore.Body
	reading, most *atomic.Int32
}

func (b slowBody) Open() (io.ReadCloser, error) {
	r, err := b.Body.Open()
	return slowReader{r, b}, err
}

type slowReader struct {
	io.ReadCloser
	b slowBody
}

func (r slowReader) Read(p []byte) (int, error) {
	n := r.b.reading.Add(1)
	defer r.b.reading.Add(-1)
	r.b.most.Store(max(r.b.most.Load(), n))
	time.Sleep(time.Millisecond)
	return r.ReadCloser.Read(p[:min(len(p), 10)])
}

// TestTurns: uploads read at most as many at a time as there are turns, and each gets its bytes.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reading, most atomic.Int32
		p := newPace(nil)
		p.turns = make(chan struct{}, 2)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				r, err := p.body(t.Context(), slowBody{objstore.Bytes(make([]byte, 100)), &reading, &most}, time.Now()).Open()
				if err != nil {
					t.Error(err)
					return
				}
				if b, err := io.ReadAll(r); err != nil || len(b) != 100 {
					t.Errorf("%d bytes, %v", len(b), err)
				}
			})
		}
		all.Wait()
		if most.Load() != 2 {
			t.Errorf("%d read at the same time, want 2", most.Load())
		}
	})
}

// TestPace: uploads take the least rate when nothing comes in, follow what does, and hurry when they have been behind for long, up to a limit.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var appended atomic.Int64
		p := newPace(appended.Load)
		// rate is what one upload that has been behind for so long may read in a second.
		rate := func(behind time.Duration) float64 {
			began, read := time.Now(), 0
			for time.Since(began) < 20*time.Second {
				time.Sleep(p.delay(paceBytes, behind))
				read += paceBytes
			}
			return float64(read) / time.Since(began).Seconds()
		}
		about := func(what string, got, want float64) {
			t.Helper()
			if got < want*0.9 || got > want*1.1 {
				t.Errorf("%s: %.0f bytes a second, want about %.0f", what, got, want)
			}
		}
		about("idle", rate(0), p.least)
		about("behind", rate(halving), 2*p.least)
		about("behind for long", rate(time.Hour), 4*p.least)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for tick := time.NewTicker(10 * time.Millisecond); ; {
				select {
				case <-stop:
					tick.Stop()
					return
				case <-tick.C:
					appended.Add(int64(10 * p.least / 100))
				}
			}
		}()
		time.Sleep(time.Second)
		rate(0) // hears of it
		about("what comes in", rate(0), headroom*10*p.least)
		close(stop)
		<-stopped
		rate(0)
		about("idle again", rate(0), p.least)
	})
}

// TestPaceEnds: an upload that waits for its turn by the pace ends with its context.
func TestPaceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(nil)
		p.mu.limiter.SetLimit(1)
		ctx, cancel := context.WithCancel(t.Context())
		r, err := p.body(ctx, objstore.Bytes(make([]byte, 8*paceBurst)), time.Now()).Open()
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(1500*time.Millisecond, cancel)
		if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
			t.Errorf("read ended with %v", err)
		}
	})
}

// TestBehind: what a failing store or a pause left to do does not count as the pace's doing.
func TestBehind(t *testing.T) {
	for name, hinder := range map[string]func(w *world, n *node){
		"outage": func(w *world, n *node) { w.faulty.Add(objstore.Rule{Op: objstore.OpCreate, Effect: objstore.Denied}) },
		"pause":  func(w *world, n *node) { n.a.PauseSealing(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.p.policy.SegmentBytes = 3000
				n := w.start(t.Context(), nil)
				behind := func() time.Duration {
					synctest.Wait()
					if n.h.behind.IsZero() {
						return 0
					}
					return time.Since(n.h.behind)
				}
				for range 10 {
					w.p.add(record.None, 1000, now())
				}
				hinder(w, n)
				for range 100 {
					w.p.add(record.None, 1000, now())
					time.Sleep(100 * time.Millisecond)
				}
				if d := behind(); d > 0 {
					t.Errorf("behind by %s", d)
				}
				w.faulty.Calm()
				n.a.PauseSealing(false)
				time.Sleep(time.Minute)
				if d := behind(); d > 0 || w.tieredEnd() < 100 {
					t.Errorf("behind by %s with the tiered end at %d", d, w.tieredEnd())
				}
				n.stop()
			})
		})
	}
}
