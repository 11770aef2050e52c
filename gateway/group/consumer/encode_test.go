// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/stored"
)

// TestCorrupt: what is cut off, changed or of another kind is refused, and nothing worse.
func TestCorrupt(t *testing.T) {
	s := newStory(t)
	for _, step := range [][]string{
		{"topics", "t=4"}, {"join", "a", "topics=t", "regex=x.*"}, {"join", "b", "topics=t", "instance=B"}, {"classic-join", "c", "topics=t"}, {"heartbeat", "a"},
	} {
		s.step(step)
	}
	value := s.g.Encode()
	if value[0] != stored.Consumer {
		t.Fatalf("format %d", value[0])
	}
	for i := range value {
		if _, err := Decode(value[:i], s.now, s.env.Config); !errors.Is(err, group.ErrCorrupt) {
			t.Fatalf("cut off at %d: %v", i, err)
		}
		for _, bit := range []byte{1, 0x80} {
			changed := append([]byte(nil), value...)
			changed[i] ^= bit
			if g, err := Decode(changed, s.now, s.env.Config); err == nil {
				g.Encode() // what can be read can be written
			}
		}
	}
	if _, err := Decode(group.New(s.now).Encode(), s.now, s.env.Config); !errors.Is(err, group.ErrCorrupt) {
		t.Errorf("a classic group: %v", err)
	}
	if _, err := group.Decode(value, s.now); !errors.Is(err, group.ErrCorrupt) {
		t.Errorf("a consumer group as a classic one: %v", err)
	}
	if _, err := Decode([]byte{9}, s.now, s.env.Config); !errors.Is(err, group.ErrCorrupt) {
		t.Errorf("a format of the future: %v", err)
	}
}

// TestFull: a group whose stored form is near its bound takes nobody else in, and goes on with those it has.
func TestFull(t *testing.T) {
	s := newStory(t)
	s.env.Config.MaxSize = 1 << 20
	s.world.topics["t"] = 10
	join := func(i int) error {
		names, owned := []string{"t"}, Partitions{}
		r := &Heartbeat{MemberID: fmt.Sprintf("%x-%d", time.Duration(i*7919)*time.Hour, i), Rebalance: time.Minute, Topics: &names, Owned: &owned, ClientID: fmt.Sprint("client-", i*i)}
		_, err := s.g.Heartbeat(s.now, r, &s.env)
		return err
	}
	if err := join(0); err != nil {
		t.Fatal(err)
	}
	s.g.Encode()
	s.g.lastSize = fullBytes
	if err := join(1); !errors.Is(err, group.ErrTooLarge) {
		t.Fatalf("one more: %v", err)
	}
	if err := join(0); err != nil {
		t.Fatalf("one who is in: %v", err)
	}
	s.g.Encode()
	if err := join(1); err != nil {
		t.Fatalf("there is room again: %v", err)
	}
}

// TestLimits: long regular expressions and too many topics are refused.
func TestLimits(t *testing.T) {
	s := newStory(t)
	long := string(make([]byte, maxRegex+1))
	owned := Partitions{}
	r := &Heartbeat{MemberID: "a", Rebalance: time.Minute, Regex: &long, Owned: &owned}
	if _, err := s.g.Heartbeat(s.now, r, &s.env); !errors.Is(err, ErrInvalidRegex) {
		t.Errorf("a long regular expression: %v", err)
	}
	for text, fits := range map[string]bool{
		strings.Repeat(".{0,1000}", 4): true, strings.Repeat(".{0,1000}", 450): false, "(a{0,30}b){300}": false, strings.Repeat("a", maxRegex): true,
	} {
		r.Regex = &text
		if _, err := New(s.now).Heartbeat(s.now, r, &s.env); errors.Is(err, ErrInvalidRegex) == fits {
			t.Errorf("%.20s, %d bytes: %v", text, len(text), err)
		}
	}
	many := make([]string, maxTopics+1)
	r.Topics = &many
	if err := r.Check(s.env.Config); !errors.Is(err, ErrInvalidRequest) {
		t.Errorf("many topics: %v", err)
	}
}

// TestInstructions: the estimate is never far below what the pattern is compiled to.
func TestInstructions(t *testing.T) {
	for _, text := range []string{"a", "abc", "", "a|b|cd", "(a)(b)", "a*b+c?", "[a-z]{3,9}", "x{5,}", "x{0,}", "(?i:kafka){2}", "(a{0,30}b){0,30}", ".{0,1000}", `\pL+|^$`, "(?:(?:a{2}){2}){2}", "a{0}", "((a|b){10}|c){10}"} {
		re, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		n := instructions(re)
		p, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if most := 2*n + 2; int64(len(p.Inst)) > most {
			t.Errorf("%s: %d instructions, expected at most %d", text, len(p.Inst), most)
		}
	}
}

// TestNoRoom: a subscription for which there is no room is refused, and changes nothing.
func TestNoRoom(t *testing.T) {
	s := newStory(t)
	s.step([]string{"topics", "t=1"})
	s.step([]string{"join", "a", "topics=t"})
	before := s.g.Encode()
	s.g.lastSize = storedBytes - 1000
	names, owned := make([]string, 1000), Partitions{}
	for i := range names {
		names[i] = fmt.Sprint("a-topic-", i)
	}
	if _, err := s.g.Heartbeat(s.now, &Heartbeat{MemberID: "b", Rebalance: time.Minute, Topics: &names, Owned: &owned}, &s.env); !errors.Is(err, group.ErrTooLarge) {
		t.Fatalf("a new member: %v", err)
	}
	if _, err := s.g.Heartbeat(s.now, &Heartbeat{MemberID: "a", Epoch: 2, Rebalance: -1, Topics: &names}, &s.env); !errors.Is(err, group.ErrTooLarge) {
		t.Fatalf("another subscription: %v", err)
	}
	j := &Join{MemberID: "c", ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: make([]byte, 5000)}}}
	if _, err := s.g.Join(s.now, j, &s.env); !errors.Is(err, group.ErrTooLarge) {
		t.Fatalf("a classic member: %v", err)
	}
	if s.g.dirty || string(s.g.Encode()) != string(before) {
		t.Error("the group has changed")
	}
	if _, err := s.g.Heartbeat(s.now, &Heartbeat{MemberID: "b", Rebalance: time.Minute, Topics: &names, Owned: &owned}, &s.env); err != nil {
		t.Fatalf("there is room again: %v", err)
	}
}
