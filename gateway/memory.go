// SPDX-License-Identifier: Apache-2.0

package gateway

import "sync/atomic"

// byteBudget bounds bytes that can be had in smaller portions: whoever finds little left takes little (G4).
type byteBudget struct {
	limit int64
	used  atomic.Int64
}

// take reserves want bytes, or what is left of the budget, but never less than least: progress comes before the bound.
func (b *byteBudget) take(want, least int64) int64 {
	for {
		used := b.used.Load()
		n := max(min(want, b.limit-used), min(least, want))
		if b.used.CompareAndSwap(used, used+n) {
			return n
		}
	}
}

func (b *byteBudget) release(n int64) { b.used.Add(-n) }
