// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// classicRun is what a history of the classic protocol knows in addition. It is guarded by groupRun.mu but for the constants.
type classicRun struct {
	cooperative, static, mixed bool // constant

	ended       [4]former // static members, by place; each only used by its place's goroutine
	pose        pose
	posed       bool // somebody holds still in the pose
	stir        stir
	generations map[int32]*generation
	newest      int32 // that was told to anybody
}

// protocol is what the members assign by.
func (c *classicRun) protocol() string {
	if c.cooperative {
		return "cooperative-sticky"
	}
	return "range"
}

// generation is what was told of one to any of its members.
type generation struct {
	leader   string
	members  map[string]bool   // as its leader was told; nil: not yet
	heard    map[string]bool   // who was told of it
	proposed map[string]bool   // name and partitions, as leaders have said
	given    map[string]string // to members
	owners   map[int32]string
}

// nameOf identifies a member: a static one, whatever process it is, by its instance.
func nameOf(id string, instance *string) string {
	if instance != nil {
		return *instance
	}
	if name, _, found := strings.Cut(id, "-"); found && strings.HasPrefix(name, "static") {
		return name // all ids of its processes begin so
	}
	return id
}

func (r *groupRun) newestGeneration() int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.classic.newest
}

func (r *groupRun) generationLocked(n int32) *generation {
	g := r.classic.generations[n]
	if g == nil {
		g = &generation{heard: map[string]bool{}, proposed: map[string]bool{}, given: map[string]string{}, owners: map[int32]string{}}
		r.classic.generations[n] = g
	}
	return g
}

// checkJoined checks what a join was answered: a generation never goes back, and is the same to all of its members (S24). newest is that which
// anybody had been told of when the join began.
func (r *groupRun) checkJoined(name string, resp *kmsg.JoinGroupResponse, newest int32) {
	r.w.cover.hit(MemberJoined)
	if r.classic.mixed {
		return // members of a group of the consumer protocol have epochs of their own
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := resp.Generation
	if n < newest {
		r.w.failf("S24: %s is told of generation %d, %d was told before it asked", name, n, newest)
	}
	r.classic.newest = max(r.classic.newest, n)
	g := r.generationLocked(n)
	g.heard[name] = true
	if leader := nameOf(resp.LeaderID, nil); g.leader == "" {
		g.leader = leader
	} else if g.leader != leader {
		r.w.failf("S24: generation %d is led by %s and by %s", n, g.leader, leader)
	}
	if len(resp.Members) > 0 {
		members := map[string]bool{}
		for i := range resp.Members {
			members[nameOf(resp.Members[i].MemberID, resp.Members[i].InstanceID)] = true
		}
		if g.members != nil && !maps.Equal(g.members, members) {
			r.w.failf("S24: generation %d has the members %v, and %v", n, g.members, members)
		}
		g.members = members
	}
	for who := range g.heard {
		if g.members != nil && !g.members[who] {
			r.w.failf("S24: %s is told that it is in generation %d, which has %v", who, n, g.members)
		}
	}
}

// checkSynced checks what a sync was answered: it is what a leader has said, the same whenever it is told, and no partition is of two members (S24).
func (r *groupRun) checkSynced(name string, n int32, list []int32, newest int32) {
	if r.classic.mixed {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g, text := r.generationLocked(n), fmt.Sprint(list)
	if n < newest {
		r.w.failf("S24: %s is given %v of generation %d, though %d had been told", name, list, n, newest)
	}
	if !g.proposed[name+text] {
		r.w.failf("S24: %s is given %v in generation %d, which no leader said", name, list, n)
	}
	if before, known := g.given[name]; known && before != text {
		r.w.failf("S24: %s is given %s and %v in generation %d", name, before, list, n)
	}
	g.given[name] = text
	for _, p := range list {
		if other := g.owners[p]; other != "" && other != name {
			r.w.failf("S24: partition %d is of %s and of %s in generation %d", p, other, name, n)
		}
		g.owners[p] = name
	}
}

// assign is what the leader of a generation says. It is another one each time: what counts is what the group has stored.
func (r *groupRun) assign(n int32, members []kmsg.JoinGroupResponseMember, rng *rand.Rand) (all []kmsg.SyncGroupRequestGroupAssignment) {
	shares := r.shares(members, rng)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range members {
		r.generationLocked(n).proposed[nameOf(members[i].MemberID, members[i].InstanceID)+fmt.Sprint(shares[i])] = true
		a := kmsg.NewConsumerMemberAssignment()
		if len(shares[i]) > 0 {
			a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: shared, Partitions: shares[i]})
		}
		one := kmsg.NewSyncGroupRequestGroupAssignment()
		one.MemberID, one.MemberAssignment = members[i].MemberID, a.AppendTo(nil)
		all = append(all, one)
	}
	return all
}

// shares chooses what each of the members gets, by its place in the list: each partition is for one of them. In a cooperative group nobody gets
// what another one still has.
func (r *groupRun) shares(members []kmsg.JoinGroupResponseMember, rng *rand.Rand) [][]int32 {
	owner, shares := r.claims(members), make([][]int32, len(members))
	quota := (groupPartitions + len(members) - 1) / len(members)
	var free []int32
	for _, p := range rng.Perm(groupPartitions) {
		p := int32(p)
		switch i, claimed := owner[p]; {
		case !claimed:
			free = append(free, p)
		case len(shares[i]) < quota:
			shares[i] = append(shares[i], p)
		}
	}
	for _, p := range free {
		least := 0
		for k, first := range rng.Perm(len(members)) {
			if k == 0 || len(shares[first]) < len(shares[least]) {
				least = first
			}
		}
		shares[least] = append(shares[least], p)
	}
	for _, share := range shares {
		slices.Sort(share)
	}
	return shares
}

// claims are which of the members has what, by its place in the list. Of two that say so it is the one of the newer generation; if both are of
// one, none of them has it.
func (r *groupRun) claims(members []kmsg.JoinGroupResponseMember) map[int32]int {
	owner, newest := map[int32]int{}, map[int32]int32{}
	if !r.classic.cooperative {
		return owner
	}
	for i := range members {
		var m kmsg.ConsumerMemberMetadata
		if err := m.ReadFrom(members[i].ProtocolMetadata); err != nil {
			r.w.failf("S24: the metadata of %s is %x: %v", members[i].MemberID, members[i].ProtocolMetadata, err)
			continue
		}
		for _, o := range m.OwnedPartitions {
			for _, p := range o.Partitions {
				switch at, known := newest[p]; {
				case known && at == m.Generation:
					delete(owner, p)
				case !known || at < m.Generation:
					owner[p], newest[p] = i, m.Generation
				}
			}
		}
	}
	return owner
}

// readAssignment gives the partitions of an assignment.
func (r *groupRun) readAssignment(b []byte) (list []int32, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(b); err != nil {
		return nil, err
	}
	for i := range a.Topics {
		for _, p := range a.Topics[i].Partitions {
			if a.Topics[i].Topic != shared || p < 0 || p >= groupPartitions || slices.Contains(list, p) {
				return nil, fmt.Errorf("partition %d of %s", p, a.Topics[i].Topic)
			}
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return list, nil
}
