// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
)

// Tier is the bucket side of a broker: who moves sealed data there and who reads it back.
type Tier struct {
	Archiver *tiering.Archiver
	Reader   *tiering.Reader
	Meta     tiering.Loader // where a manifest is loaded from when the archiver has not done it yet
}

// archiveIfKnown hands a led partition to the archiver once the high watermark of its epoch is known (protocols U1).
func (p *Partition) archiveIfKnown() {
	p.mu.Lock()
	lead := p.mu.lead
	if lead == nil || lead.archive != nil || lead.archiving || !lead.isr.Known() {
		p.mu.Unlock()
		return
	}
	lead.archiving = true
	term := tiering.Term{Leadership: lead.Leadership, ClusterID: p.broker.meta.ClusterID(), Gen: p.broker.meta.Gen(), TopicName: p.name}
	p.mu.Unlock()
	handle := p.broker.tier.Archiver.Lead(context.Background(), term, p)
	p.mu.Lock()
	ended := p.mu.lead != lead
	lead.archive = handle
	p.mu.Unlock()
	p.broker.roles.ring() // the high watermark is known
	if ended {
		handle.Close()
	}
}

// tierView returns the manifest in force here, loading it if nobody has yet.
func (p *Partition) tierView(ctx context.Context) (*tiering.View, error) {
	if v := p.view.Load(); v != nil {
		return v, nil
	}
	v, err := tiering.LoadView(ctx, p.broker.tier.Meta, p.id)
	if err != nil {
		return nil, fmt.Errorf("%w: manifest of %s: %w", ErrStorage, p.id, err)
	}
	p.view.CompareAndSwap(nil, v)
	return p.view.Load(), nil
}

// tierViewTo returns a manifest that reaches at least to end. The one that is kept may be of an earlier leadership, while the hot log
// was trimmed by what a later leader moved to the bucket: between the two nothing would be found.
func (p *Partition) tierViewTo(ctx context.Context, end record.Offset) (*tiering.View, error) {
	v, err := p.tierView(ctx)
	if err != nil || v.Head.TieredEnd >= end {
		return v, err
	}
	if err := p.reloadView(ctx, v); err != nil {
		return nil, err
	}
	if v = p.view.Load(); v.Head.TieredEnd < end {
		return nil, fmt.Errorf("%w: the manifest of %s ends at %d, the hot log begins at %d", ErrStorage, p.id, v.Head.TieredEnd, end)
	}
	return v, nil
}

// Trouble tells while ReadCold waits whether the bucket fails or is slow.
type Trouble = tiering.Trouble

// readTier serves a plan from the bucket. again: what the plan was made from has changed, make another one.
func (p *Partition) readTier(ctx context.Context, req *ReadRequest, res *ReadResult, plan readPlan) (again bool, err error) {
	v, err := p.tierView(ctx)
	if err != nil {
		return false, err
	}
	got, err := p.broker.tier.Reader.Read(ctx, tiering.ReadRequest{
		View: v, Offset: plan.from, Limit: plan.bound, MaxBytes: req.MaxBytes, FirstWhole: req.FirstWhole, Aborted: req.ReadCommitted, Buf: req.Buf, Trouble: req.Trouble,
	})
	switch {
	case errors.Is(err, tiering.ErrNotFound), errors.Is(err, tiering.ErrOutOfRange):
		// Deleted below a log start that has moved, or replaced: the manifest in the metadata store tells (protocols §6.6).
		if reloadErr := p.reloadView(ctx, v); reloadErr != nil {
			return false, reloadErr
		}
		if now := p.view.Load(); now != v {
			return true, nil
		}
		return false, fmt.Errorf("%w: reading %s at %d: %w", ErrStorage, p.id, plan.from, err)
	case err != nil:
		return false, fmt.Errorf("%w: reading %s at %d: %w", ErrStorage, p.id, plan.from, err)
	}
	if req.ReadCommitted {
		if again, err := p.coldAborted(ctx, v, plan.from, got, res); again || err != nil {
			return again, err
		}
	}
	res.Data = got.Data
	return false, nil
}

// reloadView reads the manifest again if it is still the one given, and adopts one that is newer.
func (p *Partition) reloadView(ctx context.Context, old *tiering.View) error {
	if p.view.Load() != old {
		return nil
	}
	v, err := tiering.LoadView(ctx, p.broker.tier.Meta, p.id)
	if err != nil {
		return fmt.Errorf("%w: manifest of %s: %w", ErrStorage, p.id, err)
	}
	if v.Head.Rev > old.Head.Rev && p.view.CompareAndSwap(old, v) {
		p.AdoptHead(v.Head)
	}
	return nil
}

// tierOffsetForTime looks in the bucket, below the hot log. ok: found there.
func (p *Partition) tierOffsetForTime(ctx context.Context, ts int64, s span) (found TimeOffset, ok bool, err error) {
	v, err := p.tierViewTo(ctx, min(s.local, s.bound))
	if err != nil {
		return noTimeOffset, false, err
	}
	hit, ok, err := p.broker.tier.Reader.OffsetForTime(ctx, v, ts, s.from, min(s.local, s.bound))
	if err != nil {
		return noTimeOffset, false, fmt.Errorf("%w: looking up a time in %s: %w", ErrStorage, p.id, err)
	}
	// What lies at or above the local start is left to the hot log: it is the same data, and needs no GET.
	if !ok {
		return noTimeOffset, false, nil
	}
	return TimeOffset{Offset: hit.Offset, Timestamp: hit.Timestamp, Epoch: hit.Epoch}, true, nil
}

// tierMaxTimestamp looks in the whole bucket part at or above the log start. What is sealed lies below the high watermark and the
// last stable offset, so whatever it finds may be seen; what was sealed after the span was taken is errOldSpan.
func (p *Partition) tierMaxTimestamp(ctx context.Context, s span) (TimeOffset, error) {
	for range 2 {
		v, err := p.tierViewTo(ctx, min(s.local, s.bound))
		if err != nil {
			return noTimeOffset, err
		}
		hit, ok, err := p.broker.tier.Reader.MaxTimestamp(ctx, v)
		switch {
		case err != nil:
			return noTimeOffset, fmt.Errorf("%w: looking up the largest timestamp of %s: %w", ErrStorage, p.id, err)
		case !ok:
			return noTimeOffset, nil
		case hit.Offset >= s.bound && s.unstable:
			return noTimeOffset, nil // sealed past an open transaction: as in Kafka there is no answer until that is over
		case hit.Offset >= s.bound:
			return noTimeOffset, errOldSpan
		case hit.Offset >= s.from:
			return TimeOffset{Offset: hit.Offset, Timestamp: hit.Timestamp, Epoch: hit.Epoch}, nil
		}
		// Below the log start: the view is older than the span.
		if err := p.reloadView(ctx, v); err != nil {
			return noTimeOffset, err
		}
	}
	return noTimeOffset, fmt.Errorf("%w: the log start of %s moves faster than its manifest can be read", ErrStorage, p.id)
}
