// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
)

// readahead goes on where a sequential reader will: once it is past the middle of a group the next groups are got, more of them the longer
// it has gone on. Random readers do not get there.
func (c *groupCache) readahead(o object, g group, b *block, next record.Offset) {
	if middle := o.index.Chunks[(g.first+g.last+1)/2].Base; next <= middle && next < b.end {
		return
	}
	level := b.level + 1
	to := g
	for range min(level, maxReadahead) {
		if to.last+1 >= len(o.index.Chunks) {
			c.nextSegment(o, level)
			break
		}
		to = o.group(to.last + 1)
	}
	if to != g {
		c.ahead(o, o.group(g.last+1), to, level)
	}
}

// ahead starts a flight of what is missing from g to `to`, if there is room for that.
func (c *groupCache) ahead(o object, g, to group, level int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		k := groupKey{o.entry.Attempt, g.first}
		_, here := c.mu.items[k]
		_, coming := c.mu.pending[k]
		if !here && !coming {
			_, _ = c.startLocked(o, g, to, level) // no room: the reader will ask itself
			return
		}
		if g.last >= to.last {
			return
		}
		g = o.group(g.last + 1)
	}
}

// nextSegment brings the index and the first group of the segment behind o.
func (c *groupCache) nextSegment(o object, level int32) {
	if o.entry.End >= o.view.Manifest.TieredEnd {
		return
	}
	c.mu.Lock()
	if _, on := c.mu.following[o.entry.Attempt]; on || c.mu.closed || len(c.mu.following) >= maxFlights/4 {
		c.mu.Unlock()
		return
	}
	c.mu.following[o.entry.Attempt] = struct{}{}
	c.running.Add(1)
	c.mu.Unlock()
	go func() {
		defer c.running.Done()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.mu.following, o.entry.Attempt)
		}()
		e, x, err := c.r.locate(c.r.base, o.view, manifest.Query{Kind: manifest.ByOffset, Offset: o.entry.End})
		if err != nil || len(x.Chunks) == 0 {
			return // the reader meets the error itself
		}
		next := object{view: o.view, entry: &e, index: x}
		first := next.group(0)
		c.ahead(next, first, first, level)
	}()
}
