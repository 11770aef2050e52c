// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Session epochs with a meaning of their own (KIP-227).
const (
	epochFinal   = -1 // a full fetch without a session; ends the one named
	epochInitial = 0  // a full fetch that asks for a session
)

// fetchSession is an incremental fetch session: a set that lives on between requests.
type fetchSession struct {
	id      int32
	set     *fetchSet
	ids     bool // its topics are named by id
	owner   *conn
	created time.Time

	// guarded by sessionCache.mu
	epoch    int32 // that the next request must carry
	lastUsed time.Time
	size     int
	busy     bool // a request uses it
	gone     bool // to be closed when that request is done
}

// sessionCache holds the sessions of the node. At most max.incremental.fetch.session.cache.slots: a new one replaces one that
// was not used for a while, or an older one that is smaller; else the client goes on without a session, which is always legal.
type sessionCache struct {
	metrics *sessionMetrics
	mu      struct {
		sync.Mutex
		sessions   map[int32]*fetchSession
		partitions int
	}
}

func (c *sessionCache) init(m *sessionMetrics) {
	c.metrics = m
	c.mu.sessions = make(map[int32]*fetchSession)
}

// fetchLease is a request's use of a set.
type fetchLease struct {
	s       *Server
	conn    *conn
	set     *fetchSet
	full    bool
	order   []*fetchPart  // of a full request
	create  bool          // a session is wanted
	ids     bool          // of the request
	session *fetchSession // of an incremental request
}

// resolve finds or makes the set that a request works on and applies the request to it.
func (c *sessionCache) resolve(s *Server, cn *conn, req *kmsg.FetchRequest, replica bool) (*fetchLease, Code) {
	l := &fetchLease{s: s, conn: cn, ids: req.Version >= fetchTopicIDs}
	epoch := req.SessionEpoch
	if req.Version < fetchSessions {
		epoch = epochFinal
	}
	switch epoch {
	case epochFinal, epochInitial:
		if req.Version >= fetchSessions && req.SessionID > 0 {
			c.remove(req.SessionID)
		}
		l.full = true
		if epoch == epochInitial && len(req.Topics) > 0 && (replica || s.broker.Config().FetchSessionSlots > 0) {
			l.create, l.set = true, newFetchSet()
		} else {
			if cn.plain == nil || cn.plain.replica != replica {
				if cn.plain != nil {
					cn.plain.close()
				}
				cn.plain = newFetchSet()
			}
			l.set = cn.plain
		}
		l.set.replica = replica
		l.order = l.set.replace(req)
		return l, codeNone
	}
	session, code := c.acquire(req.SessionID, epoch, l.ids, replica, cn)
	if code != codeNone {
		return nil, code
	}
	l.session, l.set = session, session.set
	l.set.update(req)
	return l, codeNone
}

// acquire takes a session for one request and moves its epoch on.
func (c *sessionCache) acquire(id, epoch int32, ids, replica bool, cn *conn) (*fetchSession, Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.sessions[id]
	switch {
	case s == nil:
		return nil, codeFetchSessionIDNotFound
	case s.epoch != epoch || s.busy || s.set.replica != replica:
		return nil, codeInvalidFetchSessionEpoch
	case s.ids != ids:
		return nil, codeFetchSessionTopicIDError
	}
	s.busy, s.lastUsed, s.owner = true, time.Now(), cn
	s.epoch = nextSessionEpoch(epoch)
	return s, codeNone
}

// nextSessionEpoch wraps to 1: 0 and below have meanings of their own.
func nextSessionEpoch(epoch int32) int32 {
	if epoch == math.MaxInt32 {
		return 1
	}
	return epoch + 1
}

// commit gives the session id that the answer carries: of the session, of one made now, or 0 for none.
func (l *fetchLease) commit(*fetchRun) int32 {
	switch {
	case l.session != nil:
		if len(l.set.parts) == 0 {
			l.s.sessions.remove(l.session.id) // everything was forgotten: Kafka closes the session
			return 0
		}
		return l.session.id
	case l.create:
		return l.s.sessions.add(l)
	}
	return 0
}

// release ends the request's use of the set.
func (l *fetchLease) release() {
	switch {
	case l.session != nil:
		l.s.sessions.release(l.session)
	case l.create:
		l.set.close() // no session came of it
	}
}

func (c *sessionCache) release(s *fetchSession) {
	c.mu.Lock()
	s.busy = false
	gone := s.gone
	if !gone {
		c.resizeLocked(s)
	}
	c.mu.Unlock()
	if gone {
		s.set.close()
	}
}

func (c *sessionCache) resizeLocked(s *fetchSession) {
	c.mu.partitions += len(s.set.parts) - s.size
	s.size = len(s.set.parts)
	c.metrics.partitions.Set(float64(c.mu.partitions))
}

// add makes a session of a full request's set, busy until the request is done. 0: there is no room.
func (c *sessionCache) add(l *fetchLease) int32 {
	now := time.Now()
	s := &fetchSession{set: l.set, ids: l.ids, owner: l.conn, created: now, lastUsed: now, epoch: 1, busy: true}
	c.mu.Lock()
	var victim *fetchSession
	busy := false
	if !l.set.replica && len(c.mu.sessions) >= l.s.broker.Config().FetchSessionSlots { // followers always get one
		if victim = c.victimLocked(now, len(l.set.parts)); victim == nil {
			c.mu.Unlock()
			return 0
		}
		busy = c.dropLocked(victim)
		c.metrics.evictions.Inc()
	}
	for s.id == 0 || c.mu.sessions[s.id] != nil {
		s.id = 1 + rand.Int32N(math.MaxInt32-1)
	}
	c.mu.sessions[s.id] = s
	c.resizeLocked(s)
	c.metrics.sessions.Set(float64(len(c.mu.sessions)))
	c.mu.Unlock()
	if victim != nil {
		victim.finish(busy)
	}
	l.session, l.create = s, false
	return s.id
}

// victimLocked finds a session that makes room for one of size partitions.
func (c *sessionCache) victimLocked(now time.Time, size int) *fetchSession {
	var idle, small *fetchSession
	for _, s := range c.mu.sessions {
		if s.set.replica {
			continue
		}
		if now.Sub(s.lastUsed) >= sessionIdle && (idle == nil || s.lastUsed.Before(idle.lastUsed)) {
			idle = s
		}
		if now.Sub(s.created) >= sessionIdle && s.size < size && (small == nil || s.size < small.size) {
			small = s
		}
	}
	if idle != nil {
		return idle
	}
	return small
}

// dropLocked takes a session out of the cache and tells whether a request uses it. The caller finishes it without the lock.
func (c *sessionCache) dropLocked(s *fetchSession) (busy bool) {
	delete(c.mu.sessions, s.id)
	c.mu.partitions -= s.size
	s.gone = true
	c.metrics.sessions.Set(float64(len(c.mu.sessions)))
	c.metrics.partitions.Set(float64(c.mu.partitions))
	return s.busy
}

// finish closes a dropped session, or ends the wait of the request that uses it: release then closes it.
func (s *fetchSession) finish(busy bool) {
	if busy {
		s.set.stop()
		return
	}
	s.set.close()
}

func (c *sessionCache) remove(id int32) {
	c.mu.Lock()
	s := c.mu.sessions[id]
	busy := s != nil && c.dropLocked(s)
	c.mu.Unlock()
	if s != nil {
		s.finish(busy)
	}
}

// leave drops the sessions that a connection used: a client that comes back begins a new one.
func (c *sessionCache) leave(cn *conn) {
	c.mu.Lock()
	var drop []*fetchSession
	for _, s := range c.mu.sessions {
		if s.owner == cn && !s.busy {
			c.dropLocked(s)
			drop = append(drop, s)
		}
	}
	c.mu.Unlock()
	for _, s := range drop {
		s.finish(false)
	}
}
