// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"slices"
)

// ProducerState is what a partition remembers of an idempotent producer.
type ProducerState struct {
	ID           int64
	Epoch        int16
	LastSequence int32 // -1: none in this epoch
	LastUsed     int64 // ms since the epoch
}

// Producers are the idempotent producers that the partition remembers, by id. Only the leader tells.
func (p *Partition) Producers() ([]ProducerState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.lead == nil {
		return nil, ErrNotLeader
	}
	all := make([]ProducerState, 0, len(p.mu.lead.producers))
	for id, entry := range p.mu.lead.producers {
		s := ProducerState{ID: id, Epoch: entry.epoch, LastSequence: -1, LastUsed: entry.lastUsed}
		if entry.n > 0 {
			s.LastSequence = entry.batches[entry.n-1].lastSeq
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b ProducerState) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}
