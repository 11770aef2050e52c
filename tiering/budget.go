// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"cmp"
	"context"
	"slices"
)

// budget frees hot bytes while the node is over its budget: first what is in the bucket already, then by sealing the
// partitions with most unsealed bytes.
func (a *Archiver) budget(ctx context.Context) error {
	hotBytes := a.limits.Load().HotBytes
	if hotBytes <= 0 {
		return nil
	}
	total := int64(0)
	if a.cfg.NodeHotBytes != nil {
		total = a.cfg.NodeHotBytes()
	} else {
		for _, h := range a.all() {
			total += h.hot().LocalBytes
		}
	}
	over := total - hotBytes
	a.metrics.hotOver.Set(float64(max(over, 0)))
	if over <= 0 {
		return nil
	}
	type load struct {
		h         *Handle
		evictable int64
		unsealed  int64
	}
	var loads []load
	for _, h := range a.resting() {
		hot := h.hot()
		loads = append(loads, load{h, hot.LocalBytes - hot.UnsealedBytes, hot.UnsealedBytes})
	}
	slices.SortFunc(loads, func(x, y load) int { return cmp.Compare(y.evictable, x.evictable) })
	for i := range loads {
		if over <= 0 || i >= maxForced || loads[i].evictable <= 0 {
			break
		}
		loads[i].h.force(forceEvict, min(over, loads[i].evictable))
		over -= loads[i].evictable
	}
	slices.SortFunc(loads, func(x, y load) int { return cmp.Compare(y.unsealed, x.unsealed) })
	for i := range loads {
		if over <= 0 || i >= maxForced || loads[i].unsealed <= 0 {
			break
		}
		loads[i].h.force(forceSeal|forceEvict, min(over, loads[i].unsealed))
		over -= loads[i].unsealed
	}
	return ctx.Err()
}
