// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"math/bits"
	"sync"

	"github.com/varve/varve/internal/invariant"
)

// buffer is a pooled byte slice. Whoever got it owns it until put, or lets the garbage collector have it when something below
// may still read it (G5).
type buffer struct {
	b     []byte
	class int8 // -1: not pooled
}

const (
	minClass = 12 // 4 KiB
	maxClass = 24 // 16 MiB
)

var pools [maxClass + 1]sync.Pool

// poisonBuffers makes put overwrite what it takes back, so that a test sees a use after it. Tests set it before any other use.
var poisonBuffers bool

// getBuffer returns an empty buffer with room for n bytes.
func getBuffer(n int) *buffer {
	if n > maxPooled {
		return &buffer{b: make([]byte, 0, n), class: -1}
	}
	class := int8(max(minClass, bits.Len(uint(max(n, 1)-1))))
	if v := pools[class].Get(); v != nil {
		return v.(*buffer)
	}
	return &buffer{b: make([]byte, 0, 1<<class), class: class}
}

// put gives the buffer back. A slice that outgrew its class is left to the garbage collector, its class's buffer with it.
func (b *buffer) put() {
	if b == nil || b.class < 0 || cap(b.b) != 1<<b.class {
		return
	}
	if poisonBuffers {
		invariant.Poison(b.b[:cap(b.b)])
	}
	b.b = b.b[:0]
	pools[b.class].Put(b)
}
