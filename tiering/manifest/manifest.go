// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"sort"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/segment"
)

// Manifest is an immutable value: nobody changes one, or a slice got from one.
type Manifest struct {
	LogStart, TieredEnd record.Offset
	Pages               []Page  // older than every entry
	Entries             []Entry // not folded
}

// New checks and adopts what was loaded. Entries at or above the tiered end are dead (protocols §2) and left out.
func New(logStart, tieredEnd record.Offset, pages []Page, entries []Entry) (*Manifest, error) {
	live := sort.Search(len(entries), func(i int) bool { return entries[i].Base >= tieredEnd })
	m := &Manifest{LogStart: logStart, TieredEnd: tieredEnd, Pages: pages, Entries: entries[:live:live]}
	return m, m.check()
}

// check is M1.
func (m *Manifest) check() error {
	if m.LogStart < 0 || m.TieredEnd < m.LogStart {
		return fmt.Errorf("%w: log start %d, tiered end %d", ErrBroken, m.LogStart, m.TieredEnd)
	}
	next := record.NoOffset
	step := func(base, end record.Offset) error {
		switch {
		case end <= base:
			return fmt.Errorf("%w: empty range [%d, %d)", ErrBroken, base, end)
		case base == next:
		case base < next:
			return fmt.Errorf("%w: [%d, %d) overlaps what ends at %d", ErrBroken, base, end, next)
		case base > m.LogStart:
			return fmt.Errorf("%w: gap before %d, log start %d", ErrBroken, base, m.LogStart)
		}
		next = end
		return nil
	}
	for i := range m.Pages {
		if err := step(m.Pages[i].Base, m.Pages[i].End); err != nil {
			return err
		}
	}
	for i := range m.Entries {
		if err := step(m.Entries[i].Base, m.Entries[i].End); err != nil {
			return err
		}
	}
	if next > m.TieredEnd || next < m.TieredEnd && m.TieredEnd > m.LogStart {
		return fmt.Errorf("%w: segments end at %d, tiered end %d, log start %d", ErrBroken, next, m.TieredEnd, m.LogStart)
	}
	return nil
}

// Kind says what a Query looks for.
type Kind int8

const (
	ByOffset Kind = iota // the segment that holds Offset
	ByTime               // the first segment that reaches above Offset and has a record with a timestamp ≥ Time
	ByEpoch              // the first segment that reaches above the log start and holds an epoch ≥ Epoch
)

// Query is one lookup. For ByTime, Offset is where to start; it is raised to the log start.
type Query struct {
	Kind   Kind
	Offset record.Offset
	Time   int64
	Epoch  record.Epoch
}

// Locate is the one lookup function: it goes through folded pages and entries alike. A ByTime answer is a candidate when from or the log start cuts
// the segment: the record may lie below, then ask again from its end.
func (m *Manifest) Locate(q Query, load PageLoader) (Entry, bool, error) {
	from := max(q.Offset, m.LogStart)
	switch q.Kind {
	case ByOffset:
		if q.Offset < m.LogStart {
			return Entry{}, false, nil
		}
	case ByEpoch:
		from = m.LogStart
	}
	first := sort.Search(len(m.Pages), func(i int) bool { return m.Pages[i].End > from })
	for i := first; i < len(m.Pages); i++ {
		p := &m.Pages[i]
		if q.Kind == ByTime && p.MaxTimestamp < q.Time || q.Kind == ByEpoch && p.MaxEpoch < q.Epoch {
			continue
		}
		entries, err := load(*p)
		if err != nil {
			return Entry{}, false, fmt.Errorf("manifest page %s: %w", p.Object, err)
		}
		if e, ok := locate(entries, q, from); ok {
			return e, true, nil
		}
	}
	e, ok := locate(m.Entries, q, from)
	return e, ok, nil
}

// locate is Locate in one ascending run of entries.
func locate(entries []Entry, q Query, from record.Offset) (Entry, bool) {
	i := sort.Search(len(entries), func(i int) bool { return entries[i].End > from })
	for ; i < len(entries); i++ {
		e := &entries[i]
		switch {
		case q.Kind == ByOffset && e.Base > q.Offset:
			return Entry{}, false
		case q.Kind == ByOffset,
			q.Kind == ByTime && e.MaxTimestamp >= q.Time,
			q.Kind == ByEpoch && e.LastEpoch() >= q.Epoch:
			return *e, true
		}
	}
	return Entry{}, false
}

// Largest tells where the largest timestamp at or above the log start lies.
type Largest struct {
	Best    Entry // its OffsetOfMax is a record with the largest timestamp of all whole segments
	HasBest bool
	Cut     Entry // the segment that the log start cuts, if its maximum lies below the log start: only its data can tell the rest
	HasCut  bool
}

// LargestTimestamp loads at most two pages: the one the log start cuts and the one with the maximum.
func (m *Manifest) LargestTimestamp(load PageLoader) (Largest, error) {
	var l Largest
	var best *Page
	for i := range m.Pages {
		p := &m.Pages[i]
		if p.End <= m.LogStart {
			continue
		}
		if p.Base >= m.LogStart {
			if p.MaxTimestamp > segment.NoTimestamp && (best == nil || p.MaxTimestamp > best.MaxTimestamp) {
				best = p
			}
			continue
		}
		entries, err := load(*p)
		if err != nil {
			return l, fmt.Errorf("manifest page %s: %w", p.Object, err)
		}
		m.largest(entries, &l)
	}
	m.largest(m.Entries, &l)
	if best != nil && (!l.HasBest || best.MaxTimestamp > l.Best.MaxTimestamp) {
		entries, err := load(*best)
		if err != nil {
			return l, fmt.Errorf("manifest page %s: %w", best.Object, err)
		}
		m.largest(entries, &l)
	}
	if l.HasCut && l.HasBest && l.Cut.MaxTimestamp <= l.Best.MaxTimestamp {
		l.HasCut, l.Cut = false, Entry{}
	}
	return l, nil
}

func (m *Manifest) largest(entries []Entry, l *Largest) {
	for i := range entries {
		e := &entries[i]
		if e.End <= m.LogStart || e.MaxTimestamp == segment.NoTimestamp {
			continue
		}
		if e.OffsetOfMax < m.LogStart {
			l.Cut, l.HasCut = *e, true
		} else if !l.HasBest || e.MaxTimestamp > l.Best.MaxTimestamp {
			l.Best, l.HasBest = *e, true
		}
	}
}

// Walk calls fn for every segment that reaches above from, in order, until fn gives false.
func (m *Manifest) Walk(from record.Offset, load PageLoader, fn func(*Entry) bool) error {
	for i := range m.Pages {
		if m.Pages[i].End <= from {
			continue
		}
		entries, err := load(m.Pages[i])
		if err != nil {
			return fmt.Errorf("manifest page %s: %w", m.Pages[i].Object, err)
		}
		if !walk(entries, from, fn) {
			return nil
		}
	}
	walk(m.Entries, from, fn)
	return nil
}

func walk(entries []Entry, from record.Offset, fn func(*Entry) bool) bool {
	for i := range entries {
		if entries[i].End > from && !fn(&entries[i]) {
			return false
		}
	}
	return true
}

// DataBytes is the size of all segments listed, also of those below the log start.
func (m *Manifest) DataBytes() int64 {
	n := int64(0)
	for i := range m.Pages {
		n += m.Pages[i].DataBytes
	}
	for i := range m.Entries {
		n += m.Entries[i].DataBytes
	}
	return n
}

// FirstUnstable is where read_committed ends without a hot log: that of the newest segment, or the tiered end (protocols §3).
func (m *Manifest) FirstUnstable() record.Offset {
	if n := len(m.Entries); n > 0 && m.Entries[n-1].FirstUnstable != record.NoOffset {
		return m.Entries[n-1].FirstUnstable
	}
	return m.TieredEnd
}
