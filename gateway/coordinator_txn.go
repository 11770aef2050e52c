// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/varve/varve/metadata"
)

// groupWriter sends what this node's shards have to write. Each shard has one change under way at most; what waits of all of them when a
// transaction can be sent shares it: a transaction costs the store much, a further change in it little. There is no timer: with
// nothing under way a change leaves at once.
type groupWriter struct {
	meta  *metadata.Store
	slots *semaphore.Weighted
	wg    sync.WaitGroup
	// flushed is how long transactions took.
	flushed *latency

	mu struct {
		sync.Mutex
		waiting []*shardWrite // in order of arrival
		ops     int           // of all that wait
		bytes   int
		senders int
	}
}

// shardWrite is a shard's change on its way.
type shardWrite struct {
	ctx        context.Context // of the shard's term
	change     metadata.ShardChange
	ops, bytes int
	result     chan metadata.ShardResult // has room for it
}

func newGroupWriter(meta *metadata.Store, slots *semaphore.Weighted) *groupWriter {
	return &groupWriter{meta: meta, slots: slots}
}

// change makes a shard's change. When ctx ends first, the change may still happen.
func (w *groupWriter) change(ctx context.Context, sc metadata.ShardChange) (metadata.Revision, error) {
	p := &shardWrite{ctx: ctx, change: sc, result: make(chan metadata.ShardResult, 1)}
	p.ops, p.bytes = sc.Cost()
	w.mu.Lock()
	w.mu.waiting = append(w.mu.waiting, p)
	w.mu.ops, w.mu.bytes = w.mu.ops+p.ops, w.mu.bytes+p.bytes
	if w.wantsSenderLocked() {
		w.mu.senders++
		w.wg.Go(w.send)
	}
	w.mu.Unlock()
	select {
	case r := <-p.result:
		return r.Revision, r.Err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %w", metadata.ErrUnknown, context.Cause(ctx))
	}
}

// wantsSenderLocked: one transaction is on its way, since two of half the size take the store longer. Further ones are sent when more waits
// than one can take, which is so where the store is far away.
func (w *groupWriter) wantsSenderLocked() bool {
	return w.mu.senders == 0 || w.mu.senders < maxJointWrites && (w.mu.ops > maxGroupTxnOps || w.mu.bytes > maxGroupTxnBytes)
}

// send sends transactions as long as something waits.
func (w *groupWriter) send() {
	for {
		_ = w.slots.Acquire(context.Background(), 1) // it cannot fail; whoever holds a slot gives it back when its shards end
		batch := w.take()
		if len(batch) > 0 {
			w.execute(batch)
		}
		w.slots.Release(1)
		if len(batch) == 0 {
			return
		}
	}
}

// take gives what goes into the next transaction; nothing: the sender has to end.
func (w *groupWriter) take() (batch []*shardWrite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ops, bytes := 0, 0
	for len(w.mu.waiting) > 0 {
		p := w.mu.waiting[0]
		if len(batch) > 0 && (ops+p.ops > maxGroupTxnOps || bytes+p.bytes > maxGroupTxnBytes) {
			break
		}
		w.mu.waiting[0] = nil
		w.mu.waiting = w.mu.waiting[1:]
		w.mu.ops, w.mu.bytes = w.mu.ops-p.ops, w.mu.bytes-p.bytes
		if p.ctx.Err() == nil { // else nobody waits for it any more
			batch = append(batch, p)
			ops, bytes = ops+p.ops, bytes+p.bytes
		}
	}
	if len(batch) == 0 {
		w.mu.senders--
	}
	return batch
}

// execute makes one transaction of the changes and tells their shards. It is given up when the terms of all of them have ended.
func (w *groupWriter) execute(batch []*shardWrite) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].ctx))
	defer cancel()
	var left atomic.Int32
	left.Store(int32(len(batch)))
	changes := make([]metadata.ShardChange, len(batch))
	for i, p := range batch {
		changes[i] = p.change
		defer context.AfterFunc(p.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	began := time.Now()
	results := w.meta.ChangeShards(ctx, changes)
	w.flushed.observe(time.Since(began))
	for i, r := range results {
		batch[i].result <- r
	}
}
