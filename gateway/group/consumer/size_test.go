// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/varve/varve/gateway/group"
)

// noise are names that do not compress to much less than half.
func noise(r *rand.Rand, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())
	}
	return names
}

func joins(id string, names []string) *Heartbeat {
	return &Heartbeat{MemberID: id, Rebalance: time.Minute, Topics: &names, Owned: &Partitions{}}
}

// TestGrowth: members that come while the group is not stored are counted: it does not become too large for all.
func TestGrowth(t *testing.T) {
	s := newStory(t)
	s.env.Config.MaxSize = 1000
	r := rand.New(rand.NewPCG(1, 2))
	in := 0
	for i := range 80 {
		_, err := s.g.Heartbeat(s.now, joins(fmt.Sprint("m", i), noise(r, 600)), &s.env)
		if err == nil {
			in++
		} else if !errors.Is(err, group.ErrTooLarge) {
			t.Fatal(err)
		}
	}
	if n := len(s.g.Encode()); n < fullBytes/2 || n > storedBytes+smallBytes {
		t.Errorf("%d members are %d bytes, expected at most %d", in, n, storedBytes+smallBytes)
	}
}

// TestAlike: members that say the same take little room, though they come before the group is stored.
func TestAlike(t *testing.T) {
	s := newStory(t)
	s.env.Config.MaxSize = 1000
	names := noise(rand.New(rand.NewPCG(1, 2)), 600)
	for i := range 80 {
		if _, err := s.g.Heartbeat(s.now, joins(fmt.Sprint("m", i), names), &s.env); err != nil {
			t.Fatalf("member %d: %v", i, err)
		}
	}
}

// TestUnchanged: who says again what it has is heard, however full the group is.
func TestUnchanged(t *testing.T) {
	s := newStory(t)
	names := noise(rand.New(rand.NewPCG(1, 2)), 600)
	a, err := s.g.Heartbeat(s.now, joins("a", names), &s.env)
	if err != nil {
		t.Fatal(err)
	}
	j := &Join{MemberID: "c", Session: time.Minute, Rebalance: time.Minute, ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: make([]byte, 5000)}}}
	if _, err := s.g.Join(s.now, j, &s.env); err != nil {
		t.Fatal(err)
	}
	s.g.Encode()
	s.g.lastSize = storedBytes + 1
	s.now = s.now.Add(time.Second)
	r := joins("a", names)
	r.Epoch = a.Epoch
	if _, err := s.g.Heartbeat(s.now, r, &s.env); err != nil {
		t.Fatalf("a full heartbeat: %v", err)
	}
	if got, want := s.g.byID["a"].expires, s.now.Add(s.env.Config.Session); !got.Equal(want) {
		t.Errorf("the session ends at %v, expected %v", got, want)
	}
	if _, err := s.g.Join(s.now, j, &s.env); err != nil {
		t.Fatalf("a join: %v", err)
	}
	s.g.Encode()
	s.g.lastSize = storedBytes + 1
	more := append([]string{"x"}, names...)
	r.Topics = &more
	if _, err := s.g.Heartbeat(s.now, r, &s.env); !errors.Is(err, group.ErrTooLarge) {
		t.Fatalf("one topic more: %v", err)
	}
	j.Protocols = []group.Protocol{{Name: "range", Metadata: make([]byte, 5001)}}
	if _, err := s.g.Join(s.now, j, &s.env); !errors.Is(err, group.ErrTooLarge) {
		t.Fatalf("other metadata: %v", err)
	}
}

// TestUpgradedSize: what a classic group brings counts before it is stored as a consumer group.
func TestUpgradedSize(t *testing.T) {
	s := newStory(t)
	r := rand.New(rand.NewPCG(1, 2))
	metadata := make([]byte, storedBytes)
	for i := range metadata {
		metadata[i] = byte(r.Uint32())
	}
	former := []Former{{Member: group.Member{ID: "a", Session: time.Minute, Rebalance: time.Minute, Protocols: []group.Protocol{{Name: "range", Metadata: metadata}}}}}
	g := Upgrade(s.now, 3, former, &s.env)
	if _, err := g.Heartbeat(s.now, joins("b", []string{"t"}), &s.env); !errors.Is(err, group.ErrTooLarge) {
		t.Fatalf("one more member: %v", err)
	}
}
