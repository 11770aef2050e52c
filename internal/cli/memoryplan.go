// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io/fs"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/ops"
)

// memoryPlan says what each consumer of memory may take. Pebble's memtables and cache lie outside the Go heap, so they are
// planned first and the heap gets what is left (protocols §11).
type memoryPlan struct {
	limit int64 // of the process; 0: none known

	memTable, pebbleCache int64 // outside the Go heap
	tierCache, inFlight   int64
	request, connection   int64
	goLimit               int64 // 0: none
}

const (
	mib = int64(1) << 20
	// smallMachine is the process limit below which everything is planned small.
	smallMachine = 1 << 30
)

// planMemory reads the limit of the process's control group and divides it.
func planMemory(c *config.Broker, root fs.FS) (memoryPlan, error) {
	limit, limited, err := ops.CgroupMemoryLimit(root)
	if err != nil {
		return memoryPlan{}, err
	}
	p := memoryPlan{memTable: 16 * mib, pebbleCache: 32 * mib, tierCache: 64 * mib, inFlight: 64 * mib, request: 192 * mib, connection: 64 * mib}
	if limited {
		p.limit = limit
		if limit < smallMachine {
			p.memTable, p.pebbleCache = 8*mib, 8*mib
			p.tierCache, p.inFlight = max(limit/32, 8*mib), max(limit/16, 8*mib)
			p.request, p.connection = max(limit/8, 8*mib), max(limit/16, 4*mib)
		}
		if p.goLimit, err = ops.GoMemoryLimit(limit, ops.OffHeap{MemTableBytes: p.memTable, CacheBytes: p.pebbleCache}); err != nil {
			return p, err
		}
	}
	set := func(v *int64, configured int64) {
		if configured > 0 {
			*v = configured
		}
	}
	set(&p.tierCache, c.Varve.CacheBytes)
	set(&p.inFlight, c.Varve.FetchColdMemoryBytes)
	set(&p.request, c.Varve.RequestMemoryBytes)
	set(&p.connection, c.Varve.ConnectionMemoryBytes)
	return p, nil
}

// gcPercent is how much garbage may gather while a node is idle, in percent of what lives. A static binary has Pebble's memtables and
// cache in the Go heap: memory without pointers, cheap to collect, that at the runtime's 100 percent would be matched by as much garbage.
const gcPercent = 40

// apply sets the Go runtime's pace and limit. GOGC in the environment wins, and a GOMEMLIMIT that is lower.
func (p memoryPlan) apply(log *slog.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if p.goLimit == 0 {
		return
	}
	if now := debug.SetMemoryLimit(-1); now != math.MaxInt64 && now <= p.goLimit {
		return
	}
	debug.SetMemoryLimit(p.goLimit)
	log.Info("memory limited", "limit", p.limit, "goHeap", p.goLimit, "memTable", p.memTable, "requests", p.request)
}
