// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"time"
)

// pace says how many partitions move at once.
type pace struct {
	began  time.Time
	within time.Duration
	groups int
	moving time.Duration // of all groups together
}

func newPace(ctx context.Context) *pace {
	p := &pace{began: time.Now(), within: handOverWithin}
	if until, ok := ctx.Deadline(); ok {
		p.within = min(p.within, time.Until(until)/4)
	}
	return p
}

// most is how many have to move at once for all that are left to be through in time, if a group takes as long as those before.
func (p *pace) most(left int) int {
	if p.groups == 0 {
		return handOverLeast
	}
	mean := p.moving / time.Duration(p.groups)
	return min(max(int((time.Duration(left)*mean+p.left()-1)/p.left()), handOverLeast), handOverMost)
}

// rest notes a group that took so long, and gives the time until the next one.
func (p *pace) rest(left int, took time.Duration) time.Duration {
	p.groups++
	p.moving += took
	if left == 0 {
		return 0
	}
	groups := time.Duration((left + handOverLeast - 1) / handOverLeast)
	return min(took, p.left()/groups-p.moving/time.Duration(p.groups))
}

// left is the time for what is left.
func (p *pace) left() time.Duration {
	return max(p.within-time.Since(p.began), p.within/8, time.Millisecond)
}
