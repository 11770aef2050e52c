// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
)

// Why says in words why a partition is as it is, as far as this node knows: who leads and why nobody does, what the high watermark
// waits for, who is not in sync, what is not sealed and not evicted.
func (b *Broker) Why(id record.PartitionID) []string {
	img := b.meta.Image()
	topic := img.TopicByID(id.Topic)
	state, ok := img.Partition(id)
	if topic == nil || !ok {
		return []string{"this node knows no such partition"}
	}
	replicas := topic.Partitions[id.Index]
	out := append([]string{whyLeader(img, replicas, &state)}, whyMoving(img, topic, id.Index, &state.ISR)...)
	b.mu.RLock()
	p := b.mu.partitions[id]
	b.mu.RUnlock()
	switch {
	case !slices.Contains(replicas, b.cfg.Node.Node):
		return append(out, fmt.Sprintf("node %d holds no replica", b.cfg.Node.Node))
	case p == nil:
		return append(out, fmt.Sprintf("node %d has not opened its replica yet", b.cfg.Node.Node))
	}
	return append(out, p.why(img, &state)...)
}

// whyLeader says who leads, or who could.
func whyLeader(img *metadata.Image, replicas []record.NodeID, s *metadata.PartitionState) string {
	l := s.Leader
	if l.Rev == 0 {
		return fmt.Sprintf("no leader: it never had one, and no replica of %v has taken it yet", replicas)
	}
	b := img.Broker(l.Node)
	if b != nil && b.Incarnation == l.Incarnation {
		if l.Node != replicas[0] {
			return fmt.Sprintf("node %d leads in epoch %d; the preferred leader, node %d, %s", l.Node, l.Epoch, replicas[0], whyNotPreferred(img, replicas[0], &s.ISR))
		}
		return fmt.Sprintf("node %d leads in epoch %d", l.Node, l.Epoch)
	}
	var may, lost []string
	stores := map[record.NodeID]metadata.UUID{}
	for _, m := range s.ISR.Members {
		stores[m.Node] = m.StoreID
	}
	for _, m := range s.ISR.ELR {
		stores[m.Node] = m.StoreID
	}
	for n, store := range stores {
		switch b := img.Broker(n); {
		case b == nil:
			lost = append(lost, fmt.Sprintf("node %d is away", n))
		case b.StoreID != store:
			lost = append(lost, fmt.Sprintf("node %d came back with another disk", n))
		default:
			may = append(may, fmt.Sprint(n))
		}
	}
	slices.Sort(lost)
	slices.Sort(may)
	if len(may) > 0 {
		return fmt.Sprintf("no leader: node %d is gone, node %s is about to take over", l.Node, strings.Join(may, " or "))
	}
	return fmt.Sprintf("no leader: of those that have everything %s", strings.Join(lost, ", "))
}

// whyMoving says where replicas are moving and what that waits for, nothing where they stay.
func whyMoving(img *metadata.Image, t *metadata.Topic, index int32, s *metadata.ISRState) []string {
	a, minISR := t.Assignment(index), t.Config.MinInSyncReplicas
	if a.Move == nil {
		return nil
	}
	var lacking []string
	enter, leave := a.Awaits(s, minISR)
	for _, n := range enter {
		lacking = append(lacking, fmt.Sprintf("node %d%s to be in sync", n, whyAway(img, n)))
	}
	for _, n := range leave {
		lacking = append(lacking, fmt.Sprintf("node %d to leave the in-sync set, where it is by an earlier assignment", n))
	}
	if next, ok := a.Step(s, minISR); ok {
		for _, n := range next.Replicas {
			if !slices.Contains(a.Replicas, n) && img.Broker(n) == nil {
				lacking = append(lacking, fmt.Sprintf("node %d to be there", n))
			}
		}
	}
	what := fmt.Sprintf("replicas %v move to %v", a.Replicas, a.Move.Target)
	if len(lacking) == 0 {
		return []string{what + ": the next step is due"}
	}
	what += ": the move waits for " + strings.Join(lacking, ", ")
	if !a.Move.Auto {
		what += "; somebody asked for it, `varve reassign cancel` gives it up"
	}
	return []string{what}
}

// whyAway says what keeps a node from coming into sync, "" for nothing that is known.
func whyAway(img *metadata.Image, n record.NodeID) string {
	switch away, drains := img.Broker(n) == nil, img.Draining(n); {
	case away && drains:
		return " (away, drains)"
	case away:
		return " (away)"
	case drains:
		return " (drains)"
	}
	return ""
}

func whyNotPreferred(img *metadata.Image, n record.NodeID, s *metadata.ISRState) string {
	_, member := s.Member(n)
	switch {
	case img.Broker(n) == nil:
		return "is away"
	case img.Draining(n):
		return "is being drained"
	case !member:
		return "is not in sync yet"
	}
	return "is in sync and takes over soon"
}

func (p *Partition) why(img *metadata.Image, s *metadata.PartitionState) (out []string) {
	now := time.Now()
	p.mu.Lock()
	lead, follow := p.mu.lead, p.mu.follow
	hw, end, start, tiered := p.mu.hw, p.mu.end, p.mu.logStart, p.mu.head.TieredEnd
	out = append(out, p.whyUnstableLocked(now)...)
	pins, repairing := len(p.mu.pins), p.mu.repairing
	switch {
	case lead != nil:
		out = append(out, p.whyLeadingLocked(lead, img, now)...)
	case repairing:
		out = append(out, "this replica reads the bucket: it starts where that ends, or rebuilds its producers")
	case follow != nil:
		_, member := s.ISR.Member(p.broker.cfg.Node.Node)
		out = append(out, fmt.Sprintf("this replica follows node %d in epoch %d up to offset %d, in sync: %v", follow.leader, follow.epoch, p.log.DurableEnd(), member))
	default:
		out = append(out, "this replica neither leads nor follows now")
	}
	var archive *tiering.Handle
	if lead != nil {
		archive = lead.archive
	}
	p.mu.Unlock()
	out = append(out, fmt.Sprintf("offsets: log start %d, hot from %d, in the bucket up to %d, high watermark %d, end %d", start, p.log.Start(), tiered, hw, end))
	switch {
	case lead == nil:
	case end == 0:
		out = append(out, "the partition is empty: it never had a record")
	case start >= end:
		out = append(out, fmt.Sprintf("the partition is empty: nothing below offset %d is left (retention, DeleteRecords)", start))
	case archive != nil:
		out = append(out, archive.Why(now)...)
	default:
		out = append(out, "not sealed: the high watermark of this epoch is not known yet")
	}
	if pins > 0 {
		out = append(out, fmt.Sprintf("not evicted: pinned by %d uploads or reads", pins))
	}
	return out
}

// whyUnstableLocked says what readers of committed data wait for.
func (p *Partition) whyUnstableLocked(now time.Time) []string {
	lso := p.lsoLocked()
	if lso >= p.mu.hw {
		return nil
	}
	t := p.producersLocked().txns.head
	since := now.Sub(time.UnixMilli(t.began)).Round(time.Millisecond)
	if t.marker >= 0 {
		return []string{fmt.Sprintf("readers of committed data wait at offset %d: the end of producer %d's transaction, at %d, is not committed yet", lso, t.pid, t.marker)}
	}
	return []string{fmt.Sprintf("readers of committed data wait at offset %d: producer %d has had a transaction open there for %s", lso, t.pid, since)}
}

func (p *Partition) whyLeadingLocked(lead *leadership, img *metadata.Image, now time.Time) (out []string) {
	if !p.broker.mayServeUnder(lead.session) {
		out = append(out, "nothing is answered: this node is not sure of its lease")
	}
	if lead.moving {
		out = append(out, "nothing is appended: the leadership is being handed over")
	}
	if have, need := len(lead.committed.Members), lead.isr.MinISR(); have < need {
		out = append(out, fmt.Sprintf("acks=all is refused and the high watermark stands still: %d in sync, min.insync.replicas %d", have, need))
	} else if n := len(lead.committed.ELR); n > 0 {
		out = append(out, fmt.Sprintf("the high watermark stands still: %d eligible replicas are still noted from a time below min.insync.replicas", n))
	}
	if lead.undecided != nil {
		out = append(out, "a change of the in-sync set is under way; the high watermark waits for its old and new members alike")
	}
	for _, n := range p.mu.replicas {
		if n != lead.Node {
			out = append(out, p.whyFollowerLocked(lead, img, n, now)...)
		}
	}
	if p.mu.hw < p.log.AppendedEnd() && p.log.DurableEnd() <= p.mu.hw {
		out = append(out, "the high watermark waits for this node's own disk")
	}
	return out
}

// whyFollowerLocked says what is the matter with one follower, nothing when all is well.
func (p *Partition) whyFollowerLocked(lead *leadership, img *metadata.Image, n record.NodeID, now time.Time) (out []string) {
	_, member := lead.committed.Member(n)
	f, b := lead.followers[n], img.Broker(n)
	switch {
	case b == nil:
		return []string{fmt.Sprintf("node %d is not registered, in sync: %v", n, member)}
	case f == nil:
		return []string{fmt.Sprintf("node %d has not fetched in this epoch, in sync: %v", n, member)}
	}
	behind := p.log.AppendedEnd() - f.end
	switch {
	case member && behind > 0 && f.end <= p.mu.hw:
		out = append(out, fmt.Sprintf("the high watermark waits for node %d, %d offsets behind, last fetch %s ago", n, behind, now.Sub(f.fetched).Round(time.Millisecond)))
	case !member:
		out = append(out, fmt.Sprintf("node %d is not in sync: %d offsets behind, last fetch %s ago", n, behind, now.Sub(f.fetched).Round(time.Millisecond)))
	}
	if f.lost {
		out = append(out, fmt.Sprintf("node %d does not hold what it should: it leaves the in-sync set", n))
	}
	return out
}
