// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/varve/varve/metadata"
)

// watcher is one watch on a stream of its own: what is asked of the stream (progress) is answered for this watch alone, and closing
// it leaves nothing behind.
type watcher struct {
	stream clientv3.Watcher
	ctx    context.Context
	cancel context.CancelFunc
	ch     clientv3.WatchChan
}

// Watch implements metadata.KV.
func (c *Client) Watch(ctx context.Context, prefix string, from metadata.Revision) metadata.Watcher {
	// Without a leader the member's answers are as old as its isolation: rather none.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	w := &watcher{stream: clientv3.NewWatcher(c.c), ctx: ctx, cancel: cancel}
	w.ch = w.stream.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(from)), clientv3.WithProgressNotify())
	return w
}

// Next implements metadata.Watcher. etcd sends the events of one revision in one response, so a batch is whole.
func (w *watcher) Next(ctx context.Context) (metadata.WatchBatch, error) {
	for {
		select {
		case r, ok := <-w.ch:
			if !ok {
				return metadata.WatchBatch{}, metadata.ErrWatchLost
			}
			if r.CompactRevision != 0 {
				return metadata.WatchBatch{}, fmt.Errorf("%w: history begins at revision %d", metadata.ErrCompacted, r.CompactRevision)
			}
			if err := r.Err(); err != nil {
				return metadata.WatchBatch{}, fmt.Errorf("%w: %w", metadata.ErrWatchLost, err)
			}
			if len(r.Events) > 0 || r.IsProgressNotify() {
				return batch(&r), nil
			}
		case <-w.ctx.Done():
			return metadata.WatchBatch{}, fmt.Errorf("%w: closed", metadata.ErrWatchLost)
		case <-ctx.Done():
			return metadata.WatchBatch{}, fmt.Errorf("%w: %w", metadata.ErrWatchLost, context.Cause(ctx))
		}
	}
}

func batch(r *clientv3.WatchResponse) metadata.WatchBatch {
	b := metadata.WatchBatch{Events: make([]metadata.Event, len(r.Events)), Revision: metadata.Revision(r.Header.Revision)}
	for i, e := range r.Events {
		b.Events[i] = metadata.Event{KeyValue: keyValue(e.Kv), Deleted: e.Type == clientv3.EventTypeDelete}
	}
	if n := len(b.Events); n > 0 {
		// The header may be ahead of what was sent; only a progress notice promises that nothing is missing.
		b.Revision = b.Events[n-1].ModRevision
	}
	return b
}

// RequestProgress implements metadata.Watcher.
func (w *watcher) RequestProgress(ctx context.Context) error {
	// The stream is found by the context's metadata, so it has to be the watch's own context.
	done := make(chan error, 1)
	go func() { done <- w.stream.RequestProgress(w.ctx) }()
	select {
	case err := <-done:
		return translate(ctx, err, false)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close implements metadata.Watcher.
func (w *watcher) Close() {
	w.cancel()
	_ = w.stream.Close() // it only repeats the cancellation
}
