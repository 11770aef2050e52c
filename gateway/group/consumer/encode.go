// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/stored"
	"github.com/varve/varve/record"
)

// Encode gives the group as it is to be stored, and takes it that it will be (Dirty). docs/formats/consumer-group.md has the table.
func (g *Group) Encode() []byte {
	b := g.sealed()
	g.dirty, g.lastSize, g.guessed = false, len(b), false
	return b
}

func (g *Group) sealed() []byte {
	topics := g.allTopics()
	b := append(make([]byte, 0, 512), stored.Consumer)
	b = stored.AppendInt(b, g.epoch)
	b = stored.AppendInt(b, g.targetEpoch)
	b = stored.AppendInt(b, millis(g.assignedAt))
	b = binary.BigEndian.AppendUint64(b, g.hash)
	b = stored.AppendInt(b, g.since.UnixMilli())
	b = stored.AppendInt(b, len(topics))
	for _, t := range topics {
		b = append(b, t[:]...)
	}
	b = stored.AppendInt(b, len(g.members))
	for _, m := range g.members {
		b = m.encode(b, topics)
	}
	return stored.Seal(b)
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// allTopics are the ids that members' partitions name, in order: each is stored once.
func (g *Group) allTopics() []record.TopicID {
	set := map[record.TopicID]struct{}{}
	for _, m := range g.members {
		for t := range m.target {
			set[t] = struct{}{}
		}
		for t := range m.assigned {
			set[t] = struct{}{}
		}
		for t := range m.giving {
			set[t] = struct{}{}
		}
	}
	return sortedTopics(set)
}

func (m *member) encode(b []byte, topics []record.TopicID) []byte {
	b = stored.AppendString(b, m.id)
	b = stored.AppendOptional(b, m.instance)
	b = stored.AppendOptional(b, m.rack)
	b = stored.AppendString(b, m.clientID)
	b = stored.AppendString(b, m.host)
	b = stored.AppendInt(b, m.rebalance.Milliseconds())
	b = stored.AppendInt(b, len(m.topics))
	for _, name := range m.topics {
		b = stored.AppendString(b, name)
	}
	b = stored.AppendString(b, m.regex)
	b = stored.AppendString(b, m.assignor)
	b = stored.AppendInt(b, m.epoch)
	b = stored.AppendInt(b, m.previous)
	b = append(b, byte(m.state))
	b = appendPartitions(b, m.target, topics)
	b = appendOwned(b, m.assigned, topics)
	b = appendOwned(b, m.giving, topics)
	if m.classic == nil {
		return append(b, 0)
	}
	b = append(b, 1)
	b = stored.AppendInt(b, m.classic.session.Milliseconds())
	b = stored.AppendInt(b, len(m.classic.protocols))
	for i := range m.classic.protocols {
		b = stored.AppendString(b, m.classic.protocols[i].Name)
		b = stored.AppendString(b, m.classic.protocols[i].Metadata)
	}
	return b
}

// appendPartitions writes per topic its place in the list, how many, and each partition as the distance from the one before.
func appendPartitions(b []byte, p Partitions, topics []record.TopicID) []byte {
	b = stored.AppendInt(b, len(p))
	for _, t := range sortedTopics(p) {
		at, _ := slices.BinarySearchFunc(topics, t, compareTopics)
		b = stored.AppendInt(b, at)
		b = stored.AppendInt(b, len(p[t]))
		last := int32(0)
		for _, index := range p[t] {
			b = stored.AppendInt(b, index-last)
			last = index
		}
	}
	return b
}

func appendOwned(b []byte, o owned, topics []record.TopicID) []byte {
	p := o.partitions()
	b = appendPartitions(b, p, topics)
	for _, t := range sortedTopics(p) {
		for _, index := range p[t] {
			b = stored.AppendInt(b, o[t][index])
		}
	}
	return b
}

// Decode takes a stored group up where it was; its members get new session time, and those who have something to give up new time for that.
func Decode(value []byte, now time.Time, c Config) (*Group, error) {
	format, r, err := stored.Open(value)
	if err != nil {
		return nil, err
	}
	if format != stored.Consumer {
		return nil, stored.ErrCorrupt
	}
	g := New(now)
	g.epoch, g.targetEpoch = r.Int32(), r.Int32()
	if at := r.Int(); at != 0 {
		g.assignedAt = time.UnixMilli(at)
	}
	if hash := r.Bytes(8); hash != nil {
		g.hash = binary.BigEndian.Uint64(hash)
	}
	g.since = r.Time()
	topics := make([]record.TopicID, r.Count())
	for i := range topics {
		copy(topics[i][:], r.Bytes(len(topics[i])))
	}
	for range r.Count() {
		m := decodeMember(r, topics)
		if r.Err() != nil || g.byID[m.id] != nil || !g.free(m) || m.static() && g.byInstance[*m.instance] != nil {
			return nil, stored.ErrCorrupt
		}
		g.add(m)
		g.touch(m, now, c)
		if m.state == unrevoked && m.classic == nil {
			m.giveBy = now.Add(m.rebalance)
			g.arm(m.giveBy)
		}
	}
	if !r.Done() || g.epoch < 0 || g.targetEpoch < 0 || g.targetEpoch > g.epoch {
		return nil, stored.ErrCorrupt
	}
	g.lastSize = len(value)
	return g, nil
}

// free tells whether nobody has what the member has (N1).
func (g *Group) free(m *member) bool {
	for _, o := range []owned{m.assigned, m.giving} {
		for topic, list := range o {
			for index := range list {
				if g.owners[Place{topic, index}] != nil {
					return false
				}
			}
		}
	}
	return true
}

func decodeMember(r *stored.Reader, topics []record.TopicID) *member {
	m := &member{id: r.String(), instance: r.Optional(), rack: r.Optional(), clientID: r.String(), host: r.String(), rebalance: r.Duration()}
	for range r.Count() {
		m.topics = append(m.topics, r.String())
	}
	m.regex, m.assignor = r.String(), r.String()
	m.epoch, m.previous = r.Int32(), r.Int32()
	if m.state = memberState(r.Byte()); m.state < stable || m.state > unreleased {
		r.Fail()
	}
	m.target = readPartitions(r, topics)
	m.assigned, m.giving = readOwned(r, topics), readOwned(r, topics)
	if r.Byte() == 0 {
		return m
	}
	m.classic = &classic{session: r.Duration()}
	for range r.Count() {
		m.classic.protocols = append(m.classic.protocols, group.Protocol{Name: r.String(), Metadata: []byte(r.String())})
	}
	if len(m.classic.protocols) == 0 {
		r.Fail()
	}
	return m
}

func readPartitions(r *stored.Reader, topics []record.TopicID) Partitions {
	p := Partitions{}
	for range r.Count() {
		at := r.Int()
		if at < 0 || at >= int64(len(topics)) {
			r.Fail()
			return p
		}
		n, last := r.Count(), int64(0)
		list := make([]int32, 0, n)
		for i := range n {
			step := r.Int()
			if last += step; step < 0 || i > 0 && step == 0 || last > math.MaxInt32 {
				r.Fail()
				return p
			}
			list = append(list, int32(last))
		}
		p[topics[at]] = list
	}
	return p
}

func readOwned(r *stored.Reader, topics []record.TopicID) owned {
	p, o := readPartitions(r, topics), owned{}
	for _, t := range sortedTopics(p) {
		for _, index := range p[t] {
			o.put(t, index, r.Int32())
		}
	}
	return o
}
