// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"slices"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// Replica is what a follower says of itself in each of its fetches.
type Replica struct {
	Node        record.NodeID
	Incarnation metadata.Incarnation
	Store       metadata.UUID
	Assigns     bool // it says by which assignment it holds what it does
	Leaving     bool // its node is about to end
}

// follower is what a leader knows of one other replica in its epoch.
type follower struct {
	Replica
	end      record.Offset     // durable there
	assigned metadata.Revision // of the topic that it knew its assignment by; 0: it does not say
	fetched  time.Time         // of the last fetch
	endThen  record.Offset     // our end at that time
	caughtUp time.Time         // it had all that there was at that time
	behind   time.Time         // since when it is seen to lack something; zero while it does not
	lost     bool              // a member that does not hold what the in-sync set counts on
	unable   bool              // it cannot append now
}

// Acknowledge takes a follower's fetch as the proof of what it holds: its fetch offset is durable there, if its log agrees with
// ours up to that offset (protocols §2). It is called once for each partition that a fetch names; what is wrong with the request the
// read that follows finds. One that is not assigned here, as far as we know, is noted as well: it may know of its assignment before we
// do, and of an idle partition it does not say the same twice. But what it held by an earlier assignment it may have removed since: for
// a replica that is assigned anew only what it says under that assignment counts.
func (p *Partition) Acknowledge(req *ReadRequest) {
	p.mu.Lock()
	lead, err := p.leadingLocked()
	r := req.Replica
	if err != nil || req.CurrentEpoch != lead.Epoch || req.Offset > p.mu.end || p.divergesLocked(req) {
		p.mu.Unlock()
		return
	}
	m, member := lead.committed.Member(r.Node)
	if !member && r.Assigns && req.Assigned < lead.assigned[r.Node] {
		p.mu.Unlock()
		return // late: of before it was assigned anew
	}
	f := lead.followers[r.Node]
	switch {
	case f == nil:
		f = &follower{Replica: *r}
		lead.followers[r.Node] = f
	case r.Incarnation < f.Incarnation: // a fetch of an earlier life, late
		p.mu.Unlock()
		return
	}
	now := time.Now()
	if end := p.log.AppendedEnd(); req.Offset >= end {
		f.caughtUp, f.behind = now, time.Time{}
	} else if !f.fetched.IsZero() && req.Offset >= f.endThen {
		f.caughtUp = f.fetched
	}
	f.Replica, f.fetched, f.endThen, f.end, f.assigned = *r, now, p.log.AppendedEnd(), req.Offset, req.Assigned
	f.unable = req.Unable
	f.lost = member && (m.StoreID != r.Store || req.Offset < p.mu.hw)
	var chain *Pending
	moved := false
	if !f.lost && lead.isr.Acknowledged(r.Node, req.Offset) {
		moved, chain = true, p.advanceLocked(lead)
	}
	_, wanted := p.wantedISRLocked(lead, p.broker.meta.Image(), now)
	lead.tell()
	p.mu.Unlock()
	p.committed(lead, chain, moved)
	if wanted {
		p.broker.isrWork.add(p.id)
	}
}

// committed tells everybody who waits for a high watermark that it moved: readers first, so that whoever has heard of an acknowledgement finds
// the record in its next fetch.
func (p *Partition) committed(lead *leadership, chain *Pending, moved bool) {
	if !moved {
		return
	}
	var err error
	if !p.broker.mayServeUnder(lead.session) {
		// A leader that must not act any more leaves the outcome open instead of acknowledging. (Safety does not need it: the
		// high watermark is bounded by the followers, who know the newer epoch.)
		err = ErrNotLeader
	}
	p.notify()
	decideAll(chain, err)
	p.mu.Lock()
	archive, sealable := lead.archive, p.mu.unsealed
	lso, hw, tiered := lead.producers.lastStable(p.mu.logStart, p.mu.hw), p.mu.hw, p.mu.head.TieredEnd
	p.mu.Unlock()
	switch {
	case archive == nil:
		p.archiveIfKnown()
	case lso == hw:
		archive.Appended(sealable)
	case lso > tiered: // below an open transaction: what lies above it must not wake the archiver with each append
		archive.Appended(max(1, sealable-p.log.BytesFrom(lso)))
	}
}

// divergesLocked tells whether a reader's last epoch does not end here where it says.
func (p *Partition) divergesLocked(req *ReadRequest) bool {
	if req.LastFetchedEpoch == record.NoEpoch {
		return false
	}
	e := p.epochEndLocked(req.LastFetchedEpoch)
	return e.Epoch != req.LastFetchedEpoch || e.End < req.Offset
}

// wantedISRLocked is the change that the in-sync set should have now, given who is registered and what the followers hold. One
// kind of change at a time: the dead leave first, since produce waits for them.
func (p *Partition) wantedISRLocked(lead *leadership, img *metadata.Image, now time.Time) (metadata.ISRChange, bool) {
	c := metadata.ISRChange{From: lead.committed, MinISR: lead.isr.MinISR(), HWFloor: p.mu.hw}
	for _, m := range lead.committed.Members {
		if m.Node != lead.Node && p.goneLocked(lead, img, m) {
			c.Remove, c.Gone = append(c.Remove, m.Node), true
		}
	}
	if len(c.Remove) > 0 {
		return c, true
	}
	lag := p.broker.Config().ReplicaLagTimeMax
	for _, m := range lead.committed.Members {
		if m.Node == lead.Node {
			continue
		}
		if f := lead.followers[m.Node]; f != nil && f.lost {
			c.Remove, c.Lost = append(c.Remove, m.Node), append(c.Lost, m.Node)
		} else if f != nil && f.unable || p.laggingLocked(lead, m.Node, now, lag) || !slices.Contains(p.mu.replicas, m.Node) {
			c.Remove = append(c.Remove, m.Node)
		}
	}
	for _, m := range lead.committed.Members {
		// It goes on fetching until it is out: nobody waits for it in between, as everybody would for one that is just gone.
		if p.broker.leavers.has(m.Node, m.Incarnation) && m.Node != lead.Node && !slices.Contains(c.Remove, m.Node) && spare(&c) {
			c.Remove = append(c.Remove, m.Node)
		}
	}
	p.addCandidatesLocked(lead, img, &c)
	empties := len(c.From.ELR) > 0 && len(c.From.Members) >= c.MinISR
	return c, len(c.Remove)+len(c.Add) > 0 || empties
}

// spare tells whether a change may take out one member more: as many as are needed stay.
func spare(c *metadata.ISRChange) bool { return len(c.From.Members)-len(c.Remove) > c.MinISR }

// addCandidatesLocked adds those that may enter the in-sync set, or be stamped anew in it. The change requires that the topic is the one by which
// those who enter said that they are assigned: between that and the change each of them has kept what it holds (A21). Of several those
// enter first who know the newest; the others say it anew.
func (p *Partition) addCandidatesLocked(lead *leadership, img *metadata.Image, c *metadata.ISRChange) {
	var entering []metadata.ISRMember
	for _, f := range lead.followers {
		add, ok := p.candidateLocked(lead, img, f)
		if !ok || slices.Contains(c.Remove, f.Node) {
			continue
		}
		if _, member := lead.committed.Member(f.Node); member || !f.Assigns {
			c.Add = append(c.Add, add)
			continue
		}
		switch {
		case f.assigned == 0 || f.assigned < c.Topic:
			continue // it takes itself for a member, or knows an older topic
		case f.assigned > c.Topic:
			entering, c.Topic = entering[:0], f.assigned
		}
		entering = append(entering, add)
	}
	c.Add = append(c.Add, entering...)
}

// goneLocked tells whether a member's registration ended. One that registered anew with the same disk is still a member: it has
// everything, and is stamped anew once it fetches.
func (p *Partition) goneLocked(lead *leadership, img *metadata.Image, m metadata.ISRMember) bool {
	b := img.Broker(m.Node)
	switch {
	case b != nil:
		return b.Incarnation != m.Incarnation && b.StoreID != m.StoreID
	case lead.patient(img):
		return false // laggingLocked takes it out
	}
	return img.Revision >= metadata.Revision(m.Incarnation)
}

// patient tells that more than half of the nodes this leader began with have no registration: not they, but the metadata store or
// this node is the trouble (faults K1).
func (l *leadership) patient(img *metadata.Image) bool {
	gone := 0
	for _, m := range l.committed.Members {
		if img.Broker(m.Node) == nil {
			gone++
		}
	}
	return len(l.committed.Members) > 2 && 2*gone > len(l.committed.Members)
}

// laggingLocked applies replica.lag.time.max.ms: a member that lacks something, and has lacked something for that long.
func (p *Partition) laggingLocked(lead *leadership, n record.NodeID, now time.Time, lag time.Duration) bool {
	f := lead.followers[n]
	since, end := lead.began, record.Offset(-1)
	if f != nil {
		if end = f.end; end >= p.log.AppendedEnd() {
			f.behind = time.Time{}
			return false
		}
		if f.behind.IsZero() {
			f.behind = now // of an idle partition it names nothing: it was caught up until now
		}
		for _, t := range []time.Time{f.caughtUp, f.behind} {
			if t.After(since) {
				since = t
			}
		}
	}
	return end < p.log.AppendedEnd() && now.Sub(since) > lag
}

// candidateLocked tells whether a follower may enter the in-sync set, or be stamped anew in it: it holds everything committed and
// the beginning of this epoch, by a fetch of the very registration that enters (A8, A9).
func (p *Partition) candidateLocked(lead *leadership, img *metadata.Image, f *follower) (metadata.ISRMember, bool) {
	next := metadata.ISRMember{Node: f.Node, Incarnation: f.Incarnation, StoreID: f.Store}
	if f.lost || f.unable || p.broker.leavers.has(f.Node, f.Incarnation) || !slices.Contains(p.mu.replicas, f.Node) || f.end < max(p.mu.hw, lead.isr.EpochStart()) {
		return next, false
	}
	b := img.Broker(f.Node)
	if b == nil || b.Incarnation != f.Incarnation || b.StoreID != f.Store {
		return next, false
	}
	m, member := lead.committed.Member(f.Node)
	return next, !member || m.Incarnation != f.Incarnation
}
