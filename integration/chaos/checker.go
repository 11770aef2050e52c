// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

const (
	codeNone       = 0
	codeOutOfRange = 1
	// What ListOffsets calls the largest timestamp, the start and the end.
	maxTimestamp = -3
	earliest     = -2
	latest       = -1
)

// perRule is how many findings of one rule are told.
const perRule = 5

// placed is a record of the final log.
type placed struct {
	observed
	epoch int32
}

// checker compares a history with the rules. Everything is about one partition at a time, and the offset is the order.
type checker struct {
	h     *history
	found []string
	told  map[string]int

	byID     map[string]*send
	sends    map[part][]*send
	fetches  map[part][]*fetch
	lookups  map[part][]lookup
	deletes  map[part][]*deletion
	final    map[part]map[int64]placed
	start    map[part]int64 // highest log start that was told
	end      map[part]int64 // high watermark of the last reading
	hwBefore map[part]steps // what was known of the high watermark
	epochs   map[part][]epochEnd
}

// check returns what the history breaks.
func check(h *history) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &checker{
		h: h, told: map[string]int{}, byID: map[string]*send{}, sends: map[part][]*send{}, fetches: map[part][]*fetch{}, lookups: map[part][]lookup{},
		deletes: map[part][]*deletion{}, final: map[part]map[int64]placed{}, start: map[part]int64{}, end: map[part]int64{}, hwBefore: map[part]steps{}, epochs: map[part][]epochEnd{},
	}
	for _, n := range h.notes {
		c.failf("run", "%s", n)
	}
	c.gather()
	c.epochsOfMetadata()
	for _, p := range slices.SortedFunc(maps.Keys(c.sends), func(a, b part) int { return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.index, b.index)) }) {
		if h.lost[p] {
			continue
		}
		c.batches(p)
		c.observations(p)
		c.marks(p)
		c.answers(p)
		c.order(p)
		c.deletions(p)
		if !h.unread[p] { // told already
			c.whole(p)
			c.acknowledged(p)
			c.times(p)
			c.epochEnds(p)
		}
	}
	for rule, n := range c.told {
		if n > perRule {
			c.found = append(c.found, fmt.Sprintf("%s: %d more", rule, n-perRule))
		}
	}
	return c.found
}

func (c *checker) failf(rule, format string, args ...any) {
	if c.told[rule]++; c.told[rule] <= perRule {
		c.found = append(c.found, rule+": "+fmt.Sprintf(format, args...))
	}
}

func (c *checker) gather() {
	for _, s := range c.h.sends {
		c.byID[s.id] = s
		c.sends[s.p] = append(c.sends[s.p], s)
	}
	known := map[part][]point{}
	for _, d := range c.h.deletes {
		c.deletes[d.p] = append(c.deletes[d.p], d)
		if d.ok {
			c.start[d.p] = max(c.start[d.p], d.low)
		}
	}
	for _, l := range c.h.lookups {
		c.lookups[l.p] = append(c.lookups[l.p], l)
		if l.code == codeNone && l.timestamp == latest {
			known[l.p] = append(known[l.p], point{l.invoked, l.returned, l.offset})
		}
	}
	for _, e := range c.h.ends {
		c.epochs[e.p] = append(c.epochs[e.p], e)
	}
	for _, f := range c.h.fetches {
		c.fetches[f.p] = append(c.fetches[f.p], f)
		if f.code != codeNone {
			continue
		}
		known[f.p] = append(known[f.p], point{f.invoked, f.returned, f.hw})
		c.start[f.p] = max(c.start[f.p], f.logStart)
		if f.last {
			c.end[f.p] = max(c.end[f.p], f.hw)
			if c.final[f.p] == nil {
				c.final[f.p] = map[int64]placed{}
			}
			for _, b := range f.batches {
				for _, r := range b.records {
					c.final[f.p][r.offset] = placed{r, b.epoch}
				}
			}
		}
	}
	for p, points := range known {
		c.hwBefore[p] = newSteps(points)
	}
}

// askedBefore is up to where records may have been deleted by an operation that returned at a time.
func (c *checker) askedBefore(p part, t int64) (to int64) {
	for _, d := range c.deletes[p] {
		if d.invoked < t {
			to = max(to, d.to)
		}
	}
	return to
}

// promisedBefore is up to where records were deleted for an operation that was invoked at a time.
func (c *checker) promisedBefore(p part, t int64) (to int64) {
	for _, d := range c.deletes[p] {
		if d.ok && d.returned < t {
			to = max(to, d.to)
		}
	}
	return to
}

// batches is S26, S12 and S27: each batch is whole, the same whenever and wherever it is served, and what was asked for.
func (c *checker) batches(p part) {
	seen := map[int64]uint64{}
	for _, f := range c.fetches[p] {
		next := int64(-1)
		for i, b := range f.batches {
			if b.broken != "" {
				c.failf("S26", "%s at %d from node %d: %s", p, b.base, f.node, b.broken)
				break
			}
			if before, ok := seen[b.base]; ok && before != b.hash {
				c.failf("S12", "%s: the batch at %d from node %d has other bytes than before", p, b.base, f.node)
			}
			seen[b.base] = b.hash
			switch {
			case i == 0 && (b.base > f.offset || b.last < f.offset):
				c.failf("S27", "%s: a fetch from %d begins with [%d, %d] (node %d)", p, f.offset, b.base, b.last, f.node)
			case i > 0 && b.base != next:
				c.failf("S27", "%s: in a fetch from %d the batch at %d follows %d (node %d)", p, f.offset, b.base, next-1, f.node)
			}
			if b.last >= f.hw {
				c.failf("S27", "%s: a fetch from %d gives %d, the high watermark is %d (node %d)", p, f.offset, b.last, f.hw, f.node)
			}
			next = b.last + 1
		}
	}
}

// observations is S2, S3, S5 and S7: what somebody was given.
func (c *checker) observations(p part) {
	at := map[int64]observed{}
	where := map[string]int64{}
	once := c.h.promises[p.topic].idempotent
	for _, f := range c.fetches[p] {
		for _, b := range f.batches {
			for _, r := range b.records {
				if before, ok := at[r.offset]; ok {
					if before != r {
						c.failf("S2", "%s at %d: %+v from node %d, before that %+v", p, r.offset, r, f.node, before)
					}
					continue
				}
				at[r.offset] = r
				if other, ok := where[r.id]; ok && once {
					c.failf("S5", "%s: %q is at %d and at %d", p, r.id, other, r.offset)
				}
				where[r.id] = r.offset
				c.sent(p, r)
			}
		}
	}
	if c.final[p] == nil || c.h.unread[p] {
		return
	}
	for _, o := range slices.Sorted(maps.Keys(at)) {
		if _, ok := c.final[p][o]; !ok && o >= c.start[p] {
			c.failf("S7", "%s: %q was read at %d, and in the end nothing is there (log [%d, %d))", p, at[o].id, o, c.start[p], c.end[p])
		}
	}
}

// sent is S3: an observed record is one that was sent there, and not refused.
func (c *checker) sent(p part, r observed) {
	s := c.byID[r.id]
	switch {
	case s == nil:
		c.failf("S3", "%s at %d: nobody sent %q", p, r.offset, r.id)
	case s.p.topic != p.topic && strings.TrimRight(s.p.topic, "0123456789") == strings.TrimRight(p.topic, "0123456789"):
		c.failf("S25", "%s at %d: %q was sent to %s", p, r.offset, r.id, s.p)
	case s.p != p || s.hash != r.hash || s.timestamp != r.timestamp:
		c.failf("S3", "%s at %d: %q is not what was sent to %s", p, r.offset, r.id, s.p)
	case s.outcome == refused:
		c.failf("S3", "%s at %d: %q is there, and its producer was told that it is not: %v", p, r.offset, r.id, s.err)
	case s.outcome == stored && s.offset != r.offset && c.h.promises[p.topic].durable:
		c.failf("S2", "%s at %d: %q was acknowledged at %d", p, r.offset, r.id, s.offset)
	}
}

// marks is S6 and S28: what the marks of a partition do over time.
func (c *checker) marks(p part) {
	var starts, ends []point
	hws := map[int32][]point{}
	stables := map[int32][]point{}
	for _, d := range c.deletes[p] {
		if d.ok {
			starts = append(starts, point{d.invoked, d.returned, d.low})
		}
	}
	for _, l := range c.lookups[p] {
		switch {
		case l.code != codeNone && l.offset != -1:
			c.failf("S28", "%s: ListOffsets(%d) answers error %d with offset %d", p, l.timestamp, l.code, l.offset)
		case l.code == codeNone && l.offset < 0 && (l.timestamp == earliest || l.timestamp == latest):
			c.failf("S28", "%s: ListOffsets(%d) answers offset %d without an error", p, l.timestamp, l.offset)
		case l.code != codeNone:
		case l.timestamp == earliest:
			starts = append(starts, point{l.invoked, l.returned, l.offset})
		case l.timestamp == latest:
			ends = append(ends, point{l.invoked, l.returned, l.offset})
		}
	}
	for _, f := range c.fetches[p] {
		switch {
		case f.code != codeNone:
			if f.hw != -1 {
				c.failf("S28", "%s: a fetch answers error %d with a high watermark of %d", p, f.code, f.hw)
			}
		case f.logStart < 0 || f.logStart > f.stable || f.stable > f.hw:
			c.failf("S6", "%s: log start %d, stable offset %d, high watermark %d (node %d)", p, f.logStart, f.stable, f.hw, f.node)
		default:
			starts = append(starts, point{f.invoked, f.returned, f.logStart})
			if f.epoch < 0 {
				continue // any leader may have answered
			}
			hws[f.epoch] = append(hws[f.epoch], point{f.invoked, f.returned, f.hw})
			stables[f.epoch] = append(stables[f.epoch], point{f.invoked, f.returned, f.stable})
		}
	}
	c.monotonic(p, "the log start", starts)
	c.monotonic(p, "the end by ListOffsets", ends)
	for e := range hws {
		c.monotonic(p, fmt.Sprintf("the high watermark in epoch %d", e), hws[e])
		c.monotonic(p, fmt.Sprintf("the last stable offset in epoch %d", e), stables[e])
	}
	for _, s := range c.sends[p] {
		if s.outcome == stored && s.offset < 0 {
			c.failf("S28", "%s: %q was acknowledged at %d", p, s.id, s.offset)
		}
	}
}

func (c *checker) monotonic(p part, what string, points []point) {
	if a, b, ok := firstDecrease(points, false); ok {
		c.failf("S6", "%s: %s was %d at %s, and %d at %s", p, what, a.value, clock(a.returned), b.value, clock(b.invoked))
	}
}

// answers is S27: out of range is what lies outside.
func (c *checker) answers(p part) {
	for _, f := range c.fetches[p] {
		if f.code != codeOutOfRange {
			continue
		}
		if hw := c.hwBefore[p].at(f.invoked); f.offset >= c.askedBefore(p, f.returned) && f.offset <= hw {
			c.failf("S27", "%s: a fetch from %d is out of range at node %d at %s, though the high watermark was %d", p, f.offset, f.node, clock(f.invoked), hw)
		}
	}
}

// order is S4.
func (c *checker) order(p part) {
	promise := c.h.promises[p.topic]
	if !promise.durable {
		return
	}
	var points []point
	by := map[int][]*send{}
	for _, s := range c.sends[p] {
		if s.outcome == stored {
			points = append(points, point{s.invoked, s.returned, s.offset})
			by[s.producer] = append(by[s.producer], s)
		}
	}
	if a, b, ok := firstDecrease(points, true); ok {
		c.failf("S4", "%s: the record at %d was acknowledged at %s, before the one at %d was sent at %s", p, a.value, clock(a.returned), b.value, clock(b.invoked))
	}
	if !promise.idempotent {
		return
	}
	for _, mine := range by {
		slices.SortFunc(mine, func(a, b *send) int { return cmp.Compare(a.order, b.order) })
		for i := 1; i < len(mine); i++ {
			if mine[i].offset <= mine[i-1].offset {
				c.failf("S4", "%s: %q is at %d, before it its producer sent %q, at %d", p, mine[i].id, mine[i].offset, mine[i-1].id, mine[i-1].offset)
				break
			}
		}
	}
}

// whole is S10 and S8: the final log has no gap, and its epochs do not go back.
func (c *checker) whole(p part) {
	log := c.final[p]
	if log == nil {
		c.failf("V1", "%s was not read in the end", p)
		return
	}
	before := int32(-1)
	for o := c.start[p]; o < c.end[p]; o++ {
		r, ok := log[o]
		if !ok {
			c.failf("S10", "%s: nothing at %d of [%d, %d)", p, o, c.start[p], c.end[p])
			return
		}
		if r.epoch < before {
			c.failf("S8", "%s: epoch %d at %d, before it %d", p, r.epoch, o, before)
			return
		}
		before = r.epoch
	}
}

// acknowledged is S1.
func (c *checker) acknowledged(p part) {
	if !c.h.promises[p.topic].durable || c.final[p] == nil {
		return
	}
	at := map[int64]*send{}
	for _, s := range c.sends[p] {
		if s.outcome != stored {
			continue
		}
		if other := at[s.offset]; other != nil {
			c.failf("S2", "%s at %d: acknowledged for %q and for %q", p, s.offset, other.id, s.id)
		}
		at[s.offset] = s
		if s.offset < c.start[p] {
			continue
		}
		switch r, ok := c.final[p][s.offset]; {
		case !ok:
			c.failf("S1", "%s: %q, acknowledged at %d at %s (sent at %s), is lost: the log is [%d, %d)", p, s.id, s.offset, clock(s.returned), clock(s.invoked), c.start[p], c.end[p])
		case r.id != s.id:
			c.failf("S1", "%s: %q, acknowledged at %d at %s, is lost: %q is there", p, s.id, s.offset, clock(s.returned), r.id)
		}
	}
}

// deletions is S19 and S20.
func (c *checker) deletions(p part) {
	started := func(invoked, returned, logStart int64, who string) {
		if promised := c.promisedBefore(p, invoked); logStart < promised {
			c.failf("S19", "%s: the log start is %d at %s by %s, records were deleted below %d", p, logStart, clock(returned), who, promised)
		}
		if asked := c.askedBefore(p, returned); logStart > asked {
			c.failf("S20", "%s: the log start is %d at %s by %s, nobody asked to delete beyond %d", p, logStart, clock(returned), who, asked)
		}
	}
	for _, l := range c.lookups[p] {
		if l.code == codeNone && l.timestamp == earliest {
			started(l.invoked, l.returned, l.offset, "ListOffsets")
		}
	}
	for _, f := range c.fetches[p] {
		if f.code != codeNone {
			continue
		}
		started(f.invoked, f.returned, f.logStart, fmt.Sprintf("a fetch at node %d", f.node))
		if promised := c.promisedBefore(p, f.invoked); len(f.batches) > 0 && f.batches[0].last < promised {
			c.failf("S19", "%s: a fetch at %s gives [%d, %d], records were deleted below %d", p, clock(f.invoked), f.batches[0].base, f.batches[0].last, promised)
		}
	}
	for _, d := range c.deletes[p] {
		if d.ok && d.low < d.to {
			c.failf("S19", "%s: DeleteRecords(%d) answers a log start of %d", p, d.to, d.low)
		}
	}
}

// epochsOfMetadata is S8 for one node's metadata: a partition's leader epoch does not go back, and one epoch has one leader.
func (c *checker) epochsOfMetadata() {
	type viewer struct {
		p    part
		node int
	}
	points := map[viewer][]point{}
	leaders := map[part]map[int32]int32{}
	for _, e := range c.h.epochs {
		points[viewer{e.p, e.node}] = append(points[viewer{e.p, e.node}], point{e.invoked, e.returned, int64(e.epoch)})
		if e.leader < 0 {
			continue
		}
		if leaders[e.p] == nil {
			leaders[e.p] = map[int32]int32{}
		}
		if before, ok := leaders[e.p][e.epoch]; ok && before != e.leader {
			c.failf("S8", "%s: epoch %d has the leaders %d and %d", e.p, e.epoch, before, e.leader)
		}
		leaders[e.p][e.epoch] = e.leader
	}
	for v, all := range points {
		if a, b, ok := firstDecrease(all, false); ok {
			c.failf("S8", "%s: node %d told epoch %d at %s, and %d at %s", v.p, v.node, a.value, clock(a.returned), b.value, clock(b.invoked))
		}
	}
}

// point is an operation and what it told.
type point struct{ invoked, returned, value int64 }

// firstDecrease finds an operation that began after another one had returned, and tells less (strict: not more).
func firstDecrease(points []point, strict bool) (before, after point, found bool) {
	byCall := slices.Clone(points)
	byReturn := slices.Clone(points)
	slices.SortFunc(byCall, func(a, b point) int { return cmp.Compare(a.invoked, b.invoked) })
	slices.SortFunc(byReturn, func(a, b point) int { return cmp.Compare(a.returned, b.returned) })
	next, highest := 0, -1
	for _, p := range byCall {
		for ; next < len(byReturn) && byReturn[next].returned < p.invoked; next++ {
			if highest < 0 || byReturn[next].value > byReturn[highest].value {
				highest = next
			}
		}
		if highest >= 0 && (p.value < byReturn[highest].value || strict && p.value == byReturn[highest].value) {
			return byReturn[highest], p, true
		}
	}
	return before, after, false
}

// steps is the largest value that operations had told by a time.
type steps struct{ when, most []int64 }

func newSteps(points []point) (s steps) {
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.returned, b.returned) })
	most := int64(0)
	for _, p := range points {
		most = max(most, p.value)
		s.when, s.most = append(s.when, p.returned), append(s.most, most)
	}
	return s
}

func (s steps) at(t int64) int64 {
	if i := sort.Search(len(s.when), func(i int) bool { return s.when[i] >= t }); i > 0 {
		return s.most[i-1]
	}
	return 0
}

func clock(t int64) string {
	if t == never {
		return "never"
	}
	return fmt.Sprintf("%.3fs", float64(t)/1e9)
}
