// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/varve/varve/internal/invariant"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/segment"
)

// candidate is what one attempt is to seal (protocols U1).
type candidate struct {
	base, limit   record.Offset
	firstUnstable record.Offset
	unsealed      int64 // bytes at or above base when it was chosen
	full          bool  // due by size or force or age: upload; else only look whether it has expired
}

// sealDue seals what is due, one segment after the other, and says when the rest will be.
func (h *Handle) sealDue(ctx context.Context, force bool) (time.Time, error) {
	until := record.NoOffset // what was due by age or force when we began is sealed to its end
	for {
		c, next := h.choose(time.Now(), force, until)
		if c == nil {
			h.awaited = !next.IsZero()
			return next, nil
		}
		if c.full && until == record.NoOffset && (force || h.aged(time.Now())) {
			until = c.limit
		}
		done, again, err := h.attempt(ctx, c)
		if err != nil {
			return time.Time{}, err
		}
		if !done {
			next = earliest(next, again)
			h.awaited = !next.IsZero()
			return next, nil
		}
	}
}

func (h *Handle) sealAge() time.Duration {
	age := h.a.limits.Load().SegmentMaxAge
	if p := h.p.Policy().SegmentAge; p > 0 {
		age = min(age, p)
	}
	return age
}

func (h *Handle) aged(now time.Time) bool { return now.Sub(h.first.at) >= h.sealAge() }

// choose samples the partition once and decides. Without a candidate it says when there will be one by age.
func (h *Handle) choose(now time.Time, force bool, until record.Offset) (*candidate, time.Time) {
	if h.a.paused.Load() {
		h.behind = time.Time{}
		return nil, time.Time{}
	}
	base := h.View().Head.TieredEnd
	hot := h.p.Hot(base)
	if hot.UnsealedBytes <= 0 {
		h.behind = time.Time{}
		h.first = firstUnsealed{}
		h.waiting.Store(0)
		return nil, time.Time{}
	}
	if h.first.base != base || h.first.at.IsZero() {
		h.first = firstUnsealed{base: base, at: now}
		h.waiting.Store(now.UnixNano())
	}
	c := &candidate{base: base, limit: min(hot.HW, hot.LSO), firstUnstable: record.NoOffset, unsealed: hot.UnsealedBytes}
	if force && hot.LSO < hot.HW && 2*hot.SealableBytes < hot.UnsealedBytes {
		c.limit, c.firstUnstable = hot.HW, hot.LSO // T1: an open transaction holds more than half of what is too much
	}
	due := h.first.at.Add(h.sealAge())
	if base >= c.limit {
		h.behind = time.Time{}
		return nil, time.Time{} // when the bound moves, Appended wakes us
	}
	c.full = force || hot.SealableBytes >= h.segmentBytes() || !now.Before(due) || base < until
	if c.full {
		if h.behind.IsZero() {
			h.behind = now
		}
		return c, time.Time{}
	}
	h.behind = time.Time{}
	if r := h.p.Policy().RetentionAge; r >= 0 && r < h.sealAge() {
		// It may expire before it would be sealed: then it goes without upload.
		if expiry := h.first.at.Add(r); !now.Before(expiry) {
			return c, due
		} else if expiry.Before(due) {
			due = expiry
		}
	}
	return nil, due
}

// attempt is U2 to U6 for one segment. done: the tiered end moved. Otherwise `again` says when the candidate may have expired.
func (h *Handle) attempt(ctx context.Context, c *candidate) (done bool, again time.Time, err error) {
	pin, err := h.p.Pin(c.base, c.limit)
	if err != nil {
		return false, time.Time{}, fmt.Errorf("pin [%d, %d): %w", c.base, c.limit, err)
	}
	defer pin.Release()
	id := segment.Identity{ClusterID: h.term.ClusterID, Gen: h.term.Gen, Topic: h.term.ID.Topic, TopicName: h.term.TopicName,
		Partition: h.term.ID.Index, LeaderEpoch: h.term.Epoch, Attempt: segment.Attempt(uuid.New())}
	now := time.Now()
	obj, err := segment.Build(id, pin, segment.Range{Base: c.base, End: c.limit}, h.segmentBytes(), func(end record.Offset) (segment.Extra, error) {
		x, err := pin.Extra(end)
		x.FirstUnstable, x.SealedAtMillis = record.NoOffset, now.UnixMilli()
		if c.firstUnstable != record.NoOffset && c.firstUnstable < end {
			x.FirstUnstable = c.firstUnstable
		}
		return x, err
	})
	if err != nil {
		return false, time.Time{}, err
	}
	entry := manifest.FromInfo(&obj.Info, ObjectKey(&obj.Info), obj.CRC32C())
	if gone, expiry := h.expiredUnsealed(&entry, c.unsealed, now); gone {
		return true, time.Time{}, h.skip(ctx, entry.End)
	} else if !c.full {
		return false, expiry, nil
	}
	return true, time.Time{}, h.upload(ctx, obj, &entry, now)
}

// skip advances the log start over data that has expired before it was sealed, without an upload (G6).
func (h *Handle) skip(ctx context.Context, end record.Offset) error {
	h.a.metrics.skipped.Inc()
	return h.change(ctx, func(ctx context.Context) (metadata.Head, []manifest.Edit, error) {
		head, err := h.a.meta.AdvanceLogStart(ctx, h.term.Leadership, end, h.p.Epochs())
		return head, []manifest.Edit{manifest.AdvanceStart{To: end}}, err
	})
}

// upload is U3, U5 and U6.
func (h *Handle) upload(ctx context.Context, obj *segment.Object, e *manifest.Entry, now time.Time) error {
	attempt := metadata.UUID(e.Attempt)
	intent := metadata.Intent{Attempt: attempt, Kind: metadata.IntentSeal, Keys: []string{e.Object},
		Range: metadata.OffsetRange{Base: e.Base, End: e.End}, Epoch: h.term.Epoch, Started: now}
	if err := h.put(ctx, &intent, obj, obj.CRC32C()); err != nil {
		h.a.metrics.seals.WithLabelValues("failed").Inc()
		h.behind = time.Time{} // not because of the pace: what an outage leaves is not sent in one rush
		return err
	}
	err := h.change(ctx, func(ctx context.Context) (metadata.Head, []manifest.Edit, error) {
		head, err := h.a.meta.CommitSegment(ctx, h.term.Leadership, metadata.SegmentCommit{IntentRev: intent.Rev, Attempt: attempt,
			Range: intent.Range, Bytes: e.DataBytes, Entry: manifest.AppendEntry(nil, e), Epochs: e.Epochs})
		if err == nil {
			invariant.Check(head.TieredEnd >= e.End, "M1: the tiered end covers a committed segment")
		}
		return head, []manifest.Edit{manifest.Append{Entry: *e}}, err
	})
	if err != nil {
		h.a.metrics.seals.WithLabelValues("lost").Inc() // U7: the object stays; the intent accounts for it
		return fmt.Errorf("commit [%d, %d): %w", e.Base, e.End, err)
	}
	h.a.metrics.seals.WithLabelValues("ok").Inc()
	h.a.metrics.sealedBytes.Add(float64(e.DataBytes))
	h.a.metrics.copiedBytes.Add(float64(e.DataBytes))
	h.a.metrics.sealSeconds.Observe(time.Since(now).Seconds())
	h.a.cfg.Logger.Debug("sealed", "partition", h.term.ID.String(), "topic", h.term.TopicName, "base", int64(e.Base), "end", int64(e.End), "bytes", e.Len, "object", e.Object)
	return nil
}

// put announces one object by an intent and creates it. intent.Rev is that of the intent as it stands.
func (h *Handle) put(ctx context.Context, intent *metadata.Intent, body objstore.Body, crc uint32) error {
	rev, err := h.a.meta.PutIntent(ctx, h.term.Leadership, *intent)
	if err != nil {
		return h.fenced(fmt.Errorf("intent: %w", err))
	}
	intent.Rev = rev
	pctx, cancel := context.WithTimeout(ctx, objstore.Deadline(h.a.limits.Load().UploadDeadline, 0, body.Size()))
	defer cancel()
	err = objstore.CreateResolved(pctx, h.a.store, intent.Keys[0], h.a.pace.body(pctx, body, h.behind), objstore.PutOptions{
		CRC32C:   crc,
		Metadata: map[string]string{objstore.MetaAttempt: intent.Attempt.String()},
		OnMultipart: func(upload string) error {
			// D6: the id must be known before the first part is sent, or a crash leaves parts that nobody can find.
			next := *intent
			next.UploadID = upload
			rev, err := h.a.meta.PutIntent(pctx, h.term.Leadership, next)
			if err != nil {
				return fmt.Errorf("intent: %w", err)
			}
			next.Rev = rev
			*intent = next
			return nil
		},
	})
	if err != nil {
		return h.fenced(fmt.Errorf("put: %w", err))
	}
	h.answered()
	return nil
}

// fenced ends the term when err says that it is over.
func (h *Handle) fenced(err error) error {
	if errors.Is(err, metadata.ErrFenced) {
		h.cancel()
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return err
}
