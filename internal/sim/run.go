// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varve/varve/internal/memnet"
	"github.com/varve/varve/record"
)

// run is one history in one world.
type run struct {
	w           *World
	h           *history
	raw         *rawClient
	producers   []*producer
	parts       map[string][]part // by topic
	consumed    map[string][]part // as they were when the consumer began: its topics stay
	ownSent     [2]int
	scratchLife int
	placed      int          // partitions
	freed       atomic.Int64 // when quotas were taken away for good, since the epoch; 0: not yet
	throttled   atomic.Int64 // until when the producer that was told to wait longest sends nothing, since the epoch
	aging       struct{ bytes, millis int }
	result      strings.Builder // what was acknowledged, in a form that no knob may change
}

// logRecord is one record of a full scan.
type logRecord struct {
	key       string
	timestamp int64
	epoch     record.Epoch
	hash      uint64
}

// Run plays the seed's history and checks it. It must be called in a bubble. It returns what the history's acknowledged content is: the
// same for every choice of knobs.
func Run(t testing.TB, seed uint64, steps int, knobs Knobs, cover *Coverage) string {
	w := newWorld(t, seed, knobs, cover)
	r := &run{w: w, h: newHistory(w), raw: newRawClient(w, "checker", 40*time.Second), parts: map[string][]part{}}
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	life, die := context.WithCancel(context.Background())
	var keeper, background sync.WaitGroup
	for _, m := range w.machines {
		keeper.Go(func() { w.keep(life, m) })
	}
	r.setUp()
	faults, stopFaults := context.WithCancel(ctx)
	reading, stopReading := context.WithCancel(ctx)
	r.consumed = maps.Clone(r.parts)
	background.Go(func() { r.consume(reading) })
	var storm sync.WaitGroup
	if knobs.several() {
		storm.Go(func() { w.nemeses(faults) })
		storm.Go(func() { w.nemeses(faults) })
		p := r.parts[probed][0]
		w.mu.Lock()
		w.mu.probed = keyEnd(p.id)
		w.mu.Unlock()
		storm.Go(func() { r.probe(faults, p) })
		for _, m := range w.machines {
			storm.Go(func() { r.askLatest(faults, m) })
			storm.Go(func() { r.readReplica(faults, m) })
		}
		if knobs.placing() {
			storm.Go(func() { w.drains(faults) })
		}
		if knobs.risking() {
			risked := newRisk(r)
			storm.Go(func() { risked.elections(faults) })
		}
		if knobs.Quotas {
			storm.Go(func() { r.squeeze(faults) })
		}
	} else {
		storm.Go(func() { w.nemesis(faults, w.machines[0]) })
	}
	if knobs.NetFaults {
		w.net.SetFaults(memnet.Faults{DelayMin: latency, DelayMax: 5 * time.Millisecond, Cut: 0.003, LoseReply: 0.005})
	}
	for _, o := range script(seed, steps, knobs.several()) {
		if w.failed() {
			break
		}
		r.do(ctx, o)
	}
	stopFaults()
	storm.Wait()
	w.end()
	if !w.failed() {
		r.finish(ctx)
		r.awaitConsumer()
	}
	stopReading()
	background.Wait()
	for _, p := range r.producers {
		p.client.CloseAllowingRebalance()
	}
	r.raw.close()
	die()
	keeper.Wait()
	w.close(t)
	return r.result.String()
}

// setUp makes the topics and the producers, before there are faults beyond those of the store and the metadata.
func (r *run) setUp() {
	r.awaitNodes()
	configs := map[string]string{"retention.ms": "-1"}
	if k := &r.w.knobs; k.Tier {
		configs["internal.segment.bytes"], configs["segment.ms"] = strconv.Itoa(k.SegmentBytes), "2000"
		configs["local.retention.ms"] = strconv.Itoa(k.LocalMillis)
	}
	r.createTopic(own, 2, configs)
	r.createTopic(mix, 1, configs)
	r.createTopic(scratch, 1, configs)
	old := map[string]string{}
	for k, v := range configs {
		old[k] = v
	}
	if r.w.seed%2 == 0 {
		r.aging.bytes = 20_000
		old["retention.bytes"] = strconv.Itoa(r.aging.bytes)
	} else {
		r.aging.millis = 20_000
		old["retention.ms"] = strconv.Itoa(r.aging.millis)
	}
	r.createTopic(aged, 1, old)
	if r.w.knobs.several() {
		r.createTopic(probed, 1, configs)
	}
	if r.w.knobs.placing() {
		r.createTopic(spare, 8, configs)
	}
	if r.w.knobs.risking() {
		r.createTopic(risked, 1, riskedConfigs)
	}
	for i := range 3 {
		r.producers = append(r.producers, r.newProducer(i))
	}
}

func (r *run) createTopic(name string, partitions int, configs map[string]string) {
	var before record.TopicID
	if len(r.parts[name]) > 0 {
		before = r.parts[name][0].id.Topic
	}
	id, err := r.raw.createTopic(name, r.replicasOf(name, partitions), configs, before)
	if err != nil {
		r.w.failf("creating topic %s: %v", name, err)
	}
	r.parts[name] = nil
	for i := range partitions {
		r.parts[name] = append(r.parts[name], part{name, record.PartitionID{Topic: id, Index: int32(i)}})
	}
}

func (r *run) part(topic string, index int32) part { return r.consumed[topic][index] }

// all lists every partition there is now but for that which is probed.
func (r *run) all() (out []part) {
	for _, topic := range []string{own, mix, aged, scratch} {
		out = append(out, r.parts[topic]...)
	}
	return out
}

func (r *run) do(ctx context.Context, o op) {
	rng := rand.New(rand.NewPCG(o.x, 1))
	r.w.log.Info("sim: step", "op", o)
	switch o.kind {
	case opBurst:
		r.burst(ctx, o.n, rng)
	case opSettle:
		time.Sleep(time.Duration(o.n) * time.Millisecond)
	case opScan:
		for _, p := range r.all() {
			r.peek(p, rng)
			if r.w.knobs.several() {
				r.peekAtFollower(p, rng)
			}
		}
	case opLookup:
		r.lookups(r.all()[rng.IntN(4)], rng)
	case opDelete:
		r.deleteRecords(r.parts[own][rng.IntN(2)], rng)
	case opConfig:
		r.alter(rng)
	case opScratch:
		r.recreate(ctx, rng)
	case opReassign:
		r.reassign(rng)
	}
}

// burst sends n records to each of some partitions, and waits for all acknowledgements.
func (r *run) burst(ctx context.Context, n int, rng *rand.Rand) {
	size := []int{20, 200, 1500}[rng.IntN(3)]
	for i := range n {
		for index := range r.parts[own] {
			// Minutes of disorder; the same in every world.
			ts := epoch.UnixMilli() + int64(r.ownSent[index])*50 + int64(rng.IntN(120_000)) - 60_000
			r.ownSent[index]++
			r.producers[index].send(ctx, r.parts[own][index], ts, size)
		}
		for _, p := range r.producers {
			p.send(ctx, r.parts[mix][0], epoch.UnixMilli()+int64(rng.IntN(600_000)), size)
		}
		r.producers[0].send(ctx, r.parts[aged][0], time.Now().UnixMilli(), 300)
		if i%4 == 0 {
			time.Sleep(time.Duration(rng.IntN(80)) * time.Millisecond)
		}
	}
	r.w.cover.hit(OutOfOrderRecords)
	r.flush(ctx)
}

func (r *run) flush(ctx context.Context) {
	for _, p := range r.producers {
		p.flush(ctx)
	}
}

// recreate deletes a topic and makes another one of the same name (S25).
func (r *run) recreate(ctx context.Context, rng *rand.Rand) {
	if err := r.raw.deleteTopic(scratch); err != nil {
		r.w.failf("deleting topic %s: %v", scratch, err)
		return
	}
	before := r.parts[scratch][0]
	r.createTopic(scratch, 1, nil)
	if r.w.failed() {
		return
	}
	if r.parts[scratch][0].id == before.id {
		r.w.failf("S25: topic %s has the id of the one that was deleted", scratch)
	}
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		r.scratchLife++
		p := r.newProducer(1)
		for range 5 + rng.IntN(20) {
			p.send(ctx, r.parts[scratch][0], time.Now().UnixMilli(), 100)
		}
		p.flush(ctx)
		p.client.Close()
		if !p.mistaken.Load() {
			break
		}
		if time.Since(begun) > patience {
			r.w.failf("V8: nodes show the %s that was deleted for %v", scratch, patience)
			return
		}
	}
	r.w.cover.hit(TopicRecreated)
	r.scan(r.parts[scratch][0], 1<<20)
}

// alter changes configs that clients must not notice.
func (r *run) alter(rng *rand.Rand) {
	name, value := "retention.ms", "-1"
	if r.w.knobs.Tier {
		switch rng.IntN(3) {
		case 0:
			name, value = "internal.segment.bytes", fmt.Sprint(2000<<rng.IntN(4))
		case 1:
			name, value = "local.retention.ms", fmt.Sprint(rng.IntN(3000))
		case 2:
			name, value = "segment.ms", fmt.Sprint(500+rng.IntN(4000))
		}
	}
	if err := r.raw.alterConfig(own, name, value); err != nil {
		r.w.failf("altering %s: %v", name, err)
		return
	}
	r.w.cover.hit(ConfigChanged)
}

// deleteRecords moves the log start of an own partition to a random place (S19).
func (r *run) deleteRecords(p part, rng *rand.Rand) {
	start, hw := r.bounds(p)
	if r.w.failed() || hw == start {
		return
	}
	to := start + record.Offset(rng.Int64N(int64(hw-start)/2+1))
	if rng.IntN(8) == 0 {
		to = hw
	}
	r.h.ask(p, to)
	var low record.Offset
	if err := r.raw.until("deleting records of "+p.String(), func(ctx context.Context) (err error) {
		low, err = r.raw.deleteRecords(ctx, p, to)
		return err
	}); err != nil {
		r.w.failf("deleting records of %s below %d of [%d, %d): %v", p, to, start, hw, err)
		return
	}
	if low < to {
		r.w.failf("S19: records of %s below %d were deleted, low watermark %d", p, to, low)
	}
	if m, ok := r.w.marks(p.id); ok && to > start {
		if to < m.TieredEnd {
			r.w.cover.hit(DeletedInSegment)
		} else {
			r.w.cover.hit(DeletedUnsealed)
		}
	}
	if now, _ := r.bounds(p); now != to && !r.w.failed() {
		r.w.failf("S19: records of %s below %d were deleted, the log starts at %d", p, to, now)
	}
	fmt.Fprintf(&r.result, "%s starts at %d\n", p, to)
	if rng.IntN(2) == 0 {
		r.lookups(p, rng)
	}
}
