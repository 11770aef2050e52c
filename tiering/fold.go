// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/segment"
)

// foldLimit is how many entries this partition may keep unfolded: its share of the cluster's one number.
func (a *Archiver) foldLimit() int {
	n := 0
	if a.cfg.Partitions != nil {
		n = a.cfg.Partitions()
	} else {
		a.mu.Lock()
		n = len(a.mu.handles)
		a.mu.Unlock()
	}
	return max(a.cfg.MinFold, a.limits.Load().ManifestEntries/max(n, 1))
}

// foldDue moves the oldest entries into pages until half the share is left.
func (h *Handle) foldDue(ctx context.Context) (time.Time, error) {
	limit := h.a.foldLimit()
	if len(h.View().Manifest.Entries) <= limit {
		return time.Time{}, nil
	}
	for len(h.View().Manifest.Entries) > limit/2 {
		if len(h.View().Manifest.Pages) >= maxPages {
			h.a.cfg.Logger.Warn("fold: too many pages", "partition", h.term.ID.String(), "topic", h.term.TopicName, "pages", maxPages)
			return time.Time{}, nil
		}
		if err := h.fold(ctx, len(h.View().Manifest.Entries)-limit/2); err != nil {
			return time.Time{}, err
		}
	}
	return time.Time{}, nil
}

// fold makes one page of up to n entries: behind those of the newest page while that has room, else a new one. Same protocol as a segment.
func (h *Handle) fold(ctx context.Context, n int) error {
	v := h.View()
	m := v.Manifest
	var entries []manifest.Entry
	var replaced []metadata.GCRecord
	now := time.Now()
	if k := len(m.Pages); k > 0 && m.Pages[k-1].Count < h.a.cfg.PageEntries && m.Pages[k-1].End == m.Entries[0].Base {
		last := m.Pages[k-1]
		old, err := h.a.loader(ctx)(last)
		if err != nil {
			return err
		}
		entries = slices.Clone(old)
		replaced = []metadata.GCRecord{{Attempt: metadata.UUID(last.Attempt), Keys: []string{last.Object}, NotBefore: now.Add(h.a.limits.Load().GCGrace), Reason: "page replaced"}}
	}
	n = min(n, h.a.cfg.PageEntries-len(entries), len(m.Entries))
	entries = append(entries, m.Entries[:n]...)
	attempt := segment.Attempt(uuid.New())
	object := pageKey(h.term.ClusterID, h.term.ID, entries[0].Base, attempt)
	page, body, err := manifest.BuildPage(attempt, object, entries)
	if err != nil {
		return err
	}
	edit := manifest.Fold{Page: page, Replace: replaced != nil}
	folded, err := m.Apply(edit)
	if err != nil {
		return err
	}
	intent := metadata.Intent{Attempt: metadata.UUID(attempt), Kind: metadata.IntentPage, Keys: []string{object},
		Range: metadata.OffsetRange{Base: page.Base, End: page.End}, Epoch: h.term.Epoch, Started: now}
	if err := h.put(ctx, &intent, objstore.Bytes(body), page.CRC); err != nil {
		return fmt.Errorf("page [%d, %d): %w", page.Base, page.End, err)
	}
	pages := make([][]byte, len(folded.Pages))
	for i := range folded.Pages {
		pages[i] = manifest.AppendPage(nil, &folded.Pages[i])
	}
	err = h.change(ctx, func(ctx context.Context) (metadata.Head, []manifest.Edit, error) {
		head, err := h.a.meta.Fold(ctx, h.term.Leadership, metadata.FoldCommit{IntentRev: intent.Rev, Attempt: intent.Attempt, HeadRev: v.Head.Rev,
			FoldedEnd: page.End, Folded: int64(n), Pages: pages, Replaced: replaced})
		return head, []manifest.Edit{edit}, err
	})
	if err != nil {
		return fmt.Errorf("fold [%d, %d): %w", page.Base, page.End, err)
	}
	h.a.metrics.folds.Inc()
	return nil
}
