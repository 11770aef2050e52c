// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"fmt"
	"slices"

	"github.com/varve/varve/internal/invariant"
	"github.com/varve/varve/record"
)

// ISRChange is a change of a partition's in-sync set by its leader. A change counts only once the call has returned without an
// error; while the outcome is unknown the high watermark is bounded by the old and the new members.
type ISRChange struct {
	From   ISRState // the committed state that it was decided on
	Remove []record.NodeID
	Gone   bool            // the removed ones' registrations are gone: the change requires that
	Lost   []record.NodeID // of the removed ones those that hold less than they should: they do not become eligible
	Add    []ISRMember     // also members that come back with a new incarnation
	// Topic is the revision of the topic by which those added that were no members are assigned, as they say; 0: none of them says it. The change
	// requires that the topic is still the same: one that is taken away from the assignment meanwhile may remove its log.
	Topic   Revision
	MinISR  int // effective
	HWFloor record.Offset
}

// Next is the in-sync set that the change leads to, without its revision.
func (c ISRChange) Next() ISRState { return applyISR(c) }

// ChangeISR removes and adds members. ErrConflict: the in-sync set changed meanwhile, a candidate registered anew, the topic by which one is
// assigned changed, or a member said to be gone is registered. One that names nobody writes the same members again; it empties the eligible replicas when there are
// enough members.
func (s *Store) ChangeISR(ctx context.Context, l Leadership, c ISRChange) (ISRState, error) {
	ch, next := s.isrChange(&l, &c)
	rev, err := s.commit(ctx, ch)
	if err != nil {
		return ISRState{}, err
	}
	next.Rev = rev
	return next, nil
}

// LedISRChange is a change of the in-sync set of one partition, by its leader.
type LedISRChange struct {
	Leadership Leadership
	Change     ISRChange
}

// ISRResult is what became of one of many changes: the set, or the error that ChangeISR had given.
type ISRResult struct {
	State ISRState
	Err   error
}

// ChangeISRs is ChangeISR for different partitions, many in one transaction. One that is refused takes no other with it.
func (s *Store) ChangeISRs(ctx context.Context, all []LedISRChange) []ISRResult {
	out := make([]ISRResult, 0, len(all))
	for batch := range slices.Chunk(all, leaderBatch) {
		parts, next := make([]*change, len(batch)), make([]ISRState, len(batch))
		for i := range batch {
			parts[i], next[i] = s.isrChange(&batch[i].Leadership, &batch[i].Change)
		}
		for i, r := range s.commitTogether(ctx, parts) {
			if r.Err != nil {
				out = append(out, ISRResult{Err: r.Err})
				continue
			}
			next[i].Rev = r.Revision
			out = append(out, ISRResult{State: next[i]})
		}
	}
	return out
}

func (s *Store) isrChange(l *Leadership, c *ISRChange) (*change, ISRState) {
	next := applyISR(*c)
	_, leads := next.Member(l.Node)
	invariant.Check(leads, "P1: a leader takes itself out of the in-sync set")
	ch := newChange("changing the in-sync set of %s", l.ID)
	ch.unchanged(s.keys.leader(l.ID), l.LeaderRev, ErrFenced)
	ch.unchanged(s.keys.isr(l.ID), c.From.Rev, ErrConflict)
	for _, m := range c.Add {
		ch.created(s.keys.broker(m.Node), Equal, int64(m.Incarnation), ErrConflict)
	}
	if c.Topic != 0 {
		ch.unchanged(s.keys.topic(l.ID.Topic), c.Topic, ErrConflict)
	}
	for _, m := range c.From.Members {
		if c.Gone && slices.Contains(c.Remove, m.Node) {
			ch.created(s.keys.broker(m.Node), NotEqual, int64(m.Incarnation), ErrConflict)
		}
	}
	ch.mark = s.keys.isr(l.ID)
	ch.put(ch.mark, encodeISR(&next, ch.op))
	return ch, next
}

// ReadPartition reads a partition's leader, in-sync set and head linearizably, at one revision.
func (s *Store) ReadPartition(ctx context.Context, id PartitionID) (PartitionState, error) {
	found, _, err := s.readKeys(ctx, s.keys.leader(id), s.keys.isr(id), s.keys.head(id))
	if err != nil {
		return noPartition, fmt.Errorf("reading the state of %s: %w", id, err)
	}
	return decodePartition(&s.keys, id, found)
}

// applyISR is the in-sync set after a change. Those removed while fewer than the minimum remain become eligible; the change that
// reaches the minimum again empties that list.
func applyISR(c ISRChange) ISRState {
	next := ISRState{HWFloor: max(c.HWFloor, c.From.HWFloor)}
	var removed []ELRMember
	for _, m := range c.From.Members {
		replaced := slices.ContainsFunc(c.Add, func(a ISRMember) bool { return a.Node == m.Node })
		switch {
		case replaced:
		case slices.Contains(c.Lost, m.Node):
		case slices.Contains(c.Remove, m.Node):
			removed = append(removed, ELRMember{m.Node, m.StoreID})
		default:
			next.Members = append(next.Members, m)
		}
	}
	next.Members = append(next.Members, c.Add...)
	if len(next.Members) >= c.MinISR {
		return next
	}
	for _, m := range c.From.ELR {
		if _, back := next.Member(m.Node); !back {
			next.ELR = append(next.ELR, m)
		}
	}
	next.ELR = append(next.ELR, removed...)
	return next
}

// Transfer hands a partition over to a member of the in-sync set that has all of the log.
type Transfer struct {
	Leadership Leadership
	ISR        ISRState
	To         ISRMember
}

// TransferResult is what became of one transfer: the next leader, or why there is none.
type TransferResult struct {
	Next LeaderState
	Err  error
}

// TransferLeadership is TransferLeaderships for one partition.
func (s *Store) TransferLeadership(ctx context.Context, l Leadership, isr ISRState, to ISRMember) (LeaderState, error) {
	r := s.TransferLeaderships(ctx, []Transfer{{Leadership: l, ISR: isr, To: to}})[0]
	return r.Next, r.Err
}

// TransferLeaderships hands different partitions over, many in one transaction. From before the call until it returns the caller must
// answer nobody as the leader. One that is refused takes no other with it: ErrFenced, somebody leads by a later key; ErrConflict, the target
// or the in-sync set changed meanwhile; ErrNotEligible, the target is not in sync.
func (s *Store) TransferLeaderships(ctx context.Context, all []Transfer) []TransferResult {
	results := make([]TransferResult, len(all))
	var parts []*change
	var at []int // where in all
	send := func() {
		for i, r := range s.commitTogether(ctx, parts) {
			if results[at[i]].Err = r.Err; r.Err != nil {
				results[at[i]].Next = LeaderState{}
			}
			results[at[i]].Next.Rev = r.Revision
		}
		parts, at = nil, nil
	}
	for i := range all {
		c, err := s.transfer(&all[i], &results[i].Next)
		if err != nil {
			results[i].Err = err
			continue
		}
		if parts, at = append(parts, c), append(at, i); len(parts) == leaderBatch {
			send()
		}
	}
	send()
	return results
}

func (s *Store) transfer(t *Transfer, next *LeaderState) (*change, error) {
	l, to := &t.Leadership, t.To
	m, ok := t.ISR.Member(to.Node)
	if !ok || m.StoreID != to.StoreID {
		return nil, fmt.Errorf("handing %s over to node %d: %w: not in sync", l.ID, to.Node, ErrNotEligible)
	}
	*next = LeaderState{Node: to.Node, Incarnation: to.Incarnation, Epoch: l.Epoch + 1, UncleanEpoch: l.UncleanEpoch}
	c := newChange("handing %s over to node %d", l.ID, to.Node)
	c.mark = s.keys.leader(l.ID)
	c.unchanged(c.mark, l.LeaderRev, ErrFenced)
	c.unchanged(s.keys.isr(l.ID), t.ISR.Rev, ErrConflict)
	c.created(s.keys.broker(to.Node), Equal, int64(to.Incarnation), ErrConflict)
	c.put(c.mark, encodeLeader(next, c.op))
	return c, nil
}

// Handed is the leadership that an image says was handed over to this registration. ok is false where the image does not tell all of it,
// which TakeOver finds out. All that the leaders before changed is of a revision below that of the leader's key, and whoever comes later
// is compared with that key: what the image holds of the partition is what a read would give, for one that has changed nothing itself yet.
func (i *Image) Handed(sess *Session, id PartitionID) (l Leadership, ok bool) {
	state, known := i.Partition(id)
	old := &state.Leader
	if !known || old.Rev == 0 || old.Node != sess.node || old.Incarnation != sess.incarnation || state.ISR.Rev == 0 || state.Head.Rev == 0 {
		return l, false
	}
	return Leadership{ID: id, Node: old.Node, Epoch: old.Epoch, LeaderRev: old.Rev, ISR: state.ISR, Head: state.Head, UncleanEpoch: old.UncleanEpoch}, true
}
