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
	From    ISRState // the committed state that it was decided on
	Remove  []record.NodeID
	Gone    bool            // the removed ones' registrations are gone: the change requires that
	Lost    []record.NodeID // of the removed ones those that hold less than they should: they do not become eligible
	Add     []ISRMember     // also members that come back with a new incarnation
	MinISR  int             // effective
	HWFloor record.Offset
}

// Next is the in-sync set that the change leads to, without its revision.
func (c ISRChange) Next() ISRState { return applyISR(c) }

// ChangeISR removes and adds members. ErrConflict: the in-sync set changed meanwhile, a candidate registered anew, or a member said
// to be gone is registered. One that names nobody writes the same members again; it empties the eligible replicas when there are
// enough members.
func (s *Store) ChangeISR(ctx context.Context, l Leadership, c ISRChange) (ISRState, error) {
	next := applyISR(c)
	_, leads := next.Member(l.Node)
	invariant.Check(leads, "P1: a leader takes itself out of the in-sync set")
	ch := newChange("changing the in-sync set of %s", l.ID)
	ch.unchanged(s.keys.leader(l.ID), l.LeaderRev, ErrFenced)
	ch.unchanged(s.keys.isr(l.ID), c.From.Rev, ErrConflict)
	for _, m := range c.Add {
		ch.created(s.keys.broker(m.Node), Equal, int64(m.Incarnation), ErrConflict)
	}
	for _, m := range c.From.Members {
		if c.Gone && slices.Contains(c.Remove, m.Node) {
			ch.created(s.keys.broker(m.Node), NotEqual, int64(m.Incarnation), ErrConflict)
		}
	}
	ch.mark = s.keys.isr(l.ID)
	ch.put(ch.mark, encodeISR(&next, ch.op))
	rev, err := s.commit(ctx, ch)
	if err != nil {
		return ISRState{}, err
	}
	next.Rev = rev
	return next, nil
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

// TransferLeadership hands a partition over to a member of the in-sync set that has all of the log. From before the call until it
// returns the caller must answer nobody as the leader. ErrConflict: the target or the in-sync set changed meanwhile.
func (s *Store) TransferLeadership(ctx context.Context, l Leadership, isr ISRState, to ISRMember) (LeaderState, error) {
	m, ok := isr.Member(to.Node)
	if !ok || m.StoreID != to.StoreID {
		return LeaderState{}, fmt.Errorf("handing %s over to node %d: %w: not in sync", l.ID, to.Node, ErrNotEligible)
	}
	next := LeaderState{Node: to.Node, Incarnation: to.Incarnation, Epoch: l.Epoch + 1, UncleanEpoch: l.UncleanEpoch}
	c := newChange("handing %s over to node %d", l.ID, to.Node)
	c.mark = s.keys.leader(l.ID)
	c.unchanged(c.mark, l.LeaderRev, ErrFenced)
	c.unchanged(s.keys.isr(l.ID), isr.Rev, ErrConflict)
	c.created(s.keys.broker(to.Node), Equal, int64(to.Incarnation), ErrConflict)
	c.put(c.mark, encodeLeader(&next, c.op))
	rev, err := s.commit(ctx, c)
	if err != nil {
		return LeaderState{}, err
	}
	next.Rev = rev
	return next, nil
}
