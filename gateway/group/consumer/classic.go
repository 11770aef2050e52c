// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"slices"
	"time"

	"github.com/varve/varve/gateway/group"
)

// consumers is the protocol type whose members can be in a consumer group.
const consumers = "consumer"

// Join is the join of a member of the classic protocol, with what its first protocol's metadata says.
type Join struct {
	MemberID, NewID    string
	Instance, Rack     *string
	ClientID, Host     string
	Session, Rebalance time.Duration
	ProtocolType       string
	Protocols          []group.Protocol
	// RequireID: a new member is sent back with its id first.
	RequireID bool
	Topics    []string
	Owned     Partitions
}

// Joined answers a join. There is no leader: the group assigns.
type Joined struct {
	MemberID   string
	Generation int32
	Protocol   string
}

// Join takes a member of the classic protocol in, or hears from it again. Unlike in a classic group it need not wait for the others.
func (g *Group) Join(now time.Time, r *Join, env *Env) (Joined, error) {
	j := Joined{MemberID: r.MemberID, Generation: int32(group.NoGeneration)}
	more := g.moreOf(r)
	switch err := g.mayJoin(r.MemberID, r.Instance, env.Config.MaxSize); {
	case err != nil:
		return j, err
	case !g.fits(r.size(), more):
		return j, group.ErrTooLarge
	case !env.Config.Upgrade && !env.Config.Downgrade, r.ProtocolType != consumers, !g.shares(r.Protocols):
		return j, group.ErrInconsistentProtocol
	case r.MemberID == "" && r.Instance == nil && r.RequireID:
		j.MemberID = r.NewID
		return j, group.ErrMemberIDRequired
	}
	m, err := g.admitClassic(r)
	if err != nil {
		return j, err
	}
	g.grow(more)
	m.classic = &classic{session: r.Session, protocols: r.Protocols}
	m.giveBy, m.joinBy = time.Time{}, time.Time{}
	topics, regex := slices.Clone(r.Topics), ""
	changed := g.update(m, &Heartbeat{Rack: r.Rack, Rebalance: r.Rebalance, ClientID: r.ClientID, Host: r.Host, Topics: &topics, Regex: &regex})
	g.dirty = true // its protocols may be others
	g.settle(now, m, &r.Owned, settling{changed: changed, bump: changed}, env)
	g.touch(m, now, env.Config)
	m.syncBy = now.Add(m.rebalance)
	g.arm(m.syncBy)
	return Joined{MemberID: m.id, Generation: m.epoch, Protocol: r.Protocols[0].Name}, nil
}

// shares tells whether one of the protocols is known to all members of the classic protocol.
func (g *Group) shares(protocols []group.Protocol) bool {
	return slices.ContainsFunc(protocols, func(p group.Protocol) bool {
		return !slices.ContainsFunc(g.members, func(m *member) bool { return m.classic != nil && !m.classic.knows(p.Name) })
	})
}

func (c *classic) knows(name string) bool {
	return slices.ContainsFunc(c.protocols, func(p group.Protocol) bool { return p.Name == name })
}

func (g *Group) admitClassic(r *Join) (*member, error) {
	id := r.MemberID
	if id == "" {
		id = r.NewID
	}
	if r.Instance == nil {
		if m := g.byID[id]; m != nil {
			return m, nil
		}
		return g.join(id, nil), nil
	}
	m := g.byInstance[*r.Instance]
	switch {
	case r.MemberID != "":
		return g.find(r.MemberID, r.Instance)
	case m == nil:
		return g.join(id, r.Instance), nil
	}
	return g.replace(m, id), nil
}

// findClassic finds the member that a request of the classic protocol comes from.
func (g *Group) findClassic(id string, instance *string, generation int32) (*member, error) {
	m, err := g.find(id, instance)
	switch {
	case err != nil:
		return nil, err
	case m.classic == nil:
		return nil, group.ErrUnknownMember
	case m.epoch != generation:
		return nil, group.ErrIllegalGeneration
	}
	return m, nil
}

// Sync gives a member of the classic protocol what it has, and the protocol that it wants to hear it in.
func (g *Group) Sync(now time.Time, r *group.SyncRequest, env *Env) (Partitions, group.Protocol, error) {
	m, err := g.findClassic(r.MemberID, r.Instance, int32(r.Generation))
	switch {
	case err != nil:
		return nil, group.Protocol{}, err
	case r.ProtocolType != nil && *r.ProtocolType != consumers, r.Protocol != nil && *r.Protocol != m.classic.protocols[0].Name:
		return nil, group.Protocol{}, group.ErrInconsistentProtocol
	case g.targetEpoch > m.epoch && m.state != unrevoked:
		g.rejoin(now, m)
		return nil, group.Protocol{}, group.ErrRebalance
	}
	m.syncBy = time.Time{}
	g.touch(m, now, env.Config)
	return m.assigned.partitions(), m.classic.protocols[0], nil
}

// rejoin gives a member the time of a rebalance to join again.
func (g *Group) rejoin(now time.Time, m *member) {
	if m.joinBy.IsZero() {
		m.joinBy = now.Add(m.rebalance)
		g.arm(m.joinBy)
	}
}

// ClassicHeartbeat tells that a member of the classic protocol lives, and tells it to join again when there is something to give up or to get.
func (g *Group) ClassicHeartbeat(now time.Time, id string, instance *string, generation group.Generation, env *Env) error {
	m, err := g.findClassic(id, instance, int32(generation))
	if err != nil {
		return err
	}
	g.touch(m, now, env.Config)
	g.resolve(now, env)
	g.look(env)
	g.retarget(now, env) // there may be no member of the consumer protocol left whose heartbeat would
	if m.epoch < g.targetEpoch || m.state == unrevoked || m.state == unreleased && !g.waits(m) {
		g.rejoin(now, m)
		return group.ErrRebalance
	}
	return nil
}

// waits tells whether others still have something that the member is to get.
func (g *Group) waits(m *member) bool {
	for topic, list := range m.target {
		for _, index := range list {
			if o := g.owners[Place{topic, index}]; o != nil && o != m {
				return true
			}
		}
	}
	return false
}

// Leave takes members out, of either protocol, and says for each whether it could.
func (g *Group) Leave(now time.Time, who []group.Leaving) []error {
	errs := make([]error, len(who))
	var gone []*member
	for i := range who {
		var m *member
		if l := &who[i]; l.MemberID == "" && l.Instance != nil {
			if m = g.byInstance[*l.Instance]; m == nil {
				errs[i] = group.ErrUnknownMember
			}
		} else {
			m, errs[i] = g.find(l.MemberID, l.Instance)
		}
		if m != nil && !slices.Contains(gone, m) {
			gone = append(gone, m)
		}
	}
	g.remove(now, gone)
	return errs
}
