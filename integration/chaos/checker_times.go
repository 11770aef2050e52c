// SPDX-License-Identifier: Apache-2.0

package chaos

// timesOf answers what the times of a final log are, fast enough for thousands of lookups.
type timesOf struct {
	start int64
	at    []int64 // by offset; absent where there is no record
	most  []int64 // of blocks of timeBlock offsets
}

const (
	timeBlock = 256
	absent    = -1 << 62
)

func newTimes(log map[int64]placed, start, end int64) *timesOf {
	t := &timesOf{start: start}
	for o := start; o < end; o++ {
		ts := int64(absent)
		if r, ok := log[o]; ok {
			ts = r.timestamp
		}
		if len(t.at)%timeBlock == 0 {
			t.most = append(t.most, absent)
		}
		t.at = append(t.at, ts)
		t.most[len(t.most)-1] = max(t.most[len(t.most)-1], ts)
	}
	return t
}

// first is the first offset in [from, to) whose time is at least ts.
func (t *timesOf) first(from, to, ts int64) (o int64, ok bool) {
	i, end := max(0, from-t.start), min(to-t.start, int64(len(t.at)))
	for i < end {
		switch {
		case i%timeBlock == 0 && t.most[i/timeBlock] < ts:
			i += timeBlock
		case t.at[i] >= ts:
			return t.start + i, true
		default:
			i++
		}
	}
	return 0, false
}

// times is S13, at any instant between invocation and return.
func (c *checker) times(p part) {
	log := c.final[p]
	if log == nil {
		return
	}
	times := newTimes(log, c.start[p], c.end[p])
	for _, l := range c.lookups[p] {
		if l.code != codeNone || l.timestamp == earliest || l.timestamp == latest {
			continue
		}
		from, known := max(c.askedBefore(p, l.returned), c.start[p]), c.hwBefore[p].at(l.invoked)
		if l.offset < 0 {
			least := l.timestamp
			if l.timestamp == maxTimestamp {
				least = absent + 1 // any record is one
			}
			if o, ok := times.first(from, known, least); ok {
				c.failf("S13", "%s: ListOffsets(%d) at %s by node %d finds nothing, and %d has %d", p, l.timestamp, clock(l.invoked), l.node, o, log[o].timestamp)
			}
			continue
		}
		c.foundTime(p, l, times, from, known)
	}
}

// foundTime checks an answer that names a record.
func (c *checker) foundTime(p part, l lookup, times *timesOf, from, known int64) {
	what := func() string {
		if l.timestamp == maxTimestamp {
			return "the largest time"
		}
		return "the first record from there on"
	}
	r, ok := c.final[p][l.offset]
	if !ok {
		if l.offset >= c.start[p] {
			c.failf("S13", "%s: ListOffsets(%d) at %s by node %d finds %d, and in the end nothing is there", p, l.timestamp, clock(l.invoked), l.node, l.offset)
		}
		return
	}
	if r.timestamp != l.found || r.epoch != l.epoch {
		c.failf("S13", "%s: ListOffsets(%d) at %s by node %d finds %d with timestamp %d and epoch %d, it has %d and %d",
			p, l.timestamp, clock(l.invoked), l.node, l.offset, l.found, l.epoch, r.timestamp, r.epoch)
	}
	least, to := l.timestamp, l.offset
	if l.timestamp == maxTimestamp {
		least, to = r.timestamp+1, known
	} else if r.timestamp < l.timestamp {
		c.failf("S13", "%s: ListOffsets(%d) at %s by node %d finds %d, which has %d", p, l.timestamp, clock(l.invoked), l.node, l.offset, r.timestamp)
	}
	if o, ok := times.first(from, to, least); ok {
		c.failf("S13", "%s: ListOffsets(%d) at %s by node %d finds %d with %d as %s, and %d has %d",
			p, l.timestamp, clock(l.invoked), l.node, l.offset, r.timestamp, what(), o, c.final[p][o].timestamp)
	}
}

// epochEnds is S8 for OffsetForLeaderEpoch: where an earlier epoch ends, when all below that end is committed.
func (c *checker) epochEnds(p part) {
	log := c.final[p]
	// first[i] is the first offset of the i-th epoch that has records, in order.
	var starts []placed
	for o := c.start[p]; o < c.end[p]; o++ {
		if r, ok := log[o]; ok && (len(starts) == 0 || starts[len(starts)-1].epoch != r.epoch) {
			starts = append(starts, r)
		}
	}
	for _, e := range c.epochs[p] {
		if e.code != codeNone || e.end < 0 || e.asked >= e.leads || e.end > c.hwBefore[p].at(e.invoked) {
			continue
		}
		if e.epoch > e.asked {
			c.failf("S8", "%s: node %d answers epoch %d when asked for %d", p, e.node, e.epoch, e.asked)
		}
		for i, s := range starts {
			last := c.end[p] - 1
			if i+1 < len(starts) {
				last = starts[i+1].offset - 1
			}
			switch {
			case s.epoch <= e.asked && last >= e.end:
				c.failf("S8", "%s: node %d says at %s that epoch %d ends at %d, and %d is of epoch %d", p, e.node, clock(e.invoked), e.asked, e.end, last, s.epoch)
			case s.epoch > e.asked && s.offset < e.end:
				c.failf("S8", "%s: node %d says at %s that epoch %d ends at %d, and %d is of epoch %d", p, e.node, clock(e.invoked), e.asked, e.end, s.offset, s.epoch)
			}
		}
	}
}
