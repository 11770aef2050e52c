// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
)

// piece is one segment that may be part of the manifest.
type piece struct {
	manifest.Entry
	epoch record.Epoch // of the leader that sealed it; of a known one the last of its epochs
	known bool         // it is in the manifest already
}

func (p *piece) firstEpoch() record.Epoch {
	if len(p.Epochs) == 0 {
		return record.NoEpoch
	}
	return p.Epochs[0].Epoch
}

// run is a sequence of pieces that tile. Runs share their ends.
type run struct {
	first *link        // nil: an empty one
	epoch record.Epoch // of the last piece
	end   record.Offset
}

type link struct {
	piece
	next *link
}

func (r *run) pieces() (out []piece) {
	for l := r.first; l != nil; l = l.next {
		out = append(out, l.piece)
	}
	return out
}

func (r *run) better(than *run) bool {
	if r.epoch != than.epoch {
		return r.epoch > than.epoch
	}
	return r.end > than.end
}

// chains finds the best run from every base.
type chains struct {
	byBase map[record.Offset][]piece
	best   map[key]run
}

type key struct {
	base record.Offset
	last record.Epoch
}

func newChains(pieces []piece) *chains {
	c := &chains{byBase: map[record.Offset][]piece{}, best: map[key]run{}}
	for _, p := range pieces {
		c.byBase[p.Base] = append(c.byBase[p.Base], p)
	}
	for base, all := range c.byBase {
		// What the manifest knows is the truth; nothing takes its place.
		if i := slices.IndexFunc(all, func(p piece) bool { return p.known }); i >= 0 {
			c.byBase[base] = all[i : i+1]
		}
	}
	// Backwards, so that no run is followed twice and nothing is recursive.
	slices.SortFunc(pieces, func(a, b piece) int { return int(min(1, max(-1, b.Base-a.Base))) })
	for _, p := range pieces {
		c.extend(p)
	}
	return c
}

// extend makes the run that begins with a piece; what comes behind it is known already.
func (c *chains) extend(p piece) {
	if !slices.ContainsFunc(c.byBase[p.Base], func(q piece) bool { return q.Attempt == p.Attempt }) {
		return
	}
	r := c.from(p.End, p.LastEpoch())
	if r.first == nil {
		r.epoch, r.end = p.epoch, p.End
	}
	r.first = &link{piece: p, next: r.first}
	c.best[key{p.Base, p.firstEpoch()}] = pick(c.best, key{p.Base, p.firstEpoch()}, r)
}

func pick(best map[key]run, k key, r run) run {
	if old, there := best[k]; there && !r.better(&old) {
		return old
	}
	return r
}

// from is the best run that begins at base behind a segment of that epoch; an empty one ends at base.
func (c *chains) from(base record.Offset, last record.Epoch) run {
	out := run{end: base, epoch: record.NoEpoch}
	tried := map[record.Epoch]bool{}
	for _, p := range c.byBase[base] {
		first := p.firstEpoch()
		if first < last || tried[first] {
			continue // of an earlier leader, whose log was replaced
		}
		tried[first] = true
		if r, ok := c.best[key{base, first}]; ok && r.better(&out) {
			out = r
		}
	}
	return out
}

// bases are the offsets at which pieces begin, ascending.
func (c *chains) bases() []record.Offset {
	var out []record.Offset
	for b := range c.byBase {
		out = append(out, b)
	}
	slices.Sort(out)
	return out
}
