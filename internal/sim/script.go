// SPDX-License-Identifier: Apache-2.0

package sim

import "math/rand/v2"

// The topics of a run.
const (
	own     = "own"     // two partitions, each with one producer: what it holds is known offset by offset
	mix     = "mix"     // one partition that all producers write
	aged    = "aged"    // one partition with retention
	scratch = "scratch" // deleted and made again under the same name
	spare   = "spare"   // idle partitions, all alike, where there are nodes to place them on
	probed  = "probed"  // one partition that is written straight to nodes, where there are several
	risked  = "risked"  // one partition that is given up in parts by unclean elections, where there are several nodes
)

type opKind int

const (
	opBurst    opKind = iota // produce to several partitions at a time
	opSettle                 // nothing for a while: what is there is sealed and evicted
	opScan                   // read parts of partitions
	opLookup                 // read all of a partition and look times up in it
	opDelete                 // delete records
	opConfig                 // change a topic's config
	opScratch                // delete a topic and make it again
	opReassign               // move a partition's replicas, where there are several nodes
)

// op is one step of a history; the history depends on the seed only, never on the knobs.
type op struct {
	kind opKind
	n    int    // records, or milliseconds
	x    uint64 // a number to choose with
}

func script(seed uint64, steps int, several bool) []op {
	rng := rand.New(rand.NewPCG(seed, 0x5c217))
	weights := []int{opBurst: 9, opSettle: 4, opScan: 3, opLookup: 3, opDelete: 3, opConfig: 1, opScratch: 1}
	if several {
		weights = append(weights, 3) // opReassign
	}
	total := 0
	for _, w := range weights {
		total += w
	}
	ops := []op{{opBurst, 40, rng.Uint64()}}
	for len(ops) < steps {
		o := op{x: rng.Uint64(), n: 10 + rng.IntN(60)}
		d := rng.IntN(total)
		for k, w := range weights {
			if d < w {
				o.kind = opKind(k)
				break
			}
			d -= w
		}
		if o.kind == opSettle {
			o.n = 1000 + rng.IntN(8000)
		}
		ops = append(ops, o)
	}
	return ops
}
