// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/varve/varve/record"
)

// Assignment is where a partition's replicas are, the preferred leader first, and where they go. It is immutable.
type Assignment struct {
	Replicas []record.NodeID
	Move     *Move // nil: they stay
}

// Move is a reassignment that is under way. Meanwhile the replicas are those of the origin, in its order, and behind them those that
// were added so far, so that leadership moves once, at the end, and giving up is always one step.
type Move struct {
	Target []record.NodeID
	Origin []record.NodeID
	Auto   bool // nobody asked for it: who began it may give it up
}

// Assignment is that of one of the topic's partitions.
func (t *Topic) Assignment(index int32) Assignment {
	a := Assignment{Replicas: t.Partitions[index]}
	if m, ok := t.Moves[index]; ok {
		a.Move = &m
	}
	return a
}

// Adding are the replicas that a move brings, whether they are assigned already or not.
func (m *Move) Adding() []record.NodeID { return without(m.Target, m.Origin) }

// Removing are the replicas that a move takes away: those from before, and those brought for an earlier target that are needed yet.
func (a Assignment) Removing() []record.NodeID { return without(a.Replicas, a.Goal()) }

func without(nodes, other []record.NodeID) []record.NodeID {
	var out []record.NodeID
	for _, n := range nodes {
		if !slices.Contains(other, n) {
			out = append(out, n)
		}
	}
	return out
}

func sameNodes(a, b []record.NodeID) bool { return len(a) == len(b) && len(without(a, b)) == 0 }

// Goal is where the replicas are in the end.
func (a Assignment) Goal() []record.NodeID {
	if a.Move != nil {
		return a.Move.Target
	}
	return a.Replicas
}

// origin is where they were before the move.
func (a Assignment) origin() []record.NodeID {
	if a.Move != nil {
		return a.Move.Origin
	}
	return a.Replicas
}

// Reassign begins a move, or gives one that is under way another target: what was added and is wanted no more goes at once. A target
// that only has another order is reached at once.
func (a Assignment) Reassign(target []record.NodeID) Assignment {
	origin := a.origin()
	if sameNodes(origin, target) {
		return Assignment{Replicas: target}
	}
	kept := slices.Clone(origin)
	for _, n := range without(a.Replicas, origin) {
		if slices.Contains(target, n) {
			kept = append(kept, n)
		}
	}
	return Assignment{Replicas: kept, Move: &Move{Target: target, Origin: origin}}
}

// Cancel gives a move up: the replicas are those from before.
func (a Assignment) Cancel() Assignment { return Assignment{Replicas: a.origin()} }

// Step is the next step of a move; false: it has to wait (Awaits says for whom), or there is none. One replica is added at a time, when
// the one before has come into the in-sync set, and never one that is still in the set from before; in the end the target replaces the
// origin (faults A21). What was brought for another target goes as soon as it is not needed. A partition that never had a leader is empty
// everywhere, so nothing has to be waited for. minISR is the topic's min.insync.replicas, whatever the number of replicas.
func (a Assignment) Step(isr *ISRState, minISR int) (Assignment, bool) {
	if a.Move == nil {
		return a, false
	}
	done := Assignment{Replicas: a.Move.Target}
	if isr.Rev == 0 {
		return done, true
	}
	if lighter := a.wanted(); a.Drops(lighter) && lighter.Keeps(isr) && a.LeavesEnough(lighter, isr, minISR) {
		return lighter, true
	}
	if len(isr.outOf(a.added())) > 0 {
		return a, false
	}
	if next := without(a.Move.Target, a.Replicas); len(next) > 0 {
		// One in sync is that by an earlier assignment: it may have given up its log already, and must not count again. The others first: it may
		// lead, and hands over to them.
		may := isr.outOf(next)
		if len(may) == 0 {
			return a, false
		}
		return Assignment{Replicas: append(slices.Clone(a.Replicas), may[0]), Move: a.Move}, true
	}
	if a.mayEnd(isr, minISR) {
		return done, true
	}
	return a, false
}

// wanted is the move without what was brought for an earlier target, and stayed because it was needed.
func (a Assignment) wanted() Assignment {
	other := without(a.Replicas, append(slices.Clone(a.Move.Origin), a.Move.Target...))
	return Assignment{Replicas: without(a.Replicas, other), Move: a.Move}
}

// added are the replicas that a move has brought so far for its target.
func (a Assignment) added() []record.NodeID {
	return without(a.Move.Adding(), without(a.Move.Target, a.Replicas))
}

// mayEnd tells whether a move all of whose replicas are there, and the new ones in sync, may end. Where nothing goes, or the whole target is
// in sync, it may. Else who is of the target and away must not hold up what others have taken over: it may end with as many in sync as there
// would be without the move, unless it takes one away that is in sync and leaves fewer than the minimum. Then acks=all would be refused, and of
// what was acknowledged before there would be fewer copies than the minimum promises. While an eligible replica is noted, all of the target
// have to be in sync.
func (a Assignment) mayEnd(isr *ISRState, minISR int) bool {
	done := Assignment{Replicas: a.Move.Target}
	stay, before := isr.among(done.Replicas), isr.among(a.Move.Origin)
	switch {
	case stay == len(done.Replicas), !a.Drops(done):
		return true
	case len(isr.ELR) > 0, stay == 0, stay < before:
		return false
	}
	return a.LeavesEnough(done, isr, minISR)
}

// LeavesEnough tells whether a change takes none away that is in sync, or leaves at least the minimum.
func (a Assignment) LeavesEnough(next Assignment, isr *ISRState, minISR int) bool {
	return isr.among(without(a.Replicas, next.Replicas)) == 0 || isr.among(next.Replicas) >= min(minISR, len(next.Goal()))
}

// Awaits are the nodes that have to come into sync, or those that have to leave the in-sync set first, before a move goes on; none if it
// goes on.
func (a Assignment) Awaits(isr *ISRState, minISR int) (enter, leave []record.NodeID) {
	if _, ok := a.Step(isr, minISR); ok || a.Move == nil {
		return nil, nil
	}
	if enter = isr.outOf(a.added()); len(enter) > 0 {
		return enter, nil
	}
	if next := without(a.Move.Target, a.Replicas); len(next) > 0 {
		return nil, next[:1]
	}
	return isr.outOf(a.Move.Target), nil
}

// Drops tells whether a change takes replicas away.
func (a Assignment) Drops(next Assignment) bool { return len(without(a.Replicas, next.Replicas)) > 0 }

// Keeps tells whether a replica that is in sync stays assigned.
func (a Assignment) Keeps(isr *ISRState) bool {
	return isr.Rev == 0 || slices.ContainsFunc(a.Replicas, func(n record.NodeID) bool { _, ok := isr.Member(n); return ok })
}

// AssignmentChange gives a partition another assignment.
type AssignmentChange struct {
	Partition int32
	Next      Assignment
	// ISR is the revision of the in-sync set that the change was decided on; compared when the change adds or takes away replicas.
	ISR Revision
}

// AlterAssignments changes the assignments of at most MaxAssignmentChanges partitions of a topic as it was read, all or none.
// ErrConflict: the topic changed meanwhile, or an in-sync set that a change depends on.
func (s *Store) AlterAssignments(ctx context.Context, t *Topic, changes []AssignmentChange) (*Topic, error) {
	next, err := s.alterAssignments(ctx, t, changes)
	if err != nil {
		return nil, fmt.Errorf("assigning %d partitions of topic %s: %w", len(changes), t.Name, err)
	}
	return next, nil
}

func (s *Store) alterAssignments(ctx context.Context, t *Topic, changes []AssignmentChange) (*Topic, error) {
	if len(changes) > MaxAssignmentChanges {
		return nil, ErrTooLarge
	}
	next := *t
	next.Partitions, next.Moves = slices.Clone(t.Partitions), maps.Clone(t.Moves)
	c := newChange("assigning partitions of topic %s", t.Name)
	c.mark = s.keys.topic(t.ID)
	c.unchanged(c.mark, t.Rev, ErrConflict)
	for _, ch := range changes {
		if ch.Partition < 0 || int(ch.Partition) >= len(t.Partitions) {
			return nil, fmt.Errorf("partition %d: %w", ch.Partition, ErrUnknownPartition)
		}
		if len(ch.Next.Replicas) == 0 {
			return nil, fmt.Errorf("partition %d without replicas: %w", ch.Partition, ErrRefused)
		}
		if !sameNodes(t.Partitions[ch.Partition], ch.Next.Replicas) {
			c.unchanged(s.keys.isr(PartitionID{Topic: t.ID, Index: ch.Partition}), ch.ISR, ErrConflict)
		}
		next.assign(ch.Partition, ch.Next)
	}
	c.put(c.mark, encodeTopic(&next, c.op))
	rev, err := s.commit(ctx, c)
	if err != nil {
		return nil, err
	}
	next.Rev = rev
	return &next, nil
}

// assign changes a topic that nobody else sees yet.
func (t *Topic) assign(index int32, a Assignment) {
	t.Partitions[index] = a.Replicas
	if a.Move == nil {
		delete(t.Moves, index)
		return
	}
	if t.Moves == nil {
		t.Moves = map[int32]Move{}
	}
	t.Moves[index] = *a.Move
}

// Reassignment asks for a partition's replicas to be Target; nil: for the move under way to be given up.
type Reassignment struct {
	Partition int32
	Target    []record.NodeID
}

// ReassignOptions are what a request for reassignments allows.
type ReassignOptions struct {
	KeepReplicationFactor bool // refuse a target of another length than the replicas before
}

// Reassign begins, changes or gives up moves. The answer has an error, or nil, for each of them: ErrUnknownPartition, ErrNoMove,
// ErrReplicationFactor, ErrNotInSync; it is shorter when a transaction failed, which err tells. rev is the revision of the last
// change. A topic whose replication factor was automatic keeps the one that it is given here.
func (s *Store) Reassign(ctx context.Context, id record.TopicID, wanted []Reassignment, o ReassignOptions) (results []error, rev Revision, err error) {
	for chunk := range slices.Chunk(wanted, MaxAssignmentChanges) {
		some, at, err := s.reassignSome(ctx, id, chunk, o)
		if err != nil {
			return results, rev, err
		}
		results, rev = append(results, some...), max(rev, at)
	}
	return results, rev, nil
}

func (s *Store) reassignSome(ctx context.Context, id record.TopicID, wanted []Reassignment, o ReassignOptions) ([]error, Revision, error) {
	for range maxConflicts {
		t, err := s.ReadTopic(ctx, id)
		if err != nil {
			return nil, 0, err
		}
		keys := make([]string, len(wanted))
		for i, w := range wanted {
			keys[i] = s.keys.isr(PartitionID{Topic: id, Index: w.Partition})
		}
		found, _, err := s.readKeys(ctx, keys...)
		if err != nil {
			return nil, 0, err
		}
		results := make([]error, len(wanted))
		var changes []AssignmentChange
		explicit := false // somebody asks for a number of replicas
		for i, w := range wanted {
			var isr ISRState
			if kv, ok := found[keys[i]]; ok {
				if isr, err = decodeISR(&kv); err != nil {
					return nil, 0, err
				}
			}
			next, err := reassigned(t, &w, &isr, s.minISR(t, len(w.Target)), o)
			if results[i] = err; err == nil {
				changes = append(changes, AssignmentChange{Partition: w.Partition, Next: next, ISR: isr.Rev})
				explicit = explicit || w.Target != nil && len(w.Target) != len(t.Assignment(w.Partition).origin())
			}
		}
		if len(changes) == 0 {
			return results, 0, nil
		}
		if explicit && t.AutoRF {
			manual := *t
			manual.AutoRF, t = false, &manual
		}
		next, err := s.AlterAssignments(ctx, t, changes)
		if err == nil {
			return results, next.Rev, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, 0, err
		}
	}
	return nil, 0, fmt.Errorf("reassigning partitions of topic %s: %w", id, ErrConflict)
}

// reassigned is what one reassignment makes of a partition.
func reassigned(t *Topic, w *Reassignment, isr *ISRState, minISR int, o ReassignOptions) (next Assignment, err error) {
	if w.Partition < 0 || int(w.Partition) >= len(t.Partitions) {
		return next, fmt.Errorf("partition %d of topic %s: %w", w.Partition, t.Name, ErrUnknownPartition)
	}
	now := t.Assignment(w.Partition)
	switch {
	case w.Target == nil && now.Move == nil:
		return next, fmt.Errorf("partition %d of topic %s: %w", w.Partition, t.Name, ErrNoMove)
	case w.Target == nil:
		next = now.Cancel()
	case o.KeepReplicationFactor && len(w.Target) != len(now.origin()):
		return next, fmt.Errorf("partition %d of topic %s has %d replicas, not %d: %w", w.Partition, t.Name, len(now.origin()), len(w.Target), ErrReplicationFactor)
	default:
		next = now.Reassign(w.Target)
		if slices.Equal(next.Replicas, now.Replicas) {
			next, _ = next.Step(isr, minISR)
		}
	}
	if now.Drops(next) && !next.Keeps(isr) {
		return next, fmt.Errorf("partition %d of topic %s: %w", w.Partition, t.Name, ErrNotInSync)
	}
	return next, nil
}
