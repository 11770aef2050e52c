// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/objstore"
)

var errCrash = errors.New("crashed")

// crasher stops a node at its k-th call of a seam: before it takes effect, or after, with the answer lost.
type crasher struct {
	mu    sync.Mutex
	left  int
	after bool
	dead  bool
	what  string
	calls int
	Metadata
	store objstore.Store
}

// at runs one call, or not.
func (c *crasher) at(what string, call func() error) error {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return errCrash
	}
	c.calls++
	c.left--
	crash := c.left == 0
	if crash {
		c.dead, c.what = true, what
	}
	c.mu.Unlock()
	if crash && !c.after {
		return errCrash
	}
	err := call()
	if crash {
		return errCrash
	}
	return err
}

func (c *crasher) PutIntent(ctx context.Context, l metadata.Leadership, i metadata.Intent) (r metadata.Revision, err error) {
	err = c.at("intent", func() (err error) { r, err = c.Metadata.PutIntent(ctx, l, i); return err })
	return r, err
}

func (c *crasher) CommitSegment(ctx context.Context, l metadata.Leadership, s metadata.SegmentCommit) (h metadata.Head, err error) {
	err = c.at("commit", func() (err error) { h, err = c.Metadata.CommitSegment(ctx, l, s); return err })
	return h, err
}

func (c *crasher) AdvanceLogStart(ctx context.Context, l metadata.Leadership, o record.Offset, e []record.EpochStart) (h metadata.Head, err error) {
	err = c.at("advance", func() (err error) { h, err = c.Metadata.AdvanceLogStart(ctx, l, o, e); return err })
	return h, err
}

func (c *crasher) DropSegments(ctx context.Context, l metadata.Leadership, d []metadata.DroppedSegment, g time.Duration) (h metadata.Head, err error) {
	err = c.at("drop", func() (err error) { h, err = c.Metadata.DropSegments(ctx, l, d, g); return err })
	return h, err
}

func (c *crasher) DropPages(ctx context.Context, l metadata.Leadership, d metadata.PageDrop) (h metadata.Head, err error) {
	err = c.at("drop page", func() (err error) { h, err = c.Metadata.DropPages(ctx, l, d); return err })
	return h, err
}

func (c *crasher) Fold(ctx context.Context, l metadata.Leadership, f metadata.FoldCommit) (h metadata.Head, err error) {
	err = c.at("fold", func() (err error) { h, err = c.Metadata.Fold(ctx, l, f); return err })
	return h, err
}

// crashStore is the crasher's side of the bucket.
type crashStore struct {
	objstore.Store
	c *crasher
}

func (s crashStore) Create(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) error {
	return s.c.at("put", func() error { return s.Store.Create(ctx, key, body, o) })
}

// TestCrashTable stops a node before and after every call of every step of seal, fold, retention and drop; the next leader finishes what is due, no
// byte is lost or doubled, and every object stays accounted for (S21, S22).
func TestCrashTable(t *testing.T) {
	seen := map[string]int{}
	for _, after := range []bool{false, true} {
		for k := 1; ; k++ {
			crashed := false
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.p.policy.SegmentBytes = 3000
				w.p.policy.LocalRetentionAge = 0
				w.cfg.PageEntries, w.cfg.MinFold, w.cfg.ManifestEntries = 4, 4, 1
				c := &crasher{left: k, after: after}
				n := w.start(t.Context(), func(m Metadata, s objstore.Store) (Metadata, objstore.Store) {
					c.Metadata, c.store = m, s
					return c, crashStore{s, c}
				})
				script(w, n)
				crashed = c.dead
				n.stop()
				n = w.start(t.Context(), nil)
				script(w, n)
				time.Sleep(time.Minute)
				synctest.Wait()
				v := w.check(n.meta)
				if rest := w.p.Hot(v.Head.TieredEnd).UnsealedBytes; rest >= 3000 {
					t.Fatalf("crash at call %d (%s, after: %v): %d bytes are never sealed", k, c.what, after, rest)
				}
				if v.Head.LogStart == 0 || w.p.local < v.Head.LogStart {
					t.Fatalf("log start %d, local start %d", v.Head.LogStart, w.p.local)
				}
				n.stop()
				if crashed {
					seen[fmt.Sprint(c.what, " ", after)]++
				}
			})
			if t.Failed() || !crashed {
				break
			}
		}
	}
	t.Log(seen)
	for _, what := range []string{"intent", "put", "commit", "fold", "advance", "drop", "drop page"} {
		for _, after := range []bool{false, true} {
			if seen[fmt.Sprint(what, " ", after)] == 0 && !t.Failed() {
				t.Errorf("never crashed at %s, after: %v", what, after)
			}
		}
	}
}

// script is some life of a partition: seals, folds, retention.
func script(w *world, n *node) {
	for range 25 {
		w.p.add(record.Lz4, 1000, now())
		synctest.Wait()
	}
	w.p.setPolicy(func(p *Policy) { p.RetentionBytes = 9000 })
	synctest.Wait()
	w.p.setPolicy(func(p *Policy) { p.RetentionBytes = -1 })
	if end := w.tieredEnd(); end > 0 {
		_, _ = n.h.AdvanceLogStart(context.Background(), end-1) // fails when crashed
	}
	synctest.Wait()
}

// TestChaos: random answers lost and refused on both seams; nothing is lost, doubled or forgotten.
func TestChaos(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.p.policy.SegmentBytes = 3000
			w.p.policy.LocalRetentionAge = time.Second
			w.p.policy.RetentionBytes = 30_000
			w.cfg.PageEntries, w.cfg.MinFold, w.cfg.ManifestEntries = 4, 4, 1
			w.faulty = objstore.Fault(w.inner, objstore.FaultOptions{Seed: seed, MaxDelay: 2 * time.Second, Rates: []objstore.Rate{
				{Effect: objstore.LostReply, Probability: 0.1}, {Effect: objstore.LostRequest, Probability: 0.1}, {Effect: objstore.Unavailable, Probability: 0.1},
				{Effect: objstore.LateReply, Probability: 0.05}, {Effect: objstore.Slow, Probability: 0.1}, {Effect: objstore.Truncated, Probability: 0.05},
				{Effect: objstore.FlippedBit, Probability: 0.05}, {Effect: objstore.NotThere, Probability: 0.05}}})
			rng := rand.New(rand.NewPCG(seed, 2))
			for range 3 {
				n := w.start(t.Context(), nil)
				for range 40 {
					w.p.add(record.None, 1000, now())
					time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
				}
				n.stop()
			}
			w.faulty.Calm()
			n := w.start(t.Context(), nil)
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			v := w.check(n.meta)
			if rest := w.p.Hot(v.Head.TieredEnd).UnsealedBytes; rest >= 3000 {
				t.Fatalf("seed %d: %d bytes unsealed", seed, rest)
			}
			n.stop()
			_ = w.faulty.Close()
		})
	}
}

// lossy executes a change and loses the answer, once per kind.
type lossy struct {
	Metadata
	commit, advance, fold bool
}

func (l *lossy) CommitSegment(ctx context.Context, t metadata.Leadership, s metadata.SegmentCommit) (metadata.Head, error) {
	h, err := l.Metadata.CommitSegment(ctx, t, s)
	if l.commit {
		l.commit = false
		return metadata.Head{}, metadata.ErrUnknown
	}
	return h, err
}

func (l *lossy) AdvanceLogStart(ctx context.Context, t metadata.Leadership, o record.Offset, e []record.EpochStart) (metadata.Head, error) {
	h, err := l.Metadata.AdvanceLogStart(ctx, t, o, e)
	if l.advance {
		l.advance = false
		return metadata.Head{}, metadata.ErrUnknown
	}
	return h, err
}

func (l *lossy) Fold(ctx context.Context, t metadata.Leadership, f metadata.FoldCommit) (metadata.Head, error) {
	h, err := l.Metadata.Fold(ctx, t, f)
	if l.fold {
		l.fold = false
		return metadata.Head{}, metadata.ErrUnknown
	}
	return h, err
}

// TestAnswersLost: a change that happened although its answer was lost is found in the metadata store, and the same leader goes on from there (C9).
func TestAnswersLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 3000
		w.cfg.PageEntries, w.cfg.MinFold, w.cfg.ManifestEntries = 4, 4, 1
		l := &lossy{commit: true, advance: true, fold: true}
		n := w.start(t.Context(), func(m Metadata, s objstore.Store) (Metadata, objstore.Store) {
			l.Metadata = m
			return l, s
		})
		for range 30 {
			w.p.add(record.None, 1000, now())
		}
		time.Sleep(5 * time.Second)
		if _, err := n.h.AdvanceLogStart(t.Context(), 5); !errors.Is(err, metadata.ErrUnknown) {
			t.Fatal(err)
		}
		if v, err := n.h.AdvanceLogStart(t.Context(), 6); err != nil || v.Head.LogStart != 6 {
			t.Fatalf("%+v %v", v, err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		v := w.check(n.meta)
		if l.commit || l.advance || l.fold || w.p.Hot(v.Head.TieredEnd).UnsealedBytes >= 3000 || v.Manifest.Pages == nil {
			t.Fatalf("%+v, %+v", l, v.Head)
		}
		n.stop()
	})
}

// TestSetLimits: limits change while it runs.
func TestSetLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.start(t.Context(), nil)
		for range 10 {
			w.p.add(record.None, 1000, now())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.tieredEnd() != 0 {
			t.Fatalf("tiered end %d", w.tieredEnd())
		}
		l := n.a.Limits()
		l.SegmentMaxBytes = 3000
		n.a.SetLimits(l)
		synctest.Wait()
		if end := w.tieredEnd(); end < 8 || end == 10 {
			t.Fatalf("tiered end %d", end)
		}
		l.SegmentMaxAge = time.Second
		n.a.SetLimits(l)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if end := w.tieredEnd(); end != 10 {
			t.Fatalf("tiered end %d", end)
		}
		n.stop()
	})
}
