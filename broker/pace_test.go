// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: handovers that take little time are spread, with rests between them; where they take long there are no rests, and where that is not
// enough more go at once. All of them are through in about the time there is.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		left        int
		group       time.Duration
		ctx         time.Duration // 0: none
		least, most time.Duration
		largest     int
	}{
		{left: 300, group: 10 * time.Millisecond, least: 1400 * time.Millisecond, most: 1500 * time.Millisecond, largest: handOverLeast},
		{left: 300, group: 45 * time.Millisecond, least: 3300 * time.Millisecond, most: 4500 * time.Millisecond, largest: handOverLeast + 1},
		{left: 300, group: 300 * time.Millisecond, least: 2 * time.Second, most: 6 * time.Second, largest: 40},
		{left: 10_000, group: 30 * time.Millisecond, least: 2 * time.Second, most: 6 * time.Second, largest: handOverMost},
		{left: 300, group: 10 * time.Millisecond, ctx: 2 * time.Second, least: 400 * time.Millisecond, most: time.Second, largest: 20},
		{left: 3, group: 10 * time.Millisecond, least: 10 * time.Millisecond, most: 10 * time.Millisecond, largest: handOverLeast},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			if c.ctx > 0 {
				ctx, cancel = context.WithTimeout(context.Background(), c.ctx)
			}
			defer cancel()
			p, left, largest, began := newPace(ctx), c.left, 0, time.Now()
			for left > 0 {
				n := p.most(left)
				largest = max(largest, n)
				left -= min(n, left)
				time.Sleep(c.group)
				time.Sleep(p.rest(left, c.group))
			}
			if took := time.Since(began); took < c.least || took > c.most || largest > c.largest {
				t.Errorf("%d of %v each: took %v, up to %d at once", c.left, c.group, took, largest)
			}
		})
	}
}
