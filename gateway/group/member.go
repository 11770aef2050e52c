// SPDX-License-Identifier: Apache-2.0

package group

import (
	"time"
)

// SyncRequest asks for the member's assignment; the leader's brings all of them.
type SyncRequest struct {
	Token      Token
	MemberID   string
	Instance   *string
	Generation Generation
	// ProtocolType and Protocol are checked when the client says them.
	ProtocolType, Protocol *string
	Assignments            map[string][]byte
}

// Sync takes a sync in. Its answer comes with this step or a later one.
func (g *Group) Sync(now time.Time, r *SyncRequest) {
	defer g.settle(now)
	m, err := g.maySync(r)
	if err != nil {
		g.out = append(g.out, Output{Token: r.Token, Err: err})
		return
	}
	m.pendingSync = false
	if g.state == Stable {
		g.touch(m, now)
		g.out = append(g.out, Output{Token: r.Token, Sync: g.synced(m), Durable: true})
		return
	}
	g.answerSync(m, Output{Err: ErrRebalance}) // an earlier one, of a connection that was given up (Q2)
	m.sync = r.Token
	if m.id != g.leader {
		return
	}
	g.enter(Stable, now)
	g.dirty = true
	for _, x := range g.members {
		x.assignment = r.Assignments[x.id]
		if x.sync != 0 {
			g.touch(x, now)
		}
		g.answerSync(x, Output{Sync: g.synced(x), Durable: true})
	}
}

func (g *Group) maySync(r *SyncRequest) (*member, error) {
	if g.state == Empty {
		return nil, ErrUnknownMember
	}
	m, err := g.find(r.MemberID, r.Instance)
	switch {
	case err != nil:
		return nil, err
	case r.Generation != g.generation:
		return nil, ErrIllegalGeneration
	case r.ProtocolType != nil && *r.ProtocolType != g.protocolType, r.Protocol != nil && *r.Protocol != g.protocol:
		return nil, ErrInconsistentProtocol
	case g.state == Preparing:
		return nil, ErrRebalance
	}
	return m, nil
}

func (g *Group) synced(m *member) *Synced {
	return &Synced{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
}

// Heartbeat tells that a member lives.
func (g *Group) Heartbeat(now time.Time, id string, instance *string, generation Generation) error {
	defer g.settle(now)
	if g.state == Empty {
		return ErrUnknownMember
	}
	m, err := g.find(id, instance)
	if err != nil {
		return err
	}
	if generation != g.generation {
		return ErrIllegalGeneration
	}
	g.touch(m, now)
	if g.state == Preparing {
		return ErrRebalance
	}
	return nil
}

// Leaving names a member that leaves: by its id, or a static one by its instance id alone.
type Leaving struct {
	MemberID string
	Instance *string
}

// Leave takes members out and says for each whether it could.
func (g *Group) Leave(now time.Time, who []Leaving, c Config) []error {
	defer g.settle(now)
	errs := make([]error, len(who))
	gone := false
	for i := range who {
		l := &who[i]
		if _, ok := g.pending[l.MemberID]; ok && l.Instance == nil {
			delete(g.pending, l.MemberID)
			continue
		}
		var m *member
		if l.MemberID == "" && l.Instance != nil {
			if m = g.static[*l.Instance]; m == nil {
				errs[i] = ErrUnknownMember
			}
		} else {
			m, errs[i] = g.find(l.MemberID, l.Instance)
		}
		if m != nil {
			g.remove(m, ErrUnknownMember)
			gone = true
		}
	}
	if gone {
		g.rebalance(now, c)
	}
	return errs
}

// Committer is who commits offsets.
type Committer struct {
	MemberID   string
	Instance   *string
	Generation Generation
	// OldVersion: the request's version knows no member epochs, which matters in groups of the consumer protocol.
	OldVersion bool
}

// MayCommit checks a commit (Q1). A client outside of the group may only commit while nobody is in it.
func (g *Group) MayCommit(w Committer) error {
	if w.Generation < 0 && g.state == Empty {
		return nil
	}
	if w.Generation < 0 && w.MemberID == "" && w.Instance == nil {
		return ErrUnknownMember
	}
	if _, err := g.find(w.MemberID, w.Instance); err != nil {
		return err
	}
	if w.Generation != g.generation {
		return ErrIllegalGeneration
	}
	if g.state == Completing {
		return ErrRebalance
	}
	return nil
}

// Commit is a commit that was let through: the member lives.
func (g *Group) Commit(now time.Time, w Committer) {
	if m, err := g.find(w.MemberID, w.Instance); err == nil {
		g.touch(m, now)
	}
}

// Description is the group as administration sees it.
type Description struct {
	State                  State
	Generation             Generation
	ProtocolType, Protocol string
	Members                []MemberDescription
}

// MemberDescription is one member of a Description.
type MemberDescription struct {
	ID             string
	Instance       *string
	ClientID, Host string
	Metadata       []byte
	Assignment     []byte
}

// Describe tells about the group. Protocol and the members' metadata are there only when it is stable.
func (g *Group) Describe() Description {
	d := Description{State: g.state, Generation: g.generation, ProtocolType: g.protocolType}
	if g.state == Stable {
		d.Protocol = g.protocol
	}
	for _, m := range g.members {
		md := MemberDescription{ID: m.id, Instance: m.instance, ClientID: m.clientID, Host: m.host, Assignment: m.assignment}
		if g.state == Stable {
			md.Metadata = m.metadata(g.protocol)
		}
		d.Members = append(d.Members, md)
	}
	return d
}

// Subscriptions are what the members of a stable or completing group told of themselves; false when the group has not come so far.
func (g *Group) Subscriptions() ([][]byte, bool) {
	if g.state != Stable && g.state != Completing {
		return nil, false
	}
	var all [][]byte
	for _, m := range g.members {
		all = append(all, m.metadata(g.protocol))
	}
	return all, true
}
