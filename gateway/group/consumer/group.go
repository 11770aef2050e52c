// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/internal/invariant"
	"github.com/varve/varve/record"
)

// State is what a group is doing.
type State int8

// The states of a group.
const (
	// Empty: no members; offsets may be there.
	Empty State = iota
	// Assigning: the members or topics have changed and the target assignment is still the one from before.
	Assigning
	// Reconciling: some member is not yet where the target assignment wants it.
	Reconciling
	// Stable: every member has what it is to have.
	Stable
)

// String is Kafka's name.
func (s State) String() string {
	return [...]string{"Empty", "Assigning", "Reconciling", "Stable"}[s]
}

// Epochs with a meaning of their own in a heartbeat.
const (
	// JoinEpoch is that of who joins.
	JoinEpoch int32 = 0
	// LeaveEpoch is that of who leaves.
	LeaveEpoch int32 = -1
	// StaticLeaveEpoch is that of a static member that leaves and will be back.
	StaticLeaveEpoch int32 = -2
)

// Topic is a topic that members may read.
type Topic struct {
	Name       string
	ID         record.TopicID
	Partitions int32
}

// Topics is what topics there are, at one moment.
type Topics interface {
	// Version is another one whenever something may have changed.
	Version() int64
	Topic(name string) (Topic, bool)
	Name(id record.TopicID) (string, bool)
	All() iter.Seq[string]
}

// Config is what the broker, and the group's own configs, say.
type Config struct {
	Session, Interval  time.Duration
	AssignmentInterval time.Duration
	RegexRefresh       time.Duration
	MaxSize            int
	Assignors          []string // the first one is the default
	// Upgrade and Downgrade tell which ways a group may be moved between the protocols; without either no member of the other
	// protocol is let in.
	Upgrade, Downgrade bool
	ClassicMaxSize     int
}

// Env is what a step needs to know of the world.
type Env struct {
	Topics Topics
	Config Config
}

// memberState is how far a member has come on its way to the target assignment.
type memberState int8

const (
	stable     memberState = iota // it has what the target of its epoch says
	unrevoked                     // it has not yet given up what it must
	unreleased                    // others have not yet given up what it is to get
)

type member struct {
	id               string
	instance, rack   *string
	clientID, host   string
	rebalance        time.Duration
	topics           []string // in order, each once
	regex, assignor  string
	epoch, previous  int32
	state            memberState
	assigned, giving owned // giving: what it must give up and may still have
	target           Partitions
	classic          *classic // set while it speaks the classic protocol

	// Deadlines, zero for none: of the session, of giving up, and of a classic member's next join and sync.
	expires, giveBy, joinBy, syncBy time.Time
}

// classic is what a member of the classic protocol has said.
type classic struct {
	session   time.Duration
	protocols []group.Protocol
}

func (m *member) static() bool { return m.instance != nil }

func (m *member) session(c Config) time.Duration {
	if m.classic != nil {
		return m.classic.session
	}
	return c.Session
}

// Place names one partition.
type Place struct {
	Topic record.TopicID
	Index int32
}

// Group is one consumer group. It is used by one goroutine at a time.
type Group struct {
	epoch, targetEpoch int32
	assignedAt         time.Time // when the target was computed
	hash               uint64    // of the topics that are read
	since              time.Time // when the last member left, or the group began
	members            []*member // in the order of joining
	byID               map[string]*member
	byInstance         map[string]*member
	owners             map[Place]*member

	regexes  map[string]*regex
	seen     int64 // version of the topics that the hash was last compared at
	next     time.Time
	dirty    bool
	lastSize int  // of the last Encode, and what was let in since
	guessed  bool // something was let in since
}

// New is a group that nobody has joined. As in Kafka its epoch is 1: a member that reads nothing yet does not get the epoch that stands for
// joining.
func New(now time.Time) *Group {
	return &Group{epoch: 1, targetEpoch: 1, since: now, byID: map[string]*member{}, byInstance: map[string]*member{}, owners: map[Place]*member{}, regexes: map[string]*regex{}, seen: -1}
}

// State is what the group is doing.
func (g *Group) State() State {
	switch {
	case len(g.members) == 0:
		return Empty
	case g.epoch > g.targetEpoch:
		return Assigning
	}
	for _, m := range g.members {
		if m.state != stable || m.epoch != g.targetEpoch {
			return Reconciling
		}
	}
	return Stable
}

// Epoch is the group's: it rises when its members or what they read change.
func (g *Group) Epoch() int32 { return g.epoch }

// Empty tells that the group has no members. Unlike State it looks at none.
func (g *Group) Empty() bool { return len(g.members) == 0 }

// Since is when an empty group's last member left, or the group began.
func (g *Group) Since() time.Time { return g.since }

// Dirty tells that the group differs from what Encode gave last in a way that must be stored (N5).
func (g *Group) Dirty() bool { return g.dirty }

// Unsaved says that what Encode gave last could not be stored: nothing that hangs on it may leave, until it can be.
func (g *Group) Unsaved() { g.dirty = true }

// Next is when Tick has something to do, zero for never.
func (g *Group) Next() time.Time { return g.next }

func (g *Group) arm(at time.Time) {
	if !at.IsZero() && (g.next.IsZero() || at.Before(g.next)) {
		g.next = at
	}
}

// touch gives a member new session time.
func (g *Group) touch(m *member, now time.Time, c Config) {
	m.expires = now.Add(m.session(c))
	g.arm(m.expires)
}

func (g *Group) add(m *member) {
	g.members = append(g.members, m)
	g.index(m)
}

func (g *Group) index(m *member) {
	g.byID[m.id] = m
	if m.static() {
		g.byInstance[*m.instance] = m
	}
	g.own(m)
}

// own enters what a member has among the owners. N1: nobody else has it.
func (g *Group) own(m *member) {
	for _, o := range []owned{m.assigned, m.giving} {
		for topic, list := range o {
			for index := range list {
				p := Place{topic, index}
				invariant.Check(g.owners[p] == nil || g.owners[p] == m, "N1: a partition has at most one owner")
				g.owners[p] = m
			}
		}
	}
}

func (g *Group) disown(m *member) {
	for _, o := range []owned{m.assigned, m.giving} {
		for topic, list := range o {
			for index := range list {
				if p := (Place{topic, index}); g.owners[p] == m {
					delete(g.owners, p)
				}
			}
		}
	}
}

func (g *Group) drop(m *member) {
	g.disown(m)
	delete(g.byID, m.id)
	if m.static() && g.byInstance[*m.instance] == m {
		delete(g.byInstance, *m.instance)
	}
	g.members = slices.DeleteFunc(g.members, func(x *member) bool { return x == m })
}

// remove takes members out: the group has another epoch, and what they had is free.
func (g *Group) remove(now time.Time, gone []*member) {
	if len(gone) == 0 {
		return
	}
	for _, m := range gone {
		g.drop(m)
	}
	g.bump()
	if len(g.members) == 0 {
		g.targetEpoch, g.since, g.assignedAt = g.epoch, now, time.Time{} // who comes next need not wait
	}
	g.forgetRegexes()
}

func (g *Group) bump() {
	g.epoch++
	g.dirty = true
}

// find checks that a request of the classic protocol, or a commit, comes from a member.
func (g *Group) find(id string, instance *string) (*member, error) {
	if instance != nil {
		m := g.byInstance[*instance]
		switch {
		case m == nil:
			return nil, group.ErrUnknownMember
		case m.id != id:
			return nil, group.ErrFencedInstance
		}
		return m, nil
	}
	if m := g.byID[id]; m != nil {
		return m, nil
	}
	return nil, group.ErrUnknownMember
}

// Tick is the passing of time: whoever was silent too long, or did not give up in time, is out (N4).
func (g *Group) Tick(now time.Time) {
	if g.next.IsZero() || now.Before(g.next) {
		return
	}
	over := func(at time.Time) bool { return !at.IsZero() && !now.Before(at) }
	var gone []*member
	for _, m := range g.members {
		if over(m.expires) || over(m.giveBy) || over(m.joinBy) || over(m.syncBy) {
			gone = append(gone, m)
		}
	}
	g.remove(now, gone)
	g.next = time.Time{}
	for _, m := range g.members {
		for _, at := range []time.Time{m.expires, m.giveBy, m.joinBy, m.syncBy} {
			g.arm(at)
		}
	}
}

// assignor is the one that most of those prefer who prefer one.
func (g *Group) assignor(c Config) string {
	votes := map[string]int{}
	for _, m := range g.members {
		if m.assignor != "" {
			votes[m.assignor]++
		}
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	if best == "" && len(c.Assignors) > 0 {
		return c.Assignors[0]
	}
	if best == "" {
		return Uniform
	}
	return best
}
