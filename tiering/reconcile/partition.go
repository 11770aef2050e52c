// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"slices"

	"github.com/varve/varve/internal/invariant"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
)

// partition is the planning of one.
type partition struct {
	*planner
	id    record.PartitionID
	label string
	topic *metadata.Topic
	was   *metadata.FrozenPartition
	next  metadata.Reconciled
	logs  []held
	best  *held // the log that has everything; nil: nobody has any
	fixed []manifest.Page
	chain []piece // from the log start on, behind the fixed pages
}

// planPartition tells whether the topic's assignment has to change.
func (pl *planner) planPartition(t *metadata.Topic, index int32) (reassigned bool, err error) {
	id := record.PartitionID{Topic: t.ID, Index: index}
	p := &partition{planner: pl, id: id, topic: t, label: fmt.Sprintf("%s-%d", t.Name, index), was: pl.in.State.Partitions[id], logs: pl.logs[id]}
	if p.was == nil {
		p.was = &metadata.FrozenPartition{PartitionState: metadata.PartitionState{Leader: metadata.LeaderState{Node: record.NoNode, Epoch: record.NoEpoch}}}
	}
	found := pl.in.Bucket.Found[id]
	if p.was.Leader.Rev == 0 && len(p.logs) == 0 && len(found) == 0 {
		return false, nil // nobody ever led it
	}
	p.next = metadata.Reconciled{ID: id, PartitionState: p.was.PartitionState}
	p.best = newest(p.logs)
	if err := p.planHead(found); err != nil {
		return false, fmt.Errorf("%s: %w", p.label, err)
	}
	p.planLeader(found)
	reassigned = p.planISR()
	pl.out.Partitions = append(pl.out.Partitions, p.next)
	return reassigned, nil
}

// newest is the log that goes on longest in the newest epoch: whatever was committed is in it (R3).
func newest(logs []held) (best *held) {
	for i := range logs {
		if best == nil || logs[i].above(best) {
			best = &logs[i]
		}
	}
	return best
}

// above tells whether a log has more of what was committed than another one. An epoch that began here without a record does not count
// against records that others know to be committed beyond it: its leader wrote nothing, and an earlier log went on.
func (h *held) above(o *held) bool {
	switch a, b := h.begun(), o.begun(); {
	case a > b:
		return h.lastEpoch() == a || o.HighWatermark <= h.End
	case a < b:
		return o.lastEpoch() != b && h.HighWatermark > o.End
	}
	return h.End > o.End
}

// planHead works out the manifest.
func (p *partition) planHead(found []Segment) error {
	pieces, err := p.pieces(found)
	if err != nil {
		return err
	}
	h := &p.next.Head
	was := h.TieredEnd
	c := newChains(pieces)
	start, r := p.choose(c)
	invariant.Check(start >= h.LogStart && r.end >= start, "R1: the log start goes back")
	p.chain = r.pieces()
	p.next.Drop = p.dead(start)
	if start > h.LogStart {
		p.change(p.label, "the log starts at %d, not %d: what lies below is neither in the bucket nor in a data directory", start, h.LogStart)
	}
	h.LogStart = start
	h.TieredEnd = max(r.end, start)
	listed := map[record.Offset]metadata.Revision{}
	for _, v := range p.was.Segments {
		listed[v.Base] = v.Rev
	}
	adopted, from := 0, h.TieredEnd
	for _, piece := range p.chain {
		p.settle(&piece)
		if piece.known && piece.Base >= p.was.Head.FoldedEnd {
			continue // listed, and it stays
		}
		p.put(&piece, listed[piece.Base])
		if !piece.known {
			adopted++
			from = min(from, piece.Base)
		}
		h.EpochChain = record.MergeEpochs(h.EpochChain, piece.Epochs)
	}
	if adopted > 0 {
		p.change(p.label, "%d segments of [%d, %d) are in the manifest: they continue it, and the backup is older", adopted, from, h.TieredEnd)
	}
	if p.best != nil {
		below := slices.IndexFunc(p.best.Epochs, func(e record.EpochStart) bool { return e.Start >= h.TieredEnd })
		if below < 0 {
			below = len(p.best.Epochs)
		}
		h.EpochChain = record.MergeEpochs(h.EpochChain, p.best.Epochs[:below])
	}
	p.tally()
	if h.TieredEnd < was {
		p.warn("%s: objects of [%d, %d), which the backup knew, are gone; what of it is in no data directory is lost", p.label, h.TieredEnd, was)
	}
	if len(h.EpochChain) > maxEpochs {
		h.EpochChain = h.EpochChain[len(h.EpochChain)-maxEpochs:]
	}
	return nil
}

// pieces are all segments from which the manifest may be made, and what of it is fixed: the pages before the first that is gone.
func (p *partition) pieces(found []Segment) (out []piece, err error) {
	h := &p.next.Head
	b := p.in.Bucket
	fixedEnd := record.Offset(0)
	var kept [][]byte
	unfold := false
	for _, raw := range h.Pages {
		page, err := manifest.DecodePage(raw)
		if err != nil {
			return nil, err
		}
		entries, there := b.Pages[page.Object]
		if unfold = unfold || !there || p.anyGone(entries, h.LogStart); !unfold {
			p.fixed, kept, fixedEnd = append(p.fixed, page), append(kept, raw), page.End
			continue
		}
		if !there {
			p.change(p.label, "manifest page %s is gone: its entries come from the bucket", page.Object)
		}
		for i := range entries {
			out = p.addKnown(out, entries[i])
		}
	}
	if unfold {
		h.Pages, h.FoldedEnd = kept, fixedEnd
	}
	for _, v := range p.was.Segments {
		if v.Base < p.was.Head.FoldedEnd || v.Base >= p.was.Head.TieredEnd {
			continue // folded, or dead
		}
		e, err := manifest.DecodeEntry(v.Value)
		if err != nil {
			return nil, fmt.Errorf("entry at %d: %w", v.Base, err)
		}
		out = p.addKnown(out, e)
	}
	for i := range found {
		if p.fits(&found[i]) && found[i].Entry.Base >= fixedEnd {
			out = append(out, piece{Entry: found[i].Entry, epoch: found[i].LeaderEpoch})
		}
	}
	return out, nil
}

func (p *partition) anyGone(entries []manifest.Entry, logStart record.Offset) bool {
	return slices.ContainsFunc(entries, func(e manifest.Entry) bool { return e.End > logStart && !p.in.Bucket.Present[e.Object] })
}

func (p *partition) addKnown(out []piece, e manifest.Entry) []piece {
	if !p.in.Bucket.Present[e.Object] {
		p.change(p.label, "segment [%d, %d) does not count: %s is gone", e.Base, e.End, e.Object)
		return out
	}
	return append(out, piece{Entry: e, epoch: e.LastEpoch(), known: true})
}

// fits tells whether a segment that nobody knows of may be one of this log: it must not be garbage, and not of an earlier epoch than the log
// that has everything where both reach. Of the same epoch it holds the same records; of a later one it holds what a later leader had
// committed, and that log is the remains of an earlier one.
func (p *partition) fits(s *Segment) bool {
	for _, g := range p.in.State.Garbage {
		if slices.Contains(g.Keys, s.Entry.Object) {
			return false
		}
	}
	last := s.Entry.End - 1
	if p.best != nil && p.best.Start <= last && last < p.best.End {
		return record.EpochAt(p.best.Epochs, last) <= s.Entry.LastEpoch()
	}
	return true
}

// choose finds where the log starts and the run of segments from there on. It prefers the lowest start from which the run reaches what
// the data directories hold (R2); where none does the log starts with those.
func (p *partition) choose(c *chains) (record.Offset, run) {
	h := &p.next.Head
	fixedEnd, last := record.Offset(0), record.NoEpoch
	if n := len(p.fixed); n > 0 {
		fixedEnd, last = p.fixed[n-1].End, p.fixed[n-1].MaxEpoch
	}
	hot := record.Offset(0)
	for i := range p.logs {
		hot = max(hot, p.logs[i].Start) // also whoever comes back as a follower may lead later
	}
	type option struct {
		start record.Offset
		run   run
	}
	var options []option
	if fixedEnd > h.LogStart {
		options = append(options, option{h.LogStart, c.from(fixedEnd, last)})
	}
	for _, base := range c.bases() {
		r := c.from(base, record.NoEpoch)
		if base >= fixedEnd && r.first != nil && r.first.End > h.LogStart && (len(options) == 0 || base > fixedEnd) {
			options = append(options, option{max(base, h.LogStart), r})
		}
	}
	if len(options) == 0 || options[0].start > h.LogStart {
		options = append([]option{{h.LogStart, run{end: h.LogStart}}}, options...)
	}
	if p.best != nil {
		for _, atLeast := range []record.Offset{max(hot, h.TieredEnd), hot} { // the tiered end goes back only if it must
			for _, o := range options {
				if o.run.end >= atLeast {
					return o.start, o.run
				}
			}
		}
		start := max(h.LogStart, hot)
		p.warnCut(start)
		p.warn("%s: the segments that would lead up to %d, where a hot log begins, are not in the bucket: the log starts there. That is right if retention had passed it", p.label, start)
		return start, run{end: start}
	}
	best := options[0]
	for _, o := range options[1:] {
		if o.run.end > best.run.end {
			best = o
		}
	}
	return best.start, best.run
}

// warnCut tells of what a data directory holds below a log start that another one forces.
func (p *partition) warnCut(start record.Offset) {
	for i := range p.logs {
		if l := &p.logs[i]; l.Start < start && l.End > p.next.Head.LogStart {
			p.warn("%s: the data directory of node %d holds [%d, %d), which is cut off, since others begin at %d: plan without those (--without) to keep it", p.label, l.node,
				max(l.Start, p.next.Head.LogStart), min(l.End, start), start)
		}
	}
}

// put adds an entry to the manifest. rev is that of a dead or a folded one in its place.
func (p *partition) put(piece *piece, rev metadata.Revision) {
	p.next.Put = append(p.next.Put, metadata.SegmentValue{Base: piece.Base, Rev: rev, Value: manifest.AppendEntry(nil, &piece.Entry)})
}

// settle takes the intents of a segment away (R5), also of one that is in the manifest already: a reconcile may have ended in between.
func (p *partition) settle(piece *piece) {
	for _, i := range p.was.Intents {
		if slices.Contains(i.Keys, piece.Object) {
			p.next.Intents = append(p.next.Intents, i) // R5
		}
	}
}

// dead are the entries above the log start that the manifest does not have any more: a seal that begins there must find none.
func (p *partition) dead(start record.Offset) (out []metadata.SegmentValue) {
	live := map[record.Offset]bool{}
	for i := range p.chain {
		live[p.chain[i].Base] = true
	}
	for _, v := range p.was.Segments {
		e, err := manifest.DecodeEntry(v.Value)
		if v.Base >= p.next.Head.FoldedEnd && !live[v.Base] && (err != nil || e.End > start) {
			out = append(out, v)
		}
	}
	return out
}

// tally counts the entries that there are at or above the folded end, also below the log start, and what all segments hold.
func (p *partition) tally() {
	h := &p.next.Head
	h.Count, h.TieredBytes = 0, 0
	for i := range p.fixed {
		h.TieredBytes += p.fixed[i].DataBytes
	}
	counted := map[record.Offset]bool{}
	for _, v := range p.next.Drop {
		counted[v.Base] = true
	}
	for _, v := range slices.Concat(p.next.Put, p.was.Segments) {
		e, err := manifest.DecodeEntry(v.Value)
		if counted[v.Base] || v.Base < h.FoldedEnd || err != nil {
			continue
		}
		counted[v.Base] = true
		h.Count++
		h.TieredBytes += e.DataBytes
	}
}
