// SPDX-License-Identifier: Apache-2.0

package group

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/internal/golden"
)

// TestStories runs testdata/*.txt.
func TestStories(t *testing.T) {
	golden.Stories(t, func(t *testing.T) func([]string) []string {
		s := newStory()
		return func(words []string) []string { return s.step(t, words) }
	})
}

// story is one group with the names that its story gives to members and requests.
type story struct {
	g      *Group
	now    time.Time
	cfg    Config
	names  map[Token]string
	tokens Token
	waits  map[string]bool
	ids    int
}

func newStory() *story {
	s := &story{now: time.Unix(1000, 0), names: map[Token]string{}, waits: map[string]bool{}}
	s.cfg = Config{MinSession: 6 * time.Second, MaxSession: 30 * time.Minute, InitialDelay: 3 * time.Second, MaxSize: 10}
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

func (a args) duration(t *testing.T, key string, dflt time.Duration) time.Duration {
	t.Helper()
	v, ok := a[key]
	if !ok {
		return dflt
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (a args) generation(t *testing.T, g *Group) Generation {
	t.Helper()
	v, ok := a["gen"]
	if !ok {
		return g.generation
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatal(err)
	}
	return Generation(n)
}

func (s *story) token(name string) Token {
	s.tokens++
	s.names[s.tokens] = name
	return s.tokens
}

// step does one step and tells what came of it.
func (s *story) step(t *testing.T, words []string) (out []string) {
	verb, who, a := words[0], "", args{}
	if len(words) > 1 {
		who, a = words[1], parse(words[2:])
	}
	result := func(err error) {
		out = append(out, who+": "+code(err))
	}
	switch verb {
	case "config":
		a = parse(words[1:])
		s.cfg.InitialDelay = a.duration(t, "delay", s.cfg.InitialDelay)
		if v, ok := a["size"]; ok {
			s.cfg.MaxSize, _ = strconv.Atoi(v)
		}
	case "join":
		s.join(t, who, a)
	case "sync":
		s.sync(t, who, a)
	case "heartbeat":
		result(s.g.Heartbeat(s.now, who, a.optional("instance"), a.generation(t, s.g)))
	case "leave":
		l := Leaving{MemberID: who, Instance: a.optional("instance")}
		if who == "-" {
			l.MemberID = ""
		}
		result(s.g.Leave(s.now, []Leaving{l}, s.cfg)[0])
	case "commit":
		w := Committer{MemberID: strings.Trim(who, "-"), Instance: a.optional("instance"), Generation: a.generation(t, s.g)}
		err := s.g.MayCommit(w)
		if err == nil {
			s.g.Commit(s.now, w)
		}
		result(err)
	case "pass":
		d, err := time.ParseDuration(who)
		if err != nil {
			t.Fatal(err)
		}
		s.pass(d, &out)
	case "failover":
		g, err := Decode(s.g.Encode(), s.now)
		if err != nil {
			t.Fatal(err)
		}
		s.g = g
	case "describe":
		return s.describe()
	default:
		t.Fatalf("no step %q", verb)
	}
	return append(out, s.outputs()...)
}

// pass lets time go by, one deadline after the other.
func (s *story) pass(d time.Duration, out *[]string) {
	end := s.now.Add(d)
	for {
		next := s.g.Next()
		if next.IsZero() || next.After(end) {
			break
		}
		if next.After(s.now) {
			s.now = next
		}
		before := s.g.Next()
		s.g.Tick(s.now, s.cfg)
		*out = append(*out, s.outputs()...)
		if s.g.Next().Equal(before) {
			break
		}
	}
	s.now = end
}

func (s *story) join(t *testing.T, who string, a args) {
	r := &JoinRequest{
		Token: s.token("join " + who), MemberID: who, Instance: a.optional("instance"), ClientID: "client", Host: "/host",
		Session: a.duration(t, "session", 10*time.Second), Rebalance: a.duration(t, "rebalance", 30*time.Second), ProtocolType: "consumer",
		CanSkip: a["skip"] == "yes", RequireID: a["ask"] == "id",
	}
	if v, ok := a["new"]; ok {
		r.MemberID, r.NewID = "", v
	} else if who == "-" {
		r.MemberID = ""
	}
	if v, ok := a["type"]; ok {
		r.ProtocolType = v
	}
	protocols := a["protocols"]
	if _, ok := a["protocols"]; !ok {
		protocols = "range:" + who
	}
	for _, p := range strings.FieldsFunc(protocols, func(c rune) bool { return c == ',' }) {
		name, data, _ := strings.Cut(p, ":")
		r.Protocols = append(r.Protocols, Protocol{Name: name, Metadata: []byte(data)})
	}
	s.g.Join(s.now, r, s.cfg)
}

func (s *story) sync(t *testing.T, who string, a args) {
	r := &SyncRequest{
		Token: s.token("sync " + who), MemberID: who, Instance: a.optional("instance"), Generation: a.generation(t, s.g),
		Protocol: a.optional("protocol"), ProtocolType: a.optional("type"), Assignments: map[string][]byte{},
	}
	for _, p := range strings.FieldsFunc(a["assign"], func(c rune) bool { return c == ',' }) {
		id, data, _ := strings.Cut(p, ":")
		r.Assignments[id] = []byte(data)
	}
	s.g.Sync(s.now, r)
}

func code(err error) string {
	if err == nil {
		return "ok"
	}
	return "refused: " + err.Error()
}

func (s *story) outputs() (out []string) {
	for _, o := range s.g.Take() {
		line := s.names[o.Token]
		switch {
		case errors.Is(o.Err, ErrMemberIDRequired):
			line += ": come back as " + o.MemberID
		case o.Err != nil:
			line += ": " + code(o.Err)
		case o.Join != nil:
			line += fmt.Sprintf(": member %s of generation %d, %s/%s, leader %s", o.Join.MemberID, o.Join.Generation, o.Join.ProtocolType, o.Join.Protocol, o.Join.Leader)
			for _, m := range o.Join.Members {
				line += fmt.Sprintf(" %s=%s", m.ID, m.Metadata)
			}
			if o.Join.SkipAssignment {
				line += " (keeps its assignment)"
			}
		case o.Sync != nil:
			line += fmt.Sprintf(": assigned %q", o.Sync.Assignment)
		}
		if o.Durable {
			line += ", once stored"
		}
		out = append(out, fmt.Sprintf("%ds %s", s.now.Unix()-1000, line))
	}
	return out
}

func (s *story) describe() []string {
	d := s.g.Describe()
	out := []string{fmt.Sprintf("%s, generation %d, %s/%s, unsaved %v", d.State, d.Generation, d.ProtocolType, d.Protocol, s.g.Dirty())}
	for _, m := range d.Members {
		line := "member " + m.ID
		if m.Instance != nil {
			line += " (instance " + *m.Instance + ")"
		}
		out = append(out, line+fmt.Sprintf(" %q %q", m.Metadata, m.Assignment))
	}
	pending := make([]string, 0, len(s.g.pending))
	for id := range s.g.pending {
		pending = append(pending, "given out: "+id)
	}
	slices.Sort(pending)
	return append(out, pending...)
}
