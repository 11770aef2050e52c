// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"errors"
	"fmt"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
)

// LoadView reads a partition's head and manifest at one revision, linearizably.
func LoadView(ctx context.Context, meta Loader, id record.PartitionID) (*View, error) {
	head, values, _, err := meta.ReadManifest(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read manifest of %s: %w", id, err)
	}
	m, err := buildManifest(head, values)
	if err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", id, err)
	}
	return &View{ID: id, Head: head, Manifest: m}, nil
}

func buildManifest(head metadata.Head, values []metadata.SegmentValue) (*manifest.Manifest, error) {
	pages := make([]manifest.Page, len(head.Pages))
	for i, b := range head.Pages {
		p, err := manifest.DecodePage(b)
		if err != nil {
			return nil, err
		}
		pages[i] = p
	}
	entries := make([]manifest.Entry, 0, len(values))
	for _, v := range values {
		if v.Base < head.FoldedEnd {
			continue // folded; its deletion is still to come
		}
		e, err := manifest.DecodeEntry(v.Value)
		if err != nil {
			return nil, fmt.Errorf("entry at %d: %w", v.Base, err)
		}
		if e.Base != v.Base {
			return nil, fmt.Errorf("%w: entry at %d says it begins at %d", manifest.ErrCorrupt, v.Base, e.Base)
		}
		entries = append(entries, e)
	}
	return manifest.New(head.LogStart, head.TieredEnd, pages, entries)
}

// PageSource reads folded pages.
type PageSource interface {
	Page(ctx context.Context, p manifest.Page) ([]manifest.Entry, error)
}

// storePages reads pages straight from the store.
type storePages struct{ store objstore.Store }

func (s storePages) Page(ctx context.Context, p manifest.Page) ([]manifest.Entry, error) {
	b, err := s.store.Get(ctx, p.Object, 0, p.Len, nil)
	if err != nil {
		return nil, storeError(fmt.Errorf("get page %s: %w", p.Object, err))
	}
	return manifest.ReadPage(&p, b)
}

func (a *Archiver) loader(ctx context.Context) manifest.PageLoader {
	return func(p manifest.Page) ([]manifest.Entry, error) { return a.pages.Page(ctx, p) }
}

// storeError says what a failure of the store means to a reader: the object is gone, or try again.
func storeError(err error) error {
	if errors.Is(err, objstore.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
