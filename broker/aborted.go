// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"slices"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
	"github.com/varve/varve/tiering/segment"
)

// hotAborted lists the aborted transactions for what was read from the hot log from one offset up to another. again: some of it was evicted since, and their
// list with it, so the read has to be planned anew. Everything read lies below the last stable offset of its plan, so no transaction
// that it needs can be added meanwhile.
func (p *Partition) hotAborted(from, next record.Offset, res *ReadResult) (again bool, err error) {
	list, floor, err := p.abortedIn(from, next)
	if err != nil || floor > from {
		return err == nil, err
	}
	res.abort(list)
	return false, nil
}

// abortedIn lists what was aborted in the hot log and matters to a reader of [from, to). The list is complete for markers at or above floor.
func (p *Partition) abortedIn(from, to record.Offset) (list []segment.Aborted, floor record.Offset, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.producersLocked()
	if known == nil {
		return nil, 0, ErrNotLeader
	}
	return known.aborted.within(from, to, nil), known.aborted.floor, nil
}

// coldAborted adds to what the segments list, for what was read from the bucket, what was aborted since they were sealed: a segment may have
// been sealed while the transaction was open, and its marker is then in the hot log, or in a segment that the view does not have yet.
func (p *Partition) coldAborted(ctx context.Context, v *tiering.View, from record.Offset, got tiering.ReadResult, res *ReadResult) (again bool, err error) {
	list, floor, err := p.abortedIn(from, got.Next)
	if err != nil {
		return false, err
	}
	if floor > v.Head.TieredEnd {
		// Markers between the two are in neither: the view is of before the last eviction.
		return true, p.reloadView(ctx, v)
	}
	res.abort(append(list, got.Aborted...))
	return false, nil
}

// abort takes over a list, by first offset and each transaction once.
func (r *ReadResult) abort(list []segment.Aborted) {
	slices.SortFunc(list, byFirst)
	for _, a := range slices.Compact(list) {
		r.Aborted = append(r.Aborted, AbortedTxn{ProducerID: a.ProducerID, FirstOffset: a.First})
	}
}
