// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/varve/varve/metadata"
)

// Meters are what clients used lately, by kind. It is safe for concurrent use.
type Meters struct {
	start     time.Time
	rates     Windows
	mutations Windows
	kinds     [Kinds]kindMeters
}

type kindMeters struct {
	mu struct {
		sync.Mutex
		meters map[Client]*meter
		// overflow has the clients that are too many to be metered apart, by the quota that holds for them: it gives the limit.
		overflow map[metadata.QuotaEntity]*meter
		swept    time.Duration
	}
}

type meter struct {
	used      rate // not of Mutation
	tokens    bucket
	throttled *rate // delays in milliseconds; nil until there is one
	last      time.Duration
	limit     float64
}

// NewMeters makes meters that begin at start. mutations are the windows of Mutation, rates those of all others.
func NewMeters(start time.Time, rates, mutations Windows) *Meters {
	m := &Meters{start: start, rates: rates, mutations: mutations}
	for k := range m.kinds {
		m.kinds[k].mu.meters = map[Client]*meter{}
		m.kinds[k].mu.overflow = map[metadata.QuotaEntity]*meter{}
	}
	return m
}

func (m *Meters) windows(k Kind) Windows {
	if k == Mutation {
		return m.mutations
	}
	return m.rates
}

// longest is the longest delay of a kind, 0 for no bound; Kafka's.
func (m *Meters) longest(k Kind) time.Duration {
	if k == Request || k == Connection {
		return m.rates.Size
	}
	return 0
}

// on works on the meter of a client. False: no quota of the kind holds for it.
func (m *Meters) on(t *Table, k Kind, c Client, now time.Time, f func(e *meter, w Windows, at time.Duration)) bool {
	limit, by, metered, ok := t.find(k, c)
	if !ok {
		return false
	}
	w, at := m.windows(k), now.Sub(m.start)
	km := &m.kinds[k]
	km.mu.Lock()
	defer km.mu.Unlock()
	e := km.meterLocked(w, at, metered, by)
	e.limit = limit
	f(e, w, at)
	return true
}

// Record notes what a client used and gives how long it has to be quiet. Of Mutation it is the delay after this use.
func (m *Meters) Record(t *Table, k Kind, c Client, now time.Time, v float64) (d time.Duration) {
	m.on(t, k, c, now, func(e *meter, w Windows, at time.Duration) {
		if k == Mutation {
			e.tokens.fill(w, at, e.limit)
			e.tokens.tokens -= v
			d = e.throttle(w, at, e.tokens.delay(e.limit))
			return
		}
		e.used.add(w, at, v)
		d = e.used.delay(w, at, e.limit)
		if most := m.longest(k); most > 0 {
			d = min(d, most)
		}
		d = e.throttle(w, at, d)
	})
	return d
}

// Admit is Record of Mutation for a change that is refused while the tokens are below zero: then nothing is used and refused tells
// how long until it would not be. A change that is larger than what is left is let through and makes later ones wait.
func (m *Meters) Admit(t *Table, c Client, now time.Time, v float64) (refused time.Duration) {
	m.on(t, Mutation, c, now, func(e *meter, w Windows, at time.Duration) {
		e.tokens.fill(w, at, e.limit)
		if d := e.tokens.delay(e.limit); d > 0 {
			refused = e.throttle(w, at, d)
		} else {
			e.tokens.tokens -= v
		}
	})
	return refused
}

// Unrecord takes back what was recorded at the same time, because it was not used after all.
func (m *Meters) Unrecord(t *Table, k Kind, c Client, now time.Time, v float64) {
	m.on(t, k, c, now, func(e *meter, w Windows, at time.Duration) { e.used.add(w, at, -v) })
}

// Room is how much can pass now without a delay, not below zero, and how much could if nothing had been used lately. ok is false: no
// quota holds.
func (m *Meters) Room(t *Table, k Kind, c Client, now time.Time) (room, whole float64, ok bool) {
	ok = m.on(t, k, c, now, func(e *meter, w Windows, at time.Duration) {
		e.used.expire(w, at)
		sum, _ := e.used.sum()
		whole = e.limit * e.used.covered(w, at).Seconds()
		room = max(0, whole-sum)
	})
	return room, whole, ok
}

func (e *meter) throttle(w Windows, at, d time.Duration) time.Duration {
	if d > 0 {
		if e.throttled == nil {
			e.throttled = &rate{}
		}
		e.throttled.add(w, at, float64(d.Milliseconds()))
	}
	return d
}

// meterLocked finds or makes the meter of a client that has its quota by an entity, bounded (U3).
func (km *kindMeters) meterLocked(w Windows, at time.Duration, c Client, by metadata.QuotaEntity) *meter {
	if at-km.mu.swept >= sweepEvery {
		km.sweepLocked(at, max(idleAfter, w.span()))
	}
	e := km.mu.meters[c]
	if e == nil && len(km.mu.meters) >= maxMeters {
		if at-km.mu.swept >= w.Size {
			km.sweepLocked(at, w.span())
		}
		if len(km.mu.meters) >= maxMeters {
			return km.overflowLocked(at, by)
		}
	}
	if e == nil {
		e = &meter{}
		// Requests' strings may share memory with much larger ones.
		km.mu.meters[Client{strings.Clone(c.User), strings.Clone(c.ID)}] = e
	}
	e.last = at
	return e
}

// overflowLocked finds or makes the meter of all clients of an entity that have none of their own.
func (km *kindMeters) overflowLocked(at time.Duration, by metadata.QuotaEntity) *meter {
	e := km.mu.overflow[by]
	if e == nil {
		e = &meter{}
		for _, p := range []*metadata.QuotaPart{&by.User, &by.ClientID, &by.IP} {
			p.Name = strings.Clone(p.Name)
		}
		km.mu.overflow[by] = e
	}
	e.last = at
	return e
}

// sweepLocked forgets who used nothing for so long. Who is still below zero is not idle.
func (km *kindMeters) sweepLocked(at, idle time.Duration) {
	over := func(e *meter) bool {
		return at-e.last >= idle && e.tokens.tokens+e.limit*(at-e.tokens.filled).Seconds() >= 0
	}
	maps.DeleteFunc(km.mu.meters, func(_ Client, e *meter) bool { return over(e) })
	maps.DeleteFunc(km.mu.overflow, func(_ metadata.QuotaEntity, e *meter) bool { return over(e) })
	km.mu.swept = at
}

// Use is what one meter shows.
type Use struct {
	Kind     Kind
	Client   Client
	Rate     float64 // per second
	Tokens   float64 // of Mutation
	Throttle float64 // the mean of the delays lately, in milliseconds
}

// Each gives what every meter shows now. Clients without a meter of their own are shown as "(others)" of their quota.
func (m *Meters) Each(now time.Time, fn func(Use)) {
	at := now.Sub(m.start)
	for k := range Kinds {
		var all []Use
		w, km := m.windows(k), &m.kinds[k]
		km.mu.Lock()
		for c, e := range km.mu.meters {
			all = append(all, e.use(k, w, at, c))
		}
		for by, e := range km.mu.overflow {
			all = append(all, e.use(k, w, at, Client{User: "(others)", ID: entityName(by)}))
		}
		km.mu.Unlock()
		for _, u := range all {
			fn(u)
		}
	}
}

func (e *meter) use(k Kind, w Windows, at time.Duration, c Client) Use {
	u := Use{Kind: k, Client: c}
	if k == Mutation {
		e.tokens.fill(w, at, e.limit)
		u.Tokens = e.tokens.tokens
	} else {
		u.Rate = e.used.perSecond(w, at)
	}
	if e.throttled != nil {
		e.throttled.expire(w, at)
		if sum, n := e.throttled.sum(); n > 0 {
			u.Throttle = sum / float64(n)
		}
	}
	return u
}

// entityName tells an entity apart for people.
func entityName(by metadata.QuotaEntity) string {
	var parts []string
	for _, d := range metadata.QuotaDimensions() {
		switch p := d.Of(&by); p.Is {
		case metadata.QuotaDefault:
			parts = append(parts, d.Name+"=<default>")
		case metadata.QuotaNamed:
			parts = append(parts, d.Name+"="+p.Name)
		}
	}
	return strings.Join(parts, ",")
}
