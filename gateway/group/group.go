// SPDX-License-Identifier: Apache-2.0

package group

import (
	"slices"
	"time"
)

// State is what a group is doing.
type State int8

// The states of a group.
const (
	// Empty: no members; offsets may be there.
	Empty State = iota
	// Preparing: the next generation is being gathered; members must join.
	Preparing
	// Completing: the generation stands, its leader has not said yet who gets what.
	Completing
	// Stable: everybody has an assignment.
	Stable
)

// String is Kafka's name.
func (s State) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

// Generation counts the assignments of a group. NoGeneration is that of a client outside of the group.
type Generation int32

// NoGeneration is what a client sends that is no member.
const NoGeneration Generation = -1

// Token names a request that waits for its answer.
type Token uint64

// Protocol is one way of assigning that a member knows, with what it tells the leader.
type Protocol struct {
	Name     string
	Metadata []byte
}

// Config is what the broker allows.
type Config struct {
	MinSession, MaxSession time.Duration
	InitialDelay           time.Duration
	MaxSize                int
}

// Output is the answer to one waiting request. Err says why it was refused; else Join or Sync is set.
type Output struct {
	Token Token
	Err   error
	// MemberID goes with a refused join: the id to come back with, or the one that came.
	MemberID string
	Join     *Joined
	Sync     *Synced
	// Durable: the answer may leave only once the group's state is stored (Q5).
	Durable bool
}

// Joined answers a join.
type Joined struct {
	Generation             Generation
	ProtocolType, Protocol string
	Leader, MemberID       string
	Members                []MemberMetadata // for the leader
	// SkipAssignment: the leader is back under its old assignment and need not assign.
	SkipAssignment bool
}

// MemberMetadata is what the leader learns of a member.
type MemberMetadata struct {
	ID       string
	Instance *string
	Metadata []byte
}

// Synced answers a sync.
type Synced struct {
	ProtocolType, Protocol string
	Assignment             []byte
}

type member struct {
	id             string
	instance       *string
	clientID, host string
	session        time.Duration
	rebalance      time.Duration
	protocols      []Protocol
	assignment     []byte
	join, sync     Token // 0: none waits
	fresh          bool  // its first join was not answered yet
	expires        time.Time
	pendingSync    bool
}

func (m *member) static() bool { return m.instance != nil }

func (m *member) metadata(protocol string) []byte {
	for i := range m.protocols {
		if m.protocols[i].Name == protocol {
			return m.protocols[i].Metadata
		}
	}
	return nil
}

func (m *member) knows(protocol string) bool {
	return slices.ContainsFunc(m.protocols, func(p Protocol) bool { return p.Name == protocol })
}

// same tells whether the member comes with the protocols it has.
func (m *member) same(protocols []Protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}

// Group is one group. It is used by one goroutine at a time.
type Group struct {
	state        State
	since        time.Time // when the state began
	protocolType string
	protocol     string
	generation   Generation
	leader       string
	members      []*member // in the order of joining
	byID         map[string]*member
	static       map[string]*member   // by group instance id
	pending      map[string]time.Time // ids given out, until when
	joining      int                  // members whose join waits

	deadline time.Time     // of the rebalance, in Preparing
	delay    time.Duration // not 0: an empty group gathers its first members
	initial  bool
	grown    bool          // a member came within the delay
	left     time.Duration // what may still be waited for more members
	syncBy   time.Time     // who has not synced by then is out

	next  time.Time // nothing happens by time alone before it
	dirty bool
	out   []Output
}

// New is a group that nobody has joined.
func New(now time.Time) *Group {
	return &Group{since: now, byID: map[string]*member{}, static: map[string]*member{}, pending: map[string]time.Time{}}
}

// State is what the group is doing.
func (g *Group) State() State { return g.state }

// Since is when the state began.
func (g *Group) Since() time.Time { return g.since }

// ProtocolType is the kind of group: consumer, connect or another; "" for one that only holds offsets of clients without groups.
func (g *Group) ProtocolType() string { return g.protocolType }

// Generation is the current generation.
func (g *Group) Generation() Generation { return g.generation }

// Unused tells that there is nothing to keep of the group but offsets.
func (g *Group) Unused() bool { return g.state == Empty && len(g.pending) == 0 }

// Dirty tells that the group differs from what Encode gave last in a way that must be stored.
func (g *Group) Dirty() bool { return g.dirty }

// Unsaved says that what Encode gave last, or what the group was before, is not stored: nothing that hangs on it may leave, until it is.
func (g *Group) Unsaved() { g.dirty = true }

// Next is when Tick has something to do, zero for never.
func (g *Group) Next() time.Time { return g.next }

// Take gives the answers that are due.
func (g *Group) Take() []Output {
	out := g.out
	g.out = nil
	return out
}

func (g *Group) arm(at time.Time) {
	if g.next.IsZero() || at.Before(g.next) {
		g.next = at
	}
}

func (g *Group) touch(m *member, now time.Time) {
	m.expires = now.Add(m.session)
	if m.fresh {
		m.expires = now.Add(newMemberTimeout)
	}
	g.arm(m.expires)
}

func (g *Group) enter(s State, now time.Time) { g.state, g.since = s, now }

// find checks that a request comes from a member.
func (g *Group) find(id string, instance *string) (*member, error) {
	if instance != nil {
		m := g.static[*instance]
		if m == nil {
			return nil, ErrUnknownMember
		}
		if m.id != id {
			return nil, ErrFencedInstance
		}
		return m, nil
	}
	if m := g.byID[id]; m != nil {
		return m, nil
	}
	return nil, ErrUnknownMember
}

// add takes a member in.
func (g *Group) add(m *member) {
	g.members = append(g.members, m)
	g.byID[m.id] = m
	if m.static() {
		g.static[*m.instance] = m
	}
	if g.leader == "" {
		g.leader = m.id
	}
}

// remove takes a member out; what it waits for is answered.
func (g *Group) remove(m *member, why error) {
	g.answerJoin(m, Output{Err: why, MemberID: m.id})
	g.answerSync(m, Output{Err: why})
	delete(g.byID, m.id)
	if m.static() && g.static[*m.instance] == m {
		delete(g.static, *m.instance)
	}
	g.members = slices.DeleteFunc(g.members, func(x *member) bool { return x == m })
	if g.leader == m.id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.members[0].id
		}
	}
}

// waitJoin lets a join wait. An earlier one of the same member, of a connection that was given up, is answered (Q2).
func (g *Group) waitJoin(m *member, t Token) {
	g.answerJoin(m, Output{Err: ErrRebalance, MemberID: m.id})
	m.join = t
	g.joining++
}

func (g *Group) answerJoin(m *member, o Output) {
	if m.join == 0 {
		return
	}
	o.Token = m.join
	m.join = 0
	g.joining--
	g.out = append(g.out, o)
}

func (g *Group) answerSync(m *member, o Output) {
	if m.sync == 0 {
		return
	}
	o.Token = m.sync
	m.sync = 0
	g.out = append(g.out, o)
}

// rebalanceTimeout is the longest that any member asks for.
func (g *Group) rebalanceTimeout() (d time.Duration) {
	for _, m := range g.members {
		d = max(d, m.rebalance)
	}
	return d
}
