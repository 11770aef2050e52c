// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"sync"

	"github.com/varve/varve/internal/invariant"
	"github.com/varve/varve/record"
)

// recent knows where the last batches of a log lie: who keeps up reads there, and a look-up in Pebble costs more than the read of what it
// finds. The committer adds batches before readers may see them, and forgets all when places change.
type recent struct {
	mu     sync.Mutex
	places []place // a ring once there are as many as are kept: it begins at oldest
	oldest int
}

type place struct {
	base  record.Offset
	delta int32
	at    pointer
}

func (p *place) next() record.Offset { return p.base + record.Offset(p.delta) + 1 }

// add takes the place of the batch behind the last one. Of more than limit the oldest goes.
func (r *recent) add(p place, limit int) {
	if limit == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.places); n > 0 {
		last := &r.places[(r.oldest+n-1)%n]
		invariant.Check(last.next() == p.base, "H1: batches are dense")
	}
	if len(r.places) < limit {
		r.places = append(r.places, p)
		return
	}
	r.places[r.oldest] = p
	r.oldest = (r.oldest + 1) % limit
}

func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places, r.oldest = r.places[:0], 0
}

// find appends to dst the places from the batch that holds from up to the first that begins at or past bound; none if the batch of from
// is not among them. There are batches up to bound.
func (r *recent) find(dst []place, from, bound record.Offset) []place {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.places)
	i := n
	for i > 0 && r.places[(r.oldest+i-1)%n].base > from {
		i--
	}
	if i == 0 {
		return dst
	}
	for ; i <= n; i++ {
		p := r.places[(r.oldest+i-1)%n]
		if p.base >= bound {
			break
		}
		dst = append(dst, p)
	}
	return dst
}

// walkRecent is walk where the newest batches suffice; else it tells so and does nothing.
//
// What was trimmed, truncated or reset between the first look and the last is left to walk. A place that stands then had live bytes while
// this reader was in (DB.enter), so its file stays until the reader leaves.
func (l *Log) walkRecent(c *cursor, from, limit record.Offset, fn func(dataKey, pointer) (bool, error)) (done bool, err error) {
	generation := l.generation.Load()
	bound := min(limit, l.AppendedEnd())
	if from >= bound {
		return false, nil
	}
	c.places = l.recent.find(c.places[:0], from, bound)
	if len(c.places) == 0 || from < l.Start() || l.moved(generation) {
		return false, nil
	}
	for i := range c.places {
		p := &c.places[i]
		if more, err := fn(dataKey{base: p.base, delta: p.delta}, p.at); err != nil || !more {
			return true, l.readError(p.base, err)
		}
	}
	return true, nil
}
