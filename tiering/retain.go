// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"fmt"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/segment"
)

func millis(ms int64) time.Time { return time.UnixMilli(ms) }

// expiry is when a segment expires by time (S20): its largest timestamp counts, but one in the future no further than the topic lets a
// producer go; without timestamps the time of sealing counts.
func expiry(p *Policy, maxTimestamp, sealedAt int64) time.Time {
	t := maxTimestamp
	if t == segment.NoTimestamp {
		t = sealedAt
	}
	if p.TimestampAfterMax >= 0 {
		if bound := sealedAt + p.TimestampAfterMax.Milliseconds(); bound >= sealedAt {
			t = min(t, bound)
		}
	}
	return millis(t).Add(p.RetentionAge)
}

// expiredUnsealed tells whether retention would take a segment that is not uploaded yet, and if not, when it would.
func (h *Handle) expiredUnsealed(e *manifest.Entry, unsealed int64, now time.Time) (bool, time.Time) {
	p := h.p.Policy()
	if p.RetentionBytes >= 0 && unsealed-e.DataBytes >= p.RetentionBytes {
		return true, time.Time{}
	}
	if p.RetentionAge < 0 {
		return false, time.Time{}
	}
	at := expiry(&p, e.MaxTimestamp, e.SealedAtMillis)
	return at.Before(now), at.Add(time.Millisecond)
}

// retain is R1 to R4: advance the log start over whole expired segments, then drop what lies below it. It says when the next one expires.
func (h *Handle) retain(ctx context.Context) (time.Time, error) {
	target, next, err := h.newStart(ctx, time.Now())
	if err != nil {
		return time.Time{}, err
	}
	if target > h.View().Head.LogStart {
		if err := h.change(ctx, func(ctx context.Context) (metadata.Head, []manifest.Edit, error) {
			head, err := h.a.meta.AdvanceLogStart(ctx, h.term.Leadership, target, h.p.Epochs())
			return head, []manifest.Edit{manifest.AdvanceStart{To: target}}, err
		}); err != nil {
			return time.Time{}, fmt.Errorf("advance log start to %d: %w", target, err)
		}
		h.a.cfg.Logger.Info("retention", "partition", h.term.ID.String(), "topic", h.term.TopicName, "log_start", int64(target))
	}
	return next, h.drop(ctx)
}

// newStart is R2.
func (h *Handle) newStart(ctx context.Context, now time.Time) (record.Offset, time.Time, error) {
	p, v := h.p.Policy(), h.View()
	m := v.Manifest
	target, next := m.LogStart, time.Time{}
	if p.RetentionAge < 0 && p.RetentionBytes < 0 || m.TieredEnd == m.LogStart {
		return target, next, nil
	}
	left := int64(0)
	if p.RetentionBytes >= 0 {
		live, err := h.liveBytes(ctx, m)
		if err != nil {
			return target, next, err
		}
		left = live + h.p.Hot(m.TieredEnd).UnsealedBytes
	}
	err := m.Walk(m.LogStart, h.a.loader(ctx), func(e *manifest.Entry) bool {
		expired := false
		if p.RetentionAge >= 0 {
			at := expiry(&p, e.MaxTimestamp, e.SealedAtMillis)
			if expired = at.Before(now); !expired {
				next = at.Add(time.Millisecond)
			}
		}
		if !expired && p.RetentionBytes >= 0 {
			expired = left-e.DataBytes >= p.RetentionBytes
		}
		if expired {
			target, left = e.End, left-e.DataBytes
		}
		return expired
	})
	return target, next, err
}

// liveBytes is the size of the segments that reach above the log start.
func (h *Handle) liveBytes(ctx context.Context, m *manifest.Manifest) (int64, error) {
	n := int64(0)
	count := func(entries []manifest.Entry) {
		for i := range entries {
			if entries[i].End > m.LogStart {
				n += entries[i].DataBytes
			}
		}
	}
	load := h.a.loader(ctx)
	for i := range m.Pages {
		switch p := m.Pages[i]; {
		case p.Base >= m.LogStart:
			n += p.DataBytes
		case p.End > m.LogStart:
			entries, err := load(p)
			if err != nil {
				return 0, fmt.Errorf("manifest page %s: %w", p.Object, err)
			}
			count(entries)
		}
	}
	count(m.Entries)
	return n, nil
}

// drop is R4: what lies wholly below the log start leaves the manifest, pages first, and becomes garbage records.
func (h *Handle) drop(ctx context.Context) error {
	for {
		m := h.View().Manifest
		if len(m.Pages) > 0 {
			if m.Pages[0].End > m.LogStart {
				return nil
			}
			if err := h.dropPage(ctx); err != nil {
				return fmt.Errorf("drop page at %d: %w", m.Pages[0].Base, err)
			}
			continue
		}
		var drop []metadata.DroppedSegment
		var edit manifest.Drop
		for i := range m.Entries {
			e := &m.Entries[i]
			if e.End > m.LogStart || len(drop) == dropBatch {
				break
			}
			drop = append(drop, metadata.DroppedSegment{Base: e.Base, Attempt: metadata.UUID(e.Attempt), Keys: []string{e.Object}, Bytes: e.DataBytes})
			edit.Bases = append(edit.Bases, e.Base)
		}
		if len(drop) == 0 {
			return nil
		}
		if err := h.change(ctx, func(ctx context.Context) (metadata.Head, []manifest.Edit, error) {
			head, err := h.a.meta.DropSegments(ctx, h.term.Leadership, drop, h.a.limits.Load().GCGrace)
			return head, []manifest.Edit{edit}, err
		}); err != nil {
			return fmt.Errorf("drop %d segments from %d on: %w", len(drop), drop[0].Base, err)
		}
		h.a.metrics.dropped.Add(float64(len(drop)))
	}
}

// dropPage takes the oldest page off the head. One Txn accounts for the page object and for every segment in it.
func (h *Handle) dropPage(ctx context.Context) error {
	v := h.View()
	p := v.Manifest.Pages[0]
	entries, err := h.a.loader(ctx)(p)
	if err != nil {
		return err
	}
	keep := make([][]byte, 0, len(v.Manifest.Pages)-1)
	for i := range v.Manifest.Pages[1:] {
		keep = append(keep, manifest.AppendPage(nil, &v.Manifest.Pages[i+1]))
	}
	notBefore := time.Now().Add(h.a.limits.Load().GCGrace)
	garbage := []metadata.GCRecord{{Attempt: metadata.UUID(p.Attempt), Keys: []string{p.Object}, NotBefore: notBefore, Reason: "retention"}}
	for at := 0; at < len(entries); at += gcKeys {
		// One record per gcKeys objects, named by the attempt of its first: a value of the metadata store is small.
		part := entries[at:min(at+gcKeys, len(entries))]
		g := metadata.GCRecord{Attempt: metadata.UUID(part[0].Attempt), NotBefore: notBefore, Reason: "retention"}
		for i := range part {
			g.Keys = append(g.Keys, part[i].Object)
		}
		garbage = append(garbage, g)
	}
	err = h.change(ctx, func(ctx context.Context) (metadata.Head, []manifest.Edit, error) {
		head, err := h.a.meta.DropPages(ctx, h.term.Leadership, metadata.PageDrop{HeadRev: v.Head.Rev, Pages: keep, Bytes: p.DataBytes, Garbage: garbage})
		return head, []manifest.Edit{manifest.DropPage{Base: p.Base}}, err
	})
	if err == nil {
		h.a.metrics.dropped.Add(float64(len(entries)))
	}
	return err
}

// evictDue trims the hot log of sealed segments whose local retention is over: by age since sealing, by size, or for the node's hot budget.
// The partition itself lowers the target to what its high watermark and pins allow.
func (h *Handle) evictDue(force bool) (time.Time, error) {
	v := h.View()
	if v == nil {
		return time.Time{}, nil
	}
	p, hot, m := h.p.Policy(), h.p.Hot(v.Head.TieredEnd), v.Manifest
	to, next, now := max(hot.LocalStart, m.LogStart), time.Time{}, time.Now()
	excess, over := int64(0), int64(0) // what the node wants back, what the topic may lose and still have local.retention.bytes
	if force {
		excess = h.excess.Load()
	}
	if p.LocalRetentionBytes >= 0 {
		over = max(0, hot.LocalBytes-p.LocalRetentionBytes)
	}
	if len(m.Pages) > 0 {
		// Folded segments are old; what of them is still local goes first, without a look into the page.
		if end := m.Pages[len(m.Pages)-1].End; end > to && (p.LocalRetentionAge >= 0 || excess > 0 || over > 0) {
			to = end
		}
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.End <= to {
			continue
		}
		at := millis(e.SealedAtMillis).Add(p.LocalRetentionAge)
		if excess <= 0 && (p.LocalRetentionBytes < 0 || over < e.DataBytes) && (p.LocalRetentionAge < 0 || now.Before(at)) {
			if p.LocalRetentionAge >= 0 {
				next = at
			}
			break
		}
		to, excess, over = e.End, excess-e.DataBytes, over-e.DataBytes
	}
	if to <= hot.LocalStart {
		return next, nil
	}
	if err := h.p.Evict(to); err != nil {
		return time.Time{}, fmt.Errorf("evict below %d: %w", to, err)
	}
	h.a.metrics.evictions.Inc()
	return next, nil
}
