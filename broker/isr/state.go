// SPDX-License-Identifier: Apache-2.0

package isr

import (
	"github.com/varve/varve/internal/invariant"
	"github.com/varve/varve/record"
)

// Member is one entry of the committed in-sync set: a node together with the store it had when it was admitted. A node that
// lost its disk comes back with another store, and is not that member.
type Member struct {
	Node  record.NodeID
	Store [16]byte
}

// Change is an ISR change whose compare-and-swap may or may not have been applied yet.
type Change struct {
	Members []Member
	ELR     []Member
}

// State is a leader's view of one partition's replicas in one leader epoch. Not safe for concurrent use.
type State struct {
	self     record.NodeID
	replicas int // replication factor
	minISR   int // as configured; in force is min(minISR, replicas)

	members []Member
	elr     []Member
	pending *Change

	durable map[record.NodeID]record.Offset // end acknowledged as durable, per node; the own end is in ownEnd
	ownEnd  record.Offset
	hw      record.Offset
	epochAt record.Offset // first offset of this epoch
}

// Start is what a leader knows when its epoch begins.
type Start struct {
	Self       record.NodeID
	Replicas   int           // replication factor of the partition, at least 1
	MinISR     int           // min.insync.replicas as configured
	Members    []Member      // committed ISR, read at the revision at which the epoch began
	ELR        []Member      // committed ELR, same revision
	HW         record.Offset // last known high watermark, clamped by the caller to [max(log start, tiered end), durable end]
	EpochStart record.Offset // log end when the epoch began
	DurableEnd record.Offset // the leader's own
}

// New begins an epoch.
func New(s Start) *State {
	invariant.Check(s.Replicas >= 1, "I1: a partition has at least one replica")
	invariant.Check(s.HW <= s.DurableEnd, "I1: the high watermark starts at or below the own durable end")
	st := &State{
		self: s.Self, replicas: s.Replicas, minISR: s.MinISR, members: s.Members, elr: s.ELR,
		ownEnd: s.DurableEnd, hw: s.HW, epochAt: s.EpochStart,
	}
	st.advance()
	return st
}

// HighWatermark is the first offset that is not committed.
func (s *State) HighWatermark() record.Offset { return s.hw }

// EpochStart is the first offset of this epoch.
func (s *State) EpochStart() record.Offset { return s.epochAt }

// Known tells whether the high watermark has reached the start of this epoch: before, an earlier leader may have announced a
// higher one.
func (s *State) Known() bool { return s.hw >= s.epochAt }

// Members is the committed in-sync set. The caller must not change it.
func (s *State) Members() []Member { return s.members }

// MinISR is the number of in-sync replicas in force: min(min.insync.replicas, replication factor), at least 1.
func (s *State) MinISR() int { return max(1, min(s.minISR, s.replicas)) }

// Enough tells whether acks=all may be accepted: the committed ISR has min ISR members.
func (s *State) Enough() bool { return len(s.members) >= s.MinISR() }

// SetMinISR takes a changed configuration into account.
func (s *State) SetMinISR(n int) (moved bool) {
	s.minISR = n
	return s.advance()
}

// SetReplicas takes a changed replication factor into account.
func (s *State) SetReplicas(n int) (moved bool) {
	s.replicas = n
	return s.advance()
}

// OwnDurable records that the leader's log is durable below end. It tells whether the high watermark moved.
func (s *State) OwnDurable(end record.Offset) (moved bool) {
	invariant.Check(end >= s.ownEnd, "I1: the own durable end never goes back within an epoch")
	s.ownEnd = end
	return s.advance()
}

// Acknowledged records that a replica's log is durable below end, as its fetch offset says.
func (s *State) Acknowledged(node record.NodeID, end record.Offset) (moved bool) {
	if node == s.self {
		return false
	}
	if s.durable == nil {
		s.durable = map[record.NodeID]record.Offset{}
	}
	s.durable[node] = end
	return s.advance()
}

// Propose notes an ISR change that is about to be sent. Until Decided the high watermark counts old and new members alike.
func (s *State) Propose(c Change) {
	invariant.Check(s.pending == nil, "I2: one ISR change in flight per partition")
	s.pending = &c
}

// Decided ends the change in flight: applied or known never to apply. Only then does it count (I2).
func (s *State) Decided(applied bool) (moved bool) {
	invariant.Check(s.pending != nil, "I2: only a change in flight can be decided")
	if applied {
		s.members, s.elr = s.pending.Members, s.pending.ELR
	}
	s.pending = nil
	return s.advance()
}

// Pending is the change in flight, nil when there is none.
func (s *State) Pending() *Change { return s.pending }

// ELR are the committed eligible leader replicas: while there are any, the high watermark stands still. The caller must not change it.
func (s *State) ELR() []Member { return s.elr }

// Adopt ends the change in flight, if any, with an in-sync set that was read from the store: what is committed, however it came
// there.
func (s *State) Adopt(members, elr []Member) (moved bool) {
	s.pending, s.members, s.elr = nil, members, elr
	return s.advance()
}

// advance moves the high watermark as far as I1 allows.
func (s *State) advance() bool {
	if !s.Enough() || len(s.elr) > 0 {
		return false
	}
	end := s.ownEnd
	for _, m := range s.members {
		end = min(end, s.endOf(m))
	}
	if s.pending != nil {
		for _, m := range s.pending.Members {
			end = min(end, s.endOf(m))
		}
	}
	if end <= s.hw {
		return false
	}
	s.hw = end
	return true
}

func (s *State) endOf(m Member) record.Offset {
	if m.Node == s.self {
		return s.ownEnd
	}
	return s.durable[m.Node] // absent: 0, nothing acknowledged in this epoch yet
}
