// SPDX-License-Identifier: Apache-2.0

package group

import (
	"slices"
	"time"
)

// JoinRequest is a member's wish to be in the next generation.
type JoinRequest struct {
	Token        Token
	MemberID     string // "" for a new member
	NewID        string // the id that a new member is given
	Instance     *string
	ClientID     string
	Host         string
	Session      time.Duration
	Rebalance    time.Duration
	ProtocolType string
	Protocols    []Protocol
	// RequireID: a new member is sent back with its id, so that one whose first answer is lost leaves no ghost behind.
	RequireID bool
	// CanSkip: the client understands SkipAssignment.
	CanSkip bool
}

// Join takes a join in. Its answer comes with this step or a later one.
func (g *Group) Join(now time.Time, r *JoinRequest, c Config) {
	defer g.settle(now)
	if err := g.mayJoin(r, c); err != nil {
		g.refuse(r, err)
		return
	}
	switch {
	case r.MemberID != "":
		g.rejoin(now, r, c)
	case r.Instance != nil:
		if old := g.static[*r.Instance]; old != nil {
			g.replace(now, r, old, c)
		} else {
			g.admit(now, r, c)
		}
	case r.RequireID:
		if len(g.pending) >= maxPending {
			g.refuse(r, ErrFull)
			return
		}
		until := now.Add(r.Session)
		g.pending[r.NewID] = until
		g.arm(until)
		g.out = append(g.out, Output{Token: r.Token, Err: ErrMemberIDRequired, MemberID: r.NewID})
	default:
		g.admit(now, r, c)
	}
}

func (g *Group) refuse(r *JoinRequest, err error) {
	id := r.MemberID
	if err == ErrFull {
		id = ""
	}
	g.out = append(g.out, Output{Token: r.Token, Err: err, MemberID: id})
}

// mayJoin checks what can be said without looking for the member.
func (g *Group) mayJoin(r *JoinRequest, c Config) error {
	switch {
	case r.Session < c.MinSession || r.Session > c.MaxSession:
		return ErrSessionTimeout
	case r.ProtocolType == "" || len(r.Protocols) == 0:
		return ErrInconsistentProtocol
	case !g.hasRoom(r.MemberID, c.MaxSize):
		return ErrFull
	case len(g.members) == 0 || g.state == Empty:
		return nil
	case r.ProtocolType != g.protocolType:
		return ErrInconsistentProtocol
	}
	for i := range r.Protocols {
		if g.allKnow(r.Protocols[i].Name) {
			return nil
		}
	}
	return ErrInconsistentProtocol
}

func (g *Group) allKnow(protocol string) bool {
	for _, m := range g.members {
		if !m.knows(protocol) {
			return false
		}
	}
	return true
}

// hasRoom: during a rebalance those count who have joined it, as the others may not come back.
func (g *Group) hasRoom(id string, size int) bool {
	m := g.byID[id]
	switch g.state {
	case Empty:
		return true
	case Preparing:
		return m != nil && m.join != 0 || g.joining < size
	default:
		return m != nil || len(g.members) < size
	}
}

// admit makes the sender a member.
func (g *Group) admit(now time.Time, r *JoinRequest, c Config) {
	id := r.MemberID
	if id == "" {
		id = r.NewID
	}
	delete(g.pending, id)
	if len(g.members) == 0 {
		g.protocolType = r.ProtocolType
	}
	m := &member{id: id, instance: r.Instance, fresh: true}
	m.update(r)
	g.grown = g.grown || g.state == Preparing && g.initial
	g.add(m)
	g.waitJoin(m, r.Token)
	g.touch(m, now)
	g.rebalance(now, c)
}

func (m *member) update(r *JoinRequest) {
	m.clientID, m.host = r.ClientID, r.Host
	m.session, m.rebalance = r.Session, r.Rebalance
	m.protocols = r.Protocols
}

// rejoin is a join with an id.
func (g *Group) rejoin(now time.Time, r *JoinRequest, c Config) {
	if _, ok := g.pending[r.MemberID]; ok && r.Instance == nil {
		g.admit(now, r, c)
		return
	}
	m, err := g.find(r.MemberID, r.Instance)
	if err != nil {
		g.refuse(r, err)
		return
	}
	switch {
	case g.state == Stable && m.id != g.leader && m.same(r.Protocols), g.state == Completing && m.same(r.Protocols):
		// It missed the answer: the generation is as it was.
		g.touch(m, now)
		g.out = append(g.out, Output{Token: r.Token, Join: g.joined(m), Durable: true})
	default:
		m.update(r)
		g.waitJoin(m, r.Token)
		g.touch(m, now)
		g.rebalance(now, c)
	}
}

// joined is a member's answer in the current generation.
func (g *Group) joined(m *member) *Joined {
	j := &Joined{Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader, MemberID: m.id}
	if m.id == g.leader {
		j.Members = g.metadata()
	}
	return j
}

func (g *Group) metadata() []MemberMetadata {
	list := make([]MemberMetadata, 0, len(g.members))
	for _, m := range g.members {
		list = append(list, MemberMetadata{ID: m.id, Instance: m.instance, Metadata: m.metadata(g.protocol)})
	}
	return list
}

// replace puts a new process in the place of a static member; whoever still acts under the old id is fenced. The assignment
// stays, and in a stable group no rebalance begins, as long as the same protocol would be chosen.
func (g *Group) replace(now time.Time, r *JoinRequest, m *member, c Config) {
	wasLeader, oldLeader := g.leader == m.id, g.leader
	g.answerJoin(m, Output{Err: ErrFencedInstance, MemberID: m.id})
	g.answerSync(m, Output{Err: ErrFencedInstance})
	delete(g.byID, m.id)
	m.id = r.NewID
	g.byID[m.id] = m
	if wasLeader {
		g.leader = m.id
	}
	m.update(r)
	m.pendingSync = false
	g.touch(m, now)
	g.dirty = g.dirty || g.state != Preparing || !g.initial // the old id must not become valid again (J5)
	if g.state != Stable || g.choose() != g.protocol {
		g.waitJoin(m, r.Token)
		g.rebalance(now, c)
		return
	}
	j := g.joined(m)
	switch {
	case r.CanSkip:
		j.SkipAssignment = wasLeader
	case wasLeader:
		// An older client that is told it leads would assign anew: it is told the id of its predecessor.
		j.Leader, j.Members = oldLeader, nil
	}
	g.out = append(g.out, Output{Token: r.Token, Join: j, Durable: true})
}

// choose finds the protocol of the next generation: among those that all know, the one that most members prefer.
func (g *Group) choose() string {
	var names []string
	votes := map[string]int{}
	for _, m := range g.members {
		for i := range m.protocols {
			if name := m.protocols[i].Name; g.allKnow(name) {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
				votes[name]++
				break
			}
		}
	}
	best := ""
	for _, name := range names {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}
