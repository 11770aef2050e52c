// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varve/varve/record"
)

// Intents reads a partition's upload intents, linearizably.
func (s *Store) Intents(ctx context.Context, id PartitionID) ([]Intent, error) {
	prefix := s.keys.intents(id)
	var out []Intent
	_, err := s.readAll(ctx, prefix, 0, func(kv *KeyValue) error {
		attempt, err := parseUUID(kv.Key[len(prefix):])
		if err != nil {
			return err
		}
		i, err := decodeIntent(attempt, kv)
		out = append(out, i)
		return err
	})
	return out, err
}

// GCRecords reads all garbage records, linearizably.
func (s *Store) GCRecords(ctx context.Context) ([]GCRecord, error) {
	prefix := s.keys.key(kindGC)
	var out []GCRecord
	_, err := s.readAll(ctx, prefix, 0, func(kv *KeyValue) error {
		attempt, err := parseUUID(kv.Key[len(prefix):])
		if err != nil {
			return err
		}
		g, err := decodeGC(attempt, kv)
		out = append(out, g)
		return err
	})
	return out, err
}

// ClaimIntent turns an intent into a garbage record. It contends with the commit of the upload: exactly one of them wins, the other
// gets ErrIntentClaimed.
func (s *Store) ClaimIntent(ctx context.Context, id PartitionID, i Intent, reason string) error {
	c := newChange("claiming upload %s of %s", i.Attempt, id)
	key := s.keys.intent(id, i.Attempt)
	c.unchanged(key, i.Rev, ErrIntentClaimed)
	c.delete(key)
	s.putGarbage(c, &GCRecord{Attempt: i.Attempt, Keys: i.Keys, UploadID: i.UploadID, NotBefore: time.Now(), Reason: reason})
	c.mark = s.keys.gc(i.Attempt)
	_, err := s.commit(ctx, c)
	return err
}

// DeleteGCRecord removes a garbage record whose objects are gone.
func (s *Store) DeleteGCRecord(ctx context.Context, g GCRecord) error {
	c := newChange("removing garbage record %s", g.Attempt)
	key := s.keys.gc(g.Attempt)
	c.unchanged(key, g.Rev, ErrConflict)
	c.delete(key)
	_, err := s.commit(ctx, c)
	return err
}

// DrainOptions say what metadata cannot know about entries and page pointers, which are opaque to it.
type DrainOptions struct {
	// Grace is how long objects of a deleted topic stay at least.
	Grace time.Duration
	// Segment is the garbage that a manifest entry leaves behind.
	Segment func(id PartitionID, base record.Offset, entry []byte) (GCRecord, error)
	// Page is the garbage that a page pointer leaves behind: the page object and the objects of its entries, in one or more records.
	Page func(ctx context.Context, id PartitionID, pointer []byte) ([]GCRecord, error)
}

// DrainDeleting does one pass over the topics that are being deleted: it turns what they have into garbage records, and removes the
// topic when nothing is left. It may run anywhere and more than once at a time. more: something is still to be done later.
func (s *Store) DrainDeleting(ctx context.Context, o DrainOptions) (more bool, err error) {
	prefix := s.keys.key(kindDeleting)
	type job struct {
		id    record.TopicID
		since time.Time
		rev   Revision
	}
	var jobs []job
	if _, err := s.readAll(ctx, prefix, 0, func(kv *KeyValue) error {
		id, err := record.ParseTopicIDHex(kv.Key[len(prefix):])
		if err != nil {
			return fmt.Errorf("%w: key %s: %w", ErrCorrupt, kv.Key, err)
		}
		var d deletingJSON
		err = decodeJSON("deletion", kv.Value, &d)
		jobs = append(jobs, job{id, time.UnixMilli(d.Since), kv.ModRevision})
		return err
	}); err != nil {
		return false, err
	}
	var failed []error
	for _, j := range jobs {
		d := drain{s: s, o: o, topic: j.id}
		err := d.run(ctx)
		if err == nil && time.Since(j.since) < s.opts.DeletingMinAge {
			// A CreateTopic whose answer was lost may still be on its way: the topic's key stands against it.
			more = true
			continue
		}
		if err == nil {
			err = d.finish(ctx, j.rev)
		}
		if err != nil {
			more = true
			failed = append(failed, fmt.Errorf("clearing away topic %s: %w", j.id, err))
		}
	}
	return more, errors.Join(failed...)
}

// drain clears one topic away. Each step is one transaction of at most drainBatch operations that can be repeated.
type drain struct {
	s     *Store
	o     DrainOptions
	topic record.TopicID
	c     *change
}

// under is the prefix of a kind's keys of the topic.
func (d *drain) under(kind string) string { return d.s.keys.prefix + kind + d.topic.Hex() + "/" }

func (d *drain) run(ctx context.Context) error {
	// The leaders first: from here on nobody can add anything (every change of a leader compares its key, and a takeover the topic's).
	for _, kind := range []string{kindLeader, kindISR} {
		if err := d.each(ctx, kind, func(_ context.Context, _ PartitionID, _ string, kv *KeyValue) error {
			return nil
		}); err != nil {
			return err
		}
	}
	if err := d.each(ctx, kindIntent, d.intent); err != nil {
		return err
	}
	if err := d.each(ctx, kindSegment, d.segment); err != nil {
		return err
	}
	return d.each(ctx, kindHead, d.head)
}

// each deletes every key of a kind, in steps. also adds what goes with a key to the step, before its deletion.
func (d *drain) each(ctx context.Context, kind string, also func(ctx context.Context, id PartitionID, rest string, kv *KeyValue) error) error {
	prefix := d.under(kind)
	for {
		res, err := d.s.read(ctx, RangeRequest{Key: prefix, End: prefixEnd(prefix), Limit: drainBatch / 2})
		if err != nil {
			return err
		}
		if len(res.KVs) == 0 {
			return nil
		}
		d.c = newChange("clearing away %s", prefix)
		for i := range res.KVs {
			kv := &res.KVs[i]
			id, rest, err := d.split(kv.Key[len(prefix):])
			if err != nil {
				return err
			}
			if err := also(ctx, id, rest, kv); err != nil {
				return err
			}
			d.c.unchanged(kv.Key, kv.ModRevision, ErrConflict)
			d.c.delete(kv.Key)
		}
		if _, err := d.s.commit(ctx, d.c); err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// split reads "{n}" or "{n}/{rest}".
func (d *drain) split(part string) (id PartitionID, rest string, err error) {
	n := part
	for i := range part {
		if part[i] == '/' {
			n, rest = part[:i], part[i+1:]
			break
		}
	}
	id, err = parsePartition(d.topic.Hex() + "/" + n)
	return id, rest, err
}

func (d *drain) intent(_ context.Context, _ PartitionID, rest string, kv *KeyValue) error {
	attempt, err := parseUUID(rest)
	if err != nil {
		return err
	}
	i, err := decodeIntent(attempt, kv)
	if err != nil {
		return err
	}
	d.garbage(GCRecord{Attempt: attempt, Keys: i.Keys, UploadID: i.UploadID})
	return nil
}

func (d *drain) segment(_ context.Context, id PartitionID, rest string, kv *KeyValue) error {
	base, err := parseOffset(rest)
	if err != nil {
		return err
	}
	g, err := d.o.Segment(id, base, kv.Value)
	if err != nil {
		return err
	}
	d.garbage(g)
	return nil
}

func (d *drain) garbage(g GCRecord) {
	g.NotBefore, g.Reason = time.Now().Add(d.o.Grace), "topic deleted"
	d.s.putGarbage(d.c, &g)
}

// head puts the garbage of the pages first, in transactions of its own: there may be more of it than one can hold. Repeating that
// after a crash writes the same records again.
func (d *drain) head(ctx context.Context, id PartitionID, _ string, kv *KeyValue) error {
	h, err := decodeHead(kv)
	if err != nil {
		return err
	}
	step := d.c
	defer func() { d.c = step }()
	for _, pointer := range h.Pages {
		records, err := d.o.Page(ctx, id, pointer)
		if err != nil {
			return err
		}
		for _, g := range records {
			d.c = newChange("recording the garbage of a manifest page of %s", id)
			d.c.unchanged(kv.Key, kv.ModRevision, ErrConflict)
			d.garbage(g)
			d.c.mark = d.s.keys.gc(g.Attempt)
			if _, err := d.s.commit(ctx, d.c); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish removes the topic, once nothing of it is left.
func (d *drain) finish(ctx context.Context, rev Revision) error {
	topicKey, deletingKey := d.s.keys.topic(d.topic), d.s.keys.deleting(d.topic)
	c := newChange("removing the deleted topic %s", d.topic)
	c.unchanged(deletingKey, rev, ErrConflict)
	for _, kind := range []string{kindLeader, kindISR, kindHead, kindSegment, kindIntent} {
		prefix := d.under(kind)
		c.require(Compare{Key: prefix, End: prefixEnd(prefix), Target: TargetCreateRevision, Relation: Equal, Number: 0}, ErrConflict)
	}
	c.delete(topicKey)
	c.delete(deletingKey)
	if _, err := d.s.commit(ctx, c); err != nil && !errors.Is(err, ErrConflict) {
		return err
	}
	return nil
}
