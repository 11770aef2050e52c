// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// ear counts what a node says of itself that no client can see. What a dead one says counts for nothing.
type ear struct {
	slog.Handler
	n *node
}

// told are the lines that are counted.
var told = map[string]Event{
	"replica truncated":                                          TailTruncated,
	"replica starts at the end of the bucket":                    StartedAtTier,
	"registration lost, giving up all leadership":                SessionLost,
	"group coordinator: a classic group is a consumer group now": GroupUpgraded,
	"group coordinator: a consumer group is a classic group now": GroupDowngraded,
}

// Enabled implements slog.Handler.
func (e *ear) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || e.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (e *ear) Handle(ctx context.Context, r slog.Record) error {
	if event, ok := told[r.Message]; ok && !e.n.dead.Load() {
		e.n.w.cover.hit(event)
	}
	switch {
	case e.n.dead.Load():
	case r.Message == "this node is the controller":
		e.n.w.tookOffice(e.n)
	case r.Message == "replicas assigned":
		e.n.w.decided(r)
	case told[r.Message] == GroupUpgraded:
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "was" && a.Value.String() != group.Stable.String() {
				e.n.w.cover.hit(GroupUpgradedRebalancing)
			}
			return true
		})
	}
	if !e.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return e.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (e *ear) WithAttrs(attrs []slog.Attr) slog.Handler { return &ear{e.Handler.WithAttrs(attrs), e.n} }

// WithGroup implements slog.Handler.
func (e *ear) WithGroup(name string) slog.Handler { return &ear{e.Handler.WithGroup(name), e.n} }

// watch follows the metadata as the nodes see it.
type watch struct {
	mu      sync.Mutex
	newest  *metadata.Image // of all nodes'
	leaders map[leaderKey]metadata.LeaderState
}

type leaderKey struct {
	id    record.PartitionID
	epoch record.Epoch
}

// imageChanged checks S8 on what a node sees, and counts what happened since the newest image that any node had.
func (w *World) imageChanged(n *node, old, img *metadata.Image) {
	h := &w.watch
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaders == nil {
		h.leaders, h.newest = map[leaderKey]metadata.LeaderState{}, &metadata.Image{}
	}
	before := h.newest
	for t := range img.Topics() {
		for i := range t.Partitions {
			id := record.PartitionID{Topic: t.ID, Index: int32(i)}
			now, _ := img.Partition(id)
			if now.Leader.Rev == 0 {
				continue // not led yet, or being deleted
			}
			if was, ok := old.Partition(id); ok && was.Leader.Rev != 0 && now.Leader.Epoch < was.Leader.Epoch {
				w.failf("S8: node %d: the epoch of %s-%d went from %d to %d", n.m.id, t.Name, i, was.Leader.Epoch, now.Leader.Epoch)
			}
			key := leaderKey{id, now.Leader.Epoch}
			if known, ok := h.leaders[key]; !ok {
				h.leaders[key] = now.Leader
			} else if known.Node != now.Leader.Node || known.Incarnation != now.Leader.Incarnation {
				w.failf("S8: epoch %d of %s-%d is led by %+v and by %+v", now.Leader.Epoch, t.Name, i, known, now.Leader)
			}
			if was, ok := before.Partition(id); ok && img.Revision > before.Revision {
				w.count(before, img, &was, &now)
				if m, moved := before.TopicByID(id.Topic).Moves[id.Index]; moved && slices.Equal(t.Partitions[i], m.Target) {
					w.cover.hit(Reassigned)
				}
			}
		}
	}
	if img.Revision > before.Revision {
		h.newest = img
	}
}

// count counts what happened to one partition.
func (w *World) count(before, img *metadata.Image, was, now *metadata.PartitionState) {
	if was.Leader.Rev != 0 && was.Leader.Node != now.Leader.Node {
		b := img.Broker(was.Leader.Node)
		if b != nil && b.Incarnation == was.Leader.Incarnation {
			w.cover.hit(HandOver)
		} else {
			w.cover.hit(Failover)
			if w.uploading(was.Leader.Node) {
				w.cover.hit(FailoverInUpload)
			}
			if slices.ContainsFunc(was.ISR.ELR, func(e metadata.ELRMember) bool { return e.Node == now.Leader.Node }) {
				w.cover.hit(EligibleLed)
			}
		}
	}
	if len(was.ISR.ELR) == 0 && len(now.ISR.ELR) > 0 {
		w.cover.hit(BelowMinimum)
	}
	w.mu.Lock()
	back := Event("")
	for _, m := range now.ISR.Members {
		if at := w.machines[m.Node-1]; at.emptied && at.node != nil && at.node.store == m.StoreID {
			at.emptied, back = false, EmptyRejoined
		}
	}
	w.mu.Unlock()
	if back != "" {
		w.cover.hit(back)
	}
}

// uploading tells whether a node's life, or its last one at its end, had an upload under way.
func (w *World) uploading(id record.NodeID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.machines[id-1]
	return m.uploading || m.node != nil && m.node.uploads.Load() > 0
}
