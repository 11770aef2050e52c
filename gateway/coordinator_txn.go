// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/varve/varve/metadata"
)

// groupWriter sends what this node's shards have to write. What waits of all of them when a transaction can be sent shares it: a
// transaction costs the store much, a further change in it little. There is no timer: with nothing under way a change leaves at once.
type groupWriter struct {
	meta  *metadata.Store
	slots *semaphore.Weighted
	wg    sync.WaitGroup
	// ctx ends when no shard is left: what is under way then is given up.
	ctx    context.Context
	cancel context.CancelFunc
	// flushed is how long transactions took.
	flushed *latency
	// work wakes a sender that rests. It has room for all of them.
	work chan struct{}

	mu struct {
		sync.Mutex
		waiting []*shardWrite // in order of arrival
		ops     int           // of all that wait
		bytes   int
		senders int // whose turn it is to send
		resting int
	}
}

// shardWrite is a shard's change on its way.
type shardWrite struct {
	ctx        context.Context // of the shard's term
	change     metadata.ShardChange
	ops, bytes int
	done       func(metadata.ShardResult) // does not wait
}

func newGroupWriter(meta *metadata.Store, slots *semaphore.Weighted) *groupWriter {
	w := &groupWriter{meta: meta, slots: slots, work: make(chan struct{}, maxRestingSenders)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// close ends the senders, once no shard writes any more. What is under way may still happen.
func (w *groupWriter) close() {
	w.cancel()
	w.wg.Wait()
}

// submit has a shard's change made, and calls done with what became of it, which must not wait: never, when ctx ended before it was sent.
func (w *groupWriter) submit(ctx context.Context, sc metadata.ShardChange, done func(metadata.ShardResult)) {
	p := &shardWrite{ctx: ctx, change: sc, done: done}
	p.ops, p.bytes = sc.Cost()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.waiting = append(w.mu.waiting, p)
	w.mu.ops, w.mu.bytes = w.mu.ops+p.ops, w.mu.bytes+p.bytes
	if w.wantsSenderLocked() {
		w.mu.senders++
		w.startLocked()
	}
}

// startLocked gives a goroutine the turn to send: a new one would have to grow its stack.
func (w *groupWriter) startLocked() {
	if w.mu.resting > 0 {
		w.mu.resting--
		w.work <- struct{}{}
		return
	}
	w.wg.Go(w.send)
}

// wantsSenderLocked: one transaction is on its way, since two of half the size take the store longer. Further ones are sent when more waits
// than one can take, which is so where the store is far away.
func (w *groupWriter) wantsSenderLocked() bool {
	return w.mu.senders == 0 || w.mu.senders < maxJointWrites && (w.mu.ops > maxGroupTxnOps || w.mu.bytes > maxGroupTxnBytes)
}

// send sends a transaction, passes the turn on, tells the shards, and rests until it is wanted again.
func (w *groupWriter) send() {
	for {
		_ = w.slots.Acquire(context.Background(), 1) // it cannot fail; whoever holds a slot gives it back when its shards end
		batch := w.take()
		results := w.execute(batch)
		w.slots.Release(1)
		w.pass()
		for i, r := range results {
			batch[i].done(r)
		}
		if !w.rest() {
			return
		}
		select {
		case <-w.work:
		case <-w.ctx.Done():
			return
		}
	}
}

// take gives what goes into the next transaction.
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
	return batch
}

// pass gives the turn to another sender if more waits: to tell the shards takes its time.
func (w *groupWriter) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.waiting) > 0 {
		w.startLocked()
	} else {
		w.mu.senders--
	}
}

// rest tells a sender to wait for its next turn; false: enough others do.
func (w *groupWriter) rest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.resting == maxRestingSenders {
		return false
	}
	w.mu.resting++
	return true
}

// execute makes one transaction of the changes. A term that ends meanwhile does not end it: what a node sent in a term that is over is decided
// by the store.
func (w *groupWriter) execute(batch []*shardWrite) []metadata.ShardResult {
	if len(batch) == 0 {
		return nil
	}
	changes := make([]metadata.ShardChange, len(batch))
	for i, p := range batch {
		changes[i] = p.change
	}
	began := time.Now()
	results := w.meta.ChangeShards(w.ctx, changes)
	w.flushed.observe(time.Since(began))
	return results
}
