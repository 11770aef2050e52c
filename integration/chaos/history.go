// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"sync"
	"time"
)

// part is a partition of one life of a topic.
type part struct {
	topic string
	index int32
}

func (p part) String() string { return fmt.Sprintf("%s-%d", p.topic, p.index) }

// promise is what a topic and the way it is written to promise.
type promise struct {
	// durable: what was acknowledged is there, as long as no disk that had the only copy was lost.
	durable bool
	// exact: an acknowledged offset is that record's for ever. Also of what is not durable once it is lost: no.
	idempotent bool
	replicas   int
	deletes    bool // DeleteRecords is used
}

// outcome is what a producer knows about a record.
type outcome int8

const (
	unknown outcome = iota // it may be stored or not, now or later
	stored
	refused // it must not be stored
)

func (o outcome) String() string { return [...]string{"unknown", "stored", "refused"}[o] }

// All times are nanoseconds since the history began, on one monotonic clock. An operation that has not returned returned at never.
const never = int64(1) << 62

// send is one record that was given to a producer. Its key identifies it.
type send struct {
	id        string
	p         part
	producer  int
	order     int // of its producer in this partition
	timestamp int64
	hash      uint64 // of the value
	invoked   int64
	returned  int64
	outcome   outcome
	offset    int64
	err       error
}

// observed is a record as somebody was given it.
type observed struct {
	offset    int64
	id        string
	timestamp int64
	hash      uint64
}

// batch is a batch as it came over the wire.
type batch struct {
	base, last int64
	epoch      int32
	hash       uint64
	broken     string // what is wrong with it
	records    []observed
}

// fetch is one raw fetch of one partition.
type fetch struct {
	p                    part
	node                 int
	epoch                int32 // that the client named, so that only the leader of that epoch answers
	offset               int64
	invoked, returned    int64
	code                 int16
	hw, stable, logStart int64
	batches              []batch
	last                 bool // of the reading after all faults: what it says is final
	undelivered          bool // no answer
}

func (f *fetch) String() string {
	if f == nil {
		return "no answer"
	}
	return fmt.Sprintf("code %d, high watermark %d, log start %d, %d batches", f.code, f.hw, f.logStart, len(f.batches))
}

// lookup is one answer of ListOffsets.
type lookup struct {
	p                 part
	node              int
	timestamp         int64 // or one of the special ones
	invoked, returned int64
	code              int16
	offset            int64
	found             int64 // timestamp
	epoch             int32
}

// epochEnd is one answer of OffsetForLeaderEpoch.
type epochEnd struct {
	p                 part
	node              int
	asked, leads      int32 // leads: the epoch of who was asked
	invoked, returned int64
	code              int16
	epoch             int32
	end               int64
}

// deletion is one DeleteRecords.
type deletion struct {
	p                 part
	to                int64
	invoked, returned int64
	ok                bool
	low               int64
}

// seenEpoch is a partition's leader as one node's metadata told it.
type seenEpoch struct {
	p                 part
	node              int
	invoked, returned int64
	leader, epoch     int32
}

// history is everything that clients did and saw. Its methods are for many goroutines.
type history struct {
	began    time.Time
	mu       sync.Mutex
	promises map[string]promise // by topic
	lost     map[part]bool      // whose only copy lay on a disk that was lost
	unread   map[part]bool      // that could not be read in the end: what is missing may still be there
	sends    []*send
	fetches  []*fetch
	lookups  []lookup
	ends     []epochEnd
	deletes  []*deletion
	epochs   []seenEpoch
	notes    []string // what clients met that must not happen
	acked    int
	read     int
	newest   map[part]int64 // when the newest acknowledged record was sent
}

func newHistory() *history {
	return &history{began: time.Now(), promises: map[string]promise{}, lost: map[part]bool{}, unread: map[part]bool{}, newest: map[part]int64{}}
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) invoke(s *send) {
	s.invoked, s.returned, s.offset = h.now(), never, -1
	h.mu.Lock()
	h.sends = append(h.sends, s)
	h.mu.Unlock()
}

func (h *history) answer(s *send, o outcome, offset int64, err error) {
	now := h.now()
	h.mu.Lock()
	s.returned, s.outcome, s.offset, s.err = now, o, offset, err
	if o == stored {
		h.acked++
		h.newest[s.p] = max(h.newest[s.p], s.invoked)
	}
	h.mu.Unlock()
}

func (h *history) fetched(f *fetch) {
	f.returned = h.now()
	h.mu.Lock()
	h.fetches = append(h.fetches, f)
	for i := range f.batches {
		h.read += len(f.batches[i].records)
	}
	h.mu.Unlock()
}

func (h *history) looked(l lookup) {
	l.returned = h.now()
	h.mu.Lock()
	h.lookups = append(h.lookups, l)
	h.mu.Unlock()
}

func (h *history) ended(e epochEnd) {
	e.returned = h.now()
	h.mu.Lock()
	h.ends = append(h.ends, e)
	h.mu.Unlock()
}

func (h *history) deleting(d *deletion) {
	d.invoked, d.returned = h.now(), never
	h.mu.Lock()
	h.deletes = append(h.deletes, d)
	h.mu.Unlock()
}

func (h *history) deleted(d *deletion, low int64, ok bool) {
	now := h.now()
	h.mu.Lock()
	d.returned, d.low, d.ok = now, low, ok
	h.mu.Unlock()
}

func (h *history) learned(all []seenEpoch) {
	h.mu.Lock()
	h.epochs = append(h.epochs, all...)
	h.mu.Unlock()
}

func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	h.notes = append(h.notes, fmt.Sprintf(format, args...))
	h.mu.Unlock()
}

// cannotRead notes that a partition could not be read in the end.
func (h *history) cannotRead(p part, format string, args ...any) {
	h.mu.Lock()
	h.unread[p] = true
	h.mu.Unlock()
	h.note(format, args...)
}

func (h *history) counts() (sent, acked, read int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sends), h.acked, h.read
}

// ackedSince tells whether a partition has acknowledged a record that was sent after a time.
func (h *history) ackedSince(p part, after int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest[p] >= after
}

// firstAck is when a partition first acknowledged a record that was sent at or after a time.
func (h *history) firstAck(p part, after int64) (returned int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	returned = never
	for _, s := range h.sends {
		if s.p == p && s.invoked >= after && s.outcome == stored && s.returned < returned {
			returned, ok = s.returned, true
		}
	}
	return returned, ok
}
