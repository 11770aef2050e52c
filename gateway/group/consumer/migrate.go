// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"cmp"
	"slices"
	"time"

	"github.com/varve/varve/gateway/group"
)

// Former is a member of a classic group that becomes a consumer group, with what its metadata and its assignment say.
type Former struct {
	group.Member
	Rack     *string
	Topics   []string
	Assigned Partitions
	// Owned is what it said that it has as it joined last, and OwnedAt the generation that it had it in, -1 when it did not say.
	Owned   Partitions
	OwnedAt int32
}

// Upgrade makes a consumer group of a classic one, in the epoch of its generation. Its members have what they were assigned, and what they said
// that they have: while a classic group rebalances its assignments are gone, and one that takes something away may not have been heard. They are
// told to join again when that changes.
func Upgrade(now time.Time, generation group.Generation, former []Former, env *Env) *Group {
	g := New(now)
	g.epoch, g.targetEpoch, g.dirty = int32(generation), int32(generation), true
	for i := range former {
		f := &former[i]
		m := &member{
			id: f.ID, instance: f.Instance, rack: f.Rack, clientID: f.ClientID, host: f.Host, rebalance: f.Rebalance, topics: distinct(f.Topics),
			epoch: g.epoch, previous: g.epoch, assigned: owned{}, giving: owned{}, target: Partitions{},
			classic: &classic{session: f.Session, protocols: f.Protocols},
		}
		g.add(m)
		g.has(m, f.Assigned)
		g.touch(m, now, env.Config)
	}
	claims := make([]int, len(former)) // what was assigned goes before what is claimed, and a newer claim before an older one
	for i := range claims {
		claims[i] = i
	}
	slices.SortStableFunc(claims, func(a, b int) int { return cmp.Compare(former[b].OwnedAt, former[a].OwnedAt) })
	for _, i := range claims {
		g.has(g.members[i], former[i].Owned)
	}
	for _, m := range g.members {
		m.target = m.assigned.partitions()
		g.grow(m.size())
	}
	g.hash = g.sum(env.Topics)
	return g
}

// has notes that a member has partitions, but for those that another one has.
func (g *Group) has(m *member, p Partitions) {
	for topic, list := range p {
		for _, index := range list {
			if g.owners[Place{topic, index}] == nil {
				m.assigned.put(topic, index, g.epoch)
			}
		}
	}
	g.own(m)
}

// CanDowngrade tells whether the group is to become a classic one: only members of the classic protocol are left.
func (g *Group) CanDowngrade(c Config) bool {
	if !c.Downgrade || len(g.members) == 0 || len(g.members) > c.ClassicMaxSize {
		return false
	}
	for _, m := range g.members {
		if m.classic == nil {
			return false
		}
	}
	return true
}

// Leaver is a member of a consumer group that becomes a classic one, and what it may have.
type Leaver struct {
	group.Member
	Has Partitions
}

// Downgrade gives what a classic group is made of. Its generation is the one that members are in, so that they are told to join again and not
// that theirs is over.
func (g *Group) Downgrade() (group.Generation, []Leaver) {
	var all []Leaver
	generation := int32(0)
	for _, m := range g.members {
		generation = max(generation, m.epoch)
		has := owned{}
		for _, o := range []owned{m.assigned, m.giving} {
			for topic, list := range o {
				for index, epoch := range list {
					has.put(topic, index, epoch)
				}
			}
		}
		all = append(all, Leaver{Member: group.Member{
			ID: m.id, Instance: m.instance, ClientID: m.clientID, Host: m.host, Session: m.classic.session, Rebalance: m.rebalance, Protocols: m.classic.protocols,
		}, Has: has.partitions()})
	}
	return group.Generation(generation), all
}
