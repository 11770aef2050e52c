// SPDX-License-Identifier: Apache-2.0

package group

import "time"

// Member is a member as it goes from one kind of group to the other.
type Member struct {
	ID                 string
	Instance           *string
	ClientID, Host     string
	Session, Rebalance time.Duration
	Protocols          []Protocol
	Assignment         []byte
}

// Members are the group's members, in the order of joining.
func (g *Group) Members() []Member {
	var all []Member
	for _, m := range g.members {
		all = append(all, Member{
			ID: m.id, Instance: m.instance, ClientID: m.clientID, Host: m.host, Session: m.session, Rebalance: m.rebalance,
			Protocols: m.protocols, Assignment: m.assignment,
		})
	}
	return all
}

// Protocol is what the members of the current generation assign by.
func (g *Group) Protocol() string { return g.protocol }

// Dissolve answers all who wait: the group goes on as another kind, and they join again there.
func (g *Group) Dissolve() {
	for _, m := range g.members {
		g.answerJoin(m, Output{Err: ErrRebalance, MemberID: m.id})
		g.answerSync(m, Output{Err: ErrRebalance})
	}
}

// Restore makes a classic group of members that were together in another kind of group, and has them join its next generation.
func Restore(now time.Time, generation Generation, protocolType string, members []Member, c Config) *Group {
	g := New(now)
	g.state, g.protocolType, g.generation = Stable, protocolType, generation
	for i := range members {
		m := &members[i]
		g.add(&member{
			id: m.ID, instance: m.Instance, clientID: m.ClientID, host: m.Host, session: m.Session, rebalance: m.Rebalance, protocols: m.Protocols, assignment: m.Assignment,
		})
	}
	g.protocol = g.choose()
	for _, m := range g.members {
		g.touch(m, now)
	}
	g.dirty = true
	g.rebalance(now, c)
	return g
}
