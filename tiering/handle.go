// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
)

// Handle is one led partition in the archiver, for one term.
type Handle struct {
	a      *Archiver
	term   Term
	p      Partition
	ctx    context.Context // the term
	cancel context.CancelFunc
	turn   chan struct{} // serialises changes of the head and of the view
	view   atomic.Pointer[View]
	stale  atomic.Bool  // the view may be older than the truth: load before the next change
	want   atomic.Int64 // sealable bytes that make Appended wake the archiver
	forced atomic.Int32 // forceSeal, forceEvict
	excess atomic.Int64 // hot bytes that forceEvict is to free
	// waiting is since when there is unsealed data, as Unix nanoseconds; 0: there is none.
	waiting atomic.Int64
	trouble atomic.Pointer[stepTrouble] // nil: the bucket has answered

	// Owned by the step in progress.
	first    firstUnsealed
	behind   time.Time // since when there is always something due to be sealed
	awaited  bool      // there is a deadline for what is not sealed
	failures int

	// Guarded by Archiver.mu.
	due, pause             time.Time
	at                     int // index in the deadlines, -1: none
	queued, running, again bool
}

// firstUnsealed remembers when unsealed data was first seen at a tiered end: the age of what is not sealed yet counts from there.
type firstUnsealed struct {
	base record.Offset
	at   time.Time
}

const (
	forceSeal  = 1
	forceEvict = 2
)

// View is the current view, nil until it is loaded.
func (h *Handle) View() *View { return h.view.Load() }

// Appended tells the archiver how many bytes from the tiered end to min(HW, LSO) there are now, at least 1 when there are any. It is
// cheap; call it whenever that bound moves.
func (h *Handle) Appended(sealable int64) {
	if w := h.want.Load(); sealable >= w && h.want.CompareAndSwap(w, math.MaxInt64) {
		h.Kick()
	}
}

// Kick has the partition looked at soon: its policy changed, or its log start moved.
func (h *Handle) Kick() { h.a.enqueue(h, false) }

// force has the partition seal or evict for the node's hot budget.
func (h *Handle) force(what int32, bytes int64) {
	h.forced.Or(what)
	h.excess.Store(bytes)
	h.Kick()
}

// Close ends the term. It returns when nothing runs for it any more.
func (h *Handle) Close() {
	h.cancel()
	a := h.a
	a.remove(h)
	a.mu.Lock()
	defer a.mu.Unlock()
	for h.running && !a.mu.closed {
		a.idle.Wait()
	}
}

func (h *Handle) hot() Hot { return h.p.Hot(h.tieredEnd()) }

// lock takes the turn.
func (h *Handle) lock(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	case <-h.ctx.Done():
		return ErrEnded
	}
}

func (h *Handle) unlock() { <-h.turn }

// AdvanceLogStart raises the log start for DeleteRecords. It answers when the metadata store has accepted it (protocols R3).
func (h *Handle) AdvanceLogStart(ctx context.Context, to record.Offset) (*View, error) {
	if err := h.change(ctx, func(ctx context.Context) (metadata.Head, []manifest.Edit, error) {
		head, err := h.a.meta.AdvanceLogStart(ctx, h.term.Leadership, to, h.p.Epochs())
		return head, []manifest.Edit{manifest.AdvanceStart{To: to}}, err
	}); err != nil {
		return nil, fmt.Errorf("advance log start of %s to %d: %w", h.term.ID, to, err)
	}
	h.Kick()
	v := h.View()
	if v == nil {
		return nil, ErrNotLoaded
	}
	return v, nil
}

// change runs one change of the head in turn and publishes what came of it (T5).
func (h *Handle) change(ctx context.Context, fn func(context.Context) (metadata.Head, []manifest.Edit, error)) error {
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	if err := h.loadLocked(ctx); err != nil {
		return err
	}
	head, edits, err := fn(ctx)
	if err != nil {
		if errors.Is(err, metadata.ErrFenced) {
			h.cancel()
			return fmt.Errorf("%w: %w", ErrEnded, err)
		}
		h.stale.Store(true) // whatever the reason, what is known may be old
		return err
	}
	return h.publishLocked(ctx, head, edits)
}

// publishLocked applies edits that the metadata store has accepted.
func (h *Handle) publishLocked(ctx context.Context, head metadata.Head, edits []manifest.Edit) error {
	m, err := h.view.Load().Manifest, error(nil)
	for _, e := range edits {
		if m, err = m.Apply(e); err != nil {
			break
		}
	}
	if err != nil || !agree(&head, m) {
		h.stale.Store(true) // somebody else changed it meanwhile: what is true stands in the metadata store
		return h.loadLocked(ctx)
	}
	h.set(&View{ID: h.term.ID, Head: head, Manifest: m})
	return nil
}

// agree tells whether a manifest is the one that the head summarises. Another change in between, of another node or one whose answer was lost,
// shows in one of these numbers.
func agree(head *metadata.Head, m *manifest.Manifest) bool {
	return m.LogStart == head.LogStart && m.TieredEnd == head.TieredEnd && int64(len(m.Entries)) == head.Count &&
		len(m.Pages) == len(head.Pages) && m.DataBytes() == head.TieredBytes
}

func (h *Handle) set(v *View) {
	h.view.Store(v)
	h.stale.Store(false)
	h.p.Archived(v)
}

// load makes sure there is a view that may be relied on.
func (h *Handle) load(ctx context.Context) error {
	if h.View() != nil && !h.stale.Load() {
		return nil
	}
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.unlock()
	return h.loadLocked(ctx)
}

func (h *Handle) loadLocked(ctx context.Context) error {
	if h.View() != nil && !h.stale.Load() {
		return nil
	}
	v, err := LoadView(ctx, h.a.meta, h.term.ID)
	if err != nil {
		return err
	}
	h.set(v)
	return nil
}

// step does everything that is due, each part from the view that the part before left, and says when to come back.
func (h *Handle) step(ctx context.Context) (time.Time, error) {
	if h.ctx.Err() != nil {
		return time.Time{}, nil
	}
	if err := h.load(ctx); err != nil {
		return time.Time{}, err
	}
	force := h.forced.Swap(0)
	h.awaited = false
	parts := []struct {
		what string
		do   func(context.Context) (time.Time, error)
	}{
		{"retention", h.retain},
		{"seal", func(ctx context.Context) (time.Time, error) { return h.sealDue(ctx, force&forceSeal != 0) }},
		{"retention", h.retain},
		{"fold", h.foldDue},
		{"evict", func(ctx context.Context) (time.Time, error) { return h.evictDue(force&forceEvict != 0) }},
	}
	var next time.Time
	for _, p := range parts {
		at, err := p.do(ctx)
		if err != nil {
			if errors.Is(err, ErrEnded) {
				return time.Time{}, nil
			}
			// An outage of the bucket must not keep what is in it already on the disk.
			_, everr := h.evictDue(force&forceEvict != 0)
			h.rearm(force)
			return time.Time{}, errors.Join(fmt.Errorf("%s: %w", p.what, err), everr)
		}
		next = earliest(next, at)
	}
	h.rearm(0)
	return next, nil
}

// rearm sets the mark at which Appended wakes the archiver again, and looks once more at what came meanwhile.
func (h *Handle) rearm(force int32) {
	if force != 0 {
		h.forced.Or(force)
	}
	// Only what this step has seen waits for its age. What came after the step looked has no deadline yet: its first byte must
	// wake the archiver, or nothing does until the sweep.
	want := int64(1)
	if h.awaited || h.a.paused.Load() {
		want = h.segmentBytes()
	}
	h.want.Store(want)
	if h.hot().SealableBytes >= want && !h.a.paused.Load() {
		h.Kick()
	}
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (h *Handle) segmentBytes() int64 {
	n := h.a.limits.Load().SegmentMaxBytes
	if p := h.p.Policy().SegmentBytes; p > 0 {
		n = min(n, p)
	}
	return n
}
