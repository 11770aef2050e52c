// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/record"
)

// consumerType is the protocol type of consumers.
const consumerType = "consumer"

// classicMember is a member of the classic protocol. Requests that wait for the others, joins and syncs, have goroutines and connections of
// their own: a cooperative member reads and commits meanwhile, by the generation that it has.
type classicMember struct {
	member
	place    int
	instance *string
	waiting  chan func() // a join or a sync is under way; what is to be done about its answer comes from here
	joins    bool        // it must join
	stirs    bool        // it is the one that makes the group rebalance
	stirred  int         // how often it did, which its metadata tells
	forfeits bool        // it has lost what it said that it has, as it joined
	was      former
}

// former is what a member, or the process before it, was: nobody may act as that any more.
type former struct {
	id         string
	generation int32
}

func newClassicMember(r *groupRun, i int) *classicMember {
	m := &classicMember{
		member: member{r: r, c: newRawClient(r.w, memberHosts[i], memberTimeout), epoch: -1, owned: map[part]*owning{}},
		place:  i, joins: true,
	}
	m.as = m
	if r.classic.static && i >= 2 {
		id := "static" + strconv.Itoa(i)
		m.instance, m.was = &id, r.classic.ended[i]
	}
	return m
}

func (m *classicMember) asks() (string, int32) { return "", -1 }

func (m *classicMember) signs(req *kmsg.OffsetCommitRequest) {
	req.MemberID, req.InstanceID, req.Generation = m.id, m.instance, m.epoch
}

// step is a bit of a member's life.
func (m *classicMember) step(ctx context.Context, rng *rand.Rand) {
	if m.waiting != nil {
		select {
		case done := <-m.waiting:
			m.waiting = nil
			done()
		default:
			if m.r.classic.cooperative {
				m.work(ctx, rng)
			}
		}
		return
	}
	if m.r.classic.mixed || m.was == (former{m.id, m.epoch}) { // there others have epochs of their own, or it is that still
		m.was = former{}
	}
	if m.was.id != "" && m.epoch >= 0 && rng.IntN(3) == 0 {
		m.actAsBefore(ctx, rng)
	}
	switch {
	case m.joins:
		m.join(ctx, rng)
		return
	case !time.Now().Before(m.next):
		if err := m.heartbeat(ctx); err != nil {
			m.refused("a heartbeat", err)
			return
		}
		m.next = time.Now().Add(time.Second)
	}
	switch m.r.takeStir() {
	case stirJoin:
		m.stirred++
		m.joins, m.stirs = true, true
		return
	case stirAnew:
		m.leave(ctx)
		m.lose()
		m.id, m.epoch, m.joins, m.stirs = "", -1, true, true
		return
	}
	m.work(ctx, rng)
}

// refused does what a client does about an error: it joins, anew where it was put out, and looks for the coordinator.
func (m *classicMember) refused(what string, err error) {
	var c code
	if !errors.As(err, &c) || notCoordinator(err) {
		m.c.coordinator, m.next = 0, time.Time{}
		return
	}
	switch c {
	case codeUnknownMember, codeFencedInstanceID, codeGroupIDNotFound, codeIllegalGeneration, codeRebalanceInProgress:
	default:
		if !retriable(err) {
			m.r.w.failf("member %s: %s: %v", m.id, what, err)
		}
		return
	}
	if m.waiting != nil {
		return // of the generation that ends; what comes next is being asked for
	}
	m.joins = true
	if c == codeRebalanceInProgress {
		return
	}
	m.lose()
	if c != codeIllegalGeneration {
		m.r.w.cover.hit(MemberFenced)
		m.id, m.epoch = "", -1
	}
}

// await sends a request whose answer may take its time.
func (m *classicMember) await(ctx context.Context, version int16, req kmsg.Request, done func(kmsg.Response, error)) {
	c := newRawClient(m.r.w, m.c.host, answerWait)
	c.coordinator = m.c.coordinator
	answer := make(chan func(), 1)
	m.waiting = answer
	m.r.w.graves.Go(func() {
		defer c.close()
		resp, err := c.askCoordinator(ctx, version, req)
		answer <- func() { done(resp, err) }
	})
}

func (m *classicMember) join(ctx context.Context, rng *rand.Rand) {
	if !m.r.classic.cooperative {
		for p, o := range m.owned {
			if o.known && o.position > o.committed && !m.commit(ctx, p, o) {
				break
			}
		}
		m.lose()
	}
	if !m.stirs {
		m.r.hold(ctx, posePreparing)
	}
	m.stirs, m.forfeits = false, false
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID = groupName, m.id, m.instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(groupSession.Milliseconds()), int32(rebalanceWait.Milliseconds())
	req.ProtocolType = consumerType
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = m.r.classic.protocol(), m.metadata()
	req.Protocols = append(req.Protocols, p)
	newest := m.r.newestGeneration()
	m.await(ctx, []int16{5, 7, 9}[rng.IntN(3)], req, func(kresp kmsg.Response, err error) {
		if err != nil {
			m.refused("a join", err)
			return
		}
		resp := kresp.(*kmsg.JoinGroupResponse)
		switch err := codeError(resp.ErrorCode); {
		case errors.Is(err, codeMemberIDRequired):
			m.id = resp.MemberID
			m.r.hold(ctx, posePending)
			if rng.IntN(12) == 0 {
				m.r.freeze(ctx, rng)
			}
		case err != nil:
			m.refused("a join", err)
		default:
			m.joined(ctx, rng, resp, newest)
		}
	})
}

// metadata is what a member tells of itself.
func (m *classicMember) metadata() []byte {
	k := kmsg.NewConsumerMemberMetadata()
	k.Version, k.Topics, k.UserData, k.Generation = 3, []string{shared}, strconv.AppendInt(nil, int64(m.stirred), 10), m.epoch
	own := kmsg.NewConsumerMemberMetadataOwnedPartition()
	own.Topic = shared
	for p := range m.owned {
		own.Partitions = append(own.Partitions, p.id.Index)
	}
	if slices.Sort(own.Partitions); len(own.Partitions) > 0 {
		k.OwnedPartitions = append(k.OwnedPartitions, own)
	}
	return k.AppendTo(nil)
}

// name is what identifies a member whatever process it is.
func (m *classicMember) name(id string) string { return nameOf(id, m.instance) }

// joined goes on with a generation: whoever leads it says who gets what.
func (m *classicMember) joined(ctx context.Context, rng *rand.Rand, resp *kmsg.JoinGroupResponse, newest int32) {
	m.r.checkJoined(m.name(resp.MemberID), resp, newest)
	if m.epoch >= 0 && m.epoch < resp.Generation {
		m.was = former{m.id, m.epoch}
	}
	if resp.Generation != m.epoch && resp.Generation != m.epoch+1 {
		m.forfeits = len(m.owned) > 0
		m.lose() // somebody else may have owned it in between
	}
	m.id, m.epoch = resp.MemberID, resp.Generation
	if rng.IntN(20) == 0 {
		m.r.freeze(ctx, rng)
	}
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = groupName, m.epoch, m.id, m.instance
	kind, assignor := consumerType, m.r.classic.protocol()
	req.ProtocolType, req.Protocol = &kind, &assignor
	if len(resp.Members) > 0 && !resp.SkipAssignment {
		m.r.hold(ctx, poseCompleting)
		req.GroupAssignment = m.r.assign(m.epoch, resp.Members, rng)
	}
	newest = m.r.newestGeneration()
	m.await(ctx, []int16{3, 5}[rng.IntN(2)], req, func(kresp kmsg.Response, err error) {
		if err == nil {
			err = codeError(kresp.(*kmsg.SyncGroupResponse).ErrorCode)
		}
		if err != nil {
			m.refused("a sync", err)
			return
		}
		m.synced(kresp.(*kmsg.SyncGroupResponse).MemberAssignment, newest)
	})
}

// synced takes an assignment over.
func (m *classicMember) synced(b []byte, newest int32) {
	list, err := m.r.readAssignment(b)
	if err != nil {
		m.r.w.failf("S24: member %s is given %x in generation %d: %v", m.id, b, m.epoch, err)
		return
	}
	m.r.checkSynced(m.name(m.id), m.epoch, list, newest)
	m.next = time.Now().Add(time.Second)
	now := map[part]bool{}
	for _, index := range list {
		now[m.r.parts[shared][index]] = true
	}
	lost, _ := m.own(now)
	m.joins = lost || m.forfeits // what it has given up is for another one
}

func (m *classicMember) heartbeat(ctx context.Context) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = groupName, m.epoch, m.id, m.instance
	kresp, err := m.c.askCoordinator(ctx, 4, req)
	if err != nil {
		return err
	}
	return codeError(kresp.(*kmsg.HeartbeatResponse).ErrorCode)
}

// actAsBefore commits, or asks for an assignment, as what the member is not any more. Nothing of it may be accepted.
func (m *classicMember) actAsBefore(ctx context.Context, rng *rand.Rand) {
	was, what, err := m.was, "commit", error(nil)
	if rng.IntN(2) == 0 {
		err = m.commitAs(ctx, was, m.r.parts[shared][rng.IntN(groupPartitions)])
	} else {
		what, err = "sync", m.syncAs(ctx, was)
	}
	var c code
	switch {
	case err == nil:
		m.r.w.failf("S24: a %s as member %s of generation %d was accepted, which is %s of generation %d", what, was.id, was.generation, m.id, m.epoch)
	case notCoordinator(err):
		m.c.coordinator = 0
	case errors.As(err, &c):
		m.r.w.cover.hit(StaleRefused)
		m.was = former{}
	}
}

func (m *classicMember) commitAs(ctx context.Context, was former, p part) error {
	req := commitOf(p, 0)
	req.MemberID, req.InstanceID, req.Generation = was.id, m.instance, was.generation
	return m.c.commit(ctx, req)
}

func (m *classicMember) syncAs(ctx context.Context, was former) error {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.Generation, req.MemberID, req.InstanceID = groupName, was.generation, was.id, m.instance
	kresp, err := m.c.askCoordinator(ctx, 3, req)
	if err != nil {
		return err
	}
	return codeError(kresp.(*kmsg.SyncGroupResponse).ErrorCode)
}

func (m *classicMember) leave(ctx context.Context) {
	if m.id == "" {
		return
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = groupName
	who := kmsg.NewLeaveGroupRequestMember()
	who.MemberID, who.InstanceID = m.id, m.instance
	req.Members = append(req.Members, who)
	_, _ = m.c.askCoordinator(ctx, 5, req) // if nobody hears it, its session ends
}

// end is that of the process: what it waits for is answered to nobody.
func (m *classicMember) end() {
	if m.instance != nil && m.epoch >= 0 {
		m.r.classic.ended[m.place] = former{m.id, m.epoch}
	}
	m.r.w.net.Cut(m.c.host)
}

// askState asks the group's coordinator what the group is doing.
func (c *rawClient) askState(ctx context.Context) (state string, at record.NodeID, err error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{groupName}
	kresp, err := c.askCoordinator(ctx, 5, req)
	at = c.coordinator
	if err != nil {
		return "", at, err
	}
	g := kresp.(*kmsg.DescribeGroupsResponse).Groups
	if len(g) != 1 {
		return "", at, fmt.Errorf("%d groups are described", len(g))
	}
	if err := codeError(g[0].ErrorCode); err != nil {
		c.coordinator = 0
		return "", at, err
	}
	return g[0].State, at, nil
}
