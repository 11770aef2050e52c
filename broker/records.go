// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
)

// DeleteRecords moves the log start up to offset to, or to the high watermark for NoOffset, and returns the new low watermark.
// It answers only once the metadata store has it, so that no crash brings the records back (protocols §7 R3).
func (p *Partition) DeleteRecords(ctx context.Context, to record.Offset) (low record.Offset, err error) {
	p.mu.Lock()
	lead, err := p.leadingLocked()
	if err != nil {
		p.mu.Unlock()
		return record.NoOffset, err
	}
	archive, known, hw, start, end := lead.archive, lead.isr.Known(), p.mu.hw, p.mu.logStart, p.mu.end
	compactOnly := p.mu.config.CleanupCompact && !p.mu.config.CleanupDelete
	p.mu.Unlock()
	switch {
	case compactOnly:
		return record.NoOffset, fmt.Errorf("%w: records of a compacted topic cannot be deleted by offset", ErrPolicy)
	case !known && (to == record.NoOffset || to > hw && to <= end):
		return record.NoOffset, ErrOffsetNotAvailable // just elected: an earlier leader may have told a higher one
	case to == record.NoOffset:
		to = hw
	case to < 0 || to > hw:
		return record.NoOffset, fmt.Errorf("%w: %d is above the high watermark %d", ErrOffsetOutOfRange, to, hw)
	}
	if to <= start {
		return start, nil
	}
	if archive == nil {
		return record.NoOffset, ErrOffsetNotAvailable
	}
	v, err := archive.AdvanceLogStart(ctx, to)
	if err != nil {
		return record.NoOffset, p.headError("advancing the log start", err)
	}
	return v.Head.LogStart, nil
}

// headError maps what changing the manifest head came to onto this package's errors.
func (p *Partition) headError(doing string, err error) error {
	if errors.Is(err, tiering.ErrEnded) || errors.Is(err, metadata.ErrFenced) {
		p.endLeading(ErrNotLeader)
		p.broker.dirty.addPartition(p.id)
		p.broker.kick()
		return fmt.Errorf("%w: %s of %s: %w", ErrNotLeader, doing, p.id, err)
	}
	return fmt.Errorf("%w: %s of %s: %w", ErrStorage, doing, p.id, err)
}

// AdoptHead takes over a newer manifest head: what was tiered, and where the log starts.
func (p *Partition) AdoptHead(h metadata.Head) {
	p.mu.Lock()
	moved := p.adoptHeadLocked(h)
	p.mu.Unlock()
	if moved {
		p.notify()
	}
}

// adoptHeadLocked tells whether the log start moved. Heads may arrive out of order; the log start never goes back.
func (p *Partition) adoptHeadLocked(h metadata.Head) (moved bool) {
	if h.Rev <= p.mu.head.Rev {
		return false
	}
	moved = h.LogStart > p.mu.logStart
	p.mu.head = h
	p.mu.logStart = max(p.mu.logStart, h.LogStart)
	p.mu.epochs = record.MergeEpochs(h.EpochChain, p.log.Epochs())
	// What is queued in the hot log is not among its bytes yet. Each offset counts for one at least: of a first unsealed batch that
	// counted for nothing the archiver would not hear.
	if p.mu.lead != nil {
		p.mu.lead.outline.Trim(max(h.TieredEnd, p.mu.logStart))
	}
	p.mu.unsealed = max(p.log.BytesFrom(max(h.TieredEnd, p.log.Start())), int64(p.mu.end-max(h.TieredEnd, p.mu.logStart)))
	return moved
}
