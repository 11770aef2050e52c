// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/segment"
)

// object is one segment being read.
type object struct {
	view  *View
	entry *manifest.Entry
	index *segment.Index
}

// group is an aligned run of chunks: those whose position in the data falls into the same MiB. It is the unit of reading and caching, and a
// function of the index alone, so that two readers never cut one segment differently.
type group struct{ first, last int }

func (o *object) group(chunk int) group {
	cs, base := o.index.Chunks, o.index.Info.DataPos
	slot := (cs[chunk].Pos - base) / groupBytes
	first := sort.Search(len(cs), func(i int) bool { return (cs[i].Pos-base)/groupBytes >= slot })
	end := sort.Search(len(cs), func(i int) bool { return (cs[i].Pos-base)/groupBytes > slot })
	return group{first, end - 1}
}

func (o *object) span(g group) segment.Span { return segment.Span{First: g.first, Last: g.last} }
func (o *object) bytes(g group) int64       { return o.index.SpanBytes(o.span(g)) }

// key names a group for ever: an attempt is never reused.
type groupKey struct {
	attempt segment.Attempt
	first   int
}

// block is the verified data of one group. The cache holds a reference while it lists it, each reader one while it copies.
type block struct {
	key    groupKey
	data   []byte
	starts []int32 // where the chunks begin
	end    record.Offset
	level  int32 // how far ahead its reader was read for; 0: on demand
	refs   atomic.Int32
	pool   *groupCache
}

// from is the data from chunk number i of the group on.
func (b *block) from(i int) []byte { return b.data[b.starts[i]:] }

func (b *block) release() {
	if b.refs.Add(-1) == 0 {
		b.pool.recycle(b)
	}
}

// flight is one GET of a run of groups. Who joined before it landed takes its blocks from it, not from the cache, which may be too small
// to have kept them; the last to leave gives them up.
type flight struct {
	done   chan struct{}
	tries  tries
	blocks map[groupKey]*block // the flight's own references
	err    error
	joined int // guarded by groupCache.mu; the GET itself counts as one
}

// groupCache holds blocks in memory, least recently used out first, with single flight.
type groupCache struct {
	r       *Reader
	room    *semaphore.Weighted // memory of flights (T6)
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		closed  bool
		size    int64
		items   map[groupKey]*list.Element // of *block
		order   *list.List
		pending map[groupKey]*flight
		flights int
		free    [][]byte
		// following holds the segments whose successor is being brought.
		following map[segment.Attempt]struct{}
	}
}

func newGroupCache(r *Reader) *groupCache {
	c := &groupCache{r: r, room: semaphore.NewWeighted(r.cfg.InFlightBytes)}
	c.mu.items, c.mu.order, c.mu.pending = make(map[groupKey]*list.Element), list.New(), make(map[groupKey]*flight)
	c.mu.following = make(map[segment.Attempt]struct{})
	return c
}

func (c *groupCache) wait() {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.running.Wait()
}

// peek gives the block when it is in memory.
func (c *groupCache) peek(o object, g group) *block {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peekLocked(groupKey{o.entry.Attempt, g.first})
}

func (c *groupCache) peekLocked(k groupKey) *block {
	e, ok := c.mu.items[k]
	if !ok {
		return nil
	}
	c.mu.order.MoveToFront(e)
	b := e.Value.(*block)
	b.refs.Add(1)
	return b
}

// one gives the block of one group, getting it when it is not there.
func (c *groupCache) one(ctx context.Context, o object, g group) (*block, error) {
	bs, err := c.run(ctx, o, g, g)
	if err != nil {
		return nil, err
	}
	return bs[0], nil
}

// run gives the blocks of all groups from that of `from` to that of `to`. What is missing is got with one GET per gap.
func (c *groupCache) run(ctx context.Context, o object, from, to group) ([]*block, error) {
	var blocks []*block
	var f *flight
	defer func() { c.leave(f) }()
	for g := from; ; g = o.group(g.last + 1) {
		k := groupKey{o.entry.Attempt, g.first}
		b := f.take(k)
		if b == nil {
			c.leave(f)
			var err error
			if b, f, err = c.await(ctx, o, g, to); err != nil {
				releaseAll(blocks)
				return nil, err
			}
		}
		blocks = append(blocks, b)
		if g.last >= to.last {
			return blocks, nil
		}
	}
}

// await gives the block of g from memory, or from the flight that brings it; that one has been joined and must be left.
func (c *groupCache) await(ctx context.Context, o object, g, to group) (*block, *flight, error) {
	k := groupKey{o.entry.Attempt, g.first}
	c.mu.Lock()
	if b := c.peekLocked(k); b != nil {
		c.mu.Unlock()
		c.r.metrics.cache.WithLabelValues("hit").Inc()
		return b, nil, nil
	}
	result := "joined"
	f, ok := c.mu.pending[k]
	if !ok {
		var err error
		if f, err = c.startLocked(o, g, to, 0); err != nil {
			c.mu.Unlock()
			return nil, nil, err
		}
		result = "miss"
	}
	f.joined++
	c.mu.Unlock()
	c.r.metrics.cache.WithLabelValues(result).Inc()
	err := error(nil)
	awaits(ctx, &f.tries)
	select {
	case <-f.done:
		awaits(ctx, nil)
		err = f.err
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	if err != nil {
		c.leave(f)
		return nil, nil, err
	}
	return f.take(k), f, nil
}

// take gives another reference to a block of a flight that has landed.
func (f *flight) take(k groupKey) *block {
	if f == nil || f.blocks[k] == nil {
		return nil
	}
	b := f.blocks[k]
	b.refs.Add(1)
	return b
}

func (c *groupCache) leave(f *flight) {
	if f == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(f)
}

func (c *groupCache) leaveLocked(f *flight) {
	if f.joined--; f.joined > 0 {
		return
	}
	for _, b := range f.blocks {
		c.unrefLocked(b)
	}
	f.blocks = nil
}

func releaseAll(bs []*block) {
	for _, b := range bs {
		b.release()
	}
}

// startLocked begins a flight of the groups from g to at most `to`, as far as they are neither in memory nor under way.
func (c *groupCache) startLocked(o object, g, to group, level int32) (*flight, error) {
	if c.mu.closed || c.r.base.Err() != nil {
		return nil, fmt.Errorf("%w: reader closed", ErrUnavailable)
	}
	limit := maxFlights
	if level > 0 {
		limit = maxFlights / 4 // reading ahead never keeps out who is waiting
	}
	if c.mu.flights >= limit {
		return nil, fmt.Errorf("%w: %d reads under way", ErrUnavailable, c.mu.flights)
	}
	groups := []group{g}
	for last := g; last.last < to.last; {
		last = o.group(last.last + 1)
		k := groupKey{o.entry.Attempt, last.first}
		if _, ok := c.mu.items[k]; ok {
			break
		}
		if _, ok := c.mu.pending[k]; ok {
			break
		}
		groups = append(groups, last)
	}
	span := segment.Span{First: g.first, Last: groups[len(groups)-1].last}
	n := o.index.SpanBytes(span)
	if level > 0 && !c.room.TryAcquire(c.weight(n, len(groups))) {
		return nil, fmt.Errorf("%w: no memory to read ahead", ErrUnavailable)
	}
	f := &flight{done: make(chan struct{}), joined: 1}
	for _, g := range groups {
		c.mu.pending[groupKey{o.entry.Attempt, g.first}] = f
	}
	c.mu.flights++
	c.r.metrics.flights.Set(float64(c.mu.flights))
	c.running.Add(1)
	go c.fly(f, o, groups, span, n, level)
	return f, nil
}

// weight of a flight: what it gets, twice when that is cut up into several groups. One that is larger than all there is takes all there is.
func (c *groupCache) weight(n int64, groups int) int64 {
	if groups > 1 {
		n *= 2
	}
	return min(n, c.r.cfg.InFlightBytes)
}

func (c *groupCache) fly(f *flight, o object, groups []group, span segment.Span, n int64, level int32) {
	defer c.running.Done()
	var blocks map[groupKey]*block
	err := error(nil)
	if level == 0 {
		err = c.reserve(c.weight(n, len(groups)))
	}
	if err == nil {
		blocks, err = c.fetch(objstore.OnFailedTry(c.r.base, f.tries.failed), o, groups, span, n, level)
		c.room.Release(c.weight(n, len(groups)))
	}
	c.mu.Lock()
	for _, g := range groups {
		delete(c.mu.pending, groupKey{o.entry.Attempt, g.first})
	}
	c.mu.flights--
	c.r.metrics.flights.Set(float64(c.mu.flights))
	f.blocks, f.err = blocks, err
	for _, b := range blocks {
		c.listLocked(b)
	}
	close(f.done)
	c.leaveLocked(f)
	c.mu.Unlock()
}

// reserve waits for memory, no longer than a GET may take.
func (c *groupCache) reserve(n int64) error {
	ctx, cancel := context.WithTimeout(c.r.base, c.r.cfg.GetDeadline)
	defer cancel()
	if err := c.room.Acquire(ctx, n); err != nil {
		return fmt.Errorf("%w: no memory for %d bytes: %w", ErrUnavailable, n, err)
	}
	return nil
}

// fetch gets and verifies a run of groups. Bytes that fail are got once more.
func (c *groupCache) fetch(ctx context.Context, o object, groups []group, span segment.Span, n int64, level int32) (map[groupKey]*block, error) {
	ctx, cancel := context.WithTimeout(ctx, objstore.Deadline(c.r.cfg.GetDeadline, 0, n))
	defer cancel()
	kind := getData
	if level > 0 {
		kind = getPrefetch
	}
	off := o.entry.Pos + o.index.Chunks[span.First].Pos
	buf := c.buffer(int(n))
	var err error
	for range getTries {
		var data []byte
		if data, err = c.r.get(ctx, kind, o.entry.Object, off, n, buf[:0]); err != nil {
			c.reuse(buf)
			return nil, err
		}
		if err = verify(o, span, data); err == nil {
			return c.cut(o, groups, data, level), nil
		}
	}
	c.reuse(buf)
	var bad *badChunk
	if errors.As(err, &bad) {
		off, n = o.entry.Pos+o.index.Chunks[bad.chunk].Pos, int64(o.index.Chunks[bad.chunk].Len)
	}
	return nil, c.r.corrupt(o.entry.Object, off, n, err)
}

type badChunk struct {
	chunk int
	err   error
}

func (b *badChunk) Error() string { return b.err.Error() }
func (b *badChunk) Unwrap() error { return b.err }

// verify is T3.
func verify(o object, span segment.Span, data []byte) error {
	for i := span.First; i <= span.Last; i++ {
		n := int(o.index.Chunks[i].Len)
		if err := o.index.VerifyChunk(i, data[:n]); err != nil {
			return &badChunk{i, err}
		}
		data = data[n:]
	}
	return nil
}

// cut makes blocks of what came. One group keeps the buffer; several get their own, so that each can be evicted alone.
func (c *groupCache) cut(o object, groups []group, data []byte, level int32) map[groupKey]*block {
	blocks := make(map[groupKey]*block, len(groups))
	whole := data
	for _, g := range groups {
		n := int(o.bytes(g))
		b := &block{key: groupKey{o.entry.Attempt, g.first}, data: data[:n:n], end: o.index.ChunkEnd(g.last), level: level, pool: c}
		if len(groups) > 1 {
			b.data = append(c.buffer(n)[:0], data[:n]...)
		} else {
			b.data = data
		}
		data = data[n:]
		at := int32(0)
		for i := g.first; i <= g.last; i++ {
			b.starts = append(b.starts, at)
			at += o.index.Chunks[i].Len
		}
		b.refs.Store(1) // the flight's
		blocks[b.key] = b
	}
	if len(groups) > 1 {
		c.reuse(whole)
	}
	return blocks
}

// listLocked puts a block into the cache and evicts what no longer fits.
func (c *groupCache) listLocked(b *block) {
	if int64(len(b.data)) > c.r.cfg.CacheBytes {
		return
	}
	b.refs.Add(1)
	c.mu.items[b.key] = c.mu.order.PushFront(b)
	for c.mu.size += int64(len(b.data)); c.mu.size > c.r.cfg.CacheBytes; {
		last := c.mu.order.Back()
		old := c.mu.order.Remove(last).(*block)
		delete(c.mu.items, old.key)
		c.mu.size -= int64(len(old.data))
		c.unrefLocked(old)
	}
}

func (c *groupCache) unrefLocked(b *block) {
	if b.refs.Add(-1) == 0 {
		c.reuseLocked(b.data)
		b.data = nil
	}
}

func (c *groupCache) recycle(b *block) {
	c.reuse(b.data)
	b.data = nil
}
