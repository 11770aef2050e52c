// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"iter"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/consumer"
	"github.com/varve/varve/gateway/group/stored"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// What groups are called by their protocol.
const (
	classicType  = "classic"
	consumerType = "consumer"
)

// A groupEntry's group is of either protocol: c, when it is set, else g. These speak for both.

func (e *groupEntry) empty() bool {
	if e.c != nil {
		return e.c.Empty()
	}
	return e.g.State() == group.Empty
}

// unused tells that there is nothing to keep of the group but offsets.
func (e *groupEntry) unused() bool {
	if e.c != nil {
		return e.empty()
	}
	return e.g.Unused()
}

func (e *groupEntry) dirty() bool {
	if e.c != nil {
		return e.c.Dirty()
	}
	return e.g.Dirty()
}

func (e *groupEntry) encode() []byte {
	if e.c != nil {
		return e.c.Encode()
	}
	return e.g.Encode()
}

// notStored says that what encode gave last could not be stored.
func (e *groupEntry) notStored() {
	if e.c != nil {
		e.c.Unsaved()
	} else {
		e.g.Unsaved()
	}
}

func (e *groupEntry) next() time.Time {
	if e.c != nil {
		return e.c.Next()
	}
	return e.g.Next()
}

func (e *groupEntry) protocolType() string {
	if e.c != nil {
		return consumerProtocol
	}
	return e.g.ProtocolType()
}

func (e *groupEntry) kind() string {
	if e.c != nil {
		return consumerType
	}
	return classicType
}

func (e *groupEntry) state() string {
	if e.c != nil {
		return e.c.State().String()
	}
	return e.g.State().String()
}

// decode takes a stored group of either protocol up.
func (sh *shard) decode(e *groupEntry, value []byte, now time.Time) (err error) {
	format, _, err := stored.Open(value)
	if err == nil && format == stored.Consumer {
		e.c, err = consumer.Decode(value, now, sh.consumerEnv(e.id).Config)
	} else if err == nil {
		e.g, err = group.Decode(value, now)
	}
	if err != nil {
		return fmt.Errorf("group %q: %w", e.id, err)
	}
	return nil
}

// imageTopics shows an image's topics to the consumer groups.
type imageTopics struct{ img *metadata.Image }

// Version is consumer.Topics'. It does not move with what happens all the time: each step walks what all members read.
func (t imageTopics) Version() int64 { return int64(t.img.TopicsRevision) }

// Topic is consumer.Topics'.
func (t imageTopics) Topic(name string) (consumer.Topic, bool) {
	found := t.img.Topic(name)
	if found == nil || found.Deleting {
		return consumer.Topic{}, false
	}
	return consumer.Topic{Name: name, ID: found.ID, Partitions: int32(len(found.Partitions))}, true
}

// Name is consumer.Topics'.
func (t imageTopics) Name(id record.TopicID) (string, bool) {
	found := t.img.TopicByID(id)
	if found == nil || found.Deleting {
		return "", false
	}
	return found.Name, true
}

// All is consumer.Topics'.
func (t imageTopics) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for found := range t.img.Topics() {
			if !found.Deleting && !yield(found.Name) {
				return
			}
		}
	}
}

// consumerEnv is what a consumer group needs to know now.
func (sh *shard) consumerEnv(id string) *consumer.Env {
	img, b := sh.c.s.meta.Image(), sh.c.config()
	c := b.ConsumerGroup(img.Config(metadata.ConfigGroup, id))
	return &consumer.Env{Topics: imageTopics{img}, Config: consumer.Config{
		Session: c.Session, Interval: c.Interval, AssignmentInterval: c.AssignmentInterval, RegexRefresh: c.RegexRefresh,
		MaxSize: c.MaxSize, Assignors: c.Assignors, Upgrade: c.Upgrade, Downgrade: c.Downgrade, ClassicMaxSize: b.GroupMaxSize,
	}}
}

// consumerStepped follows every step of a consumer group: done is called when what the group has become is stored, or cannot be.
func (sh *shard) consumerStepped(e *groupEntry, now time.Time, done func(error)) {
	if e.c != nil {
		sh.downgrade(e, now)
	}
	sh.after(e, done)
	if e.unsaved() {
		sh.moved(e)
		sh.enqueue(e)
	}
	sh.schedule(e)
	sh.forget(e)
}

// heartbeatConsumer takes a heartbeat of the consumer protocol. reply gets the answer once it may leave.
func (sh *shard) heartbeatConsumer(now time.Time, id string, r *consumer.Heartbeat, reply func(consumer.Answer, error)) {
	env := sh.consumerEnv(id)
	if err := r.Check(env.Config); err != nil {
		reply(consumer.Answer{}, err)
		return
	}
	e := sh.groups[id]
	c, err := consumerOf(e, now, r.Epoch, env)
	if err != nil {
		reply(consumer.Answer{}, err)
		return
	}
	answer, err := c.Heartbeat(now, r, env)
	if err != nil {
		reply(consumer.Answer{}, err)
		return
	}
	if e == nil {
		e = sh.entry(id, now)
	}
	if e.c == nil {
		sh.upgraded(e, c, now)
	}
	sh.consumerStepped(e, now, func(err error) { reply(answer, err) })
}

// becomesClassic makes an empty consumer group a classic one when its classic group has let somebody in. What is not stored of its end is
// the classic group's to store.
func (e *groupEntry) becomesClassic() {
	if e.c == nil || e.g.Unused() {
		return
	}
	if e.unsaved() {
		e.g.Unsaved()
	}
	e.c = nil
}

// consumerOf is the consumer group that a heartbeat goes to. One that does not exist is made for who joins; a classic one is not touched
// here: what is made of it takes its place when the heartbeat is let in.
func consumerOf(e *groupEntry, now time.Time, epoch int32, env *consumer.Env) (*consumer.Group, error) {
	joins := epoch == consumer.JoinEpoch
	switch {
	case e != nil && e.c != nil:
		return e.c, nil
	case (e == nil || e.empty()) && joins:
		return consumer.New(now), nil
	case !joins:
		return nil, group.ErrNotFound
	case !env.Config.Upgrade, e.g.ProtocolType() != consumerProtocol, len(e.g.Members()) > env.Config.MaxSize:
		return nil, fmt.Errorf("%w: the classic group cannot be upgraded", group.ErrNotFound)
	}
	former, err := formerMembers(e.g, env.Topics)
	if err != nil {
		return nil, err
	}
	return consumer.Upgrade(now, e.g.Generation(), former, env), nil
}

// upgraded puts a consumer group in the place of a classic one, whose members that wait are told to join again.
func (sh *shard) upgraded(e *groupEntry, c *consumer.Group, now time.Time) {
	if !e.empty() {
		sh.c.s.log.Info("group coordinator: a classic group is a consumer group now", "group", e.id, "members", len(e.g.Members()), "was", e.g.State())
	}
	e.g.Dissolve()
	sh.answer(e)
	e.g, e.c = group.New(now), c
}

// formerMembers reads what the members of a classic group have told of themselves and were assigned.
func formerMembers(g *group.Group, topics consumer.Topics) ([]consumer.Former, error) {
	var all []consumer.Former
	for _, m := range g.Members() {
		f := consumer.Former{Member: m}
		metadata := m.Protocols[0].Metadata
		for _, p := range m.Protocols {
			if p.Name == g.Protocol() {
				metadata = p.Metadata
			}
		}
		s, err := readSubscription(metadata, topics)
		if err != nil {
			return nil, fmt.Errorf("%w: member %q: %w", group.ErrNotFound, m.ID, err)
		}
		f.Topics, f.Rack, f.Owned, f.OwnedAt = s.topics, s.rack, s.owned, s.ownedAt
		if len(m.Assignment) > 0 {
			var a kmsg.ConsumerMemberAssignment
			if err := a.ReadFrom(m.Assignment); err != nil {
				return nil, fmt.Errorf("%w: member %q: its assignment: %w", group.ErrNotFound, m.ID, err)
			}
			if len(a.UserData) > 0 { // of an assignor of the clients' own, as Kafka Streams has one: it would be lost
				return nil, fmt.Errorf("%w: member %q has an assignor of its own", group.ErrNotFound, m.ID)
			}
			f.Assigned = consumer.Partitions{}
			for i := range a.Topics {
				addPartitions(f.Assigned, topics, a.Topics[i].Topic, a.Topics[i].Partitions)
			}
		}
		all = append(all, f)
	}
	return all, nil
}

// subscription is what a member of the classic protocol tells of itself.
type subscription struct {
	topics  []string
	owned   consumer.Partitions
	ownedAt int32 // generation, -1 if it does not say
	rack    *string
}

func readSubscription(b []byte, topics consumer.Topics) (subscription, error) {
	var m kmsg.ConsumerMemberMetadata
	if err := m.ReadFrom(b); err != nil {
		return subscription{}, err
	}
	s := subscription{topics: m.Topics, owned: consumer.Partitions{}, ownedAt: m.Generation, rack: m.Rack}
	for i := range m.OwnedPartitions {
		addPartitions(s.owned, topics, m.OwnedPartitions[i].Topic, m.OwnedPartitions[i].Partitions)
	}
	return s, nil
}

// addPartitions adds those that exist.
func addPartitions(to consumer.Partitions, topics consumer.Topics, name string, list []int32) {
	t, ok := topics.Topic(name)
	if !ok {
		return
	}
	for _, index := range list {
		if index >= 0 && index < t.Partitions {
			to.Add(t.ID, index)
		}
	}
}

// classicAssignment is an assignment as members of the classic protocol read it.
func classicAssignment(p consumer.Partitions, topics consumer.Topics, version int16) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	a.Version = version
	for id, list := range p {
		if name, ok := topics.Name(id); ok && len(list) > 0 {
			a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: name, Partitions: list})
		}
	}
	return a.AppendTo(nil)
}

// downgrade makes a classic group of a consumer group in which only members of the classic protocol are left. They join its next generation.
func (sh *shard) downgrade(e *groupEntry, now time.Time) {
	env := sh.consumerEnv(e.id)
	if !e.c.CanDowngrade(env.Config) {
		return
	}
	generation, leavers := e.c.Downgrade()
	members := make([]group.Member, 0, len(leavers))
	for _, l := range leavers {
		l.Assignment = classicAssignment(l.Has, env.Topics, 0)
		members = append(members, l.Member)
	}
	e.c, e.g = nil, group.Restore(now, generation, consumerProtocol, members, sh.groupConfig())
	sh.c.s.log.Info("group coordinator: a consumer group is a classic group now", "group", e.id, "members", len(members))
}
