// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/varve/varve/record"
)

// part is a partition of one life of a topic's name.
type part struct {
	topic string
	id    record.PartitionID
}

func (p part) String() string { return fmt.Sprintf("%s-%d", p.topic, p.id.Index) }

// send is one record that a producer was given.
type send struct {
	p          part
	key        string // unique in the run: it is the record's identity
	producer   int
	idempotent bool
	weak       bool          // acknowledged by one of several nodes: a failover may lose it
	node       record.NodeID // that was asked, 0 where the client chose it
	timestamp  int64
	hash       uint64
	invoked    int64 // on the history's clock
	returned   int64 // 0: not yet
	err        error
	offset     record.Offset
}

// seenBatch is what the first fetch of a batch gave.
type seenBatch struct {
	hash      uint64
	hot, cold bool
}

// seenRecord is what the first observation of an offset gave.
type seenRecord struct {
	key       string
	timestamp int64
	hash      uint64
}

// history is everything that clients did and saw.
type history struct {
	w    *World
	seed maphash.Seed

	mu      sync.Mutex
	clock   int64
	sends   map[string]*send
	order   []*send
	batches map[part]map[record.Offset]*seenBatch
	records map[part]map[record.Offset]seenRecord
	at      map[part]map[string]record.Offset // where an idempotently sent key was seen
	starts  map[part]record.Offset            // highest log start that was seen
	asked   map[part]record.Offset            // up to where records may be deleted
	hws     map[part]record.Offset
	known   map[part]record.Offset      // whoever is asked from now on for the latest offset must not tell a lower one
	inEpoch map[leaderKey]record.Offset // highest high watermark that the leader of an epoch told
	ends    map[part]record.Offset      // how far the consumer got
}

func newHistory(w *World) *history {
	return &history{
		w: w, seed: maphash.MakeSeed(), sends: map[string]*send{}, batches: map[part]map[record.Offset]*seenBatch{},
		records: map[part]map[record.Offset]seenRecord{}, at: map[part]map[string]record.Offset{}, starts: map[part]record.Offset{}, asked: map[part]record.Offset{}, hws: map[part]record.Offset{}, known: map[part]record.Offset{}, inEpoch: map[leaderKey]record.Offset{}, ends: map[part]record.Offset{},
	}
}

func (h *history) hash(b []byte) uint64 { return maphash.Bytes(h.seed, b) }

func (h *history) invoke(s *send) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	s.invoked = h.clock
	h.sends[s.key] = s
	h.order = append(h.order, s)
}

func (h *history) answer(s *send, offset record.Offset, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	s.returned, s.offset, s.err = h.clock, offset, err
	if err == nil && !s.weak {
		h.known[s.p] = max(h.known[s.p], offset+1)
	}
	if err == nil && offset < 0 {
		h.w.failf("S28: %s of %s was acknowledged at offset %d", s.key, s.p, offset)
	}
}

// sawBatch checks a batch as it came over the wire: the same bytes whenever and wherever it is served (S2, S7, S12).
func (h *history) sawBatch(p part, b record.Batch, cold, hot bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.batches[p]
	if of == nil {
		of = map[record.Offset]*seenBatch{}
		h.batches[p] = of
	}
	sum := h.hash(b)
	seen := of[b.BaseOffset()]
	switch {
	case seen == nil:
		seen = &seenBatch{hash: sum}
		of[b.BaseOffset()] = seen
	case seen.hash != sum:
		h.w.failf("S12: batch at %d of %s has other bytes than before (cold: %v)", b.BaseOffset(), p, cold)
	}
	both := seen.hot && seen.cold
	seen.hot, seen.cold = seen.hot || hot, seen.cold || cold
	if !both && seen.hot && seen.cold {
		h.w.cover.hit(HotAndCold)
	}
}

// sawRecord checks one record that somebody was given (S2, S3, S5, S7, S25).
func (h *history) sawRecord(p part, offset record.Offset, timestamp int64, key, value []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.records[p]
	if of == nil {
		of, h.at[p] = map[record.Offset]seenRecord{}, map[string]record.Offset{}
		h.records[p] = of
	}
	now := seenRecord{string(key), timestamp, h.hash(value)}
	if before, ok := of[offset]; ok {
		if before != now {
			h.w.failf("S2: offset %d of %s is %+v, was %+v", offset, p, now, before)
		}
		return
	}
	of[offset] = now
	s := h.sends[now.key]
	switch {
	case s == nil:
		h.w.failf("S3: %q at %d of %s was never sent", now.key, offset, p)
	case s.p != p:
		h.w.failf("S25: %q at %d of %s was sent to %s (%v)", now.key, offset, p, s.p, s.p.id)
	case s.hash != now.hash || s.timestamp != timestamp:
		h.w.failf("S3: %q at %d of %s: value or timestamp is not what was sent (%d, %d)", now.key, offset, p, timestamp, s.timestamp)
	case s.returned != 0 && s.err == nil && s.offset != offset && s.idempotent:
		h.w.failf("S2: %q was acknowledged at %d of %s and is at %d", now.key, s.offset, p, offset)
	}
	if s != nil && s.idempotent {
		if other, ok := h.at[p][now.key]; ok && other != offset {
			h.w.failf("S5: %q of %s is at %d and at %d", now.key, p, other, offset)
		}
		h.at[p][now.key] = offset
	}
}

// sawMarks checks that log start and high watermark only grow (S6), as one client sees them, and that without retention the log
// start moves only where it was asked to (S20). A leader that begins may give fetches a lower high watermark than the one before it did;
// latest: it is not of a fetch.
func (h *history) sawMarks(p part, epoch record.Epoch, logStart, hw record.Offset, latest bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if logStart > hw {
		h.w.failf("S6: %s: log start %d is above the high watermark %d", p, logStart, hw)
	}
	if logStart < h.starts[p] {
		h.w.failf("S6, S19: %s: log start %d, was %d", p, logStart, h.starts[p])
	}
	if p.topic != aged && logStart > h.asked[p] {
		h.w.failf("S20: %s: log start %d, records were deleted below %d", p, logStart, h.asked[p])
	}
	if hw < h.hws[p] && (latest || !h.w.knobs.several()) {
		h.w.failf("S6: %s: high watermark %d, was %d", p, hw, h.hws[p])
	}
	key := leaderKey{p.id, epoch}
	if hw < h.inEpoch[key] {
		h.w.failf("S6: %s: high watermark %d, was %d in the same epoch %d", p, hw, h.inEpoch[key], epoch)
	}
	h.inEpoch[key] = max(hw, h.inEpoch[key])
	h.starts[p], h.hws[p] = max(logStart, h.starts[p]), max(hw, h.hws[p])
}

// floor is what a leader that is asked from now on has to know as committed (S6).
func (h *history) floor(p part) record.Offset {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[p]
}

// sawLatest checks what a node tells as the latest offset that was asked when floor was known (S6).
func (h *history) sawLatest(p part, node record.NodeID, floor, latest record.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if latest < floor {
		h.w.failf("S6: node %d says that %s ends at %d, records below %d were acknowledged or told before", node, p, latest, floor)
	}
	h.known[p] = max(h.known[p], latest)
}

// start is the highest log start that anybody was told.
func (h *history) start(p part) record.Offset {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.starts[p]
}

// highest is the highest high watermark that anybody was told.
func (h *history) highest(p part) record.Offset {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hws[p]
}

// ask notes that records below to are about to be deleted.
func (h *history) ask(p part, to record.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked[p] = max(h.asked[p], to)
}

// giveUp forgets what was acknowledged of a partition and seen in it: an unclean election may have given it up. What was sent may still be seen.
func (h *history) giveUp(p part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.batches, p)
	delete(h.records, p)
	delete(h.at, p)
	delete(h.hws, p)
	delete(h.known, p)
	for _, s := range h.order {
		if s.p == p {
			s.weak, s.idempotent = true, false
		}
	}
}

// consumed notes how far the consumer got.
func (h *history) consumed(p part, next record.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends[p] = next
}

// behind tells what the consumer of p has not seen yet.
func (h *history) behind(p part) (next, hw record.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ends[p], h.hws[p]
}

// mayBeGone tells whether offsets below o may have been deleted.
func (h *history) mayBeGone(p part, o record.Offset) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return o <= max(h.asked[p], h.starts[p])
}

// sent lists the sends to p in the order of their invocation.
func (h *history) sent(p part) (out []*send) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.order {
		if s.p == p {
			out = append(out, s)
		}
	}
	return out
}

// checkEnd compares everything acknowledged with the final log, read as a whole: content[i] is the record at start+i.
func (h *history) checkEnd(p part, start record.Offset, content []logRecord) {
	sends := h.sent(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	end := start + record.Offset(len(content))
	var acked []*send
	last := map[int]*send{}
	for _, s := range sends {
		if s.returned == 0 || s.err != nil || s.weak {
			continue
		}
		acked = append(acked, s)
		switch {
		case s.offset >= end:
			h.w.failf("S1: %q was acknowledged at %d of %s, which ends at %d", s.key, s.offset, p, end)
		case s.offset >= start && content[s.offset-start].key != s.key:
			h.w.failf("S1: %q was acknowledged at %d of %s, where %q is", s.key, s.offset, p, content[s.offset-start].key)
		}
		if s.idempotent {
			if before := last[s.producer]; before != nil && before.offset >= s.offset {
				h.w.failf("S4: %s: producer %d sent %q (at %d) before %q (at %d)", p, s.producer, before.key, before.offset, s.key, s.offset)
			}
			last[s.producer] = s
		}
	}
	h.checkOrder(p, acked)
	h.checkLeaders(p, acked, start, content)
}

// checkLeaders is S3 and S8 on what was sent straight to one node: what it refused for good is not there, and one node acknowledges in
// an epoch.
func (h *history) checkLeaders(p part, acked []*send, start record.Offset, content []logRecord) {
	by := map[record.Epoch]*send{}
	for _, s := range acked {
		if s.node == 0 || s.offset < start || s.offset >= start+record.Offset(len(content)) {
			continue
		}
		e := content[s.offset-start].epoch
		if other := by[e]; other != nil && other.node != s.node {
			h.w.failf("S8: in epoch %d of %s node %d acknowledged %q and node %d %q", e, p, other.node, other.key, s.node, s.key)
		}
		by[e] = s
	}
	for i, rec := range content {
		if s := h.sends[rec.key]; s != nil && refused(s.err) {
			h.w.failf("S3: %q is at %d of %s, though it was refused: %v", rec.key, start+record.Offset(i), p, s.err)
		}
	}
}

// refused tells whether an answer to a produce request says that what was sent is not stored.
func refused(err error) bool {
	var c code
	if !errors.As(err, &c) {
		return false
	}
	return c == codeNotEnoughReplicas || c == codeUnknownTopic
}

// checkOrder is S4: what was acknowledged before another send began lies below it.
func (h *history) checkOrder(p part, acked []*send) {
	byReturn := slices.SortedFunc(slices.Values(acked), func(a, b *send) int { return cmp.Compare(a.returned, b.returned) })
	highest, next := &send{offset: -1}, 0
	for _, s := range acked { // by invocation
		for next < len(byReturn) && byReturn[next].returned < s.invoked {
			if byReturn[next].offset > highest.offset {
				highest = byReturn[next]
			}
			next++
		}
		if highest.offset >= s.offset {
			h.w.failf("S4: %s: %q was at %d before %q was sent, which is at %d", p, highest.key, highest.offset, s.key, s.offset)
		}
	}
}
