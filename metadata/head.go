// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varve/varve/internal/invariant"
	"github.com/varve/varve/record"
)

// headView is what a change of a head was decided on: the head and some other keys, read at one revision under the leadership.
type headView struct {
	head  Head
	found map[string]KeyValue
}

// changeHead makes one change of a partition's head under a leadership. decide adds compares and operations for what else
// changes with the head, and gives the next head; nil: nothing is to be done. It is called again, with a fresh view, when another
// change of this node's came between.
func (s *Store) changeHead(ctx context.Context, l Leadership, what string, also []string,
	decide func(v *headView, c *change) (*Head, error)) (Head, error) {
	unlock, err := s.locks.lock(ctx, l.ID)
	if err != nil {
		return Head{}, err
	}
	defer unlock()
	for range maxConflicts {
		v, err := s.viewHead(ctx, l, also)
		if err != nil {
			return Head{}, fmt.Errorf("%s of %s: %w", what, l.ID, err)
		}
		c := newChange("%s of %s", what, l.ID)
		c.unchanged(s.keys.leader(l.ID), l.LeaderRev, ErrFenced)
		c.unchanged(s.keys.head(l.ID), v.head.Rev, ErrConflict)
		next, err := decide(v, c)
		if err != nil {
			return v.head, fmt.Errorf("%s of %s: %w", what, l.ID, err)
		}
		if next == nil {
			return v.head, nil
		}
		invariant.Check(next.LogStart >= v.head.LogStart && next.TieredEnd >= v.head.TieredEnd && next.FoldedEnd >= v.head.FoldedEnd,
			"P3: a head goes back")
		c.mark = s.keys.head(l.ID)
		c.put(c.mark, encodeHead(next, c.op))
		next.Rev, err = s.commit(ctx, c)
		if err == nil {
			return *next, nil
		}
		if !errors.Is(err, ErrConflict) {
			return Head{}, err
		}
	}
	return Head{}, fmt.Errorf("%s of %s: %w", what, l.ID, ErrConflict)
}

func (s *Store) viewHead(ctx context.Context, l Leadership, also []string) (*headView, error) {
	keys := append([]string{s.keys.leader(l.ID), s.keys.head(l.ID)}, also...)
	found, _, err := s.readKeys(ctx, keys...)
	if err != nil {
		return nil, err
	}
	if found[keys[0]].ModRevision != l.LeaderRev {
		return nil, ErrFenced
	}
	kv, ok := found[keys[1]]
	if !ok {
		return nil, fmt.Errorf("%w: no head under a leader", ErrCorrupt)
	}
	v := &headView{found: found}
	v.head, err = decodeHead(&kv)
	return v, err
}

// ReadHead reads a partition's head linearizably. A partition that never had a leader has the zero head.
func (s *Store) ReadHead(ctx context.Context, id PartitionID) (Head, error) {
	key := s.keys.head(id)
	found, _, err := s.readKeys(ctx, key)
	if err != nil {
		return Head{}, fmt.Errorf("reading the head of %s: %w", id, err)
	}
	kv, ok := found[key]
	if !ok {
		return Head{}, nil
	}
	return decodeHead(&kv)
}

// Segments reads a partition's manifest entries at a revision (0: now, linearizably), by base offset. The revision comes back.
func (s *Store) Segments(ctx context.Context, id PartitionID, at Revision) ([]SegmentValue, Revision, error) {
	prefix := s.keys.segments(id)
	var out []SegmentValue
	rev, err := s.readAll(ctx, prefix, at, func(kv *KeyValue) error {
		base, err := parseOffset(kv.Key[len(prefix):])
		out = append(out, SegmentValue{Base: base, Rev: kv.ModRevision, Value: kv.Value})
		return err
	})
	return out, rev, err
}

// ReadManifest reads a partition's head and entries at one revision, linearizably.
func (s *Store) ReadManifest(ctx context.Context, id PartitionID) (Head, []SegmentValue, Revision, error) {
	segs, rev, err := s.Segments(ctx, id, 0)
	if err != nil {
		return Head{}, nil, 0, err
	}
	res, err := s.read(ctx, RangeRequest{Key: s.keys.head(id), At: rev})
	if err != nil {
		return Head{}, nil, 0, fmt.Errorf("reading the head of %s: %w", id, err)
	}
	if len(res.KVs) == 0 {
		return Head{}, segs, rev, nil
	}
	head, err := decodeHead(&res.KVs[0])
	return head, segs, rev, err
}

// PutIntent announces an upload and gives the intent's revision. With i.Rev it changes the intent of that revision (the upload id,
// before the first part). It compares the head too: a copy of this transaction that arrives after the commit would otherwise
// announce, and garbage collection later delete, a live object.
func (s *Store) PutIntent(ctx context.Context, l Leadership, i Intent) (Revision, error) {
	key := s.keys.intent(l.ID, i.Attempt)
	unlock, err := s.locks.lock(ctx, l.ID)
	if err != nil {
		return 0, err
	}
	defer unlock()
	i.Epoch = l.Epoch
	for range maxConflicts {
		v, err := s.viewHead(ctx, l, []string{key})
		if err != nil {
			return 0, fmt.Errorf("announcing upload %s of %s: %w", i.Attempt, l.ID, err)
		}
		c := newChange("announcing upload %s of %s", i.Attempt, l.ID)
		value := encodeIntent(&i, c.op)
		if kv, there := v.found[key]; there && bytes.Equal(kv.Value[min(headerBytes, len(kv.Value)):], value[headerBytes:]) {
			return kv.ModRevision, nil // an earlier call whose outcome its caller never heard
		}
		c.unchanged(s.keys.leader(l.ID), l.LeaderRev, ErrFenced)
		c.unchanged(key, i.Rev, ErrIntentClaimed)
		c.unchanged(s.keys.gc(i.Attempt), 0, ErrIntentClaimed)
		c.unchanged(s.keys.head(l.ID), v.head.Rev, ErrConflict)
		c.put(key, value)
		c.mark = key
		rev, err := s.commit(ctx, c)
		if !errors.Is(err, ErrConflict) {
			return rev, err
		}
	}
	return 0, fmt.Errorf("announcing upload %s of %s: %w", i.Attempt, l.ID, ErrConflict)
}

// CommitSegment makes an uploaded segment truth: its entry, the head behind it, and the intent away, in one transaction. The
// segment must begin at the tiered end. Committing what is committed already gives the head as it is.
func (s *Store) CommitSegment(ctx context.Context, l Leadership, sc SegmentCommit) (Head, error) {
	intentKey, segKey := s.keys.intent(l.ID, sc.Attempt), s.keys.segment(l.ID, sc.Range.Base)
	invariant.Check(sc.Range.Base < sc.Range.End && len(sc.Entry) > 0, "P3: an empty segment is committed")
	return s.changeHead(ctx, l, "committing segment "+itoa(int64(sc.Range.Base)), []string{intentKey, segKey},
		func(v *headView, c *change) (*Head, error) {
			if kv, there := v.found[segKey]; there && bytes.Equal(kv.Value, sc.Entry) {
				return nil, nil
			}
			if v.head.TieredEnd != sc.Range.Base {
				return nil, fmt.Errorf("%w: tiered end %d", ErrTieredEndMoved, v.head.TieredEnd)
			}
			c.unchanged(intentKey, sc.IntentRev, ErrIntentClaimed)
			c.unchanged(segKey, 0, ErrConflict)
			c.delete(intentKey)
			c.put(segKey, sc.Entry)
			next := v.head
			next.TieredEnd = sc.Range.End
			next.TieredBytes += sc.Bytes
			next.Count++
			next.EpochChain = extendChain(v.head.EpochChain, sc.Epochs, next.LogStart)
			return &next, nil
		})
}

// extendChain appends the epochs that the chain does not have yet and drops those below the log start.
func extendChain(chain, more []record.EpochStart, logStart record.Offset) []record.EpochStart {
	out := slices.Clone(chain)
	for _, e := range more {
		if len(out) == 0 || e.Epoch > out[len(out)-1].Epoch {
			out = append(out, e)
		}
	}
	drop := max(0, len(out)-maxEpochChain)
	for drop+1 < len(out) && out[drop+1].Start <= logStart {
		drop++
	}
	return slices.Clip(out[drop:])
}

// AdvanceLogStart moves the log start up to target, and the tiered end with it where the log start passes it. A target that is not
// above changes nothing. epochs is the leader's table: what of it begins below a tiered end that moves belongs into the head, or a
// replica that starts there could not tell where the epochs ended that others have followed.
func (s *Store) AdvanceLogStart(ctx context.Context, l Leadership, target record.Offset, epochs []record.EpochStart) (Head, error) {
	return s.changeHead(ctx, l, "advancing the log start", nil, func(v *headView, c *change) (*Head, error) {
		if target <= v.head.LogStart {
			return nil, nil
		}
		next := v.head
		next.LogStart = target
		next.TieredEnd = max(next.TieredEnd, target)
		below, _ := slices.BinarySearchFunc(epochs, next.TieredEnd, func(e record.EpochStart, end record.Offset) int { return cmp.Compare(e.Start, end) })
		next.EpochChain = extendChain(v.head.EpochChain, epochs[:below], target)
		return &next, nil
	})
}

// DropSegments takes entries below the log start out of the manifest and records their objects as garbage. Entries that are gone
// already are passed over.
func (s *Store) DropSegments(ctx context.Context, l Leadership, drop []DroppedSegment, grace time.Duration) (Head, error) {
	head, err := Head{}, error(nil)
	if len(drop) == 0 {
		return s.ReadHead(ctx, l.ID)
	}
	for part := range slices.Chunk(drop, dropBatch) {
		keys := make([]string, len(part))
		for i := range part {
			keys[i] = s.keys.segment(l.ID, part[i].Base)
		}
		head, err = s.changeHead(ctx, l, "dropping segments", keys, func(v *headView, c *change) (*Head, error) {
			next := v.head
			for i := range part {
				kv, there := v.found[keys[i]]
				if !there {
					continue
				}
				if part[i].Base >= v.head.LogStart {
					return nil, fmt.Errorf("%w: segment %d does not lie below the log start %d", ErrRefused, part[i].Base, v.head.LogStart)
				}
				c.unchanged(keys[i], kv.ModRevision, ErrConflict)
				c.delete(keys[i])
				s.putGarbage(c, &GCRecord{
					Attempt: part[i].Attempt, Keys: part[i].Keys, NotBefore: time.Now().Add(grace), Reason: "retention",
				})
				next.TieredBytes = max(0, next.TieredBytes-part[i].Bytes)
				if part[i].Base >= next.FoldedEnd {
					next.Count--
				}
			}
			if len(c.ops) == 0 {
				return nil, nil
			}
			return &next, nil
		})
		if err != nil {
			return head, err
		}
	}
	return head, nil
}

func (s *Store) putGarbage(c *change, g *GCRecord) { c.put(s.keys.gc(g.Attempt), encodeGC(g, c.op)) }

// DropPages takes page objects off the front of the manifest, once the log start has passed all of their entries, and records what
// they referred to as garbage (at most 90 records). ErrConflict: the head is another one by now.
func (s *Store) DropPages(ctx context.Context, l Leadership, d PageDrop) (Head, error) {
	return s.changeHead(ctx, l, "dropping manifest pages", nil, func(v *headView, c *change) (*Head, error) {
		if v.head.Rev != d.HeadRev {
			return nil, ErrConflict
		}
		next := v.head
		next.Pages = d.Pages
		next.TieredBytes = max(0, next.TieredBytes-d.Bytes)
		for i := range d.Garbage {
			s.putGarbage(c, &d.Garbage[i])
		}
		return &next, nil
	})
}

// Fold moves the oldest entries into a page object: the head names the page, and the entries are deleted afterwards, in steps.
// ErrConflict: the head is another one by now. Folding what is folded already gives the head as it is.
func (s *Store) Fold(ctx context.Context, l Leadership, f FoldCommit) (Head, error) {
	intentKey := s.keys.intent(l.ID, f.Attempt)
	head, err := s.changeHead(ctx, l, "folding the manifest", []string{intentKey}, func(v *headView, c *change) (*Head, error) {
		if v.head.FoldedEnd == f.FoldedEnd && slices.EqualFunc(v.head.Pages, f.Pages, bytes.Equal) {
			return nil, nil
		}
		if v.head.Rev != f.HeadRev {
			return nil, ErrConflict
		}
		if f.FoldedEnd <= v.head.FoldedEnd || f.FoldedEnd > v.head.TieredEnd {
			return nil, fmt.Errorf("%w: folding up to %d, folded end %d, tiered end %d", ErrRefused, f.FoldedEnd, v.head.FoldedEnd, v.head.TieredEnd)
		}
		c.unchanged(intentKey, f.IntentRev, ErrIntentClaimed)
		c.delete(intentKey)
		for i := range f.Replaced {
			s.putGarbage(c, &f.Replaced[i])
		}
		next := v.head
		next.Pages, next.FoldedEnd = f.Pages, f.FoldedEnd
		next.Count -= f.Folded
		return &next, nil
	})
	if err != nil {
		return head, err
	}
	return s.sweepFolded(ctx, l, head)
}

// sweepFolded deletes the entries that pages hold. What a crash leaves here is swept by the next fold.
func (s *Store) sweepFolded(ctx context.Context, l Leadership, head Head) (Head, error) {
	for {
		res, err := s.read(ctx, RangeRequest{
			Key: s.keys.segments(l.ID), End: s.keys.segment(l.ID, head.FoldedEnd), Limit: foldBatch, KeysOnly: true,
		})
		if err != nil || len(res.KVs) == 0 {
			return head, err
		}
		next, err := s.changeHead(ctx, l, "deleting folded entries", nil, func(v *headView, c *change) (*Head, error) {
			for i := range res.KVs {
				c.delete(res.KVs[i].Key)
			}
			same := v.head
			return &same, nil
		})
		if err != nil {
			return head, err
		}
		head = next
	}
}
