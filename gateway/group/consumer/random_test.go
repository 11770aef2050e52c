// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/varve/varve/gateway/group"
)

// client is a member as it is in its own process: it has what it was told last, and gives up before it says so.
type client struct {
	id       string
	instance *string
	classic  bool
	epoch    int32
	in       bool
	unsure   bool
	synced   bool // a classic one: it knows what it has in this generation
	has      Partitions
	topics   []string
	said     []string // what a classic one said last that it reads
}

// sim runs a group and its clients against the invariants.
type sim struct {
	t       *rapid.T
	g       *Group
	now     time.Time
	world   *world
	env     Env
	clients []*client
	epoch   int32
}

func newSim(t *rapid.T) *sim {
	s := &sim{t: t, now: time.Unix(1000, 0), world: &world{topics: map[string]int32{"t": 4, "u": 3}}}
	s.env = Env{Topics: s.world, Config: Config{
		Session: 45 * time.Second, Interval: 5 * time.Second, MaxSize: 5, Assignors: []string{Uniform, Range}, Upgrade: true, Downgrade: true,
		AssignmentInterval: time.Duration(rapid.IntRange(0, 2).Draw(t, "interval")) * time.Second,
	}}
	for i := range rapid.IntRange(2, 5).Draw(t, "clients") {
		c := &client{id: fmt.Sprintf("m%d", i), classic: rapid.IntRange(0, 3).Draw(t, "kind") == 0, topics: []string{"t"}}
		if rapid.IntRange(0, 2).Draw(t, "static") == 0 {
			name := fmt.Sprintf("i%d", i)
			c.instance = &name
		}
		s.clients = append(s.clients, c)
	}
	s.g = New(s.now)
	return s
}

// step does something to the group; what it stores must be said (N5), and a refusal leaves everything as it was (N3).
func (s *sim) step(name string, f func() error) error {
	before := s.g.Encode()
	err := f()
	dirty := s.g.Dirty()
	after := s.g.Encode()
	same := bytes.Equal(before, after)
	if !same && !dirty {
		s.t.Fatalf("N5: %s changed the group and does not say so", name)
	}
	if err != nil && err != group.ErrRebalance && !same {
		s.t.Fatalf("N3: %s was refused (%v) and changed the group", name, err)
	}
	s.check(name)
	return err
}

func (s *sim) check(name string) {
	if s.g.epoch < s.epoch || s.g.targetEpoch > s.g.epoch {
		s.t.Fatalf("N2: after %s: epoch %d, was %d; target %d", name, s.g.epoch, s.epoch, s.g.targetEpoch)
	}
	s.epoch = s.g.epoch
	owners := map[Place]string{}
	for _, m := range s.g.members {
		for _, o := range []owned{m.assigned, m.giving} {
			for topic, list := range o {
				for index := range list {
					if other := owners[Place{topic, index}]; other != "" {
						s.t.Fatalf("N1: after %s: %s-%d is of %s and %s", name, topicName(topic), index, other, m.id)
					}
					owners[Place{topic, index}] = m.id
				}
			}
		}
		if m.epoch > s.g.targetEpoch {
			s.t.Fatalf("N2: after %s: %s is at %d, the target at %d", name, m.id, m.epoch, s.g.targetEpoch)
		}
	}
	if len(owners) != len(s.g.owners) {
		s.t.Fatalf("after %s: %d partitions are owned, %d are entered", name, len(owners), len(s.g.owners))
	}
	held := map[Place]string{}
	for _, c := range s.clients {
		for topic, list := range c.has {
			for _, index := range list {
				if other := held[Place{topic, index}]; other != "" {
					s.t.Fatalf("after %s: %s and %s both consume %s-%d", name, other, c.id, topicName(topic), index)
				}
				held[Place{topic, index}] = c.id
			}
		}
	}
}

func (c *client) out() { c.in, c.epoch, c.has, c.synced = false, 0, nil, false }

// speak has a client do what comes next for it. lost: the answer does not arrive.
func (s *sim) speak(c *client, lost bool) {
	if c.classic {
		s.speakClassic(c, lost)
		return
	}
	owned := maps.Clone(c.has)
	if owned == nil {
		owned = Partitions{}
	}
	r := &Heartbeat{MemberID: c.id, Instance: c.instance, Epoch: c.epoch, Rebalance: 30 * time.Second, Topics: &c.topics, Owned: &owned}
	if !c.in {
		r.Epoch = JoinEpoch
	} else if !c.unsure && rapid.Bool().Draw(s.t, "short") {
		r.Rebalance, r.Topics = -1, nil
	}
	c.unsure = lost // what it was told may have been lost: it says everything, and is told everything
	if err := r.Check(s.env.Config); err != nil {
		s.t.Fatal(err)
	}
	var a Answer
	err := s.step("heartbeat of "+c.id, func() (err error) {
		a, err = s.g.Heartbeat(s.now, r, &s.env)
		return err
	})
	switch {
	case lost:
	case err != nil:
		c.out()
	default:
		c.in, c.epoch = true, a.Epoch
		if a.Assignment != nil {
			c.has = *a.Assignment
		}
	}
	s.check("the answer to " + c.id)
}

// speakClassic is a cooperative member of the classic protocol: it gives up when its assignment says so, then joins again.
func (s *sim) speakClassic(c *client, lost bool) {
	switch {
	case c.in && !slices.Equal(c.said, c.topics):
		s.joinClassic(c)
	case c.in && !c.synced:
		var p Partitions
		err := s.step("sync of "+c.id, func() (err error) {
			p, _, err = s.g.Sync(s.now, &group.SyncRequest{MemberID: c.id, Instance: c.instance, Generation: group.Generation(c.epoch)}, &s.env)
			return err
		})
		if lost {
			return
		}
		if err == nil {
			c.has, c.synced = p, true
			return
		}
		c.settle(err)
		s.joinClassic(c)
	case c.in:
		err := s.step("heartbeat of "+c.id, func() error {
			return s.g.ClassicHeartbeat(s.now, c.id, c.instance, group.Generation(c.epoch), &s.env)
		})
		if !lost && err != nil {
			c.settle(err)
			s.joinClassic(c)
		}
	default:
		s.joinClassic(c)
	}
	s.check("the answer to " + c.id)
}

func (c *client) settle(err error) {
	if err == group.ErrRebalance {
		c.synced = false
	} else if err != nil {
		c.out()
	}
}

func (s *sim) joinClassic(c *client) {
	r := &Join{
		MemberID: c.id, Instance: c.instance, Session: 45 * time.Second, Rebalance: 30 * time.Second, ProtocolType: "consumer",
		Protocols: []group.Protocol{{Name: "cooperative-sticky"}}, Topics: c.topics, Owned: maps.Clone(c.has),
	}
	if !c.in && c.instance != nil {
		r.MemberID, r.NewID = "", c.id
	}
	var j Joined
	err := s.step("join of "+c.id, func() (err error) {
		j, err = s.g.Join(s.now, r, &s.env)
		return err
	})
	if err != nil {
		c.out()
		return
	}
	c.in, c.synced, c.epoch, c.said = true, false, j.Generation, c.topics
}

// pass lets time go by. Whoever the group puts out by then has stopped by itself.
func (s *sim) pass(d time.Duration) {
	s.now = s.now.Add(d)
	_ = s.step("time", func() error { s.g.Tick(s.now); return nil })
	for _, c := range s.clients {
		if s.g.byID[c.id] == nil {
			c.out()
		}
	}
}

func (s *sim) leave(c *client) {
	if !c.in {
		return
	}
	c.has = nil
	if c.classic {
		_ = s.step("leave of "+c.id, func() error { return s.g.Leave(s.now, []group.Leaving{{MemberID: c.id, Instance: c.instance}})[0] })
	} else {
		r := &Heartbeat{MemberID: c.id, Instance: c.instance, Epoch: LeaveEpoch}
		if c.instance != nil && rapid.Bool().Draw(s.t, "for a while") {
			r.Epoch = StaticLeaveEpoch
		}
		_ = s.step("leave of "+c.id, func() error { _, err := s.g.Heartbeat(s.now, r, &s.env); return err })
	}
	c.out()
}

func (s *sim) failover() {
	stored := s.g.Encode()
	g, err := Decode(stored, s.now, s.env.Config)
	if err != nil {
		s.t.Fatal(err)
	}
	if again := g.Encode(); !bytes.Equal(stored, again) {
		s.t.Fatal("a failover changes the group")
	}
	s.g = g
	s.check("failover")
}

// TestRandom does anything in any order; then it leaves the group alone, and it must settle.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t)
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			c := s.clients[rapid.IntRange(0, len(s.clients)-1).Draw(t, "who")]
			switch rapid.IntRange(0, 15).Draw(t, "what") {
			case 0:
				s.leave(c)
			case 1:
				s.pass(time.Duration(rapid.IntRange(1, 50).Draw(t, "seconds")) * time.Second)
			case 2:
				s.failover()
			case 3:
				s.world.version++
				s.world.topics[rapid.SampledFrom([]string{"t", "u", "v"}).Draw(t, "topic")] += 2
			case 4:
				c.topics = rapid.SampledFrom([][]string{{"t"}, {"t", "u"}, {"u", "v"}, {}}).Draw(t, "topics")
			case 5:
				s.speak(c, !c.classic)
			case 6:
				s.world.version++
				delete(s.world.topics, "v")
			case 7: // it starts anew without leaving, perhaps with the other protocol
				c.out()
				c.classic = c.classic != rapid.Bool().Draw(t, "other protocol")
			default:
				s.speak(c, false)
			}
		}
		s.settles()
	})
}

// settles: with everybody heard of often enough, everything that is read is consumed by exactly one of its readers.
func (s *sim) settles() {
	done := func() bool {
		var consumed int
		for _, c := range s.clients {
			if !c.in {
				return false
			}
			consumed += c.has.Count()
		}
		want := 0
		for name, n := range s.world.topics {
			if slices.ContainsFunc(s.clients, func(c *client) bool { return slices.Contains(c.topics, name) }) {
				want += int(n)
			}
		}
		return consumed == want && s.g.State() == Stable
	}
	for range 60 {
		if done() {
			return
		}
		for _, c := range s.clients {
			s.speak(c, false)
		}
		s.pass(time.Second)
	}
	for _, c := range s.clients {
		s.t.Logf("%s is in: %v, at %d, reads %v, has %s", c.id, c.in, c.epoch, c.topics, show(c.has))
	}
	s.t.Fatalf("the group does not settle; topics %v: %+v", s.world.topics, s.g.Describe(s.env.Config))
}
