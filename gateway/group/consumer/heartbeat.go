// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/record"
)

// Heartbeat is what a member says. What is nil, or negative for the timeout, is as it was.
type Heartbeat struct {
	MemberID string
	NewID    string // the id of a new member that brings none
	Epoch    int32
	Instance *string
	Rack     *string
	// Rebalance is how long the member may take to give partitions up.
	Rebalance time.Duration
	Topics    *[]string
	Regex     *string
	Assignor  *string
	Owned     *Partitions // what it says it has
	ClientID  string
	Host      string
	// NeedsID: the request's version has the client choose its id.
	NeedsID bool
}

// full tells whether the member says everything, and so wants to hear everything.
func (r *Heartbeat) full() bool {
	return r.Epoch == JoinEpoch || r.Rebalance >= 0 && (r.Topics != nil || r.Regex != nil) && r.Owned != nil
}

// Answer is what a member is told. Assignment is nil when it is as it was.
type Answer struct {
	MemberID   string
	Epoch      int32
	Interval   time.Duration
	Assignment *Partitions
}

// Check finds what is wrong with a heartbeat whatever the group.
func (r *Heartbeat) Check(c Config) error {
	empty := func(s *string) bool { return s != nil && *s == "" }
	says := func(text string) error { return fmt.Errorf("%w: %s", ErrInvalidRequest, text) }
	switch {
	case r.MemberID == "" && (r.NeedsID || r.Epoch > JoinEpoch || r.Epoch == LeaveEpoch):
		return says("the member id is missing")
	case empty(r.Instance):
		return says("the instance id is empty: leave it out or give one")
	case empty(r.Rack):
		return says("the rack is empty: leave it out or give one")
	case r.Epoch == JoinEpoch && r.Rebalance < 0:
		return says("who joins says its rebalance timeout")
	case r.Epoch == JoinEpoch && (r.Owned == nil || len(*r.Owned) > 0):
		return says("who joins has no partitions and says so with an empty list")
	case r.Epoch == JoinEpoch && r.Topics == nil && r.Regex == nil:
		return says("who joins says what it reads, by names or by a regular expression")
	case r.Epoch == StaticLeaveEpoch && r.Instance == nil:
		return says("only who has an instance id leaves for a while")
	case r.Epoch < StaticLeaveEpoch:
		return says(fmt.Sprintf("member epoch %d", r.Epoch))
	case r.Topics != nil && len(*r.Topics) > maxTopics:
		return says(fmt.Sprintf("%d topics in one subscription, at most %d", len(*r.Topics), maxTopics))
	case r.Assignor != nil && !(Supported(*r.Assignor) && slices.Contains(c.Assignors, *r.Assignor)):
		return fmt.Errorf("%w %q: one of %v", ErrUnsupportedAssignor, *r.Assignor, c.Assignors)
	}
	return nil
}

// Heartbeat takes a member's heartbeat.
func (g *Group) Heartbeat(now time.Time, r *Heartbeat, env *Env) (Answer, error) {
	if r.Epoch == LeaveEpoch || r.Epoch == StaticLeaveEpoch {
		return g.leave(now, r)
	}
	if err := g.mayJoin(r.MemberID, r.Instance, env.Config.MaxSize); err != nil {
		return Answer{}, err
	}
	more := g.more(r)
	if !g.fits(r.size(), more) {
		return Answer{}, group.ErrTooLarge
	}
	pattern, err := g.pattern(r.Regex)
	if err != nil {
		return Answer{}, err
	}
	m, err := g.admit(r)
	if err != nil {
		return Answer{}, err
	}
	g.grow(more)
	had := m.assigned
	g.dirty = g.dirty || m.classic != nil
	m.classic, m.joinBy, m.syncBy = nil, time.Time{}, time.Time{}
	assignor := ""
	if r.Assignor != nil {
		assignor = g.assignor(env.Config)
	}
	changed := g.update(m, r)
	if pattern != nil {
		g.regexes[m.regex] = &regex{pattern: pattern}
	}
	g.settle(now, m, r.Owned, settling{changed: changed, bump: changed || r.Assignor != nil && assignor != g.assignor(env.Config)}, env)
	g.touch(m, now, env.Config)
	a := Answer{MemberID: m.id, Epoch: m.epoch, Interval: env.Config.Interval}
	if r.full() || !had.same(m.assigned) {
		p := m.assigned.partitions()
		a.Assignment = &p
	}
	return a, nil
}

// pattern compiles a pattern that the group does not know yet.
func (g *Group) pattern(text *string) (*regexp.Regexp, error) {
	if text == nil || *text == "" || g.regexes[*text] != nil {
		return nil, nil
	}
	return compile(*text)
}

// mayJoin refuses new members of a full group.
func (g *Group) mayJoin(id string, instance *string, size int) error {
	switch {
	case instance != nil && g.byInstance[*instance] != nil, id != "" && g.byID[id] != nil:
		return nil
	case len(g.members) >= size:
		return group.ErrFull
	case g.sizeFrom(fullBytes) >= fullBytes:
		return group.ErrTooLarge
	}
	return nil
}

// admit finds the member that a heartbeat comes from, or makes it one. Nothing fails after it has changed anything (N3).
func (g *Group) admit(r *Heartbeat) (*member, error) {
	id := r.MemberID
	if id == "" {
		id = r.NewID
	}
	m, other := g.byID[id], (*member)(nil)
	if r.Instance != nil {
		m, other = g.byInstance[*r.Instance], m
	}
	switch {
	case m == nil && r.Epoch != JoinEpoch:
		return nil, group.ErrUnknownMember
	case m == nil && other != nil && other.static(), m != nil && other != nil && other != m:
		return nil, fmt.Errorf("%w: member %q has another one", group.ErrFencedInstance, id)
	case m == nil && other != nil:
		return g.name(other, r.Instance), nil
	case m == nil:
		return g.join(id, r.Instance), nil
	case r.Instance == nil:
		return m, m.at(r)
	case r.Epoch != JoinEpoch && m.id != id:
		return nil, group.ErrFencedInstance
	case r.Epoch != JoinEpoch:
		return m, m.at(r)
	case m.epoch != StaticLeaveEpoch && m.classic == nil:
		return nil, fmt.Errorf("%w: member %q", ErrUnreleasedInstance, m.id)
	}
	return g.replace(m, id), nil
}

func (g *Group) join(id string, instance *string) *member {
	m := &member{id: id, instance: instance, assigned: owned{}, giving: owned{}, target: Partitions{}}
	g.add(m)
	g.dirty = true
	return m
}

// name makes a dynamic member that joins again with an instance id a static one.
func (g *Group) name(m *member, instance *string) *member {
	m.instance, g.dirty = instance, true
	g.index(m)
	return m
}

// replace puts a new process in the place of a static member: it starts at epoch zero with what the other had.
func (g *Group) replace(m *member, id string) *member {
	delete(g.byID, m.id)
	m.id, m.epoch, m.previous = id, 0, 0
	g.index(m)
	g.dirty = true
	return m
}

// at checks a heartbeat's epoch. The one before is good when the member's answer may have been lost: it has no more than it should.
func (m *member) at(r *Heartbeat) error {
	switch {
	case r.Epoch == JoinEpoch, r.Epoch == m.epoch:
		return nil
	case r.Epoch == m.previous && r.Epoch < m.epoch && r.Owned != nil && m.assigned.holdsAll(*r.Owned):
		return nil
	}
	return fmt.Errorf("%w: %d, it is %d", ErrFencedEpoch, r.Epoch, m.epoch)
}

// update takes over what the member says, and tells whether it reads other topics than before.
func (g *Group) update(m *member, r *Heartbeat) (changed bool) {
	keep := func(to *string, from string) {
		if *to != from {
			*to, g.dirty = from, true
		}
	}
	if r.Rack != nil && (m.rack == nil || *m.rack != *r.Rack) {
		m.rack, g.dirty = r.Rack, true
	}
	if r.Rebalance >= 0 && m.rebalance != r.Rebalance {
		m.rebalance, g.dirty = r.Rebalance, true
	}
	if r.Assignor != nil {
		keep(&m.assignor, *r.Assignor)
	}
	keep(&m.clientID, r.ClientID)
	keep(&m.host, r.Host)
	if r.Topics != nil {
		if names := distinct(*r.Topics); !slices.Equal(names, m.topics) {
			m.topics, changed = names, true
		}
	}
	if r.Regex != nil && *r.Regex != m.regex {
		m.regex, changed = *r.Regex, true
		g.forgetRegexes()
	}
	return changed
}

func distinct(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// settling is what a step has changed for a member.
type settling struct {
	changed bool // it reads other topics
	bump    bool // the group is to have another epoch
}

// settle brings group, target and member in line after a step.
func (g *Group) settle(now time.Time, m *member, mine *Partitions, s settling, env *Env) {
	before := g.epoch
	if s.changed {
		g.seen = -1 // other topics are read: what they are now counts, though none has changed
	}
	g.resolve(now, env)
	g.look(env)
	if g.epoch == before && (s.bump || g.epoch == 0) { // once, whatever the reasons
		g.bump()
	}
	if s.changed {
		g.dirty = true
	}
	g.retarget(now, env)
	g.reconcile(now, m, mine, s.changed, env.Topics)
}

// leave takes a member out. A static one that says it will be back keeps its place, and what it has, until its session ends.
func (g *Group) leave(now time.Time, r *Heartbeat) (Answer, error) {
	m, err := g.find(r.MemberID, r.Instance)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{MemberID: r.MemberID, Epoch: r.Epoch}
	if r.Epoch == LeaveEpoch || r.Instance == nil {
		g.remove(now, []*member{m})
		return a, nil
	}
	g.disown(m)
	m.epoch, m.giving, m.assigned, m.giveBy = StaticLeaveEpoch, owned{}, m.assigned.restart(), time.Time{}
	g.own(m)
	g.dirty = true
	return a, nil
}

// MayCommit checks a commit. each calls its argument for every partition until that says no. It is asked of a member that commits with an epoch
// it had before, which is good for what it had then and still has, and of one of the classic protocol: one that was removed and has joined again
// may think, until it is told what it has, that it still has what others have by now, or had.
func (g *Group) MayCommit(w group.Committer, each func(func(Place) bool)) error {
	said := int32(w.Generation) // the request has one field for both
	if said < 0 && len(g.members) == 0 {
		return nil
	}
	m := g.byID[w.MemberID]
	switch {
	case m == nil:
		return group.ErrUnknownMember
	case m.classic == nil && w.OldVersion:
		return ErrOldVersion
	case said == m.epoch && m.classic == nil:
		return nil
	case said > m.epoch:
		return m.stale(said)
	}
	ok := true
	each(func(p Place) bool {
		if said == m.epoch {
			o := g.owners[p]
			ok = o == m || o == nil && !g.gives(p.Topic)
			return ok
		}
		epoch, there := m.assigned.epoch(p.Topic, p.Index)
		if !there {
			epoch, there = m.giving.epoch(p.Topic, p.Index)
		}
		ok = there && said >= epoch
		return ok
	})
	if !ok {
		return m.stale(said)
	}
	return nil
}

// gives tells whether a member is to have partitions of a topic.
func (g *Group) gives(topic record.TopicID) bool {
	return slices.ContainsFunc(g.members, func(m *member) bool { return len(m.target[topic]) > 0 })
}

// MayFetch checks who reads offsets. Who says nothing of itself is no member and may.
func (g *Group) MayFetch(id *string, epoch int32) error {
	if id == nil && epoch < 0 {
		return nil
	}
	var m *member
	if id != nil {
		m = g.byID[*id]
	}
	switch {
	case m == nil:
		return group.ErrUnknownMember
	case m.epoch != epoch:
		return m.stale(epoch)
	}
	return nil
}

func (m *member) stale(epoch int32) error {
	if m.classic != nil {
		return group.ErrIllegalGeneration
	}
	return fmt.Errorf("%w: %d, it is %d", ErrStaleEpoch, epoch, m.epoch)
}
