// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"

	"github.com/varve/varve/record"
)

// Edit is one change of a manifest: Append, AdvanceStart, Drop, DropPage, Fold or Replace.
type Edit interface {
	apply(m *Manifest) error // m is a private copy; its slices must be replaced, not written to
}

// Append adds the next segment.
type Append struct{ Entry Entry }

// AdvanceStart raises the log start, and the tiered end with it when that lies below: else no segment could start there again.
type AdvanceStart struct{ To record.Offset }

// Drop removes the oldest entries, which must be wholly below the log start; no page may be older.
type Drop struct{ Bases []record.Offset }

// DropPage removes the oldest page, which must be wholly below the log start.
type DropPage struct{ Base record.Offset }

// Fold moves the oldest entries into a page. With Replace the page also covers the newest page, which it replaces.
type Fold struct {
	Page    Page
	Replace bool
}

// Replace puts other segments in the place of a run of entries; they must tile the same range.
type Replace struct {
	Bases []record.Offset
	With  []Entry
}

// Apply gives the edited manifest, or an error and nothing has changed (M1, M2).
func (m *Manifest) Apply(e Edit) (*Manifest, error) {
	next := *m
	if err := e.apply(&next); err != nil {
		return nil, err
	}
	if err := next.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEdit, err)
	}
	return &next, nil
}

func (e Append) apply(m *Manifest) error {
	if e.Entry.Base != m.TieredEnd || e.Entry.End <= e.Entry.Base {
		return fmt.Errorf("%w: append [%d, %d) at tiered end %d", ErrEdit, e.Entry.Base, e.Entry.End, m.TieredEnd)
	}
	m.Entries = append(m.Entries[:len(m.Entries):len(m.Entries)], e.Entry)
	m.TieredEnd = e.Entry.End
	return nil
}

func (e AdvanceStart) apply(m *Manifest) error {
	m.LogStart = max(m.LogStart, e.To)
	m.TieredEnd = max(m.TieredEnd, m.LogStart)
	return nil
}

func (e Drop) apply(m *Manifest) error {
	if len(e.Bases) > len(m.Entries) || len(m.Pages) > 0 && len(e.Bases) > 0 {
		return fmt.Errorf("%w: drop of %d entries, there are %d and %d pages", ErrEdit, len(e.Bases), len(m.Entries), len(m.Pages))
	}
	for i, base := range e.Bases {
		if m.Entries[i].Base != base || m.Entries[i].End > m.LogStart {
			return fmt.Errorf("%w: drop of %d: oldest is [%d, %d), log start %d", ErrEdit, base, m.Entries[i].Base, m.Entries[i].End, m.LogStart)
		}
	}
	m.Entries = m.Entries[len(e.Bases):]
	return nil
}

func (e DropPage) apply(m *Manifest) error {
	if len(m.Pages) == 0 || m.Pages[0].Base != e.Base || m.Pages[0].End > m.LogStart {
		return fmt.Errorf("%w: drop of page at %d, log start %d", ErrEdit, e.Base, m.LogStart)
	}
	m.Pages = m.Pages[1:]
	return nil
}

func (e Fold) apply(m *Manifest) error {
	pages, from, count := m.Pages, e.Page.Base, e.Page.Count
	if e.Replace {
		if len(pages) == 0 {
			return fmt.Errorf("%w: no page to replace", ErrEdit)
		}
		last := pages[len(pages)-1]
		if last.Base != e.Page.Base {
			return fmt.Errorf("%w: page at %d cannot replace the one at %d", ErrEdit, e.Page.Base, last.Base)
		}
		pages, from, count = pages[:len(pages)-1], last.End, count-last.Count
	}
	if count <= 0 || count > len(m.Entries) || m.Entries[0].Base != from || m.Entries[count-1].End != e.Page.End {
		return fmt.Errorf("%w: page [%d, %d) does not cover the %d oldest entries", ErrEdit, e.Page.Base, e.Page.End, count)
	}
	for i := 1; i < count; i++ {
		if m.Entries[i].Base != m.Entries[i-1].End {
			return fmt.Errorf("%w: page over a gap at %d", ErrEdit, m.Entries[i-1].End)
		}
	}
	m.Pages = append(pages[:len(pages):len(pages)], e.Page)
	m.Entries = m.Entries[count:]
	return nil
}

func (e Replace) apply(m *Manifest) error {
	if len(e.Bases) == 0 || len(e.With) == 0 {
		return fmt.Errorf("%w: replace of nothing or by nothing", ErrEdit)
	}
	at := slices.IndexFunc(m.Entries, func(x Entry) bool { return x.Base == e.Bases[0] })
	if at < 0 || at+len(e.Bases) > len(m.Entries) {
		return fmt.Errorf("%w: replace: no entry at %d", ErrEdit, e.Bases[0])
	}
	old := m.Entries[at : at+len(e.Bases)]
	for i := range old {
		if old[i].Base != e.Bases[i] || i > 0 && old[i].Base != old[i-1].End {
			return fmt.Errorf("%w: replace: entry at %d is [%d, %d)", ErrEdit, e.Bases[i], old[i].Base, old[i].End)
		}
	}
	next := old[0].Base
	for i := range e.With {
		if e.With[i].Base != next || e.With[i].End <= next {
			return fmt.Errorf("%w: replace by [%d, %d) where %d was due", ErrEdit, e.With[i].Base, e.With[i].End, next)
		}
		next = e.With[i].End
	}
	if next != old[len(old)-1].End {
		return fmt.Errorf("%w: replacement ends at %d, the replaced at %d", ErrEdit, next, old[len(old)-1].End)
	}
	m.Entries = slices.Concat(m.Entries[:at], e.With, m.Entries[at+len(e.Bases):])
	return nil
}
