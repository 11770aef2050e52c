// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/binary"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// fetchSet is what a fetch session, or a connection without one, is subscribed to. A partition with news puts itself once into
// the ready queue, so that a fetch costs what there is news of, not what it is subscribed to. One request uses a set at a time;
// only the ready queue is shared, with the broker's notifications.
type fetchSet struct {
	parts map[fetchKey]*fetchPart
	turn  uint64        // counts requests
	name  string        // the topic name cloned last: the partitions of a topic share it
	wake  chan struct{} // one token: something became ready

	replica bool         // of a follower
	named   []*fetchPart // by the follower's request in progress

	mu struct {
		sync.Mutex
		ready  fetchQueue
		closed bool
	}
}

type fetchKey struct {
	topic topicKey
	index int32
}

// fetchPart is one subscribed partition.
type fetchPart struct {
	set *fetchSet
	key fetchKey
	ref *topicRef         // nil while the topic is unknown
	p   *broker.Partition // nil while not led here
	// cancel ends the subscription at p.
	cancel func()

	// What the client asked for.
	offset              record.Offset
	maxBytes            int
	current, lastEpoch  record.Epoch
	seen                uint64 // the last full request that named it
	toldHW, toldStart   record.Offset
	toldBefore, removed bool
	unable              bool              // a follower that cannot append: it is not read for
	assigned            metadata.Revision // of the topic that a follower knows its assignment by

	// queued, next and prev are guarded by set.mu.
	queued     bool
	next, prev *fetchPart

	turn uint64 // the request that res is of
	res  fetchResult
}

// fetchQueue is a list of parts linked through them.
type fetchQueue struct {
	head, tail *fetchPart
	n          int
}

func newFetchSet() *fetchSet {
	return &fetchSet{parts: make(map[fetchKey]*fetchPart), wake: make(chan struct{}, 1)}
}

// PartitionChanged implements broker.Listener: there is news of the partition.
func (fp *fetchPart) PartitionChanged(*broker.Partition) {
	s := fp.set
	s.mu.Lock()
	s.pushLocked(fp, false)
	s.mu.Unlock()
	// Also when it was in the queue: a request that has read some of it waits for more.
	s.signal()
}

func (s *fetchSet) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pushLocked puts a part into the ready queue unless it is there.
func (s *fetchSet) pushLocked(fp *fetchPart, front bool) {
	if fp.queued || fp.removed || s.mu.closed {
		return
	}
	fp.queued = true
	q := &s.mu.ready
	q.n++
	switch {
	case q.head == nil:
		q.head, q.tail = fp, fp
	case front:
		fp.next, q.head.prev, q.head = q.head, fp, fp
	default:
		fp.prev, q.tail.next, q.tail = q.tail, fp, fp
	}
}

func (s *fetchSet) unlinkLocked(fp *fetchPart) {
	if !fp.queued {
		return
	}
	q := &s.mu.ready
	if fp.prev == nil {
		q.head = fp.next
	} else {
		fp.prev.next = fp.next
	}
	if fp.next == nil {
		q.tail = fp.prev
	} else {
		fp.next.prev = fp.prev
	}
	fp.prev, fp.next, fp.queued = nil, nil, false
	q.n--
}

// pop takes the first ready part.
func (s *fetchSet) pop() *fetchPart {
	s.mu.Lock()
	defer s.mu.Unlock()
	fp := s.mu.ready.head
	if fp != nil {
		s.unlinkLocked(fp)
	}
	return fp
}

func (s *fetchSet) readyLen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ready.n
}

// requeue puts back what is not done with: first those that got nothing for lack of room, in their order before all others, so
// that their turn comes; then those that were served, behind all others.
func (s *fetchSet) requeue(limited, served []*fetchPart) {
	if len(limited)+len(served) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(limited) - 1; i >= 0; i-- {
		s.unlinkLocked(limited[i])
		s.pushLocked(limited[i], true)
	}
	for _, fp := range served {
		s.pushLocked(fp, false)
	}
}

// put adds or updates one partition as the client asks for it. The part is to be read next.
func (s *fetchSet) put(key fetchKey, p *kmsg.FetchRequestTopicPartition) *fetchPart {
	fp := s.parts[key]
	if fp == nil {
		if key.topic.name != s.name {
			s.name = strings.Clone(key.topic.name) // it was in the frame
		}
		key.topic.name = s.name
		fp = &fetchPart{set: s, key: key}
		s.parts[key] = fp
	}
	if s.replica {
		s.named = append(s.named, fp)
		fp.unable, fp.assigned = false, 0
		p.UnknownTags.Each(func(tag uint32, value []byte) {
			switch {
			case tag == broker.UnableTag:
				fp.unable = true
			case tag == broker.AssignedTag && len(value) == 8:
				fp.assigned = metadata.Revision(binary.BigEndian.Uint64(value))
			}
		})
	}
	fp.offset = record.Offset(p.FetchOffset)
	fp.maxBytes = max(int(p.PartitionMaxBytes), 0)
	fp.current, fp.lastEpoch = record.Epoch(p.CurrentLeaderEpoch), record.Epoch(p.LastFetchedEpoch)
	return fp
}

// toBack puts a part that was served behind all others, wherever it stands.
func (s *fetchSet) toBack(fp *fetchPart) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlinkLocked(fp)
	s.pushLocked(fp, false)
}

// replace makes the set hold exactly what a full request names and returns it in the request's order.
func (s *fetchSet) replace(req *kmsg.FetchRequest) []*fetchPart {
	s.turn++
	s.named = s.named[:0]
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	order := make([]*fetchPart, 0, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			fp := s.put(fetchKey{topicKey{t.Topic, t.TopicID}, p.Partition}, p)
			fp.toldBefore = false
			if fp.seen != s.turn {
				fp.seen = s.turn
				order = append(order, fp)
			}
		}
	}
	if len(s.parts) > len(order) {
		for _, fp := range s.parts {
			if fp.seen != s.turn {
				s.remove(fp)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fp := range order {
		s.unlinkLocked(fp)
		s.pushLocked(fp, false)
	}
	return order
}

// update applies an incremental request: parts it names are ready, parts it forgets are gone.
func (s *fetchSet) update(req *kmsg.FetchRequest) {
	s.turn++
	s.named = s.named[:0]
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, index := range t.Partitions {
			if fp := s.parts[fetchKey{topicKey{t.Topic, t.TopicID}, index}]; fp != nil {
				s.remove(fp)
			}
		}
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			fp := s.put(fetchKey{topicKey{t.Topic, t.TopicID}, p.Partition}, p)
			s.mu.Lock()
			s.pushLocked(fp, false)
			s.mu.Unlock()
		}
	}
}

func (s *fetchSet) remove(fp *fetchPart) {
	delete(s.parts, fp.key)
	s.mu.Lock()
	s.unlinkLocked(fp)
	fp.removed = true
	s.mu.Unlock()
	fp.drop()
}

// stop ends the wait of the request that uses the set, and whatever becomes ready from now on is not noted.
func (s *fetchSet) stop() {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.signal()
}

// close ends every subscription. No request uses the set.
func (s *fetchSet) close() {
	s.stop()
	for _, fp := range s.parts {
		fp.drop()
	}
}

func (s *fetchSet) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.closed
}

// drop ends the part's subscription; the next read looks the partition up again.
func (fp *fetchPart) drop() {
	if fp.cancel != nil {
		fp.cancel()
	}
	fp.p, fp.cancel = nil, nil
}

// resolve finds the partition if it is not known. Subscribing comes before reading, so that no news falls between.
func (fp *fetchPart) resolve(s *Server, img *metadata.Image, version int16) Code {
	if fp.p != nil {
		return codeNone
	}
	unknown := codeUnknownTopicOrPartition
	if version >= fetchTopicIDs {
		unknown, fp.ref = codeUnknownTopicID, s.topicWithID(img, fp.key.topic.id)
	} else {
		fp.ref = s.topicNamed(img, fp.key.topic.name)
	}
	if fp.ref == nil {
		return unknown
	}
	p, code := s.readable(img, fp.ref, fp.key.index, version >= fetchPreferred && !fp.set.replica)
	if code != codeNone {
		return code
	}
	fp.p, fp.cancel = p, p.Subscribe(fp, fp.set.replica)
	return codeNone
}

func (fp *fetchPart) id() record.PartitionID {
	return record.PartitionID{Topic: fp.ref.topic.ID, Index: fp.key.index}
}

// news tells whether an incremental answer has to name the part.
func (fp *fetchPart) news() bool {
	r := &fp.res
	return r.size > 0 || r.code != codeNone || r.Diverging.Epoch != record.NoEpoch || r.preferred != record.NoNode ||
		!fp.toldBefore || r.HighWatermark != fp.toldHW || r.LogStart != fp.toldStart
}

// remember notes what the client is being told. One that has to truncate first drops the rest of that answer (A7).
func (fp *fetchPart) remember() {
	fp.toldBefore = fp.res.code == codeNone && fp.res.Diverging.Epoch == record.NoEpoch
	fp.toldHW, fp.toldStart = fp.res.HighWatermark, fp.res.LogStart
}
