// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/record"
)

// member is what a member of a group is and does in either protocol. It speaks its protocol itself: the client's own waits under a mutex, for which
// the bubble's clock stands still. It is used by one goroutine; what it owns is guarded by groupRun.mu.
type member struct {
	r     *groupRun
	id    string
	c     *rawClient
	epoch int32 // of the member, or its generation
	owned map[part]*owning
	next  time.Time // heartbeat
	as    protocol
}

// protocol is what the two protocols do each in its way.
type protocol interface {
	step(ctx context.Context, rng *rand.Rand) // a bit of a member's life
	leave(ctx context.Context)
	end()                                // of the process
	asks() (id string, epoch int32)      // who looks for an offset
	signs(req *kmsg.OffsetCommitRequest) // who commits
	refused(what string, err error)      // does what the protocol wants after an error
}

// consumerMember is one of the consumer protocol.
type consumerMember struct {
	member
	whole bool // the next heartbeat says everything
	said  bool // what it owns was said in a heartbeat that was answered
}

func newConsumerMember(r *groupRun, i, life int) *consumerMember {
	id := fmt.Sprintf("00000000-0000-4000-8000-%06d%06d", i, life)
	m := &consumerMember{member: member{r: r, id: id, c: newRawClient(r.w, memberHosts[i], memberTimeout), owned: map[part]*owning{}}}
	m.as = m
	return m
}

// thawed is after it stood still: it works on before it says that it is there.
func (m *member) thawed() { m.next = time.Now().Add(time.Second) }

func (m *consumerMember) end() {}

func (m *consumerMember) asks() (string, int32) { return m.id, m.epoch }
func (m *consumerMember) signs(req *kmsg.OffsetCommitRequest) {
	req.MemberID, req.Generation = m.id, m.epoch
}

// owning is one member's ownership of one partition, from its assignment to its end.
type owning struct {
	number    int // on the history's clock
	known     bool
	position  record.Offset
	committed record.Offset
}

// Codes that members act upon.
const (
	codeIllegalGeneration   code = 22
	codeUnknownMember       code = 25
	codeRebalanceInProgress code = 27
	codeGroupIDNotFound     code = 69
	codeMemberIDRequired    code = 79
	codeFencedInstanceID    code = 82
	codeFencedMember        code = 110
	codeStaleMember         code = 113
)

// step is a heartbeat if one is due, and some work on what it owns.
func (m *consumerMember) step(ctx context.Context, rng *rand.Rand) {
	if !time.Now().Before(m.next) || !m.said {
		if err := m.heartbeat(ctx); err != nil {
			m.refused("a heartbeat", err)
			return
		}
	}
	m.work(ctx, rng)
}

// work reads on in what the member owns, and commits.
func (m *member) work(ctx context.Context, rng *rand.Rand) {
	for p, o := range m.owned {
		if !o.known && !m.begin(ctx, p, o) {
			return
		}
		f, err := m.c.fetch(ctx, p, o.position, int32(1<<(8+rng.IntN(8))))
		if err != nil {
			if !retriable(err) {
				m.r.w.failf("member %s fetches %s from %d: %v", m.id, p, o.position, err)
			}
			return
		}
		m.r.checkBatches(p, o.position, &f, false, 0, false)
		o.position = m.r.each(p, f.batches, o.position, func(record.Offset, logRecord) {})
		if o.position > o.committed && (rng.IntN(3) > 0 || m.r.mustStay()) && !m.commit(ctx, p, o) {
			return
		}
	}
}

// refused does what a client does about an error: it joins anew where it was put out, and looks for the coordinator.
func (m *consumerMember) refused(what string, err error) {
	switch {
	case errors.Is(err, codeUnknownMember), errors.Is(err, codeFencedMember), errors.Is(err, codeGroupIDNotFound): // or the group is a classic one since
		m.r.w.cover.hit(MemberFenced)
		m.lose()
		m.epoch = 0
	case errors.Is(err, codeStaleMember): // the next heartbeat tells
	case !retriable(err) && !notCoordinator(err):
		m.r.w.failf("member %s: %s: %v", m.id, what, err)
	}
	m.c.coordinator, m.whole, m.said, m.next = 0, true, false, time.Time{}
}

// notCoordinator tells whether an error says that the group is looked after elsewhere, or not yet.
func notCoordinator(err error) bool {
	var c code
	return errors.As(err, &c) && c >= 14 && c <= 16
}

func (m *consumerMember) heartbeat(ctx context.Context) error {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = groupName, m.id, m.epoch, -1
	if m.epoch == 0 || m.whole {
		req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 5000, []string{shared}
	}
	if m.epoch == 0 || m.whole || !m.said {
		t := kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: m.r.parts[shared][0].id.Topic}
		for p := range m.owned {
			t.Partitions = append(t.Partitions, p.id.Index)
		}
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		if len(t.Partitions) > 0 {
			req.Topics = append(req.Topics, t)
		}
	}
	kresp, err := m.c.askCoordinator(ctx, 1, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.ConsumerGroupHeartbeatResponse)
	if err := codeError(resp.ErrorCode); err != nil {
		return err
	}
	if m.epoch == 0 {
		m.r.w.cover.hit(MemberJoined)
	}
	m.epoch, m.whole, m.said = resp.MemberEpoch, false, true
	m.next = time.Now().Add(time.Duration(resp.HeartbeatIntervalMillis) * time.Millisecond)
	if resp.Assignment != nil {
		m.assigned(resp.Assignment)
	}
	return nil
}

// assigned takes over an assignment. What is not in it any more ends here, before anybody hears so.
func (m *consumerMember) assigned(a *kmsg.ConsumerGroupHeartbeatResponseAssignment) {
	now := map[part]bool{}
	for i := range a.Topics {
		for _, index := range a.Topics[i].Partitions {
			if a.Topics[i].TopicID != m.r.parts[shared][0].id.Topic || int(index) >= groupPartitions {
				m.r.w.failf("S24: member %s is assigned partition %d of topic %x", m.id, index, a.Topics[i].TopicID)
				return
			}
			now[m.r.parts[shared][index]] = true
		}
	}
	if lost, got := m.own(now); lost || got {
		m.said = false
	}
}

// own ends what the member does not own any more, and begins what it did not own before.
func (m *member) own(now map[part]bool) (lost, got bool) {
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	for p := range m.owned {
		if !now[p] {
			delete(m.owned, p)
			lost = true
		}
	}
	for p := range now {
		if m.owned[p] == nil {
			m.r.clock++
			m.owned[p] = &owning{number: m.r.clock}
			got = true
		}
	}
	return lost, got
}

// lose ends all that the member owns.
func (m *member) lose() {
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	clear(m.owned)
}

// begin finds out where the group stands.
func (m *member) begin(ctx context.Context, p part, o *owning) bool {
	floor, _ := m.r.standing(p)
	id, memberEpoch := m.as.asks()
	at, err := m.c.groupOffset(ctx, p, id, memberEpoch)
	if err != nil {
		m.as.refused("asking for an offset", err)
		return false
	}
	m.r.wasTold(p, at, floor)
	m.r.mu.Lock()
	o.known, o.position, o.committed = true, at, at
	m.r.mu.Unlock()
	return true
}

// commit says how far the member is. An answer that it is not accepted has no effect, as a later look shows.
func (m *member) commit(ctx context.Context, p part, o *owning) bool {
	req := commitOf(p, o.position)
	m.as.signs(req)
	_, before := m.r.standing(p)
	newest := m.r.newestGeneration()
	err := m.c.commit(ctx, req)
	m.r.wasCommitted(p, o.position, o.number, before, err)
	if err != nil {
		m.as.refused("a commit", err)
		return false
	}
	if req.Generation < newest {
		m.r.w.failf("S24: a commit to %s of generation %d was accepted, though %d had been told", p, req.Generation, newest)
	}
	m.r.mu.Lock()
	o.committed = o.position
	m.r.mu.Unlock()
	return true
}

// commitOf is a commit of one offset, by nobody yet.
func commitOf(p part, o record.Offset) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = groupName
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = p.topic
	tp := kmsg.NewOffsetCommitRequestTopicPartition()
	tp.Partition, tp.Offset = p.id.Index, int64(o)
	t.Partitions = append(t.Partitions, tp)
	req.Topics = append(req.Topics, t)
	return req
}

func (c *rawClient) commit(ctx context.Context, req *kmsg.OffsetCommitRequest) error {
	kresp, err := c.askCoordinator(ctx, 9, req)
	if err != nil {
		return err
	}
	return codeError(kresp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

func (m *consumerMember) leave(ctx context.Context) {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = groupName, m.id, -1, -1
	_, _ = m.c.askCoordinator(ctx, 1, req) // if nobody hears it, its session ends
}

// askCoordinator sends a request to whoever looks after the group.
func (c *rawClient) askCoordinator(ctx context.Context, version int16, req kmsg.Request) (kmsg.Response, error) {
	if c.coordinator == 0 {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKey = groupName
		kresp, err := c.any(ctx, 3, find)
		if err != nil {
			return nil, err
		}
		resp := kresp.(*kmsg.FindCoordinatorResponse)
		if err := codeError(resp.ErrorCode); err != nil {
			c.turn++
			return nil, err
		}
		c.coordinator = record.NodeID(resp.NodeID)
	}
	resp, err := c.ask(ctx, c.coordinator, version, req)
	if err != nil {
		c.coordinator = 0
	}
	return resp, err
}

// groupOffset asks for the group's offset in a partition; 0 where it has none.
func (c *rawClient) groupOffset(ctx context.Context, p part, id string, memberEpoch int32) (record.Offset, error) {
	all, err := c.groupOffsets(ctx, []part{p}, id, memberEpoch)
	return all[p], err
}

// groupOffsets asks for those in several partitions of one topic.
func (c *rawClient) groupOffsets(ctx context.Context, ps []part, id string, memberEpoch int32) (map[part]record.Offset, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = groupName, memberEpoch
	if id != "" {
		g.MemberID = &id
	}
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic = ps[0].topic
	for _, p := range ps {
		t.Partitions = append(t.Partitions, p.id.Index)
	}
	g.Topics = append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	all := map[part]record.Offset{}
	kresp, err := c.askCoordinator(ctx, 9, req)
	if err == nil {
		got := kresp.(*kmsg.OffsetFetchResponse).Groups[0]
		err = codeError(got.ErrorCode)
		for i := 0; i < len(ps) && err == nil; i++ {
			at := got.Topics[0].Partitions[i]
			err, all[ps[i]] = codeError(at.ErrorCode), max(0, record.Offset(at.Offset))
		}
	}
	if err != nil {
		c.coordinator = 0
		if id == "" && notCoordinator(err) {
			err = errElsewhere // whoever is no member asks again, also where nobody looks after it at the moment
		}
		return nil, err
	}
	return all, nil
}

var errElsewhere = errors.New("another node looks after the group, or none")
