// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varve/varve/gateway/quota"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
)

// quotas charge clients for what they use. As in Kafka a client that used too much gets its answer at once, which tells for how long
// it will be muted: its connection is neither read nor answered meanwhile. Followers are never charged.
type quotas struct {
	started time.Time
	meters  *quota.Meters
	current atomic.Pointer[quota.Table]

	mu struct {
		sync.Mutex
		revision metadata.Revision // of the image that current was made of
		followed *metadata.Quotas
	}
}

func newQuotas(b *config.Broker) *quotas {
	windows := func(prefix string) quota.Windows {
		return quota.Windows{Num: int(b.Int(prefix + "quota.window.num")), Size: time.Duration(b.Int(prefix+"quota.window.size.seconds")) * time.Second}
	}
	q := &quotas{started: time.Now()}
	q.meters = quota.NewMeters(q.started, windows(""), windows("controller."))
	return q
}

// follow takes over the quotas of an image, unless it knows a newer one.
func (q *quotas) follow(img *metadata.Image) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if img.Revision < q.mu.revision {
		return
	}
	q.mu.revision = img.Revision
	if all := img.Quotas(); q.mu.followed != all {
		q.mu.followed = all
		q.current.Store(quota.NewTable(all))
	}
}

func (q *quotas) table() *quota.Table { return q.current.Load() }

// clientOf is who sends a request, as quotas name it.
func clientOf(r *Request) quota.Client {
	return quota.Client{User: strings.TrimPrefix(r.Principal, "User:"), ID: r.ClientID}
}

// throttleMillis is a delay as answers have it.
func throttleMillis(d time.Duration) int32 { return int32(d.Milliseconds()) }

// alone tells whether nothing more may be read behind a call until it is answered: of a client that may have to be quiet then, so that
// what it sent on stays in the network's buffers and not in memory that others need.
func (q *quotas) alone(c *call) bool {
	t := q.table()
	if t == nil || c.produce == nil && c.fetch == nil {
		return false
	}
	for _, k := range [...]quota.Kind{quota.Produce, quota.Fetch, quota.Request} {
		if _, _, ok := t.Limit(k, clientOf(&c.Request)); ok {
			return true
		}
	}
	return false
}

// chargeProduce charges a produce request for its bytes, whatever came of them, and for the time that it took.
func (q *quotas) chargeProduce(c *call) {
	t := q.table()
	if t == nil {
		return
	}
	now := time.Now()
	c.throttle = max(c.throttle, q.meters.Record(t, quota.Produce, clientOf(&c.Request), now, float64(len(c.frame.b))))
	if c.produce.acks != 0 { // as in Kafka
		q.chargeTime(t, c, now, c.spent(now))
	}
}

// chargeFetch charges a fetch for its answer. True: the client has to come again later, and nothing of the answer counts.
func (q *quotas) chargeFetch(c *call, bytes int) bool {
	t := q.table()
	if t == nil {
		return false
	}
	now, client, size := time.Now(), clientOf(&c.Request), float64(bytes+fetchHeadBytes)
	room, whole, _ := q.meters.Room(t, quota.Fetch, client, now)
	delay := q.meters.Record(t, quota.Fetch, client, now, size)
	c.throttle = max(c.throttle, delay)
	q.chargeTime(t, c, now, c.spent(now)) // which an empty answer would not give back
	// A batch that is larger than all windows would never come if it had to fit. Half of them is enough: others that share the meter
	// may use a little all the time.
	if delay <= 0 || size > whole && room >= whole/2 {
		return false
	}
	q.meters.Unrecord(t, quota.Fetch, client, now, size)
	return true
}

// fetchBound is what the client's quota leaves for a fetch, at most limit. A first batch is read whole beyond it: then the answer is
// empty, and the client comes again when there is room for it.
func (q *quotas) fetchBound(c *call, limit int) int {
	if t := q.table(); t != nil {
		if room, _, ok := q.meters.Room(t, quota.Fetch, clientOf(&c.Request), time.Now()); ok && room < float64(limit) {
			return int(room)
		}
	}
	return limit
}

// chargeControl charges any other request for the time that it took.
func (q *quotas) chargeControl(c *call) {
	t := q.table()
	if t == nil {
		return
	}
	now := time.Now()
	spent := c.spent(now)
	if !computing[c.Key] {
		spent = min(spent, controlChargeMax)
	}
	q.chargeTime(t, c, now, spent)
}

// computing are the APIs whose time is spent on computing. The others mostly wait, for the metadata store, a disk, the bucket or other
// clients, so what they are charged is bounded.
var computing = map[int16]bool{15: true, 16: true, apiVersionsKey: true, 32: true, 35: true, 46: true, 48: true, 60: true, 61: true, 74: true, 75: true}

// chargeTime charges for time on a processor, in percent of one.
func (q *quotas) chargeTime(t *quota.Table, c *call, now time.Time, spent time.Duration) {
	if c.metered {
		c.throttle = max(c.throttle, q.meters.Record(t, quota.Request, clientOf(&c.Request), now, 100*spent.Seconds()))
	}
}

// mutate charges for n partitions that are to be made or deleted. strict: it is refused while the client has used too much; else the
// client waits afterwards, as clients do that do not know the refusal.
func (q *quotas) mutate(r *Request, strict bool, n int) error {
	t := q.table()
	if !t.Has(quota.Mutation) {
		return nil
	}
	if !strict {
		r.throttle = max(r.throttle, q.meters.Record(t, quota.Mutation, clientOf(r), time.Now(), float64(n)))
		return nil
	}
	d := q.meters.Admit(t, clientOf(r), time.Now(), float64(n))
	if d == 0 {
		return nil
	}
	r.throttle = max(r.throttle, d)
	return refuse(codeThrottlingQuotaExceeded, "the quota %s is used up: try again in %d ms", quota.Mutation.Key(), d.Milliseconds())
}

// clock reads the time where it is wanted.
func (c *call) clock() (t time.Time) {
	if c.metered {
		t = time.Now()
	}
	return t
}

func (c *call) since(t time.Time) time.Duration {
	if !c.metered {
		return 0
	}
	return time.Since(t)
}

// waiting ends a wait that began then.
func (c *call) waiting(began time.Time) { c.waited += c.since(began) }

// spent is the time that the request took so far, without its waits.
func (c *call) spent(now time.Time) time.Duration { return c.busy + now.Sub(c.turn) - c.waited }

// mute keeps the connection quiet for d from then on.
func (c *conn) mute(from time.Time, d time.Duration) {
	c.mutedUntil.Store(int64(from.Add(d).Sub(c.s.quotas.started)))
}

// muted is how much longer the connection is quiet; not above 0: it is not.
func (c *conn) muted() time.Duration {
	until := c.mutedUntil.Load()
	if until == 0 {
		return 0
	}
	return time.Duration(until) - time.Since(c.s.quotas.started)
}

// awaitAnswered keeps the reader from what has come until every call is answered, if the last one has to be alone. It waits only
// when something has come: until then the reader has to see whether the peer is still there.
func (c *conn) awaitAnswered() error {
	if !c.alone {
		return nil
	}
	c.asked.Store(true) // before open is read, which the writer changes before it looks
	defer c.asked.Store(false)
	for c.open.Load() > 0 {
		select {
		case <-c.answered:
		case <-c.readCtx.Done():
			return c.stopped()
		}
	}
	return nil
}

// awaitUnmuted keeps the reader from what has come until the connection is not muted any more. What a peer sends meanwhile stays in
// the network's buffers. Whether it is still there cannot be seen then, so a connection that is muted for longer than one
// may be idle is closed.
func (c *conn) awaitUnmuted() error {
	began := time.Now()
	for {
		d := c.muted()
		if d <= 0 {
			return nil
		}
		if idle := c.s.broker.Config().ConnectionsMaxIdle; idle >= 0 {
			left := idle - time.Since(began)
			if left <= 0 {
				return errIdle
			}
			d = min(d, left)
		}
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-c.readCtx.Done():
			t.Stop()
			return c.stopped()
		}
	}
}

// holdBack keeps the writer from answering what was read before the connection was muted: of a client that got its quota meanwhile,
// or requests that are not read alone. A server that stops answers at once.
func (c *conn) holdBack() {
	d := c.muted()
	if d <= 0 {
		return
	}
	t := c.alarm(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.s.draining:
	case <-c.ctx.Done():
	}
}
