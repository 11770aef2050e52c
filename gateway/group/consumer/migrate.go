// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"time"

	"github.com/varve/varve/gateway/group"
)

// Former is a member of a classic group that becomes a consumer group, with what its metadata and its assignment say.
type Former struct {
	group.Member
	Rack     *string
	Topics   []string
	Assigned Partitions
}

// Upgrade makes a consumer group of a classic one, in the epoch of its generation. Its members have what they were assigned and are told
// to join again when that changes.
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
		for topic, list := range f.Assigned {
			for _, index := range list {
				if g.owners[Place{topic, index}] != nil {
					continue // two members were given it: one of them keeps it
				}
				m.assigned.put(topic, index, g.epoch)
			}
		}
		m.target = m.assigned.partitions()
		g.add(m)
		g.grow(m.size())
		g.touch(m, now, env.Config)
	}
	g.hash = g.sum(env.Topics)
	return g
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

// Leaver is a member of a consumer group that becomes a classic one, and what it was to have.
type Leaver struct {
	group.Member
	Target Partitions
}

// Downgrade gives what a classic group is made of. Its generation is the one that members are in, so that they are told to join again and not
// that theirs is over.
func (g *Group) Downgrade() (group.Generation, []Leaver) {
	var all []Leaver
	generation := int32(0)
	for _, m := range g.members {
		generation = max(generation, m.epoch)
		all = append(all, Leaver{Member: group.Member{
			ID: m.id, Instance: m.instance, ClientID: m.clientID, Host: m.host, Session: m.classic.session, Rebalance: m.rebalance, Protocols: m.classic.protocols,
		}, Target: m.target})
	}
	return group.Generation(generation), all
}
