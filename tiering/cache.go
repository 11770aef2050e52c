// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/varve/varve/tiering/objstore"
)

// cache is a bounded LRU of immutable values with single flight: of those who miss one key, one loads. A load runs under the cache's context, not
// its caller's: a caller whose ctx ends leaves, and finds the value next time. Errors are not kept.
type cache[K comparable, V any] struct {
	base    context.Context
	limit   int64
	flights int
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		closed  bool
		size    int64
		items   map[K]*list.Element // of *item
		order   *list.List          // front: used last
		pending map[K]*load[V]
	}
}

type item[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

type load[V any] struct {
	done  chan struct{}
	tries tries
	value V
	err   error
}

func newCache[K comparable, V any](base context.Context, limit int64, flights int) *cache[K, V] {
	c := &cache[K, V]{base: base, limit: limit, flights: flights}
	c.mu.items, c.mu.order, c.mu.pending = make(map[K]*list.Element), list.New(), make(map[K]*load[V])
	return c
}

func (c *cache[K, V]) get(ctx context.Context, key K, fn func(context.Context) (V, int64, error)) (V, error) {
	var none V
	c.mu.Lock()
	if e, ok := c.mu.items[key]; ok {
		c.mu.order.MoveToFront(e)
		v := e.Value.(*item[K, V]).value
		c.mu.Unlock()
		return v, nil
	}
	l, ok := c.mu.pending[key]
	if !ok {
		if c.base.Err() != nil || c.mu.closed {
			c.mu.Unlock()
			return none, fmt.Errorf("%w: reader closed", ErrUnavailable)
		}
		if len(c.mu.pending) >= c.flights {
			c.mu.Unlock()
			return none, fmt.Errorf("%w: %d loads under way", ErrUnavailable, c.flights)
		}
		l = &load[V]{done: make(chan struct{})}
		c.mu.pending[key] = l
		c.running.Add(1)
		go c.load(key, l, fn)
	}
	c.mu.Unlock()
	awaits(ctx, &l.tries)
	select {
	case <-l.done:
		awaits(ctx, nil)
		return l.value, l.err
	case <-ctx.Done():
		return none, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

func (c *cache[K, V]) load(key K, l *load[V], fn func(context.Context) (V, int64, error)) {
	defer c.running.Done()
	v, size, err := fn(objstore.OnFailedTry(c.base, l.tries.failed))
	l.value, l.err = v, err
	c.mu.Lock()
	delete(c.mu.pending, key)
	if err == nil && size <= c.limit {
		c.mu.items[key] = c.mu.order.PushFront(&item[K, V]{key, v, size})
		for c.mu.size += size; c.mu.size > c.limit; {
			last := c.mu.order.Back()
			old := c.mu.order.Remove(last).(*item[K, V])
			delete(c.mu.items, old.key)
			c.mu.size -= old.size
		}
	}
	c.mu.Unlock()
	close(l.done)
}

// wait returns when no load runs any more; the base context has ended.
func (c *cache[K, V]) wait() {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.running.Wait()
}
