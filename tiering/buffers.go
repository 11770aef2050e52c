// SPDX-License-Identifier: Apache-2.0

package tiering

import "github.com/varve/varve/internal/invariant"

// buffer gives a buffer of length n, a used one when one fits.
func (c *groupCache) buffer(n int) []byte {
	c.mu.Lock()
	for i, b := range c.mu.free {
		if cap(b) >= n && cap(b) <= 2*n+groupBytes {
			c.mu.free = append(c.mu.free[:i], c.mu.free[i+1:]...)
			c.mu.Unlock()
			return b[:n]
		}
	}
	c.mu.Unlock()
	const round = 64 << 10
	return make([]byte, n, (n+round-1)/round*round)
}

func (c *groupCache) reuse(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reuseLocked(b)
}

// poison makes tests see a read of a buffer that was given back.
var poison = false

func (c *groupCache) reuseLocked(b []byte) {
	if poison {
		invariant.Poison(b[:cap(b)])
	}
	if len(c.mu.free) < maxFreeBuffers && cap(b) <= 2*groupBytes {
		c.mu.free = append(c.mu.free, b)
	}
}
