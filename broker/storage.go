// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
	"github.com/varve/varve/tiering/segment"
)

// This file is what the archiver needs of a partition: Partition implements tiering.Partition.
var _ tiering.Partition = (*Partition)(nil)

// minTrimBytes is the smallest step in which the hot log is trimmed: many small range tombstones slow every seek.
const minTrimBytes = 1 << 20

// Policy gives the topic's storage policy in force.
func (p *Partition) Policy() tiering.Policy {
	p.mu.Lock()
	c := p.mu.config
	p.mu.Unlock()
	millis := func(n int64) time.Duration {
		if n < 0 || n > int64(time.Duration(1<<63-1)/time.Millisecond) {
			return -1
		}
		return time.Duration(n) * time.Millisecond
	}
	policy := tiering.Policy{
		SegmentBytes: c.SegmentBytes, SegmentAge: millis(c.SegmentMillis),
		RetentionAge: millis(c.RetentionMillis), RetentionBytes: c.RetentionBytes,
		LocalRetentionAge: millis(c.LocalRetentionMillis), LocalRetentionBytes: c.LocalRetentionBytes,
		TimestampAfterMax: millis(c.TimestampAfterMillis),
	}
	if !c.CleanupDelete {
		policy.RetentionAge, policy.RetentionBytes = -1, -1
	}
	return policy
}

// Hot samples the partition once.
func (p *Partition) Hot(tieredEnd record.Offset) tiering.Hot {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := max(tieredEnd, p.log.Start())
	unsealed := p.log.BytesFrom(from)
	return tiering.Hot{
		LocalStart: p.log.Start(), LogStart: p.mu.logStart, HW: p.mu.hw, LSO: p.lsoLocked(), LogEnd: p.mu.end,
		LocalBytes: p.log.Bytes(), UnsealedBytes: unsealed, SealableBytes: max(0, unsealed-p.log.BytesFrom(p.lsoLocked())),
	}
}

// Epochs is the leader-epoch table as far back as the log goes.
func (p *Partition) Epochs() []record.EpochStart {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.mu.epochs)
}

// pin keeps a range of the hot log from being evicted.
type pin struct {
	p    *Partition
	base record.Offset
}

// Pin keeps [base, limit) in the hot log until it is released.
func (p *Partition) Pin(base, limit record.Offset) (tiering.Pinned, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if start := max(p.log.Start(), p.mu.evicting); base < start {
		return nil, fmt.Errorf("pinning %s from %d: %w: it starts at %d", p.id, base, hotlog.ErrTrimmed, start)
	}
	s := &pin{p: p, base: base}
	p.mu.pins = append(p.mu.pins, s)
	return s, nil
}

// Scan gives the batches of a range in order.
func (s *pin) Scan(from, limit record.Offset, fn func(record.Batch) error) error {
	return s.p.log.Scan(from, limit, fn)
}

// Outline gives what the leader noted of the range while it was appended.
func (s *pin) Outline(from, limit record.Offset) []segment.Part {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.p.mu.lead == nil {
		return nil
	}
	return s.p.mu.lead.outline.Within(from, limit, nil)
}

func (s *pin) Release() {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.mu.pins = slices.DeleteFunc(s.p.mu.pins, func(other *pin) bool { return other == s })
}

// Extra gives what a segment that ends at end carries besides its batches, so that a replica can start there (W2). Of each
// producer's window it holds the batches below end: what follows is in the hot log, from which a replica learns it.
func (s *pin) Extra(end record.Offset) (segment.Extra, error) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	lead := p.mu.lead
	if lead == nil {
		return segment.Extra{}, ErrNotLeader
	}
	extra := segment.Extra{Epochs: slices.Clone(p.mu.epochs), Producers: lead.producers.snapshot(end), FirstUnstable: record.NoOffset}
	for _, a := range lead.producers.aborted.within(s.base, end, nil) {
		if a.Marker < p.mu.hw { // else a later segment lists it: its marker is there
			extra.Aborted = append(extra.Aborted, a)
		}
	}
	return extra, nil
}

// Archived takes over what the archiver committed. A view that is older than the one in force, from the end of an earlier term,
// is not: what is evicted since would be missing in it.
func (p *Partition) Archived(v *tiering.View) {
	for cur := p.view.Load(); cur == nil || cur.Head.Rev <= v.Head.Rev; cur = p.view.Load() {
		if p.view.CompareAndSwap(cur, v) {
			break
		}
	}
	p.AdoptHead(v.Head)
}

// Evict trims the hot log below to, as far as it may: below the own high watermark, below what is in the bucket or deleted, and
// below every pin. A step is a sealed segment, everything there is, or at least minTrimBytes; smaller ones wait for more.
func (p *Partition) Evict(to record.Offset) error {
	p.mu.Lock()
	asked := to
	to = min(to, p.mu.hw, max(p.mu.head.TieredEnd, p.mu.logStart))
	for _, s := range p.mu.pins {
		to = min(to, s.base)
	}
	start := p.log.Start()
	gain := p.log.Bytes() - p.log.BytesFrom(to)
	if to <= start || gain < minTrimBytes && to < p.mu.end && (to < asked || to > p.mu.head.TieredEnd) {
		p.mu.Unlock()
		return nil
	}
	p.mu.evicting = max(p.mu.evicting, to) // a pin that comes between here and the trim is refused
	p.mu.Unlock()
	err := p.log.Trim(to)
	if errors.Is(err, hotlog.ErrClosed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("trimming %s to %d: %w", p.id, to, err)
	}
	p.mu.Lock()
	if p.mu.times != nil {
		p.mu.times.trim(p.log.Start())
	}
	if known := p.producersLocked(); known != nil {
		known.aborted.trim(p.log.Start())
	}
	p.mu.Unlock()
	return nil
}
