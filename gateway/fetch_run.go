// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// fetchResult is what one request has read from one partition.
type fetchResult struct {
	broker.ReadResult // Data is not used: run and more are, or chunks if it has any
	code              Code
	preferred         record.NodeID // read there instead; NoNode: here
	run               []byte
	more              [][]byte // what came while the request waited for min bytes
	chunks            chunkRange
	size              int
	cold              bool // from the bucket
}

// chunkRange says which of the run's chunks were read from a partition.
type chunkRange struct{ from, to int }

// fetchRun is one fetch request being served.
type fetchRun struct {
	s       *Server
	c       *call
	a       *answer
	lease   *fetchLease
	set     *fetchSet
	img     *metadata.Image
	limits  fetchLimits
	replica *broker.Replica // of a follower's fetch
	full    bool
	order   []*fetchPart // of a full request: all of its partitions
	touched []*fetchPart // of an incremental one: those that were read
	bytes   int          // read so far
	lent    int          // those of them that stay in files of the hot log
	lends   bool         // runs may stay there
	chunks  []broker.Chunk
	left    int  // of max bytes
	must    bool // something that ends the wait
	slab    *buffer
	slabFor int64 // bytes of the fetch budget that the slab took
	cold    *coldReads
	read    broker.ReadRequest
	got     broker.ReadResult
	found   chunkRange // of got
	limited []*fetchPart
	served  []*fetchPart
	// unserved are parts that were refused since this node does not lead, until that was looked into: once per request.
	unserved []*fetchPart
	looked   bool
}

var fetchPool = sync.Pool{New: func() any { return new(fetchRun) }}

func newFetchRun(s *Server, c *call, a *answer, l *fetchLease) *fetchRun {
	f := fetchPool.Get().(*fetchRun)
	f.s, f.c, f.a, f.lease, f.set, f.limits = s, c, a, l, l.set, s.limitsOf(c)
	f.full, f.order, f.left = l.full, l.order, f.limits.maxBytes
	f.lends = a.c.sender != nil
	return f
}

// end gives back what the run held but the answer does not, and the run itself.
func (f *fetchRun) end() {
	if f.cold != nil {
		f.cold.end()
	}
	if f.slab != nil {
		f.dropSlab()
	}
	cn := f.a.c
	cn.fetchBytes = max(f.bytes-f.lent, cn.fetchBytes/2)
	clear(f.touched)
	clear(f.limited)
	clear(f.served)
	clear(f.unserved)
	clear(f.chunks)
	*f = fetchRun{touched: f.touched[:0], limited: f.limited[:0], served: f.served[:0], unserved: f.unserved[:0], chunks: f.chunks[:0]}
	fetchPool.Put(f)
}

// run reads until there is enough, or the wait is over.
func (f *fetchRun) run(ctx context.Context) error {
	var alarm *time.Timer
	for {
		f.img = f.s.meta.Image()
		f.pass()
		f.awaitRoles(ctx)
		f.startCold(ctx)
		wait, until := f.waiting()
		if !wait {
			f.refuseTroubled()
			return nil
		}
		f.lends = false // a parked fetch holds no file
		if f.lent > 0 && time.Until(until) > coldGrace {
			f.copyInstead()
			continue
		}
		if f.slab != nil && len(f.slab.b) == 0 {
			f.dropSlab() // a parked fetch holds no memory
		}
		if alarm = f.a.c.alarm(time.Until(until)); !f.sleep(ctx, alarm) {
			alarm.Stop()
			return ctx.Err()
		}
		alarm.Stop()
	}
}

// waiting tells whether to wait for more, and until when.
func (f *fetchRun) waiting() (bool, time.Time) {
	now := time.Now()
	enough := f.bytes >= f.limits.minBytes || f.must || len(f.set.parts) == 0
	if f.cold.inFlight() > 0 && !f.must {
		// Cold reads get a moment even when there is enough: what is in the cache comes at once, and a partition that lags
		// must not wait for the others to fall silent.
		until := f.limits.deadline
		if grace := f.cold.began.Add(coldGrace); enough || until.Before(grace) {
			until = grace
		}
		return now.Before(until), until
	}
	return !enough && f.limits.wait && now.Before(f.limits.deadline), f.limits.deadline
}

// sleep waits for news, a cold read or the alarm. False: the connection is gone.
func (f *fetchRun) sleep(ctx context.Context, alarm *time.Timer) bool {
	defer f.c.waiting(f.c.clock())
	var behind <-chan struct{}
	if f.replica != nil {
		behind = f.a.c.behind
	}
	select {
	case <-behind:
		// A follower that sends something more has more to ask for than what it waits for here. A token of this request itself is one too many.
		f.must = len(f.a.c.queue) > 0
	case <-f.set.wake:
		if f.set.isClosed() {
			f.must = true
		}
	case <-f.cold.signal():
		f.takeCold()
	case <-alarm.C:
		f.takeCold()
	case <-f.s.draining:
		f.must = true
	case <-ctx.Done():
		return false
	}
	return true
}

// pass reads what is ready, in the queue's order, as far as the limits allow.
func (f *fetchRun) pass() {
	for n := f.set.readyLen(); n > 0 && (f.full || f.left > 0 || f.bytes == 0); n-- {
		fp := f.set.pop()
		if fp == nil {
			break
		}
		f.readPart(fp)
	}
	f.requeue()
}

func (f *fetchRun) requeue() {
	f.set.requeue(f.limited, f.served)
	clear(f.limited)
	clear(f.served)
	f.limited, f.served = f.limited[:0], f.served[:0]
}

// readPart reads one partition. Served parts stay in the queue until a read at the client's offset finds nothing: a client that
// drops an answer asks again without naming the partition.
func (f *fetchRun) readPart(fp *fetchPart) {
	if fp.unable {
		return
	}
	if f.cold.reads(fp) {
		f.limited = append(f.limited, fp) // it comes by itself
		return
	}
	if fp.turn == f.set.turn && fp.res.cold && fp.res.code != codeNone {
		f.served = append(f.served, fp) // the bucket has failed it: to read it again in this request would hide that
		return
	}
	if fp.turn == f.set.turn && fp.res.size > 0 {
		if f.continuePart(fp) {
			return
		}
		f.discard(fp)
	}
	if fp.turn != f.set.turn && !f.full {
		f.touched = append(f.touched, fp)
	}
	fp.turn = f.set.turn
	fp.res = nothingRead
	if fp.res.code = fp.resolve(f.s, f.img, f.c.Version); fp.res.code != codeNone {
		if !f.looksInto(fp) {
			f.failed(fp)
		}
		return
	}
	if f.c.Version < fetchZstd && fp.ref.config.Compression == zstdTopic {
		fp.res.code = codeUnsupportedCompressionType
		f.failed(fp)
		return
	}
	f.read = broker.ReadRequest{
		Offset: fp.offset, MaxBytes: min(fp.maxBytes, max(f.left, 0)), FirstWhole: f.bytes == 0,
		ReadCommitted: f.limits.readCommitted, CurrentEpoch: fp.current, LastFetchedEpoch: fp.lastEpoch, Replica: f.replica,
		AnyReplica: f.c.Version >= fetchPreferred,
	}
	if f.prefersElsewhere(fp) {
		f.read.MaxBytes, f.read.FirstWhole = 0, false
	}
	f.readHot(fp)
}

var noRead = broker.ReadResult{
	HighWatermark: record.NoOffset, LastStable: record.NoOffset, LogStart: record.NoOffset, LeaderEpoch: record.NoEpoch,
	Diverging: broker.EpochEnd{Epoch: record.NoEpoch, End: record.NoOffset},
}

// prefersElsewhere tells whether the client should rather read from a follower in its rack (KIP-392), and notes which.
func (f *fetchRun) prefersElsewhere(fp *fetchPart) bool {
	rack := f.c.fetch.Rack
	if rack == "" || f.c.Version < fetchPreferred || f.replica != nil {
		return false
	}
	n, ok := fp.p.ReadReplica(rack, fp.offset)
	fp.res.preferred = n
	return ok
}

var nothingRead = fetchResult{ReadResult: noRead, preferred: record.NoNode}

func (f *fetchRun) readHot(fp *fetchPart) {
	if err := f.readInto(fp); err != nil {
		f.refuse(fp, err)
		return
	}
	fp.res.ReadResult = f.got
	data := f.got.Data
	fp.res.Data = nil
	fp.res.chunks = f.found
	if fp.res.preferred != record.NoNode && f.got.Diverging.Epoch == record.NoEpoch {
		fp.res.Cold, f.must = false, true
		f.served = append(f.served, fp)
		return
	}
	switch {
	case f.got.Diverging.Epoch != record.NoEpoch:
		f.must = true
		f.served = append(f.served, fp)
	case f.got.Cold:
		f.queueCold(fp)
	case f.got.Size > 0:
		f.took(fp, data, f.got.Size)
		f.served = append(f.served, fp)
	case !f.got.Bounded:
		f.limited = append(f.limited, fp)
	case f.replica != nil && (!fp.toldBefore || f.got.HighWatermark != fp.toldHW):
		f.must = true // followers serve reads, and the next leader starts from the high watermark that it knows
	}
}

// readInto calls the partition's Read with the slab's free end as its buffer. What it may read is reserved from the node's
// budget first, and given back as far as it was not needed (G4).
func (f *fetchRun) readInto(fp *fetchPart) error {
	buf := f.room(f.read.MaxBytes)
	f.read.Buf = buf
	// What does not fit into the slab waits for the next fetch: growing it would copy what was read. Only a first batch that
	// is larger than all limits moves to memory of its own.
	reserved := int64(0)
	f.read.MaxBytes = min(f.read.MaxBytes, cap(buf))
	f.found = chunkRange{}
	if f.lends && f.replica == nil {
		f.found.from = len(f.chunks)
		f.read.Chunks = &f.chunks
	}
	err := fp.p.Read(&f.read, &f.got)
	if f.read.Chunks != nil {
		f.found.to = len(f.chunks)
		f.borrow()
	}
	if data := f.got.Data; err == nil && len(data) > 0 {
		if unsafe.SliceData(data) == unsafe.SliceData(buf) {
			f.slab.b = f.slab.b[:len(f.slab.b)+len(data)]
		} else {
			// It did not fit and moved: the garbage collector owns it, the budget keeps its size.
			f.a.budget += int64(len(data))
			reserved -= int64(len(data))
		}
	}
	f.s.fetchMemory.release(reserved)
	f.read.Buf, f.read.Chunks = nil, nil
	return err
}

// borrow makes the answer hold the spans that a read brought, so that they go back whatever becomes of them. Without spans the chunks are not
// needed: the bytes lie one behind the other.
func (f *fetchRun) borrow() {
	before := f.lent
	for i := f.found.from; i < f.found.to; i++ {
		if s := &f.chunks[i].Span; s.Len() > 0 {
			f.a.spans = append(f.a.spans, *s)
			f.lent += s.Len()
		}
	}
	if f.lent == before {
		f.chunks, f.found = f.chunks[:f.found.from], chunkRange{}
	}
}

// copyInstead forgets what was left in files, to be read again by copying: a client may have the wait as long as it likes.
func (f *fetchRun) copyInstead() {
	list := f.order
	if !f.full {
		list = f.touched
	}
	for _, fp := range list {
		if fp.turn == f.set.turn && fp.res.chunks.to > 0 {
			f.discard(fp)
		}
	}
	f.a.returnSpans()
	f.lent = 0
	clear(f.chunks)
	f.chunks = f.chunks[:0]
}

// room returns an empty slice with capacity in the current slab, or in a fresh one when little is left of it.
func (f *fetchRun) room(maxBytes int) []byte {
	if maxBytes == 0 && f.bytes > 0 {
		return nil // asks for the offsets only
	}
	if f.slab != nil {
		if free := int(f.slabFor) - len(f.slab.b); free >= min(maxBytes, slabRoom) {
			return f.slab.b[len(f.slab.b):len(f.slab.b):f.slabFor]
		}
		f.dropSlab()
	}
	guess := min(max(f.a.c.fetchBytes-f.bytes, slabMin, min(maxBytes, slabRoom)), slabMax, max(f.limits.maxBytes, slabMin))
	f.slabFor = f.s.fetchMemory.take(int64(guess), slabMin)
	f.slab = getBuffer(int(f.slabFor))
	return f.slab.b[0:0:f.slabFor] // the pool's size may be above what the budget gave
}

// dropSlab lets go of the current slab: into the answer if it holds data, else back to the pool.
func (f *fetchRun) dropSlab() {
	if len(f.slab.b) > 0 {
		f.a.held = append(f.a.held, f.slab)
		f.a.budget += f.slabFor
	} else {
		f.slab.put()
		f.s.fetchMemory.release(f.slabFor)
	}
	f.slab, f.slabFor = nil, 0
}

func (f *fetchRun) took(fp *fetchPart, data []byte, size int) {
	fp.res.run, fp.res.size = data, size
	f.bytes += size
	f.left -= size
}

// discard forgets what was read from a part in this request.
func (f *fetchRun) discard(fp *fetchPart) {
	f.bytes -= fp.res.size
	f.left += fp.res.size
	fp.res = nothingRead
}

// continuePart reads on behind what this request has of the part already. False: the epoch changed or the read failed, so the
// part has to be read anew.
func (f *fetchRun) continuePart(fp *fetchPart) bool {
	r := &fp.res
	room := min(fp.maxBytes-r.size, f.left)
	if room <= 0 || r.cold || r.chunks.to > 0 || fp.p == nil {
		f.served = append(f.served, fp)
		return true
	}
	f.read = broker.ReadRequest{Offset: r.Next, MaxBytes: room, ReadCommitted: f.limits.readCommitted, CurrentEpoch: fp.current, LastFetchedEpoch: record.NoEpoch, Replica: f.replica,
		AnyReplica: f.c.Version >= fetchPreferred}
	if err := f.readInto(fp); err != nil || f.got.LeaderEpoch != r.LeaderEpoch {
		return false
	}
	r.HighWatermark, r.LastStable, r.LogStart = f.got.HighWatermark, f.got.LastStable, f.got.LogStart
	r.Aborted = joinAborted(r.Aborted, f.got.Aborted)
	if n := len(f.got.Data); n > 0 {
		r.more, r.Next = append(r.more, f.got.Data), f.got.Next
		r.size += n
		f.bytes += n
		f.left -= n
	}
	f.served = append(f.served, fp)
	return true
}

// joinAborted adds to list what of more is not in it. Both are sorted by first offset, and so is the result: transactions of
// the second read that began earlier are in the first one's list too.
func joinAborted(list, more []broker.AbortedTxn) []broker.AbortedTxn {
	known := len(list)
next:
	for _, t := range more {
		for _, k := range list[:known] {
			if k == t {
				continue next
			}
		}
		list = append(list, t)
	}
	return list
}

// refuse notes a failed read. A partition that is not led here any more is looked up again next time.
func (f *fetchRun) refuse(fp *fetchPart, err error) {
	// A client that is pointed elsewhere does not look at the code: it would never be told that its offset is gone.
	fp.res.ReadResult, fp.res.preferred = noRead, record.NoNode
	fp.res.code = codeOf(err)
	if fp.res.code == codeUnknownServerError {
		f.s.complain("fetch failed", "topic", fp.ref.topic.Name, "partition", fp.key.index, "offset", fp.offset, "error", err)
	}
	if errors.Is(err, broker.ErrNotLeader) || errors.Is(err, broker.ErrUnknownPartition) {
		fp.drop()
		if errors.Is(err, broker.ErrUnknownPartition) && f.c.Version >= fetchTopicIDs {
			fp.res.code = codeUnknownTopicID
		}
	}
	if !f.looksInto(fp) {
		f.failed(fp)
	}
}

// looksInto sets a refused part aside, once per request, if it may be that this node is about to lead. Followers come again by themselves,
// and have other partitions to acknowledge.
func (f *fetchRun) looksInto(fp *fetchPart) bool {
	if f.looked || f.replica != nil || !f.limits.wait {
		return false
	}
	switch fp.res.code {
	case codeNotLeaderOrFollower, codeUnknownLeaderEpoch, codeUnknownTopicOrPartition, codeUnknownTopicID:
		f.unserved = append(f.unserved, fp)
		return true
	}
	return false
}

// awaitRoles waits a moment for partitions that this node leads and does not serve yet, and reads again what was set aside.
func (f *fetchRun) awaitRoles(ctx context.Context) {
	if len(f.unserved) == 0 {
		return
	}
	began := f.c.clock()
	by := time.Now().Add(fetchRoleWait)
	if f.limits.deadline.Before(by) {
		by = f.limits.deadline
	}
	f.img = f.s.awaitRoles(ctx, by, func(l *roleLook) {
		for _, fp := range f.unserved {
			t := l.img.Topic(fp.key.topic.name)
			if f.c.Version >= fetchTopicIDs {
				t = l.img.TopicByID(fp.key.topic.id)
			}
			l.see(t, fp.key.index, broker.Need{Epoch: fp.current})
		}
	})
	f.c.waiting(began)
	f.looked = true
	for _, fp := range f.unserved {
		f.readPart(fp)
	}
	clear(f.unserved)
	f.unserved = f.unserved[:0]
	f.requeue()
}

// failed ends the wait, but for topics that are not there: they may be about to come, and a client that asks for one beside
// others must not spin.
func (f *fetchRun) failed(fp *fetchPart) {
	if fp.res.code != codeUnknownTopicOrPartition && fp.res.code != codeUnknownTopicID {
		f.must = true
	}
	f.served = append(f.served, fp)
}
