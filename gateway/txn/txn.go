// SPDX-License-Identifier: Apache-2.0

package txn

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/varve/varve/record"
)

// State is what a transactional id has come to.
type State uint8

// The states, as they are stored.
const (
	Empty State = iota
	Ongoing
	PrepareCommit
	PrepareAbort
	CompleteCommit
	CompleteAbort
	Dead
)

var stateNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"}

// String is Kafka's name of the state.
func (s State) String() string { return stateNames[s] }

// ParseState is the state of that name.
func ParseState(name string) (State, bool) {
	i := slices.Index(stateNames[:], name)
	return State(max(i, 0)), i >= 0
}

// Prepared tells that the decision is made and not everybody knows it yet.
func (s State) Prepared() bool { return s == PrepareCommit || s == PrepareAbort }

// commits tells which way a decided transaction went; decided is false for the others.
func (s State) commits() (commit, decided bool) {
	switch s {
	case PrepareCommit, CompleteCommit:
		return true, true
	case PrepareAbort, CompleteAbort:
		return false, true
	}
	return false, false
}

const (
	// NoEpoch is the epoch of nobody.
	NoEpoch int16 = -1
	// lastEpoch is the highest that a client is given (X4).
	lastEpoch int16 = 32766
)

// Versions of the protocol that a client speaks (Kafka's transaction.version).
const (
	Classic int8 = 1 // the epoch stays until the producer begins anew
	Bumping int8 = 2 // each transaction has an epoch of its own (KIP-890)
)

// Producer is a producer id with its epoch.
type Producer struct {
	ID    int64
	Epoch int16
}

// Nobody is the producer of who names none.
var Nobody = Producer{ID: record.NoProducerID, Epoch: NoEpoch}

// Txn is a transactional id at one point of its history. It is never changed: steps make others.
type Txn struct {
	State State
	Producer
	// Before is the epoch from which the current one was made, when who has that one may hear of its success again; else NoEpoch.
	Before int16
	// Previous is the producer id before the current one, Next the one that follows when the transaction is complete.
	Previous, Next int64
	// Version is what the client of the transaction speaks.
	Version int8
	// Bumped: the decision moved the epoch, so that the current one is no longer the transaction's.
	Bumped     bool
	Timeout    time.Duration
	Started    time.Time // of the transaction; zero: none is open
	Updated    time.Time
	Partitions []record.PartitionID // ascending
	Groups     []string             // whose offsets are part of it, ascending
}

// New is a transactional id that nobody has used before.
func New(now time.Time, id int64, timeout time.Duration) *Txn {
	return &Txn{Producer: Producer{ID: id}, Before: NoEpoch, Previous: record.NoProducerID, Next: record.NoProducerID, Timeout: timeout, Updated: now}
}

// step is a copy to make the next value of.
func (t *Txn) step(now time.Time, state State) *Txn {
	next := *t
	next.State, next.Updated = state, now
	return &next
}

// Exhausted tells that the next step that needs a new epoch needs a new producer id.
func (t *Txn) Exhausted() bool { return t.Epoch >= lastEpoch }

// again tells that who has the epoch from which the current one was made: it did not hear of its success.
func (t *Txn) again(who Producer) bool {
	if t.Before == NoEpoch || who.Epoch != t.Before {
		return false
	}
	return who.ID == t.ID && t.Epoch == t.Before+1 || who.ID == t.Previous && t.Epoch == 0
}

// current checks that who is the producer.
func (t *Txn) current(who Producer) error {
	is := t.Answer()
	switch {
	case who.ID != is.ID:
		return ErrMapping
	case who.Epoch != is.Epoch, who.Epoch > lastEpoch:
		return ErrFenced
	}
	return nil
}

// Init gives the transactional id to a producer: a new one, or the one that who is. fresh is an unused producer id, needed when the
// epochs are Exhausted. No next and no error: the current Producer is the answer. With ErrConcurrent there may be a next: the open
// transaction is ended first.
func (t *Txn) Init(now time.Time, who Producer, timeout time.Duration, fresh int64) (next *Txn, err error) {
	again := t.again(who)
	if who.Epoch > lastEpoch || who != Nobody && who != t.Answer() && (!again || t.State == Ongoing) {
		return nil, ErrFenced
	}
	switch t.State {
	case PrepareCommit, PrepareAbort:
		return nil, ErrConcurrent
	case Ongoing:
		return t.abort(now, who.Epoch), ErrConcurrent
	}
	if again && t.Epoch <= lastEpoch {
		return nil, nil
	}
	next = t.step(now, Empty)
	next.Timeout, next.Before, next.Version = timeout, who.Epoch, 0
	if t.Exhausted() {
		next.Previous, next.ID, next.Epoch = t.ID, fresh, 0
	} else {
		next.Epoch++
	}
	return next, nil
}

// Add makes partitions and groups part of the transaction, which begins with the first. No next: they are already.
func (t *Txn) Add(now time.Time, who Producer, version int8, partitions []record.PartitionID, groups ...string) (next *Txn, err error) {
	if err := t.current(who); err != nil {
		return nil, err
	}
	switch {
	case t.State.Prepared():
		return nil, ErrConcurrent
	case t.State == Ongoing && t.holds(partitions, groups):
		return nil, nil
	case t.State == Ongoing:
		next = t.step(now, Ongoing)
	default:
		next = t.step(now, Ongoing)
		next.Started, next.Before = now, NoEpoch
		next.Partitions, next.Groups = nil, nil
	}
	next.Version = version
	next.Partitions = slices.Concat(next.Partitions, partitions)
	slices.SortFunc(next.Partitions, compare)
	next.Partitions = slices.Compact(next.Partitions)
	next.Groups = slices.Concat(next.Groups, groups)
	slices.Sort(next.Groups)
	next.Groups = slices.Compact(next.Groups)
	return next, nil
}

func compare(a, b record.PartitionID) int {
	return cmp.Or(bytes.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Index, b.Index))
}

func (t *Txn) holds(partitions []record.PartitionID, groups []string) bool {
	for _, p := range partitions {
		if _, in := slices.BinarySearchFunc(t.Partitions, p, compare); !in {
			return false
		}
	}
	for _, g := range groups {
		if _, in := slices.BinarySearch(t.Groups, g); !in {
			return false
		}
	}
	return true
}

// Verify tells whether a partition is part of the producer's open transaction.
func (t *Txn) Verify(who Producer, p record.PartitionID) error {
	return t.verify(who, []record.PartitionID{p}, nil)
}

// VerifyGroup is Verify for the offsets of a group.
func (t *Txn) VerifyGroup(who Producer, group string) error {
	return t.verify(who, nil, []string{group})
}

func (t *Txn) verify(who Producer, partitions []record.PartitionID, groups []string) error {
	if err := t.current(who); err != nil {
		return err
	}
	switch {
	case t.State.Prepared():
		return ErrConcurrent
	case t.State != Ongoing || !t.holds(partitions, groups):
		return ErrNotAdded
	}
	return nil
}

// End decides the transaction. fresh is an unused producer id, needed when the epochs are Exhausted and the client is a Bumping one. No next
// and no error: it is decided that way already, and Answer is still the answer.
func (t *Txn) End(now time.Time, who Producer, commit bool, version int8, fresh int64) (next *Txn, err error) {
	went, decided := t.State.commits()
	if version >= Bumping && decided && t.again(who) && t.Answer().Epoch <= lastEpoch {
		if went != commit {
			return nil, ErrInvalidState
		}
		return nil, nil
	}
	if err := t.current(who); err != nil {
		return nil, err
	}
	switch {
	case t.State == Ongoing:
		return t.decide(now, commit, version, fresh), nil
	case t.State.Prepared() && (version >= Bumping || went == commit):
		return nil, ErrConcurrent
	case t.State.Prepared():
		return nil, ErrInvalidState
	case version >= Bumping && !commit: // of a transaction that nothing was added to: it takes its epoch all the same
		empty := t.step(now, t.State)
		empty.Partitions, empty.Groups = nil, nil
		return empty.decide(now, false, version, fresh), nil
	case version < Bumping && decided && went == commit:
		return nil, nil
	}
	return nil, ErrInvalidState
}

// decide ends the transaction one way.
func (t *Txn) decide(now time.Time, commit bool, version int8, fresh int64) *Txn {
	next := t.step(now, PrepareAbort)
	if commit {
		next.State = PrepareCommit
	}
	next.Version, next.Bumped = version, version >= Bumping
	if next.Bumped {
		if t.Exhausted() {
			next.Next = fresh
		}
		next.Before, next.Epoch = t.Epoch, t.Epoch+1
	}
	return next.unlessEmpty(now)
}

// Abort ends an open transaction by force: its producer is fenced. nil: none is open.
func (t *Txn) Abort(now time.Time) *Txn {
	if t.State != Ongoing {
		return nil
	}
	return t.abort(now, NoEpoch)
}

func (t *Txn) abort(now time.Time, before int16) *Txn {
	next := t.step(now, PrepareAbort)
	next.Bumped, next.Before = true, before
	next.Epoch++
	return next.unlessEmpty(now)
}

// unlessEmpty completes a transaction at once that nobody needs to be told of.
func (t *Txn) unlessEmpty(now time.Time) *Txn {
	if len(t.Partitions) > 0 || len(t.Groups) > 0 {
		return t
	}
	return t.Complete(now)
}

// Complete ends a decided transaction whose markers are written. nil: none is decided.
func (t *Txn) Complete(now time.Time) *Txn {
	var next *Txn
	switch t.State {
	case PrepareCommit:
		next = t.step(now, CompleteCommit)
	case PrepareAbort:
		next = t.step(now, CompleteAbort)
	default:
		return nil
	}
	next.Partitions, next.Groups, next.Started, next.Bumped = nil, nil, time.Time{}, false
	if t.Next != record.NoProducerID {
		next.Previous, next.ID, next.Epoch, next.Next = t.ID, t.Next, 0, record.NoProducerID
	}
	return next
}

// Answer is the producer as a client sees it: while the last transaction of a producer id completes it is the next one's.
func (t *Txn) Answer() Producer {
	if t.Next != record.NoProducerID {
		return Producer{ID: t.Next}
	}
	return t.Producer
}

// Deadline is when an open transaction is to be aborted; zero: none is open.
func (t *Txn) Deadline() time.Time {
	if t.State != Ongoing {
		return time.Time{}
	}
	return t.Started.Add(t.Timeout)
}

// Expire gives up a transactional id that was not used for so long; nil: it was, or is.
func (t *Txn) Expire(now time.Time, unused time.Duration) *Txn {
	if t.State == Ongoing || t.State.Prepared() || t.State == Dead || now.Sub(t.Updated) < unused {
		return nil
	}
	return t.step(now, Dead)
}
