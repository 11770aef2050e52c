// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// busyGarbage is how many bytes of garbage may gather in a node that is busy, and busyCycles from how many collections a second on it
	// counts as busy. It is idle again after quietFor without any.
	busyGarbage  = 128 * mib
	busyCycles   = 2
	quietFor     = 5 * time.Second
	gcInterval   = time.Second
	maxGCPercent = 400
)

// gcPace gives the garbage collector more room while a node is busy. A collection takes a processor for milliseconds, in which acknowledgements
// wait, and what lives is 30 to 60 MiB in most nodes: at gcPercent a busy one collects several times a second. It is the slowest
// acknowledgements that gain; the work per processor second is the same (docs/benchmarks.md). An idle node stays small.
type gcPace struct {
	cycles uint64
	quiet  time.Duration
	busy   bool
}

// next tells the percentage for the coming interval, from the collections so far and the bytes that the last one found alive.
func (g *gcPace) next(cycles, live uint64) int {
	n := cycles - g.cycles
	g.cycles = cycles
	if n > 0 {
		g.quiet = 0
	} else {
		g.quiet += gcInterval
	}
	if n >= busyCycles {
		g.busy = true
	} else if g.quiet >= quietFor {
		g.busy = false
	}
	if !g.busy {
		return gcPercent
	}
	return int(min(max(busyGarbage*100/int64(max(live, 1)), gcPercent), maxGCPercent))
}

// followGC sets the percentage until ctx ends. Where memory is short, or GOGC says something, it leaves it alone.
func (p memoryPlan) followGC(ctx context.Context) error {
	if os.Getenv("GOGC") != "" || p.limit > 0 && p.limit < smallMachine {
		return nil
	}
	samples := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	g, percent := gcPace{cycles: samples[0].Value.Uint64()}, gcPercent
	tick := time.NewTicker(gcInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		metrics.Read(samples)
		next := g.next(samples[0].Value.Uint64(), samples[1].Value.Uint64())
		if next < percent*9/10 || next > percent*11/10 { // each change stops the world for a moment
			percent = next
			debug.SetGCPercent(percent)
		}
	}
}
