// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/integration/harness"
)

// poseLasts is how long members are waited for at most: a pose lasts while the others are brought into theirs.
const poseLasts = patience

// byHand is a member of a classic group that does only what the test tells it to, and assigns by range when it leads.
type byHand struct {
	t          *testing.T
	c          *kgo.Client
	group      string
	topic      string
	topicID    [16]byte
	partitions int
	id         string
	generation int32
	mine       []int32
}

// ask sends a request to whoever coordinates the group, until there is somebody who answers it.
func (m *byHand) ask(req kmsg.Request, codeOf func(kmsg.Response) int16) (kmsg.Response, error) {
	m.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		id, err := coordinatorOf(m.t, m.c, m.group)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience/2)
		resp, err := m.c.Broker(int(id)).Request(ctx, req)
		cancel()
		if err != nil {
			continue // the node has died
		}
		switch err := kerr.ErrorForCode(codeOf(resp)); err {
		case kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress:
		default:
			return resp, err
		}
	}
	m.t.Fatalf("group %s: waited %s for an answer to %s", m.group, patience, kmsg.NameForKey(req.Key()))
	return nil, nil
}

func coordinatorOf(t testing.TB, c *kgo.Client, group string) (int32, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{group}
	resp, err := req.RequestWith(within(t, 5*time.Second), c)
	if err != nil {
		return 0, err
	}
	return resp.Coordinators[0].NodeID, kerr.ErrorForCode(resp.Coordinators[0].ErrorCode)
}

// join makes it a member, or of the next generation. The answer comes when everybody has joined; it is given to whoever leads.
func (m *byHand) join() (*kmsg.JoinGroupResponse, error) {
	m.t.Helper()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = m.group, m.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(poseLasts.Milliseconds()), int32(poseLasts.Milliseconds())
	told := kmsg.NewConsumerMemberMetadata()
	told.Topics = []string{m.topic}
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", told.AppendTo(nil)
	req.Protocols = append(req.Protocols, p)
	kresp, err := m.ask(req, func(r kmsg.Response) int16 { return r.(*kmsg.JoinGroupResponse).ErrorCode })
	resp := kresp.(*kmsg.JoinGroupResponse)
	if err != nil {
		return resp, err
	}
	if resp.Generation <= m.generation {
		m.t.Errorf("group %s: generation %d was followed by %d", m.group, m.generation, resp.Generation)
	}
	m.id, m.generation, m.mine = resp.MemberID, resp.Generation, nil
	return resp, nil
}

// enter is the way of a new member: it gets its id first.
func (m *byHand) enter() *kmsg.JoinGroupResponse {
	m.t.Helper()
	m.id = m.newID()
	resp, err := m.join()
	if err != nil {
		m.t.Fatalf("group %s: %v", m.group, err)
	}
	return resp
}

func (m *byHand) newID() string {
	m.t.Helper()
	m.id = ""
	resp, err := m.join()
	if err != kerr.MemberIDRequired || resp.MemberID == "" {
		m.t.Fatalf("group %s: the first join of a new member is answered %v, %+v", m.group, err, resp)
	}
	return resp.MemberID
}

// sync asks for its share, and says, if it leads, who gets what.
func (m *byHand) sync(joined *kmsg.JoinGroupResponse) error {
	m.t.Helper()
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.Generation, req.MemberID = m.group, m.generation, m.id
	req.ProtocolType, req.Protocol = joined.ProtocolType, joined.Protocol
	for i := range joined.Members {
		a := kmsg.NewConsumerMemberAssignment()
		share := kmsg.ConsumerMemberAssignmentTopic{Topic: m.topic}
		for p := i; p < m.partitions; p += len(joined.Members) {
			share.Partitions = append(share.Partitions, int32(p))
		}
		a.Topics = append(a.Topics, share)
		one := kmsg.NewSyncGroupRequestGroupAssignment()
		one.MemberID, one.MemberAssignment = joined.Members[i].MemberID, a.AppendTo(nil)
		req.GroupAssignment = append(req.GroupAssignment, one)
	}
	kresp, err := m.ask(req, func(r kmsg.Response) int16 { return r.(*kmsg.SyncGroupResponse).ErrorCode })
	if err != nil {
		return err
	}
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(kresp.(*kmsg.SyncGroupResponse).MemberAssignment); err != nil {
		m.t.Fatalf("group %s: assignment: %v", m.group, err)
	}
	m.mine = nil
	for _, topic := range a.Topics {
		m.mine = append(m.mine, topic.Partitions...)
	}
	return nil
}

func (m *byHand) heartbeat() error {
	m.t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = m.group, m.generation, m.id
	_, err := m.ask(req, func(r kmsg.Response) int16 { return r.(*kmsg.HeartbeatResponse).ErrorCode })
	return err
}

// goOn is a heartbeat, and joining again where it says so. true: it is in a generation that is complete.
func (m *byHand) goOn() bool {
	m.t.Helper()
	err := m.heartbeat()
	if err == kerr.RebalanceInProgress {
		joined, err := m.join()
		if err != nil {
			m.t.Fatalf("group %s: joining again: %v", m.group, err)
		}
		return m.sync(joined) == nil
	}
	if err != nil {
		m.t.Fatalf("group %s: a heartbeat: %v", m.group, err)
	}
	return true
}

// commit says that everything below the offset was read, in its partitions.
func (m *byHand) commit(generation int32, at int64) error {
	m.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID = m.group, generation, m.id
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = m.topic, m.topicID
	for _, p := range m.mine {
		one := kmsg.NewOffsetCommitRequestTopicPartition()
		one.Partition, one.Offset = p, at
		topic.Partitions = append(topic.Partitions, one)
	}
	req.Topics = append(req.Topics, topic)
	_, err := m.ask(req, func(r kmsg.Response) int16 { return r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode })
	return err
}

// offsets are the group's, by partition; 0 where it has none. They are asked for by hand as well: a client goes on to ask a coordinator that has died.
func (m *byHand) offsets() []int64 {
	m.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = m.group, -1
	req.Groups = append(req.Groups, g)
	kresp, err := m.ask(req, func(r kmsg.Response) int16 { return r.(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode })
	if err != nil {
		m.t.Fatalf("group %s: its offsets: %v", m.group, err)
	}
	at := make([]int64, m.partitions)
	for _, topic := range kresp.(*kmsg.OffsetFetchResponse).Groups[0].Topics {
		for _, p := range topic.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				m.t.Errorf("group %s: the offset of partition %d: %v", m.group, p.Partition, err)
			}
			at[p.Partition] = p.Offset
		}
	}
	return at
}

func (m *byHand) holds() []int32 { return m.mine }

func (m *byHand) leave() {
	m.t.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = m.group
	who := kmsg.NewLeaveGroupRequestMember()
	who.MemberID = m.id
	req.Members = append(req.Members, who)
	if _, err := m.ask(req, func(r kmsg.Response) int16 { return r.(*kmsg.LeaveGroupResponse).ErrorCode }); err != nil {
		m.t.Errorf("group %s: leaving: %v", m.group, err)
	}
}

// posed is a group that is kept in one state: a member by hand leads it, a franz-go consumer is in it or on its way.
type posed struct {
	name    string      // of its pose and its topic
	state   string      // as the group is described in it
	c       *kgo.Client // for everything that is no member
	hand    *byHand
	real    *member
	joined  *kmsg.JoinGroupResponse // what the member by hand was answered; in completing it has still to sync
	pending *byHand                 // has an id, and no more
	told    []int64                 // by partition: below this everything was committed, and the answer said so
	seeds   []string
}

const (
	posedPartitions = 6
	posedRecords    = 300 // in each half
)

func (g *posed) isIn(state string) bool {
	d, err := kadm.NewClient(g.c).DescribeGroups(within(g.hand.t, patience), g.hand.group)
	return err == nil && d[g.hand.group].Err == nil && d[g.hand.group].State == state
}

func (g *posed) startReal() *member {
	return startMember(g.hand.t, g.seeds[0], g.hand.topic, g.hand.group, kgo.SeedBrokers(g.seeds...), kgo.Balancers(kgo.RangeBalancer()),
		kgo.HeartbeatInterval(200*time.Millisecond), kgo.SessionTimeout(6*time.Second), kgo.RebalanceTimeout(poseLasts))
}

// pose brings the group into its state.
func (g *posed) pose() {
	t, h := g.hand.t, g.hand
	t.Helper()
	if err := h.sync(h.enter()); err != nil || len(h.mine) != posedPartitions {
		t.Fatalf("group %s: alone it has %v: %v", h.group, h.mine, err)
	}
	g.commit(10)
	g.real = g.startReal()
	eventually(t, h.group+" to rebalance", func() bool { return g.isIn("PreparingRebalance") })
	if g.name == "preparing" {
		return
	}
	var err error
	if g.joined, err = h.join(); err != nil || len(g.joined.Members) != 2 {
		t.Fatalf("group %s: %+v, %v", h.group, g.joined, err)
	}
	if g.name == "completing" {
		return
	}
	if err := h.sync(g.joined); err != nil {
		t.Fatalf("group %s: %v", h.group, err)
	}
	eventually(t, h.group+" to share", func() bool { return sharing(posedPartitions, h, g.real) })
	g.commit(20)
	if g.name == "pending" {
		p := *h
		g.pending = &p
		g.pending.id, g.pending.generation = g.pending.newID(), 0
	}
}

// commit has the member by hand commit.
func (g *posed) commit(at int64) {
	g.hand.t.Helper()
	if err := g.hand.commit(g.hand.generation, at); err != nil {
		g.hand.t.Fatalf("group %s: committing %d: %v", g.hand.group, at, err)
	}
	for _, p := range g.hand.mine {
		g.told[p] = at
	}
}

// committed are the group's offsets, none of which may be below what was accepted.
func (g *posed) committed() []int64 {
	t := g.hand.t
	t.Helper()
	at := g.hand.offsets()
	for p := range at {
		if at[p] < g.told[p] {
			t.Errorf("group %s stands at %d of partition %d, %d was accepted", g.hand.group, at[p], p, g.told[p])
		}
		g.told[p] = max(g.told[p], at[p])
	}
	return at
}

// afterKill goes on with what was under way when the coordinator died.
func (g *posed) afterKill() {
	t, h := g.hand.t, g.hand
	t.Helper()
	generation := h.generation
	switch g.name {
	case "preparing":
		joined, err := h.join()
		if err != nil {
			t.Fatalf("group %s: joining: %v", h.group, err)
		}
		_ = h.sync(joined) // the next rebalance may have begun: goOn joins again
	case "completing":
		// The new coordinator does not know who was told what: everybody joins again.
		if err := h.sync(g.joined); err != kerr.RebalanceInProgress {
			t.Errorf("group %s: what the leader says after its coordinator died is answered %v", h.group, err)
		}
	case "stable":
		g.knows(generation)
		g.commit(21)
	case "pending":
		if _, err := g.pending.join(); err != kerr.UnknownMemberID {
			t.Errorf("group %s: a join with an id of the coordinator before is answered %v", h.group, err)
		}
		g.knows(generation)
	}
	g.committed()
	eventually(t, h.group+" to share again", func() bool { return h.goOn() && sharing(posedPartitions, h, g.real) })
	g.committed()
	if h.generation > generation {
		if err := h.commit(generation, 0); err != kerr.IllegalGeneration {
			t.Errorf("group %s is in generation %d, a commit of %d is answered %v", h.group, h.generation, generation, err)
		}
	}
	g.committed()
	g.commit(22)
	h.leave()
	if err := h.commit(h.generation, 0); err != kerr.UnknownMemberID && err != kerr.IllegalGeneration {
		t.Errorf("group %s: a commit of a member that left is answered %v", h.group, err)
	}
}

// knows checks that the new coordinator goes on with a generation. Others may have begun the next one: franz-go joins again after its coordinator
// has died, with other metadata than before.
func (g *posed) knows(generation int32) {
	g.hand.t.Helper()
	if err := g.hand.heartbeat(); err != nil && err != kerr.RebalanceInProgress {
		g.hand.t.Errorf("group %s: a heartbeat of generation %d is answered %v", g.hand.group, generation, err)
	}
}

// ends has real consumers alone share the topic, and come to its end: everything was read, by them or, below what it had committed, by the member by hand.
func (g *posed) ends() {
	t, h := g.hand.t, g.hand
	t.Helper()
	read := slices.Clone(g.told) // what only the member by hand has read is below
	other := g.startReal()
	eventually(t, h.group+" to be shared by two consumers", func() bool { return sharing(posedPartitions, g.real, other) })
	fill(t, g.c, h.topic, posedPartitions, posedRecords)
	const end = 2 * posedRecords / posedPartitions
	eventually(t, h.group+" to be at the end", func() bool {
		return !slices.ContainsFunc(g.committed(), func(at int64) bool { return at != end })
	})
	for p := range read {
		for o := read[p]; o < end; o++ {
			if !g.real.hasRead(int32(p), o) && !other.hasRead(int32(p), o) {
				t.Errorf("group %s: nobody has read record %d of partition %d", h.group, o, p)
			}
		}
	}
	g.real.LeaveGroup() // while there is a coordinator
	other.LeaveGroup()
}

// TestCoordinatorKilled kills the coordinator of four classic groups at once, each in another state: one is being gathered, one waits for what its leader says,
// one is stable, and one has a member that got its id and has not joined yet. Each goes on at another node, with every partition of one
// member, no offset lost and none of an earlier generation accepted.
func TestCoordinatorKilled(t *testing.T) {
	t.Parallel() // nearly all of it is waiting
	nodes := threeNodes(t, harness.StartEtcd(t), harness.TempDir(t, "bucket"), "--set", "group.initial.rebalance.delay.ms=0")
	var seeds []string
	for _, n := range nodes {
		seeds = append(seeds, n.Bootstrap())
	}
	open := func() *kgo.Client {
		return client(t, "", kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	c := open()
	groups := []*posed{
		{name: "preparing", state: "PreparingRebalance"},
		{name: "completing", state: "CompletingRebalance"},
		{name: "stable", state: "Stable"},
		{name: "pending", state: "Stable"},
	}
	for _, g := range groups {
		replicated(t, c, g.name, posedPartitions, nil)
		fill(t, c, g.name, posedPartitions, posedRecords)
		topics, err := kadm.NewClient(c).ListTopics(within(t, patience), g.name)
		if err != nil {
			t.Fatal(err)
		}
		group := coordinatedBy(t, c, g.name, int32(nodes[0].Config.ID))
		g.c, g.seeds, g.told = c, seeds, make([]int64, posedPartitions)
		g.hand = &byHand{t: t, c: open(), topic: g.name, topicID: topics[g.name].ID, partitions: posedPartitions, group: group}
		g.pose()
	}
	for _, g := range groups {
		if !g.isIn(g.state) {
			t.Fatalf("group %s is not %s any more", g.hand.group, g.state)
		}
	}
	killed := time.Now()
	nodes[0].Kill()
	for _, g := range groups {
		g.afterKill()
		t.Logf("%s: goes on %s after the kill, in generation %d", g.name, time.Since(killed).Round(time.Millisecond), g.hand.generation)
	}
	nodes[0].Start()
	for _, g := range groups {
		g.ends()
		t.Logf("%s: is read to its end %s after the kill", g.name, time.Since(killed).Round(time.Millisecond))
	}
}

// coordinatedBy finds a name for a group that a node coordinates.
func coordinatedBy(t *testing.T, c *kgo.Client, name string, node int32) (group string) {
	t.Helper()
	for i := range 1000 {
		group = name + strconv.Itoa(i)
		var at int32
		eventually(t, "a coordinator of "+group, func() bool {
			var err error
			at, err = coordinatorOf(t, c, group)
			return err == nil
		})
		if at == node {
			return group
		}
	}
	t.Fatalf("node %d coordinates none of 1000 groups", node)
	return ""
}
