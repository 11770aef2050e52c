// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// Versions of Produce that change what is on the wire or what a code means.
const (
	produceZstd         = 7
	produceRecordErrors = 8
	produceLogStart     = 5
	produceLeaders      = 10
	produceAbortable    = 11
	produceAdds         = 12
	produceTopicIDs     = 13
)

// produceCall is a produce request from its decoding to its answer. It is pooled: with 64 partitions in a request nothing is
// allocated per partition here.
type produceCall struct {
	acks    int16
	timeout int32
	txn     bool   // a transactional id is given
	txnID   string // in the frame
	flex    bool
	topics  []produceTopic
	parts   []producePart // of all topics, in order
	pends   []broker.Pending
	wait    broker.Wait
	waiting bool
	rules   record.Rules
	seen    map[produceKey]int32
	names   map[topicKey]int32
}

// topicKey is how a request names a topic: by name or by id.
type topicKey struct {
	name string
	id   record.TopicID
}

type produceTopic struct {
	name        string // in the frame; "" from version 13 on
	id          record.TopicID
	ref         *topicRef
	first, n    int32 // its partitions
	answers     int32 // how many of them are answered
	unavailable Code
}

type producePart struct {
	index      int32
	topic      int32
	pend       int32 // in pends; -1: not appended
	code       Code
	superseded bool // the same partition stands further behind: that one counts
	records    []byte
	p          *broker.Partition
	batch      record.Batch
	guard      *broker.TxnGuard  // of a batch that begins a transaction
	verified   metadata.Revision // when that was under way
	rejection  *record.Rejection
}

type produceKey struct {
	topic int32 // index of the first topic entry with that name or id
	index int32
}

var producePool = sync.Pool{New: func() any { return &produceCall{seen: make(map[produceKey]int32), names: make(map[topicKey]int32)} }}

// maxRecycledParts is the largest request whose slices and maps are kept for the next one.
const maxRecycledParts = 4096

// recycle returns the call to its pool. Only when every append is decided: until then the broker links its pendings.
func (pc *produceCall) recycle() {
	if len(pc.parts) > maxRecycledParts || len(pc.topics) > maxRecycledParts {
		return
	}
	clear(pc.topics)
	clear(pc.parts)
	clear(pc.pends)
	clear(pc.seen)
	clear(pc.names)
	*pc = produceCall{topics: pc.topics[:0], parts: pc.parts[:0], pends: pc.pends[:0], seen: pc.seen, names: pc.names}
	producePool.Put(pc)
}

// decodeProduce reads the request's body. Names and records stay in the frame.
func decodeProduce(c *call, body []byte) error {
	pc := producePool.Get().(*produceCall)
	c.produce = pc
	pc.flex = c.flexible()
	r := reader{b: body}
	id, null := r.bytes(pc.flex, false)
	pc.txn, pc.txnID = !null, unsafe.String(unsafe.SliceData(id), len(id))
	pc.acks = r.i16()
	pc.timeout = r.i32()
	least := 6 // an empty name and no partitions, plain
	switch {
	case c.Version >= produceTopicIDs:
		least = 18
	case pc.flex:
		least = 3
	}
	for range r.arrayLen(pc.flex, least) {
		pc.decodeTopic(&r, c.Version)
		if r.bad {
			break
		}
	}
	if pc.flex {
		r.skipTags()
	}
	if r.bad {
		return fmt.Errorf("%w: body ends early", errMalformed)
	}
	if len(pc.parts) > maxRequestPartitions {
		return fmt.Errorf("%w: %d partitions", errMalformed, len(pc.parts))
	}
	return nil
}

func (pc *produceCall) decodeTopic(r *reader, version int16) {
	t := produceTopic{first: int32(len(pc.parts))}
	if version >= produceTopicIDs {
		t.id = r.uuid()
	} else {
		name, _ := r.bytes(pc.flex, false)
		t.name = unsafe.String(unsafe.SliceData(name), len(name))
	}
	least := 8
	if pc.flex {
		least = 6
	}
	n := r.arrayLen(pc.flex, least)
	for range n {
		part := producePart{index: r.i32(), topic: int32(len(pc.topics)), pend: -1}
		part.records, _ = r.bytes(pc.flex, true)
		if pc.flex {
			r.skipTags()
		}
		if r.bad {
			return
		}
		pc.parts = append(pc.parts, part)
	}
	if pc.flex {
		r.skipTags()
	}
	t.n = int32(n)
	pc.topics = append(pc.topics, t)
}

// startProduce validates and appends what the request carries. It runs in the reader, so that pipelined batches of a producer
// are queued in order. It waits for nothing but a leadership that this node is about to have, and the coordinator of a transaction that
// begins.
func startProduce(s *Server, ctx context.Context, c *call) {
	pc := c.produce
	img := s.meta.Image()
	pc.dropSuperseded()
	if code := pc.refuseAll(); code != codeNone {
		pc.failAll(code)
		return
	}
	for i := range pc.parts {
		if part := &pc.parts[i]; !part.superseded {
			part.code = s.checkPart(img, c, part)
		}
	}
	if pc.refusedRoles() {
		s.awaitProduceRoles(ctx, c)
	}
	if pc.txn {
		s.verifyTxns(ctx, c)
	}
	appends := 0
	for i := range pc.parts {
		if part := &pc.parts[i]; !part.superseded && part.code == codeNone {
			part.pend = int32(appends)
			appends++
		}
	}
	if appends == 0 {
		return
	}
	if cap(pc.pends) < appends {
		pc.pends = make([]broker.Pending, appends)
	}
	pc.pends = pc.pends[:appends]
	pc.wait.Init(appends)
	pc.waiting = true
	for i := range pc.parts {
		if part := &pc.parts[i]; part.pend >= 0 {
			o := broker.AppendOptions{Acks: pc.acks, Guard: part.guard, Revision: part.verified}
			part.p.Append(part.batch, o, &pc.wait, &pc.pends[part.pend])
		}
	}
}

// refusedRoles tells whether a partition was refused for a reason that may be over in a moment.
func (pc *produceCall) refusedRoles() bool {
	for i := range pc.parts {
		if part := &pc.parts[i]; part.refusedRole() {
			return true
		}
	}
	return false
}

func (part *producePart) refusedRole() bool {
	switch part.code {
	case codeNotLeaderOrFollower, codeUnknownTopicOrPartition, codeUnknownTopicID:
		return !part.superseded
	}
	return false
}

// awaitProduceRoles waits for leaderships that this node is about to have, and checks again what was refused for want of them. The
// connection is not read meanwhile, so what the client sends next stays behind.
func (s *Server) awaitProduceRoles(ctx context.Context, c *call) {
	pc := c.produce
	began := c.clock()
	by := c.arrived.Add(min(roleWait, time.Duration(max(pc.timeout, 0))*time.Millisecond))
	img := s.awaitRoles(ctx, by, func(l *roleLook) {
		for i := range pc.parts {
			part := &pc.parts[i]
			if !part.refusedRole() {
				continue
			}
			t := &pc.topics[part.topic]
			topic := l.img.Topic(t.name)
			if c.Version >= produceTopicIDs {
				topic = l.img.TopicByID(t.id)
			}
			l.see(topic, part.index, anyLeader)
		}
	})
	for i := range pc.parts {
		part := &pc.parts[i]
		if !part.refusedRole() {
			continue
		}
		if t := &pc.topics[part.topic]; t.ref == nil {
			t.unavailable = codeNone // look it up again
		} else {
			t.ref = s.ref(img.TopicByID(t.ref.topic.ID))
		}
		part.code = s.checkPart(img, c, part)
	}
	c.busy -= c.since(began)
}

// dropSuperseded marks all but the last entry of a partition that stands in the request more than once.
func (pc *produceCall) dropSuperseded() {
	if len(pc.parts) == 1 {
		pc.topics[pc.parts[0].topic].answers = 1
		return
	}
	for i := range pc.topics {
		t := &pc.topics[i]
		same := pc.sameTopic(i)
		for j := t.first; j < t.first+t.n; j++ {
			key := produceKey{topic: same, index: pc.parts[j].index}
			if before, ok := pc.seen[key]; ok {
				pc.parts[before].superseded = true
				pc.topics[pc.parts[before].topic].answers--
			}
			pc.seen[key] = j
			t.answers++
		}
	}
}

// fewTopics is up to how many topics of a request are compared one by one.
const fewTopics = 8

// sameTopic is the first entry that names the same topic as entry i: i itself but for clients that name one twice.
func (pc *produceCall) sameTopic(i int) int32 {
	t := &pc.topics[i]
	if len(pc.topics) <= fewTopics {
		for j := range i {
			if o := &pc.topics[j]; o.id == t.id && o.name == t.name {
				return int32(j)
			}
		}
		return int32(i)
	}
	key := topicKey{name: t.name, id: t.id}
	if first, ok := pc.names[key]; ok {
		return first
	}
	pc.names[key] = int32(i)
	return int32(i)
}

// refuseAll gives the code that refuses the whole request before any partition is looked at.
func (pc *produceCall) refuseAll() Code {
	if pc.acks < -1 || pc.acks > 1 {
		return codeInvalidRequiredAcks
	}
	producer, transactional := record.NoProducerID, false
	for i := range pc.parts {
		b := record.Batch(pc.parts[i].records)
		if len(b) < record.HeaderSize || b.Magic() != 2 || !b.IsTransactional() {
			continue
		}
		if transactional && b.ProducerID() != producer {
			return codeInvalidProducerIDMapping
		}
		producer, transactional = b.ProducerID(), true
	}
	if transactional && !pc.txn {
		return codeTransactionalIDAuthorization
	}
	return codeNone
}

func (pc *produceCall) failAll(code Code) {
	for i := range pc.parts {
		pc.parts[i].code = code
	}
}

// topicOf resolves the topic of an entry once per request.
func (s *Server) topicOf(img *metadata.Image, c *call, t *produceTopic) (*topicRef, Code) {
	if t.ref != nil || t.unavailable != codeNone {
		return t.ref, t.unavailable
	}
	if c.Version >= produceTopicIDs {
		t.ref, t.unavailable = s.topicWithID(img, t.id), codeUnknownTopicID
	} else {
		t.ref, t.unavailable = s.topicNamed(img, t.name), codeUnknownTopicOrPartition
	}
	if t.ref != nil {
		t.unavailable = codeNone
		if t.ref.internal && c.ClientID != adminClientID {
			t.unavailable = codeInvalidTopic
		}
	}
	return t.ref, t.unavailable
}

// adminClientID is the client id that Kafka lets write to internal topics.
const adminClientID = "__admin_client"

// checkPart finds the partition of an entry and validates its batch, in Kafka's order of checks. CodeNone: it is to be appended.
func (s *Server) checkPart(img *metadata.Image, c *call, part *producePart) Code {
	pc := c.produce
	ref, code := s.topicOf(img, c, &pc.topics[part.topic])
	if code != codeNone {
		return code
	}
	if len(part.records) == 0 {
		part.rejection = noRecords
		return codeInvalidRecord
	}
	if part.p, code = s.partition(img, ref, part.index); code != codeNone {
		return code
	}
	pc.rules = ref.rules
	pc.rules.Now = c.arrived.UnixMilli()
	pc.rules.AllowZstd = c.Version >= produceZstd
	batch, rej := record.Validate(part.records, &pc.rules)
	switch {
	case rej != nil:
		part.rejection = rej
		if rej.Reason == record.InvalidRecord && ref.config.CleanupCompact && len(rej.Records) > 0 {
			ref.metrics.noKey.Inc()
		}
		return rejections[rej.Reason]
	case ref.config.SegmentBytes >= leastSegmentBytes && int64(len(batch)) > ref.config.SegmentBytes:
		return codeRecordListTooLarge
	}
	part.batch = batch
	return codeNone
}

var noRecords = &record.Rejection{Reason: record.InvalidRecord, Message: "the record set is empty"}

// finishProduce waits for what startProduce queued and answers.
func finishProduce(s *Server, ctx context.Context, c *call, a *answer) error {
	pc := c.produce
	if err := s.awaitProduce(ctx, c, a.c); err != nil {
		return err
	}
	failed := s.settleProduce(c)
	a.failed = failed
	s.quotas.chargeProduce(c)
	if pc.acks == 0 {
		a.none = true
		pc.recycle()
		if failed {
			return errRefused
		}
		return nil
	}
	e := encoder{b: a.head.b, compact: pc.flex}
	s.encodeProduce(&e, c)
	a.head.b = e.b
	pc.recycle()
	return nil
}

// awaitProduce returns once every append is decided: by the broker, or by the request's own timeout.
func (s *Server) awaitProduce(ctx context.Context, c *call, cn *conn) error {
	pc := c.produce
	if !pc.waiting {
		return nil
	}
	select {
	case <-pc.wait.C():
		return nil
	default:
	}
	defer c.waiting(c.clock())
	t := cn.alarm(time.Until(c.arrived.Add(time.Duration(max(pc.timeout, 0)) * time.Millisecond)))
	defer t.Stop()
	select {
	case <-pc.wait.C():
		return nil
	case <-t.C:
	case <-ctx.Done():
		c.keepFrame = true // the hot log may still read it
		return ctx.Err()
	}
	for i := range pc.parts {
		if part := &pc.parts[i]; part.pend >= 0 {
			part.p.Expire(&pc.pends[part.pend])
		}
	}
	<-pc.wait.C()
	return nil
}

// settleProduce turns outcomes into codes and counts them.
func (s *Server) settleProduce(c *call) (failed bool) {
	pc := c.produce
	// With acks=0 an append is decided when it is queued: the hot log reads the frame later.
	c.keepFrame = pc.acks == 0 && pc.waiting
	for i := range pc.parts {
		part := &pc.parts[i]
		if part.superseded {
			continue
		}
		if part.pend >= 0 {
			if err := pc.pends[part.pend].Err; err != nil {
				if part.code = produceCode(err, c.Version); part.code == codeUnknownServerError {
					s.complain("produce failed", "partition", part.p.ID(), "error", err)
				}
				c.keepFrame = true // refused or given up: queued or not, nobody tells
			}
		}
		ref := pc.topics[part.topic].ref
		if part.code != codeNone {
			failed = true
			if ref != nil {
				ref.metrics.refused(part.code, len(part.records))
			}
			continue
		}
		ref.metrics.appended(int(part.batch.RecordCount()), len(part.batch))
	}
	return failed
}

func produceCode(err error, version int16) Code {
	if errors.Is(err, broker.ErrTxnNotAdded) && version >= produceAbortable {
		return codeTransactionAbortable
	}
	return codeOf(err)
}

// encodeProduce writes the answer by hand: it is one of the two that carry the data path.
func (s *Server) encodeProduce(e *encoder, c *call) {
	pc := c.produce
	var named leaders
	n := 0
	for i := range pc.topics {
		if pc.topics[i].answers > 0 {
			n++
		}
	}
	e.array(n)
	for i := range pc.topics {
		t := &pc.topics[i]
		if t.answers == 0 {
			continue
		}
		if c.Version >= produceTopicIDs {
			e.uuid(t.id)
		} else {
			e.str(t.name)
		}
		e.array(int(t.answers))
		for j := t.first; j < t.first+t.n; j++ {
			if !pc.parts[j].superseded {
				s.encodeProducePart(e, c, &pc.parts[j], &named)
			}
		}
		e.noTags()
	}
	e.i32(throttleMillis(c.throttle))
	e.endpoints(named.list)
}

func (s *Server) encodeProducePart(e *encoder, c *call, part *producePart, named *leaders) {
	base, appendTime, logStart := int64(record.NoOffset), int64(-1), int64(record.NoOffset)
	if part.code == codeNone {
		pend := &c.produce.pends[part.pend]
		base, appendTime, logStart = int64(pend.Base), pend.LogAppendTime, int64(pend.LogStart)
	}
	e.i32(part.index)
	e.i16(part.code.int16())
	e.i64(base)
	e.i64(appendTime)
	if c.Version >= produceLogStart {
		e.i64(logStart)
	}
	if c.Version >= produceRecordErrors {
		encodeRejection(e, part.rejection)
	}
	if !e.compact {
		return
	}
	if c.Version >= produceLeaders && part.code == codeNotLeaderOrFollower {
		if t := c.produce.topics[part.topic].ref; t != nil {
			img := s.meta.Image()
			if st, ok := img.Partition(record.PartitionID{Topic: t.topic.ID, Index: part.index}); ok && st.Leader.Rev != 0 {
				e.uvarint(1)
				e.leaderTag(0, int32(st.Leader.Node), int32(st.Leader.Epoch))
				named.add(img, st.Leader.Node, c.Listener)
				return
			}
		}
	}
	e.noTags()
}

func encodeRejection(e *encoder, rej *record.Rejection) {
	if rej == nil {
		e.array(0)
		e.nullable("")
		return
	}
	e.array(len(rej.Records))
	for _, r := range rej.Records {
		e.i32(r.Index)
		e.nullable(r.Message)
		e.noTags()
	}
	e.nullable(rej.Message)
}
