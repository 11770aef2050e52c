// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// assignmentInterval is longer than what both brokers let pass between two assignments of a consumer group.
const assignmentInterval = 1100 * time.Millisecond

type beatRequest = kmsg.ConsumerGroupHeartbeatRequest

// speaker is a member of a consumer group in a script.
type speaker struct {
	s         *side
	group, id string
	epoch     int32
	has       []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic
}

// beat sends a heartbeat: one that joins when the epoch is 0, else one that says nothing new.
func (m *speaker) beat(name string, version int16, change ...func(*beatRequest)) {
	m.s.t.Helper()
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = m.group, m.id, m.epoch, -1
	if m.epoch == 0 {
		r.RebalanceTimeoutMillis, r.SubscribedTopicNames, r.Topics = longSession, []string{"cg"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	for _, f := range change {
		f(r)
	}
	resp, ok := m.s.ask("consumer group/"+name, version, r).(*kmsg.ConsumerGroupHeartbeatResponse)
	if !ok || resp.ErrorCode != 0 {
		return
	}
	m.epoch = resp.MemberEpoch
	if resp.MemberID != nil {
		m.id = *resp.MemberID
	}
	if resp.Assignment != nil {
		m.has = resp.Assignment.Topics
	}
}

// acknowledges says what the member has.
func (m *speaker) acknowledges(r *beatRequest) {
	r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, t := range m.has {
		r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
	}
}

func epoch(e int32) func(*beatRequest)      { return func(r *beatRequest) { r.MemberEpoch = e } }
func instance(id string) func(*beatRequest) { return func(r *beatRequest) { r.InstanceID = &id } }
func rack(id string) func(*beatRequest)     { return func(r *beatRequest) { r.RackID = &id } }
func regex(text string) func(*beatRequest) {
	return func(r *beatRequest) { r.SubscribedTopicRegex = &text }
}
func assignor(name string) func(*beatRequest) {
	return func(r *beatRequest) { r.ServerAssignor = &name }
}
func topics(names ...string) func(*beatRequest) {
	return func(r *beatRequest) { r.SubscribedTopicNames = names }
}

// awaitGroups waits until the groups have coordinators.
func (s *side) awaitGroups(groups ...string) {
	s.t.Helper()
	for _, g := range groups {
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKey = g
			fetch := kmsg.NewPtrOffsetFetchRequest()
			fetch.Group, fetch.Topics = g, nil
			if s.must(3, req).(*kmsg.FindCoordinatorResponse).ErrorCode == 0 && s.must(7, fetch).(*kmsg.OffsetFetchResponse).ErrorCode == 0 {
				break
			}
			if time.Now().After(deadline) {
				s.t.Fatalf("%s: nobody coordinates group %s", s.address, g)
			}
		}
	}
}

func consumerGroupsScript(s *side) {
	s.create("cg", 4)
	s.create("cg-2", 2)
	for v := int16(0); v <= 1; v++ {
		name := func(n string) string { return fmt.Sprintf("cg-%s-%d", n, v) }
		s.awaitGroups(name("main"), name("static"), name("regex"), name("up"), name("none"), name("empty"), name("range"), name("custom"))
		s.consumerRequests(v, name("none"))
		s.consumerLife(v, name("main"))
		s.consumerStatics(v, name("static"))
		s.consumerRegexes(v, name("regex"))
		s.consumerRanges(v, name("range"))
		s.consumerUpgrade(v, name("up"))
		s.consumerEmpty(v, name("empty"))
		s.consumerCustom(v, name("custom"))
	}
}

// consumerRequests are those that contradict themselves, or come to no group.
func (s *side) consumerRequests(v int16, group string) {
	who := func() *speaker { return &speaker{s: s, group: group, id: "m"} }
	who().beat("no group, epoch 1", v, epoch(1))
	who().beat("no group, leave", v, epoch(-1))
	who().beat("no group, leave for a while", v, epoch(-2), instance("i"))
	for _, c := range []struct {
		name   string
		change func(*beatRequest)
	}{
		{"no group id", func(r *beatRequest) { r.Group = "" }},
		{"no member id, epoch 1", func(r *beatRequest) { r.MemberID, r.MemberEpoch = "", 1 }},
		{"no member id, leave", func(r *beatRequest) { r.MemberID, r.MemberEpoch = "", -1 }},
		{"empty instance", instance("")},
		{"empty rack", rack("")},
		{"join without rebalance timeout", func(r *beatRequest) { r.RebalanceTimeoutMillis = -1 }},
		{"join without owned partitions", func(r *beatRequest) { r.Topics = nil }},
		{"join with owned partitions", func(r *beatRequest) {
			r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: s.topics["cg"], Partitions: []int32{0}}}
		}},
		{"join without subscription", func(r *beatRequest) { r.SubscribedTopicNames = nil }},
		{"leave for a while without instance", epoch(-2)},
		{"epoch -3", epoch(-3)},
		{"unknown assignor", assignor("mine")},
	} {
		who().beat(c.name, v, c.change)
	}
	s.describeConsumers("none", group)
	s.consumerFetches("no group", group, &speaker{id: "m", epoch: 1})
	s.consumerCommits("no group", group, &speaker{id: "m", epoch: 1})
	s.consumerFetches("only offsets", group, &speaker{id: "m", epoch: 1})
}

// consumerLife is two members' time together.
func (s *side) consumerLife(v int16, group string) {
	a, b := &speaker{s: s, group: group, id: "a"}, &speaker{s: s, group: group, id: "b"}
	a.beat("first join", v, rack("r"))
	a.beat("nothing new", v)
	a.beat("acknowledged", v, a.acknowledges)
	a.beat("full", v, a.acknowledges, topics("cg"), func(r *beatRequest) { r.RebalanceTimeoutMillis = longSession })
	a.beat("future epoch", v, epoch(7))
	s.describeConsumers("one member", group)
	time.Sleep(assignmentInterval)
	b.beat("second join", v)
	b.beat("second waits", v)
	a.beat("must give up", v)
	a.beat("does not say", v)
	s.describeConsumers("while it moves", group)
	s.consumerCommits("while it moves", group, a)
	a.beat("gave up", v, a.acknowledges)
	a.beat("the epoch before, no partitions", v, epoch(a.epoch-1))
	a.beat("the epoch before, its partitions", v, epoch(a.epoch-1), a.acknowledges)
	b.beat("gets its part", v)
	s.describeConsumers("two members", group)
	s.consumerCommits("two members", group, a)
	s.consumerFetches("two members", group, a)
	a.beat("join again", v, epoch(0), a.joins)
	(&speaker{s: s, group: group, id: "x", epoch: 1}).beat("no such member", v)
	(&speaker{s: s, group: group, id: "x"}).beat("no such member leaves", v, epoch(-1))
	time.Sleep(assignmentInterval)
	a.beat("another subscription", v, topics("cg-2"))
	a.beat("gave up the former", v, func(r *beatRequest) { r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{} })
	b.beat("gets the rest", v)
	a.beat("a topic that is not", v, topics("cg-2", "nowhere"))
	s.describeConsumers("different topics", group)
	b.beat("leave", v, epoch(-1))
	b.beat("left", v, epoch(1))
	a.beat("leave too", v, epoch(-1))
	s.describeConsumers("nobody", group)
}

// joins makes a heartbeat one that joins.
func (m *speaker) joins(r *beatRequest) {
	r.RebalanceTimeoutMillis, r.SubscribedTopicNames, r.Topics = longSession, []string{"cg"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
}

func (s *side) consumerStatics(v int16, group string) {
	a := &speaker{s: s, group: group, id: "a"}
	a.beat("static join", v, instance("A"))
	a.beat("static joins again", v, instance("A"), epoch(0), a.joins)
	(&speaker{s: s, group: group, id: "a2"}).beat("static, unreleased", v, instance("A"))
	(&speaker{s: s, group: group, id: "a2", epoch: 1}).beat("static, fenced", v, instance("A"))
	(&speaker{s: s, group: group, id: "a2", epoch: 1}).beat("static, unknown instance", v, instance("X"))
	a.beat("static leaves for a while", v, instance("A"), epoch(-2))
	s.describeConsumers("static is away", group)
	b := &speaker{s: s, group: group, id: "a2"}
	b.beat("static is back", v, instance("A"))
	s.describeConsumers("static is back", group)
	a.epoch = 1
	a.beat("static, former", v, instance("A"))
	a.beat("static, former leaves", v, instance("A"), epoch(-1))
	b.beat("static leaves", v, instance("A"), epoch(-1))
}

func (s *side) consumerRegexes(v int16, group string) {
	if v == 0 {
		return // it has none
	}
	a := &speaker{s: s, group: group, id: "a"}
	a.beat("bad regular expression", v, topics(), regex("cg("))
	a.beat("unclosed class", v, topics(), regex("[a"))
	a.beat("repetition too large", v, topics(), regex("a{1001}"))
	for i, text := range []string{"cg(-2)?", "g-2", "c.*2", "(?i)CG", "nothing.*"} {
		s.note("consumer group/regular expression "+text, v, field{"assigned", s.matched(fmt.Sprint(group, i), text)})
	}
}

// matched is what a member with a regular expression is assigned in the end. Kafka resolves it in the background, so the epochs on the way say nothing.
func (s *side) matched(group, text string) string {
	s.awaitGroups(group)
	m := &speaker{s: s, group: group, id: "a"}
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Group, r.MemberID = group, m.id
	m.joins(r)
	r.SubscribedTopicNames, r.SubscribedTopicRegex = nil, &text
	last := ""
	for start := time.Now(); time.Since(start) < 3*assignmentInterval; time.Sleep(assignmentInterval / 4) {
		resp := s.must(1, r).(*kmsg.ConsumerGroupHeartbeatResponse)
		if resp.ErrorCode != 0 {
			return fmt.Sprint("code ", resp.ErrorCode)
		}
		var names []string
		for _, t := range resp.Assignment.Topics {
			slices.Sort(t.Partitions)
			names = append(names, fmt.Sprint(s.ids[t.TopicID], t.Partitions))
		}
		slices.Sort(names)
		last = strings.Join(names, " ")
	}
	return last
}

func (s *side) consumerRanges(v int16, group string) {
	a, b := &speaker{s: s, group: group, id: "a"}, &speaker{s: s, group: group, id: "b"}
	b.beat("range, first", v, assignor("range"), topics("cg", "cg-2"))
	time.Sleep(assignmentInterval)
	a.beat("range, second", v, assignor("range"), topics("cg", "cg-2"))
	b.beat("range, gives up", v)
	s.describeConsumers("range", group)
	b.beat("range, gave up", v, b.acknowledges)
	a.beat("range, gets", v)
	s.describeConsumers("range", group)
}

// consumerCommits are commits with each kind of epoch.
func (s *side) consumerCommits(when, group string, m *speaker) {
	for v := int16(8); v <= 10; v++ {
		for _, c := range []struct {
			name, id  string
			epoch     int32
			partition int32
		}{
			{"its epoch", m.id, m.epoch, 0}, {"a later epoch", m.id, m.epoch + 1, 0}, {"an epoch before", m.id, m.epoch - 1, 0},
			{"an epoch before, not its partition", m.id, m.epoch - 1, 3}, {"no such member", "x", m.epoch, 0}, {"nobody", "", -1, 0},
		} {
			req := kmsg.NewPtrOffsetCommitRequest()
			req.Group, req.MemberID, req.Generation = group, c.id, c.epoch
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = "cg", s.topics["cg"]
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset = c.partition, 3
			t.Partitions = append(t.Partitions, p)
			req.Topics = append(req.Topics, t)
			s.ask(fmt.Sprintf("consumer group/commit, %s, %s", when, c.name), v, req)
		}
	}
}

func (s *side) consumerFetches(when, group string, m *speaker) {
	for v := int16(8); v <= 10; v++ {
		for _, c := range []struct {
			name  string
			id    *string
			epoch int32
		}{
			{"its epoch", &m.id, m.epoch}, {"a later epoch", &m.id, m.epoch + 1}, {"an epoch before", &m.id, m.epoch - 1},
			{"no such member", kmsg.StringPtr("x"), 1}, {"nobody", nil, -1}, {"an epoch alone", nil, m.epoch},
		} {
			req := kmsg.NewPtrOffsetFetchRequest()
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group, g.MemberID, g.MemberEpoch = group, c.id, c.epoch
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic, t.TopicID, t.Partitions = "cg", s.topics["cg"], []int32{0}
			g.Topics = append(g.Topics, t)
			req.Groups = append(req.Groups, g)
			s.ask(fmt.Sprintf("consumer group/fetch, %s, %s", when, c.name), v, req)
		}
	}
}

// describeConsumers has administration look at a group in every way there is.
func (s *side) describeConsumers(when, group string) {
	s.t.Helper()
	for v := int16(0); v <= 1; v++ {
		req := kmsg.NewPtrConsumerGroupDescribeRequest()
		req.Groups = []string{group}
		s.ask("consumer group/describe, "+when, v, req)
	}
	for v := int16(5); v <= 6; v++ {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{group}
		s.ask("consumer group/describe as classic, "+when, v, req)
	}
	list := kmsg.NewPtrListGroupsRequest()
	list.TypesFilter = []string{"consumer"}
	for _, g := range s.must(5, list).(*kmsg.ListGroupsResponse).Groups {
		if g.Group == group {
			s.note("consumer group/list, "+when, 5, field{"type", g.GroupType}, field{"state", g.GroupState}, field{"protocol", g.ProtocolType})
		}
	}
	s.note("consumer group/listed, "+when, 5)
}

// consumerUpgrade: a classic group that a member of the consumer protocol joins, and a classic member there.
func (s *side) consumerUpgrade(v int16, group string) {
	metadata := (&kmsg.ConsumerMemberMetadata{Topics: []string{"cg"}}).AppendTo(nil)
	join := func(name, id string, generationOf *int32) string {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Group, r.MemberID, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = group, id, longSession, longSession, "consumer"
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = "range", metadata
		r.Protocols = append(r.Protocols, p)
		resp, ok := s.ask("consumer group/classic join, "+name, 5, r).(*kmsg.JoinGroupResponse)
		if !ok {
			return ""
		}
		*generationOf = resp.Generation
		return resp.MemberID
	}
	sync := func(name, id string, generation int32, assignment []byte) {
		r := kmsg.NewPtrSyncGroupRequest()
		r.Group, r.MemberID, r.Generation = group, id, generation
		if assignment != nil {
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = id, assignment
			r.GroupAssignment = append(r.GroupAssignment, a)
		}
		s.ask("consumer group/classic sync, "+name, 3, r)
	}
	heartbeat := func(name, id string, generation int32) {
		r := kmsg.NewPtrHeartbeatRequest()
		r.Group, r.MemberID, r.Generation = group, id, generation
		s.ask("consumer group/classic heartbeat, "+name, 3, r)
	}
	var generation int32
	id := join("asked", "", &generation)
	id = join("first", id, &generation)
	sync("first", id, generation, (&kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "cg", Partitions: []int32{0, 1, 2, 3}}}}).AppendTo(nil))
	s.describeConsumers("classic", group)
	s.consumerFetches("classic", group, &speaker{id: id, epoch: generation})
	m := &speaker{s: s, group: group, id: "m"}
	m.beat("to a classic group, epoch 1", v, epoch(1))
	m.beat("to a classic group, leave", v, epoch(-1))
	m.beat("joins a classic group", v)
	heartbeat("must join", id, generation)
	sync("must join", id, generation, nil)
	id = join("in a consumer group", id, &generation)
	sync("in a consumer group", id, generation, nil)
	heartbeat("has joined", id, generation)
	heartbeat("of another generation", id, generation+5)
	heartbeat("no such member", "x", generation)
	heartbeat("of the other protocol", m.id, m.epoch)
	m.beat("gets what the classic one gave up", v)
	s.describeConsumers("both protocols", group)
	m.beat("the last of the protocol leaves", v, epoch(-1))
	s.describeConsumers("classic again", group)
	heartbeat("classic again", id, generation)
}

// consumerCustom: a classic group whose members have an assignor of their own.
func (s *side) consumerCustom(v int16, group string) {
	id, generation := "", int32(0)
	for range 2 {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Group, r.MemberID, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = group, id, longSession, longSession, "consumer"
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = "mine", (&kmsg.ConsumerMemberMetadata{Topics: []string{"cg"}, UserData: []byte("u")}).AppendTo(nil)
		r.Protocols = append(r.Protocols, p)
		resp := s.must(5, r).(*kmsg.JoinGroupResponse)
		id, generation = resp.MemberID, resp.Generation
	}
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.Generation = group, id, generation
	a := kmsg.NewSyncGroupRequestGroupAssignment()
	a.MemberID = id
	a.MemberAssignment = (&kmsg.ConsumerMemberAssignment{
		Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "cg", Partitions: []int32{0, 1, 2, 3}}}, UserData: []byte("u"),
	}).AppendTo(nil)
	r.GroupAssignment = append(r.GroupAssignment, a)
	s.must(3, r)
	(&speaker{s: s, group: group, id: "m"}).beat("joins a group with an assignor of its own", v)
}

// consumerEmpty: an empty group takes the kind of who joins; what administration may do with it.
func (s *side) consumerEmpty(v int16, group string) {
	a := &speaker{s: s, group: group, id: "a"}
	a.beat("joins", v)
	deletion := func(name string) {
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Groups = []string{group}
		s.ask("consumer group/delete, "+name, 2, r)
	}
	offsets := func(name, topic string) {
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = group
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = topic
		t.Partitions = []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}
		r.Topics = append(r.Topics, t)
		s.ask("consumer group/delete offsets, "+name, 0, r)
	}
	deletion("with a member")
	offsets("that are read", "cg")
	offsets("that are not read", "cg-2")
	a.beat("leaves", v, epoch(-1))
	(&speaker{s: s, group: group, id: "b"}).beat("joins as soon as it is empty", v)
	b := &speaker{s: s, group: group, id: "b"}
	b.beat("leaves as well", v, epoch(-1))
	offsets("of an empty group", "cg")
	deletion("when empty")
	deletion("when gone")
}
