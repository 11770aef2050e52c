// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/varve/varve/metadata"
)

// Outcome is what happens to one transaction of a client.
type Outcome struct {
	// Unavailable: it is not executed, and the caller hears so.
	Unavailable bool
	// LoseRequest: it is not executed, but the caller cannot know (ErrUnknown).
	LoseRequest bool
	// LoseReply: it is executed, but the caller cannot know.
	LoseReply bool
	// Late: the caller hears ErrUnknown at once, and it is executed this much later.
	Late time.Duration
	// Held: the caller hears ErrUnknown at once, and it is executed when this is closed.
	Held <-chan struct{}
}

// Faults are what is wrong between a client and the store.
type Faults struct {
	// Outage: the store cannot be reached; leases go on running out.
	Outage bool
	// DeadWatch: watches hang silently, as behind a half-open connection.
	DeadWatch bool
	// Delay of every request.
	Delay time.Duration
	// Txn decides about each transaction; nil: all are well.
	Txn func(t metadata.Txn) Outcome
	// Range decides about each read; nil: all are well.
	Range func(r metadata.RangeRequest) error
}

// Client is one node's access to a Server. It implements metadata.KV.
type Client struct {
	server *Server
	done   chan struct{}
	once   sync.Once

	mu struct {
		sync.Mutex
		faults Faults
	}
}

var _ metadata.KV = (*Client)(nil)

// SetFaults replaces what is wrong with this client's connection. It wakes watches.
func (c *Client) SetFaults(f Faults) {
	c.mu.Lock()
	c.mu.faults = f
	c.mu.Unlock()
	c.server.mu.Lock()
	c.server.wakeLocked()
	c.server.mu.Unlock()
}

func (c *Client) faults() Faults {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.faults
}

// reach is the way to the store: it waits the delay, and fails when there is no way.
func (c *Client) reach(ctx context.Context) (Faults, error) {
	f := c.faults()
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return f, fmt.Errorf("%w: %w", metadata.ErrUnavailable, context.Cause(ctx))
		}
		f = c.faults()
	}
	select {
	case <-c.done:
		return f, fmt.Errorf("%w: %w", metadata.ErrUnavailable, metadata.ErrClosed)
	default:
	}
	if err := ctx.Err(); err != nil {
		return f, fmt.Errorf("%w: %w", metadata.ErrUnavailable, context.Cause(ctx))
	}
	c.server.mu.Lock()
	out := c.server.mu.outage
	c.server.mu.Unlock()
	if out || f.Outage {
		return f, fmt.Errorf("%w: no connection", metadata.ErrUnavailable)
	}
	return f, nil
}

// Txn implements metadata.KV.
func (c *Client) Txn(ctx context.Context, t metadata.Txn) (metadata.TxnResult, error) {
	f, err := c.reach(ctx)
	if err != nil {
		return metadata.TxnResult{}, err
	}
	var o Outcome
	if f.Txn != nil {
		o = f.Txn(t)
	}
	switch {
	case o.Unavailable:
		return metadata.TxnResult{}, metadata.ErrUnavailable
	case o.LoseRequest:
		return metadata.TxnResult{}, metadata.ErrUnknown
	case o.Late > 0:
		time.AfterFunc(o.Late, func() { c.unheard(t) })
		return metadata.TxnResult{}, metadata.ErrUnknown
	case o.Held != nil:
		go func() {
			<-o.Held
			c.unheard(t)
		}()
		return metadata.TxnResult{}, metadata.ErrUnknown
	}
	c.server.mu.Lock()
	res, err := c.server.txnLocked(t)
	c.server.mu.Unlock()
	if err == nil && o.LoseReply {
		return metadata.TxnResult{}, metadata.ErrUnknown
	}
	return res, err
}

// unheard executes a transaction when nobody is left who could hear of it.
func (c *Client) unheard(t metadata.Txn) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	_, _ = c.server.txnLocked(t)
}

// Range implements metadata.KV.
func (c *Client) Range(ctx context.Context, req metadata.RangeRequest) (metadata.RangeResult, error) {
	f, err := c.reach(ctx)
	if err != nil {
		return metadata.RangeResult{}, err
	}
	if f.Range != nil {
		if err := f.Range(req); err != nil {
			return metadata.RangeResult{}, err
		}
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.server.rangeLocked(req)
}

// Status implements metadata.KV.
func (c *Client) Status(ctx context.Context) (metadata.Status, error) {
	if _, err := c.reach(ctx); err != nil {
		return metadata.Status{}, err
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	var size int64
	for _, versions := range c.server.mu.items {
		for i := range versions {
			size += int64(len(versions[i].Key) + len(versions[i].Value))
		}
	}
	return metadata.Status{
		ClusterID: c.server.mu.clusterID, Revision: c.server.mu.rev, Version: "memory", DBSize: size, DBSizeInUse: size,
	}, nil
}

// Compact implements metadata.KV.
func (c *Client) Compact(ctx context.Context, rev metadata.Revision) error {
	if _, err := c.reach(ctx); err != nil {
		return err
	}
	c.server.Compact(rev)
	return nil
}

// Grant implements metadata.KV.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (metadata.LeaseID, time.Duration, error) {
	if _, err := c.reach(ctx); err != nil {
		return 0, 0, err
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	id, got := c.server.grantLocked(ttl)
	return id, got, nil
}

// KeepAlive implements metadata.KV.
func (c *Client) KeepAlive(ctx context.Context, id metadata.LeaseID) error {
	if _, err := c.reach(ctx); err != nil {
		return err
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	l := c.server.mu.leases[id]
	if l == nil {
		return metadata.ErrLeaseNotFound
	}
	l.until = time.Now().Add(l.ttl)
	l.timer.Reset(l.ttl)
	return nil
}

// Revoke implements metadata.KV.
func (c *Client) Revoke(ctx context.Context, id metadata.LeaseID) error {
	if _, err := c.reach(ctx); err != nil {
		return err
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if l := c.server.mu.leases[id]; l != nil {
		c.server.endLeaseLocked(l)
	}
	return nil
}

// Close implements metadata.KV.
func (c *Client) Close() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

// Watch implements metadata.KV.
func (c *Client) Watch(_ context.Context, prefix string, from metadata.Revision) metadata.Watcher {
	return &watcher{client: c, prefix: prefix, next: from, done: make(chan struct{}), asked: make(chan struct{}, 1)}
}

// watchBatch bounds the events of one batch.
const watchBatch = 1000

type watcher struct {
	client *Client
	prefix string
	next   metadata.Revision
	asked  chan struct{}
	once   sync.Once
	done   chan struct{}
}

// Next implements metadata.Watcher. The watcher keeps its position and reads the store's history from there, so it has no
// queue that could overflow.
func (w *watcher) Next(ctx context.Context) (metadata.WatchBatch, error) {
	s := w.client.server
	progress := false
	for {
		f := w.client.faults()
		s.mu.Lock()
		changed := s.mu.changed
		reachable := !s.mu.outage && !f.Outage && !f.DeadWatch
		if reachable && w.next < s.mu.compacted {
			compacted := s.mu.compacted
			s.mu.Unlock()
			return metadata.WatchBatch{}, fmt.Errorf("watching from revision %d, compacted at %d: %w", w.next, compacted, metadata.ErrCompacted)
		}
		var b metadata.WatchBatch
		if reachable {
			b.Events = s.eventsLocked(w.prefix, w.next, watchBatch)
			b.Revision = s.mu.rev
		}
		s.mu.Unlock()
		if n := len(b.Events); n > 0 {
			b.Revision = b.Events[n-1].ModRevision
			w.next = b.Revision + 1
			return b, nil
		}
		if reachable && progress {
			// An answer below the position is given as it is: it shows that the store went back.
			w.next = max(w.next, b.Revision+1)
			return b, nil
		}
		select {
		case <-changed:
		case <-w.asked:
			progress = true
		case <-w.done:
			return metadata.WatchBatch{}, fmt.Errorf("%w: closed", metadata.ErrWatchLost)
		case <-w.client.done:
			return metadata.WatchBatch{}, fmt.Errorf("%w: client closed", metadata.ErrWatchLost)
		case <-ctx.Done():
			return metadata.WatchBatch{}, fmt.Errorf("%w: %w", metadata.ErrWatchLost, context.Cause(ctx))
		}
	}
}

// RequestProgress implements metadata.Watcher.
func (w *watcher) RequestProgress(context.Context) error {
	select {
	case w.asked <- struct{}{}:
	default:
	}
	return nil
}

// Close implements metadata.Watcher.
func (w *watcher) Close() { w.once.Do(func() { close(w.done) }) }
