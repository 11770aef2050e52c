// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/internal/golden"
	"github.com/varve/varve/record"
)

// TestStories runs testdata/*.txt.
func TestStories(t *testing.T) {
	golden.Stories(t, func(t *testing.T) func([]string) []string { return newStory(t).step })
}

// world is a set of topics.
type world struct {
	topics  map[string]int32
	version int64
}

// topicID is the id of a topic in tests: its name.
func topicID(name string) (id record.TopicID) {
	copy(id[:], name)
	return id
}

func topicName(id record.TopicID) string { return strings.TrimRight(string(id[:]), "\x00") }

func (w *world) Version() int64        { return w.version }
func (w *world) All() iter.Seq[string] { return maps.Keys(w.topics) }
func (w *world) Topic(name string) (Topic, bool) {
	n, ok := w.topics[name]
	return Topic{Name: name, ID: topicID(name), Partitions: n}, ok
}
func (w *world) Name(id record.TopicID) (string, bool) {
	_, ok := w.topics[topicName(id)]
	return topicName(id), ok
}

// teller is what a member of a story remembers.
type teller struct {
	epoch    int32
	has      Partitions
	instance *string
}

// story is one group with what its members were told.
type story struct {
	t     *testing.T
	g     *Group
	now   time.Time
	env   Env
	world *world
	told  map[string]*teller
}

func newStory(t *testing.T) *story {
	s := &story{t: t, now: time.Unix(1000, 0), world: &world{topics: map[string]int32{}}, told: map[string]*teller{}}
	s.env = Env{Topics: s.world, Config: Config{
		Session: 45 * time.Second, Interval: 5 * time.Second, MaxSize: 10, Assignors: []string{Uniform, Range}, Upgrade: true, Downgrade: true, ClassicMaxSize: 10,
		RegexRefresh: 10 * time.Minute,
	}}
	s.g = New(s.now)
	return s
}

// args are "key=value" words.
type args map[string]string

func parse(words []string) args {
	a := args{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		a[k] = v
	}
	return a
}

func (a args) optional(key string) *string {
	if v, ok := a[key]; ok {
		return &v
	}
	return nil
}

func (s *story) number(v string) int64 {
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *story) duration(v string) time.Duration {
	d, err := time.ParseDuration(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// partitions reads "t:0,1;u:2".
func (s *story) partitions(v string) Partitions {
	p := Partitions{}
	for _, part := range strings.FieldsFunc(v, func(c rune) bool { return c == ';' }) {
		name, list, _ := strings.Cut(part, ":")
		for _, index := range strings.Split(list, ",") {
			p[topicID(name)] = append(p[topicID(name)], int32(s.number(index)))
		}
	}
	return p
}

func show(p Partitions) string {
	var parts []string
	for _, id := range sortedTopics(p) {
		if len(p[id]) > 0 {
			parts = append(parts, topicName(id)+":"+strings.Trim(strings.ReplaceAll(fmt.Sprint(p[id]), " ", ","), "[]"))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ";")
}

func (s *story) step(words []string) (out []string) {
	verb, who, a := words[0], "", args{}
	if len(words) > 1 {
		who, a = words[1], parse(words[2:])
	}
	s.g.dirty = false
	defer func() {
		if s.g.dirty {
			out = append(out, "(to be stored)")
		}
	}()
	switch verb {
	case "config":
		s.config(parse(words[1:]))
	case "topics":
		s.world.version++
		s.world.topics = map[string]int32{}
		for name, n := range parse(words[1:]) {
			s.world.topics[name] = int32(s.number(n))
		}
	case "join", "heartbeat", "ack":
		return []string{s.heartbeat(verb, who, a)}
	case "leave":
		return []string{s.leave(who, a)}
	case "commit":
		return []string{s.commit(who, a)}
	case "fetch":
		return []string{who + ": " + code(s.g.MayFetch(&who, int32(s.number(a["epoch"]))))}
	case "pass":
		return s.pass(s.duration(who))
	case "failover":
		g, err := Decode(s.g.Encode(), s.now, s.env.Config)
		if err != nil {
			s.t.Fatal(err)
		}
		s.g = g
	case "describe":
		return s.describe()
	default:
		return s.classicStep(verb, who, a)
	}
	return nil
}

func (s *story) config(a args) {
	c := &s.env.Config
	for k, v := range a {
		switch k {
		case "size":
			c.MaxSize = int(s.number(v))
		case "interval":
			c.AssignmentInterval = s.duration(v)
		case "policy":
			c.Upgrade, c.Downgrade = v == "bidirectional" || v == "upgrade", v == "bidirectional" || v == "downgrade"
		default:
			s.t.Fatalf("no setting %q", k)
		}
	}
}

// heartbeat sends one: join says everything at epoch 0, heartbeat only what is given, ack what the member was told that it has.
func (s *story) heartbeat(verb, who string, a args) string {
	m := s.told[who]
	if m == nil {
		m = &teller{}
	}
	r := &Heartbeat{MemberID: who, Epoch: m.epoch, Instance: m.instance, Rebalance: -1, ClientID: "client", Host: "/host"}
	if verb == "join" {
		r.Epoch, r.Rebalance, r.Owned, r.Instance = JoinEpoch, 30*time.Second, &Partitions{}, a.optional("instance")
		m = &teller{instance: r.Instance}
	}
	if verb == "ack" {
		p := maps.Clone(m.has)
		r.Owned = &p
	}
	if v, ok := a["epoch"]; ok {
		r.Epoch = int32(s.number(v))
	}
	if v, ok := a["topics"]; ok {
		names := strings.FieldsFunc(v, func(c rune) bool { return c == ',' })
		r.Topics = &names
	}
	if v, ok := a["owned"]; ok {
		p := s.partitions(v)
		r.Owned = &p
	}
	if v, ok := a["rebalance"]; ok {
		r.Rebalance = s.duration(v)
	}
	r.Regex, r.Assignor, r.Rack = a.optional("regex"), a.optional("assignor"), a.optional("rack")
	err := r.Check(s.env.Config)
	var answer Answer
	if err == nil {
		answer, err = s.g.Heartbeat(s.now, r, &s.env)
	}
	if err != nil {
		return who + ": " + code(err)
	}
	if _, lost := a["lost"]; lost {
		return who + ": (lost) " + tell(answer)
	}
	m.epoch = answer.Epoch
	if answer.Assignment != nil {
		m.has = *answer.Assignment
	}
	s.told[who] = m
	return who + ": " + tell(answer)
}

func tell(a Answer) string {
	text := fmt.Sprintf("epoch %d", a.Epoch)
	if a.Assignment != nil {
		text += ", has " + show(*a.Assignment)
	}
	return text
}

func (s *story) leave(who string, a args) string {
	r := &Heartbeat{MemberID: who, Epoch: LeaveEpoch, Instance: a.optional("instance"), Rebalance: -1}
	if _, ok := a["for-a-while"]; ok {
		r.Epoch = StaticLeaveEpoch
	}
	err := r.Check(s.env.Config)
	if err == nil {
		var answer Answer
		if answer, err = s.g.Heartbeat(s.now, r, &s.env); err == nil {
			return who + ": " + tell(answer)
		}
	}
	return who + ": " + code(err)
}

func (s *story) commit(who string, a args) string {
	w := group.Committer{MemberID: strings.Trim(who, "-"), Generation: group.Generation(s.number(a["epoch"]))}
	_, w.OldVersion = a["old"]
	return who + ": " + code(s.g.MayCommit(w, func(each func(Place) bool) {
		for topic, list := range s.partitions(a["partitions"]) {
			for _, index := range list {
				if !each(Place{topic, index}) {
					return
				}
			}
		}
	}))
}

func code(err error) string {
	if err == nil {
		return "ok"
	}
	return "refused: " + err.Error()
}

// pass lets time go by, one deadline after the other.
func (s *story) pass(d time.Duration) (out []string) {
	end := s.now.Add(d)
	for next := s.g.Next(); !next.IsZero() && !next.After(end); next = s.g.Next() {
		s.now = next
		before := slices.Clone(s.g.members)
		s.g.Tick(s.now)
		for _, m := range before {
			if s.g.byID[m.id] == nil {
				out = append(out, fmt.Sprintf("%ds %s is out", s.now.Unix()-1000, m.id))
			}
		}
	}
	s.now = end
	return out
}

func (s *story) describe() []string {
	d := s.g.Describe(s.env.Config)
	out := []string{fmt.Sprintf("%s, epoch %d, target of epoch %d by %s", d.State, d.Epoch, d.TargetEpoch, d.Assignor)}
	for _, m := range d.Members {
		line := fmt.Sprintf("member %s at %d reads %s", m.ID, m.Epoch, strings.Join(m.Topics, ","))
		if m.Regex != "" {
			line += " and " + m.Regex
		}
		line += fmt.Sprintf(", has %s, is to have %s", show(m.Assigned), show(m.Target))
		if x := s.g.byID[m.ID]; len(x.giving) > 0 {
			line += ", must give up " + show(x.giving.partitions())
		}
		if m.Classic {
			line += " (classic)"
		}
		out = append(out, line)
	}
	return out
}

// classicStep is a step of a member of the classic protocol, or a change of the group's kind.
func (s *story) classicStep(verb, who string, a args) []string {
	m := s.told[who]
	if m == nil {
		m = &teller{}
	}
	generation := m.epoch
	if v, ok := a["gen"]; ok {
		generation = int32(s.number(v))
	}
	switch verb {
	case "classic-join":
		r := &Join{
			MemberID: strings.Trim(who, "-"), NewID: a["new"], Instance: a.optional("instance"), ClientID: "client", Host: "/host", Session: 10 * time.Second,
			Rebalance: 20 * time.Second, ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: []byte("m")}},
			Topics: strings.Split(a["topics"], ","), Owned: s.partitions(a["owned"]),
		}
		_, r.RequireID = a["ask"]
		if v, ok := a["protocol"]; ok {
			r.Protocols[0].Name = v
		}
		j, err := s.g.Join(s.now, r, &s.env)
		if err != nil {
			return []string{who + ": " + code(err)}
		}
		s.told[j.MemberID] = &teller{epoch: j.Generation, instance: r.Instance}
		return []string{fmt.Sprintf("%s: member %s of generation %d by %s", who, j.MemberID, j.Generation, j.Protocol)}
	case "classic-sync":
		p, _, err := s.g.Sync(s.now, &group.SyncRequest{MemberID: who, Instance: m.instance, Generation: group.Generation(generation)}, &s.env)
		if err != nil {
			return []string{who + ": " + code(err)}
		}
		return []string{who + ": has " + show(p)}
	case "classic-heartbeat":
		return []string{who + ": " + code(s.g.ClassicHeartbeat(s.now, who, m.instance, group.Generation(generation), &s.env))}
	case "classic-leave":
		return []string{who + ": " + code(s.g.Leave(s.now, []group.Leaving{{MemberID: who, Instance: m.instance}})[0])}
	case "upgrade":
		var former []Former
		for id, has := range parse(append([]string{who}, strings.Fields(strings.Join(words(a), " "))...)) {
			assigned, claim, _ := strings.Cut(has, "|")
			claimed, at, claims := strings.Cut(claim, "@")
			f := Former{Member: group.Member{
				ID: id, ClientID: "client", Host: "/host", Session: 10 * time.Second, Rebalance: 20 * time.Second, Protocols: []group.Protocol{{Name: "range"}},
			}, Topics: []string{"t"}, Assigned: s.partitions(assigned), Owned: s.partitions(claimed), OwnedAt: -1}
			if claims {
				f.OwnedAt = int32(s.number(at))
			}
			former = append(former, f)
			s.told[id] = &teller{epoch: 7}
		}
		slices.SortFunc(former, func(a, b Former) int { return strings.Compare(a.ID, b.ID) })
		s.g = Upgrade(s.now, 7, former, &s.env)
		return nil
	case "downgrade":
		if !s.g.CanDowngrade(s.env.Config) {
			return []string{"not now"}
		}
		generation, all := s.g.Downgrade()
		out := []string{fmt.Sprintf("generation %d", generation)}
		for _, l := range all {
			out = append(out, fmt.Sprintf("member %s may have %s", l.ID, show(l.Has)))
		}
		return out
	}
	s.t.Fatalf("no step %q", verb)
	return nil
}

func words(a args) (out []string) {
	for k, v := range a {
		out = append(out, k+"="+v)
	}
	return out
}
