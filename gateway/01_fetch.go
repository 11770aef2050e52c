// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/record"
)

// Versions of Fetch that change what is on the wire or what a code means.
const (
	fetchLogStart  = 5
	fetchStorage   = 6
	fetchSessions  = 7
	fetchZstd      = 10
	fetchPreferred = 11
	fetchTopicIDs  = 13
	fetchLeaders   = 16
)

// decodeFetch reads the request's body. Topic names stay in the frame, which lives until the answer is written; a set that keeps
// one clones it.
func decodeFetch(c *call, body []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: decoder failed: %v", errMalformed, p)
		}
	}()
	req := &kmsg.FetchRequest{Version: c.Version}
	if err := req.UnsafeReadFrom(body); err != nil {
		return fmt.Errorf("%w: %v", errMalformed, err)
	}
	c.fetch = req
	return nil
}

// finishFetch reads what there is, waits for more if that is not enough, and answers. It runs in the writer: one fetch of a
// connection holds memory at a time.
func finishFetch(s *Server, ctx context.Context, c *call, a *answer) error {
	req := c.fetch
	replica, code := s.replicaOf(c)
	var lease *fetchLease
	if code == codeNone {
		lease, code = s.sessions.resolve(s, a.c, req, replica != nil)
	}
	if code != codeNone {
		a.failed = true
		encodeFetchError(a, c, code)
		return nil
	}
	defer lease.release()
	f := newFetchRun(s, c, a, lease)
	defer f.end()
	if f.replica = replica; replica != nil {
		s.broker.Heard(replica)
		f.acknowledge()
	}
	if replica == nil {
		f.boundByQuota()
	}
	if err := f.run(ctx); err != nil {
		return err
	}
	if replica == nil && s.quotas.chargeFetch(c, f.bytes) {
		f.answerThrottled()
		return nil
	}
	f.answer()
	return nil
}

// replicaOf tells whether another node fetches, as a follower: only on the listener for that, and only with the registration that is
// in force. nil: a consumer.
func (s *Server) replicaOf(c *call) (*broker.Replica, Code) {
	r, ok := broker.ReplicaOf(c.fetch)
	if !ok {
		return nil, codeNone
	}
	if s.cfg.InterBroker == "" || c.Listener != s.cfg.InterBroker {
		return nil, codeClusterAuthorizationFailed
	}
	if b := s.meta.Image().Broker(r.Node); b == nil || b.Incarnation != r.Incarnation {
		return nil, codeStaleBrokerEpoch
	}
	return &r, codeNone
}

// acknowledge takes what a follower says of the partitions it names before anything is read: an answer that is full must not hold
// back acknowledgements.
func (f *fetchRun) acknowledge() {
	f.img = f.s.meta.Image()
	for _, fp := range f.set.named {
		if fp.removed || fp.resolve(f.s, f.img, f.c.Version) != codeNone {
			continue
		}
		f.read = broker.ReadRequest{Offset: fp.offset, CurrentEpoch: fp.current, LastFetchedEpoch: fp.lastEpoch, Replica: f.replica, Unable: fp.unable, Assigned: fp.assigned}
		fp.p.Acknowledge(&f.read)
	}
}

// fetchLimits are a request's bounds, with Kafka's corrections.
type fetchLimits struct {
	minBytes, maxBytes int
	deadline           time.Time
	wait               bool
	readCommitted      bool
}

func (s *Server) limitsOf(c *call) fetchLimits {
	req := c.fetch
	l := fetchLimits{
		maxBytes:      min(max(int(req.MaxBytes), 0), s.broker.Config().FetchMaxBytes),
		readCommitted: req.IsolationLevel == 1,
		wait:          req.MaxWaitMillis > 0,
		deadline:      c.arrived.Add(time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond),
	}
	l.minBytes = min(max(int(req.MinBytes), 0), l.maxBytes)
	return l
}

// fetchCode is code as this version of the request knows it.
func fetchCode(code Code, version int16) Code {
	if code == codeKafkaStorageError && version < fetchStorage {
		return codeNotLeaderOrFollower
	}
	return code
}

// encodeFetchError writes an answer that is only an error of the session.
func encodeFetchError(a *answer, c *call, code Code) {
	e := encoder{b: a.head.b, compact: c.flexible()}
	e.i32(0)
	if c.Version >= fetchSessions {
		e.i16(code.int16())
		e.i32(0)
	}
	e.array(0)
	e.noTags()
	a.head.b = e.b
}

// answer decides which partitions the answer names and writes it.
func (f *fetchRun) answer() {
	list := f.order
	if !f.full {
		list = f.touched[:0]
		for _, fp := range f.touched {
			if fp.news() {
				list = append(list, fp)
			}
		}
	}
	id := f.lease.commit(f)
	f.a.grow(len(f.a.head.b) + fetchHeadBytes + len(list)*fetchPartBytes)
	e := encoder{b: f.a.head.b, compact: f.c.flexible()}
	e.i32(throttleMillis(f.c.throttle))
	if f.c.Version >= fetchSessions {
		e.i16(codeNone.int16())
		e.i32(id)
	}
	f.encodeTopics(&e, list)
	f.a.head.b = e.b
}

// boundByQuota keeps an answer within what the client's quota leaves.
func (f *fetchRun) boundByQuota() {
	if room := f.s.quotas.fetchBound(f.c, f.limits.maxBytes); room < f.limits.maxBytes {
		f.limits.maxBytes, f.left = room, room
		f.limits.minBytes = min(f.limits.minBytes, max(room, 1))
	}
}

// answerThrottled sends the client away with nothing, to come again after its delay. What was read stays news: a partition leaves the
// queue only when a read at the client's offset finds nothing. A session that was asked for is not made.
func (f *fetchRun) answerThrottled() {
	e := encoder{b: f.a.head.b, compact: f.c.flexible()}
	e.i32(throttleMillis(f.c.throttle))
	if f.c.Version >= fetchSessions {
		e.i16(codeNone.int16())
		id := int32(0)
		if f.lease.session != nil {
			id = f.lease.session.id
		}
		e.i32(id)
	}
	e.array(0)
	e.noTags()
	f.a.head.b = e.b
}

// encodeTopics writes the partitions in their order; a topic begins anew where the order says so, as in Kafka.
func (f *fetchRun) encodeTopics(e *encoder, list []*fetchPart) {
	var named leaders
	groups := 0
	for i, fp := range list {
		if i == 0 || fp.key.topic != list[i-1].key.topic {
			groups++
		}
	}
	e.array(groups)
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && list[j].key.topic == list[i].key.topic {
			j++
		}
		if f.c.Version >= fetchTopicIDs {
			e.uuid(list[i].key.topic.id)
		} else {
			e.str(list[i].key.topic.name)
		}
		e.array(j - i)
		for _, fp := range list[i:j] {
			f.encodePart(e, fp, &named)
		}
		e.noTags()
		i = j
	}
	e.endpoints(named.list)
}

func (f *fetchRun) encodePart(e *encoder, fp *fetchPart, named *leaders) {
	r := &fp.res
	if fp.turn != f.set.turn {
		*r = nothingRead // never read: no default offsets (G6)
		r.code = codeKafkaStorageError
	}
	code := fetchCode(r.code, f.c.Version)
	fp.remember()
	if fp.ref != nil && f.replica == nil {
		fp.ref.metrics.fetched(code, r.size, r.cold)
	}
	if f.replica != nil {
		f.s.metrics.copiedOut.Add(float64(r.size))
	}
	e.i32(fp.key.index)
	e.i16(code.int16())
	e.i64(int64(r.HighWatermark))
	e.i64(int64(r.LastStable))
	if f.c.Version >= fetchLogStart {
		e.i64(int64(r.LogStart))
	}
	f.encodeAborted(e, r)
	if f.c.Version >= fetchPreferred {
		e.i32(int32(r.preferred))
	}
	e.size(r.size)
	if r.size > 0 {
		f.a.head.b = e.b
		for i := r.chunks.from; i < r.chunks.to; i++ {
			f.a.chunk(&f.chunks[i])
		}
		if r.chunks.to == 0 {
			f.a.records(r.run)
		}
		for _, more := range r.more {
			f.a.records(more)
		}
	}
	if code != codeNone {
		f.a.failed = true
	}
	f.encodePartTags(e, fp, code, named)
}

// encodeAborted writes null for read_uncommitted, and a list, be it empty, for read_committed.
func (f *fetchRun) encodeAborted(e *encoder, r *fetchResult) {
	if !f.limits.readCommitted {
		e.nullArray()
		return
	}
	e.array(len(r.Aborted))
	for _, t := range r.Aborted {
		e.i64(t.ProducerID)
		e.i64(int64(t.FirstOffset))
		e.noTags()
	}
}

func (f *fetchRun) encodePartTags(e *encoder, fp *fetchPart, code Code, named *leaders) {
	if !e.compact {
		return
	}
	r := &fp.res
	diverging := r.code == codeNone && r.Diverging.Epoch != record.NoEpoch
	leader, epoch := record.NoNode, record.NoEpoch
	if f.c.Version >= fetchLeaders && fp.ref != nil && (code == codeNotLeaderOrFollower || code == codeFencedLeaderEpoch) {
		if st, ok := f.img.Partition(fp.id()); ok && st.Leader.Rev != 0 {
			leader, epoch = st.Leader.Node, st.Leader.Epoch
			named.add(f.img, leader, f.c.Listener)
		}
	}
	n := uint32(0)
	if diverging {
		n++
	}
	if leader != record.NoNode {
		n++
	}
	e.uvarint(n)
	if diverging {
		e.uvarint(0)
		e.uvarint(4 + 8 + 1)
		e.i32(int32(r.Diverging.Epoch))
		e.i64(int64(r.Diverging.End))
		e.noTags()
	}
	if leader != record.NoNode {
		e.leaderTag(1, int32(leader), int32(epoch))
	}
}
