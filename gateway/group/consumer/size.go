// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"slices"

	"github.com/varve/varve/gateway/group"
)

// size is what the member says, in bytes.
func (r *Heartbeat) size() int {
	n := len(r.MemberID) + len(r.ClientID) + len(r.Host)
	for _, s := range []*string{r.Instance, r.Rack, r.Regex} {
		if s != nil {
			n += len(*s)
		}
	}
	if r.Topics != nil {
		n += namesSize(*r.Topics)
	}
	return n
}

// size is what the member says, in bytes.
func (r *Join) size() int {
	n := len(r.MemberID) + len(r.ClientID) + len(r.Host) + namesSize(r.Topics) + protocolsSize(r.Protocols)
	if r.Instance != nil {
		n += len(*r.Instance)
	}
	return n
}

func namesSize(names []string) (n int) {
	for _, name := range names {
		n += len(name) + 1
	}
	return n
}

func protocolsSize(protocols []group.Protocol) (n int) {
	for i := range protocols {
		n += len(protocols[i].Name) + len(protocols[i].Metadata)
	}
	return n
}

// more is what the member says beyond what the group has of it, in bytes.
func (g *Group) more(r *Heartbeat) int {
	m := g.speaker(r.MemberID, r.Instance)
	if m == nil {
		return r.size()
	}
	n := differs(m.clientID, r.ClientID) + differs(m.host, r.Host)
	if r.MemberID != "" {
		n += differs(m.id, r.MemberID)
	}
	if r.Instance != nil && !m.static() {
		n += len(*r.Instance)
	}
	if r.Rack != nil && (m.rack == nil || *m.rack != *r.Rack) {
		n += len(*r.Rack)
	}
	if r.Regex != nil {
		n += differs(m.regex, *r.Regex)
	}
	if r.Topics != nil {
		n += m.moreNames(*r.Topics)
	}
	return n
}

// moreOf is more for a member of the classic protocol.
func (g *Group) moreOf(r *Join) int {
	m := g.speaker(r.MemberID, r.Instance)
	if m == nil {
		return r.size()
	}
	n := differs(m.clientID, r.ClientID) + differs(m.host, r.Host) + m.moreNames(r.Topics)
	for i := range r.Protocols {
		if m.classic == nil || !m.classic.has(&r.Protocols[i]) {
			n += protocolsSize(r.Protocols[i : i+1])
		}
	}
	return n
}

func (c *classic) has(p *group.Protocol) bool {
	return slices.ContainsFunc(c.protocols, func(x group.Protocol) bool { return x.Name == p.Name && string(x.Metadata) == string(p.Metadata) })
}

// speaker is the member that a request comes from, or whose place it takes; nil for a new one.
func (g *Group) speaker(id string, instance *string) *member {
	if instance != nil && g.byInstance[*instance] != nil {
		return g.byInstance[*instance]
	}
	return g.byID[id]
}

func differs(has, says string) int {
	if has == says {
		return 0
	}
	return len(says)
}

// moreNames is the size of the names that the member does not have yet.
func (m *member) moreNames(names []string) (n int) {
	for _, name := range names {
		if _, has := slices.BinarySearch(m.topics, name); !has {
			n += len(name) + 1
		}
	}
	return n
}

// size is what is stored of what a member said, before compression.
func (m *member) size() int {
	n := len(m.id) + len(m.clientID) + len(m.host) + namesSize(m.topics) + len(m.regex)
	for _, s := range []*string{m.instance, m.rack} {
		if s != nil {
			n += len(*s)
		}
	}
	if m.classic != nil {
		n += protocolsSize(m.classic.protocols)
	}
	return n
}

// fits tells whether there is room for what a member says, and for what of it is more than it said before: who only says again what it has
// is never refused. What is stored is compressed, so this refuses nobody who is like the others.
func (g *Group) fits(said, more int) bool {
	return said < smallBytes || more == 0 || g.sizeFrom(storedBytes-more+1) <= storedBytes-more
}

// grow counts what was let in: there may be much of it before the next Encode, which waits for the write that is on its way.
func (g *Group) grow(more int) {
	g.lastSize += more
	g.guessed = g.guessed || more > 0
}

// sizeFrom is the stored size. What was let in since the last Encode counts in full, as if it could not be compressed, as long as the
// sum is below limit; from there on the size is measured.
func (g *Group) sizeFrom(limit int) int {
	if g.guessed && g.lastSize >= limit {
		g.lastSize, g.guessed = len(g.sealed()), false
	}
	return g.lastSize
}
