// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// sweepProducers forgets producers that were idle for producer.id.expiration.ms. It is one pass over the partitions a minute,
// and costs nothing for those without producers.
func (b *Broker) sweepProducers(ctx context.Context) error {
	for pause(ctx, producerSweepInterval) == nil {
		before := time.Now().Add(-b.Config().ProducerIDExpiration).UnixMilli()
		for _, p := range b.Partitions() {
			if err := p.forgetProducers(before); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetProducers drops those that were last used before that time, from memory and disk alike, and those idle longest of more
// than maxProducersPerPartition.
func (p *Partition) forgetProducers(before int64) error {
	p.mu.Lock()
	known := p.producersLocked()
	if known == nil {
		p.mu.Unlock()
		return nil
	}
	keys, idle := known.forget(before, maxProducersPerPartition)
	if lead := p.mu.lead; lead != nil {
		lead.dropGuards(before)
	}
	if len(keys) == 0 {
		p.mu.Unlock()
		return nil
	}
	// Queued under the lock, so that a batch of one of them that comes now is behind it.
	err := p.log.DropProducers(keys)
	led := p.mu.lead != nil
	p.mu.Unlock()
	if led {
		p.broker.producers.Add(-int64(idle))
	}
	if errors.Is(err, hotlog.ErrClosed) {
		return nil
	}
	return err
}

// dropOrphans removes hot logs of topics that were deleted while this node was away, and of partitions that are with others by now. One that
// still counts on this node stays until a leader has taken it out of the in-sync set.
func (b *Broker) dropOrphans(ctx context.Context) error {
	for _, db := range b.dbs {
		ids, err := db.Partitions()
		if err != nil {
			return fmt.Errorf("listing the partitions on disk: %w", err)
		}
		for _, id := range ids {
			if b.assigned(b.meta.Image().TopicByID(id.Topic), id.Index) {
				continue
			}
			needed, err := b.needed(ctx, id)
			if err != nil {
				b.log.Warn("cannot tell yet whether a hot log is still needed", "partition", id, "error", err)
			}
			if err != nil || needed {
				continue
			}
			if err := db.Drop(id); err != nil {
				return fmt.Errorf("removing the hot log of %s: %w", id, err)
			}
			b.log.Info("hot log of a deleted topic removed", "partition", id)
		}
	}
	return nil
}

// needed tells whether a hot log has to stay: it is assigned here, or may hold what nobody else has. A cache never decides that something
// does not exist, so both are read anew.
func (b *Broker) needed(ctx context.Context, id record.PartitionID) (bool, error) {
	topic, err := b.meta.ReadTopic(ctx, id.Topic)
	switch {
	case errors.Is(err, metadata.ErrUnknownTopic):
		return false, nil
	case err != nil:
		return false, err
	case b.assigned(topic, id.Index):
		return true, nil
	}
	state, err := b.meta.ReadPartition(ctx, id)
	return b.counts(&state.ISR), err
}
