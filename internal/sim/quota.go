// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// throttledID is the client id of producers and the consumer. Those who check have others.
const throttledID = "client"

// The quotas that a run sets.
const (
	produceQuota = "producer_byte_rate"
	fetchQuota   = "consumer_byte_rate"
)

// squeeze sets quotas of producers and the consumer and takes them away again, until ctx ends and for good then: who is throttled loses nothing
// and gets nothing twice, and is not throttled for ever (V8).
func (r *run) squeeze(ctx context.Context) {
	rng := rand.New(rand.NewPCG(r.w.seed, 0x9007a))
	c := newRawClient(r.w, "quotas", 10*time.Second)
	defer c.close()
	defer func() {
		if err := c.setQuotas(0); err != nil {
			r.w.failf("taking quotas away: %v", err)
		}
		r.freed.Store(int64(time.Since(epoch)))
	}()
	for pauseFor(ctx, time.Duration(1000+rng.IntN(6000))*time.Millisecond) {
		if err := c.setQuotas(float64(int(4000) << rng.IntN(3))); err != nil {
			r.w.failf("setting quotas: %v", err)
			return
		}
		if !pauseFor(ctx, time.Duration(2000+rng.IntN(8000))*time.Millisecond) {
			return
		}
		if err := c.setQuotas(0); err != nil {
			r.w.failf("taking quotas away: %v", err)
			return
		}
	}
}

// checkFreed sends more at once than the quotas would let through that were there, when every node must know that they are gone.
func (r *run) checkFreed(ctx context.Context) {
	if !r.w.knobs.Quotas || r.w.failed() {
		return
	}
	time.Sleep(time.Until(epoch.Add(time.Duration(r.freed.Load()) + recovery + time.Millisecond)))
	for i := range 50 {
		for _, p := range r.producers {
			p.send(ctx, r.parts[mix][0], epoch.UnixMilli()+int64(i), 2000)
		}
	}
	r.flush(ctx)
}

// setQuotas sets both quotas, in bytes per second; 0 takes them away.
func (c *rawClient) setQuotas(rate float64) error {
	name := throttledID
	return c.until(fmt.Sprintf("quotas of %.0f bytes per second", rate), func(ctx context.Context) error {
		req := kmsg.NewPtrAlterClientQuotasRequest()
		e := kmsg.NewAlterClientQuotasRequestEntry()
		part := kmsg.NewAlterClientQuotasRequestEntryEntity()
		part.Type, part.Name = "client-id", &name
		e.Entity = append(e.Entity, part)
		for _, key := range []string{produceQuota, fetchQuota} {
			op := kmsg.NewAlterClientQuotasRequestEntryOp()
			op.Key, op.Value, op.Remove = key, rate, rate == 0
			e.Ops = append(e.Ops, op)
		}
		req.Entries = append(req.Entries, e)
		kresp, err := c.any(ctx, 1, req)
		if err != nil {
			return err
		}
		return codeError(kresp.(*kmsg.AlterClientQuotasResponse).Entries[0].ErrorCode)
	})
}

// throttled hears of a client's throttling.
type throttled struct {
	r     *run
	event Event
}

var _ kgo.HookBrokerThrottle = (*throttled)(nil)

// OnBrokerThrottle implements kgo.HookBrokerThrottle.
func (t *throttled) OnBrokerThrottle(_ kgo.BrokerMetadata, d time.Duration, _ bool) {
	t.r.w.cover.hit(t.event)
	for until := int64(time.Since(epoch) + d); t.event == ProducerThrottled; {
		if at := t.r.throttled.Load(); at >= until || t.r.throttled.CompareAndSwap(at, until) {
			break
		}
	}
	// A node may hear late that a quota is gone, as of anything else.
	if at := t.r.freed.Load(); at > 0 && time.Since(epoch) > time.Duration(at)+recovery {
		t.r.w.failf("V8: a client is throttled for %v though its quotas were taken away at %v", d, time.Duration(at))
	}
}
