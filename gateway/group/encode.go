// SPDX-License-Identifier: Apache-2.0

package group

import (
	"time"

	"github.com/varve/varve/gateway/group/stored"
)

// Encode gives the group as it is to be stored, and takes it that it will be (Dirty).
func (g *Group) Encode() []byte {
	g.dirty = false
	b := append(make([]byte, 0, 256), stored.Classic)
	state := g.state
	if len(g.members) == 0 {
		state = Empty // the first member left before there was a generation
	}
	b = append(b, byte(state))
	b = stored.AppendInt(b, g.since.UnixMilli())
	b = stored.AppendInt(b, g.generation)
	b = stored.AppendString(b, g.protocolType)
	b = stored.AppendString(b, g.protocol)
	b = stored.AppendString(b, g.leader)
	b = stored.AppendInt(b, len(g.members))
	for _, m := range g.members {
		b = stored.AppendString(b, m.id)
		b = stored.AppendOptional(b, m.instance)
		b = stored.AppendString(b, m.clientID)
		b = stored.AppendString(b, m.host)
		b = stored.AppendInt(b, m.session.Milliseconds())
		b = stored.AppendInt(b, m.rebalance.Milliseconds())
		b = stored.AppendInt(b, len(m.protocols))
		for i := range m.protocols {
			b = stored.AppendString(b, m.protocols[i].Name)
			b = stored.AppendString(b, m.protocols[i].Metadata)
		}
		b = stored.AppendString(b, m.assignment)
	}
	return stored.Seal(b)
}

// Decode takes a stored group up. A stable one goes on, with new time for its members; any other rebalances: what its members
// were told or not is not known here (J4).
func Decode(value []byte, now time.Time) (*Group, error) {
	format, r, err := stored.Open(value)
	if err != nil {
		return nil, err
	}
	if format != stored.Classic {
		return nil, ErrCorrupt
	}
	g := New(now)
	if g.state = State(r.Byte()); g.state < Empty || g.state > Stable {
		r.Fail()
		g.state = Empty
	}
	g.since = r.Time()
	g.generation = Generation(r.Int())
	g.protocolType, g.protocol, g.leader = r.String(), r.String(), r.String()
	for range r.Count() {
		m := &member{id: r.String()}
		m.instance = r.Optional()
		m.clientID, m.host = r.String(), r.String()
		m.session, m.rebalance = r.Duration(), r.Duration()
		for range r.Count() {
			m.protocols = append(m.protocols, Protocol{Name: r.String(), Metadata: []byte(r.String())})
		}
		m.assignment = []byte(r.String())
		if r.Err() != nil || g.byID[m.id] != nil {
			return nil, ErrCorrupt
		}
		g.add(m)
		g.touch(m, now)
	}
	if !r.Done() || (len(g.members) == 0) != (g.state == Empty) {
		return nil, ErrCorrupt
	}
	if g.state != Empty && g.state != Stable {
		g.enter(Preparing, now)
		g.deadline = now.Add(g.rebalanceTimeout())
		g.arm(g.deadline)
	}
	return g, nil
}
