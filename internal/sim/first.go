// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// This file brings nodes back before the others, and when nobody else is registered: what the metadata lets them lead, they lead.

// failPower crashes all nodes. m is back in a moment, the others a while after their registrations have ended.
func (w *World) failPower(m *machine, event Event) {
	lives := w.lives()
	w.mu.Lock()
	for _, n := range lives {
		n.m.backAt = time.Now().Add(w.knobs.Lease + firstAlone + time.Duration(w.mu.rng.IntN(2000))*time.Millisecond)
	}
	m.backAt = time.Now().Add(time.Duration(20+w.mu.rng.IntN(500)) * time.Millisecond)
	w.mu.Unlock()
	for _, n := range lives {
		w.crash(n, event)
	}
}

// setJoin sets a trap for the next replica that enters an in-sync set.
func (w *World) setJoin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.joining = true
}

func (w *World) springJoin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.mu.joining && !w.calm.Load()
	w.mu.joining = false
	return was
}

// entering is the machine of the replica that a transaction of the leader takes into an in-sync set, or nil.
func (n *node) entering(t metadata.Txn) *machine {
	isr := keyOf(t, "/s/isr/")
	if isr == "" || touches(t, "/s/leader/") {
		return nil
	}
	topic, index, _ := strings.Cut(isr, "/")
	id, err := record.ParseTopicIDHex(topic)
	if err != nil {
		return nil
	}
	i, err := strconv.Atoi(index)
	if err != nil {
		return nil
	}
	state, _ := n.meta.Image().Partition(record.PartitionID{Topic: id, Index: int32(i)})
	for _, c := range t.If {
		_, who, ok := strings.Cut(c.Key, "/s/broker/")
		if !ok || c.Target != metadata.TargetCreateRevision || c.Relation != metadata.Equal {
			continue // those who are gone are compared in another way
		}
		for _, m := range n.w.machines {
			if _, member := state.ISR.Member(m.id); who == strconv.Itoa(int(m.id)) && !member {
				return m
			}
		}
	}
	return nil
}

// keyOf is the rest of the first key behind part that a transaction writes; "" when there is none.
func keyOf(t metadata.Txn, part string) string {
	for _, op := range t.Then {
		if _, rest, ok := strings.Cut(op.Key, part); ok && op.Kind != metadata.OpGet {
			return rest
		}
	}
	return ""
}

// emptyFirst crashes all nodes, one of them with its disk, and has that one back first: it is not the member of the in-sync sets that it
// was, and must wait for the others.
func (w *World) emptyFirst(ctx context.Context, m *machine) {
	if !w.losing.TryLock() {
		return
	}
	defer w.losing.Unlock()
	if n := w.lifeOf(m); n != nil && w.allInSync(ctx) && w.destroy(n) {
		w.failPower(m, EmptyFirst)
	}
}

// emptyEligible does the same to one that is only eligible. The in-sync sets are without another node when it goes with its disk, so its leaders
// note it; then what was acknowledged last is on the third node's disk alone, which crashes. Nobody else may lead before that one is back.
func (w *World) emptyEligible(ctx context.Context, m *machine) {
	if !w.losing.TryLock() {
		return
	}
	defer w.losing.Unlock()
	n := w.lifeOf(m)
	if n == nil || len(w.machines) != 3 || !w.allInSync(ctx) {
		return
	}
	i := w.draw(2)
	others := slices.DeleteFunc(slices.Clone(w.machines), func(other *machine) bool { return other == m })
	away, last := others[i], w.lifeOf(others[1-i])
	w.leaveAway(away, m)
	defer w.bringBack(away, m)
	if gone := w.lifeOf(away); gone != nil {
		w.crash(gone, CrashAnywhere)
	}
	sees := func(what func(*metadata.ISRState) bool) bool {
		for range 100 {
			if last == nil || last.dead.Load() || w.lifeOf(last.m) != last {
				return false
			}
			if w.anywhere(last, what) {
				return true
			}
			if !pauseFor(ctx, 200*time.Millisecond) {
				return false
			}
		}
		return false
	}
	if !sees(func(s *metadata.ISRState) bool {
		_, out := s.Member(away.id)
		_, in := s.Member(m.id)
		return !out && in
	}) || !w.everyISR(ctx, last, func(s *metadata.ISRState) bool {
		held, ok := s.Member(last.m.id)
		return ok && held.StoreID == last.store
	}) || w.lifeOf(m) != n || !w.destroy(n) {
		return
	}
	if !sees(func(s *metadata.ISRState) bool {
		return slices.ContainsFunc(s.ELR, func(e metadata.ELRMember) bool { return e.Node == m.id && e.StoreID == n.store })
	}) {
		return
	}
	w.mu.Lock()
	last.m.backAt = time.Now().Add(w.knobs.Lease + firstAlone + time.Second)
	w.mu.Unlock()
	w.crash(last, EmptyEligible)
	w.bringBack(m)
	pauseFor(ctx, w.knobs.Lease+firstAlone)
}

// anywhere tells whether it is so with the in-sync set of a partition, as a node sees it.
func (w *World) anywhere(n *node, what func(*metadata.ISRState) bool) bool {
	img := n.meta.Image()
	for t := range img.Topics() {
		for i := range t.Partitions {
			if s, ok := img.Partition(record.PartitionID{Topic: t.ID, Index: int32(i)}); ok && !t.Deleting && what(&s.ISR) {
				return true
			}
		}
	}
	return false
}

// leaveAway keeps machines' nodes away after their next crash until they are brought back.
func (w *World) leaveAway(machines ...*machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range machines {
		m.backAt = time.Now().Add(runLimit)
	}
}

func (w *World) bringBack(machines ...*machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range machines {
		m.backAt = time.Now()
	}
}
