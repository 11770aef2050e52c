// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/varve/varve/internal/memnet"
	"github.com/varve/varve/record"
)

const (
	shared          = "shared" // what the members of a group share
	groupName       = "sharers"
	groupPartitions = 5
	groupSession    = 6 * time.Second
)

// memberHosts are where the members are.
var memberHosts = []string{"producer1", "producer2", "consumer", "prober"}

// groupRun is a history of a consumer group: members that come, leave, die and are cut off read what one producer sends and commit how far
// they are.
type groupRun struct {
	*run
	settled bool // no member ends any more; guarded by mu

	mu      sync.Mutex
	clock   int
	offsets map[part]*committed
	members map[string]*member // by place and life

	classic classicRun
}

// committed is what is known of a group's offset in a partition.
type committed struct {
	floor   record.Offset          // accepted or told, and whoever reads from now on must be told at least so much
	owner   int                    // the latest ownership by which something was accepted
	unknown map[record.Offset]bool // whether those were accepted nobody heard
}

// RunGroup plays a seed's history of a group of the consumer protocol under its faults, and checks that nobody's commit is accepted who does not own
// the partition any more (S24), that offsets never fall back (S23), and that the group comes to rest and to the end when the faults do (V6).
func RunGroup(t testing.TB, seed uint64, knobs Knobs, cover *Coverage) {
	r := newGroupRun(t, seed, knobs, cover)
	r.play(t, r.w.nemeses, func(i, life int) *member { return &newConsumerMember(r, i, life).member })
}

func newGroupRun(t testing.TB, seed uint64, knobs Knobs, cover *Coverage) *groupRun {
	w := newWorld(t, seed, knobs, cover)
	for name, value := range map[string]string{
		"offsets.topic.num.partitions": "7", "group.consumer.session.timeout.ms": fmt.Sprint(groupSession.Milliseconds()), "group.consumer.min.session.timeout.ms": "1000",
		"group.consumer.heartbeat.interval.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "500",
	} {
		w.static[name] = value
	}
	return &groupRun{
		run:     &run{w: w, h: newHistory(w), raw: newRawClient(w, "checker", 40*time.Second), parts: map[string][]part{}},
		offsets: map[part]*committed{}, members: map[string]*member{},
	}
}

// play lets members live in their places, one life of newLife after the other, while storms blow.
func (r *groupRun) play(t testing.TB, storms func(context.Context), newLife func(i, life int) *member) {
	w := r.w
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	life, die := context.WithCancel(context.Background())
	var keeper, storm, clients sync.WaitGroup
	for _, m := range w.machines {
		keeper.Go(func() { w.keep(life, m) })
	}
	r.awaitNodes()
	r.createTopic(shared, groupPartitions, map[string]string{"retention.ms": "-1"})
	for _, p := range r.parts[shared] {
		r.offsets[p] = &committed{unknown: map[record.Offset]bool{}}
	}
	p := r.newProducer(0)
	r.producers = append(r.producers, p)
	working, stop := context.WithCancel(ctx)
	faults, stopFaults := context.WithCancel(ctx)
	storm.Go(func() { storms(faults) })
	for _, stays := range []bool{false, true} {
		storm.Go(func() { r.lookOn(faults, stays) })
	}
	if w.knobs.NetFaults {
		w.net.SetFaults(memnet.Faults{DelayMin: latency, DelayMax: 5 * time.Millisecond, Cut: 0.003, LoseReply: 0.005})
	}
	for i := range memberHosts {
		clients.Go(func() { r.share(working, i, newLife) })
	}
	for i := 0; i < 200 && !w.failed(); i++ {
		p.send(ctx, r.parts[shared][i%groupPartitions], epoch.UnixMilli()+int64(i), 50)
		pauseFor(ctx, 100*time.Millisecond+w.millis(400))
	}
	r.flush(ctx)
	stopFaults()
	storm.Wait()
	w.end()
	r.awaitShared()
	stop()
	clients.Wait()
	p.client.CloseAllowingRebalance()
	r.raw.close()
	die()
	keeper.Wait()
	w.close(t)
}

// share keeps one member after the other going.
func (r *groupRun) share(ctx context.Context, i int, newLife func(i, life int) *member) {
	rng := rand.New(rand.NewPCG(r.w.seed, uint64(900+i)))
	for life := 0; ctx.Err() == nil && !r.w.failed(); life++ {
		m, key := newLife(i, life), fmt.Sprintf("%d.%d", i, life)
		r.mu.Lock()
		r.members[key] = m
		r.mu.Unlock()
		until := time.Now().Add(2*time.Second + time.Duration(rng.IntN(40_000))*time.Millisecond)
		for ctx.Err() == nil && !r.w.failed() && (time.Now().Before(until) || r.mustStay()) {
			if rng.IntN(60) == 0 {
				r.freeze(ctx, rng)
				m.thawed()
			}
			m.as.step(ctx, rng)
			pauseFor(ctx, time.Duration(50+rng.IntN(400))*time.Millisecond)
		}
		r.mu.Lock()
		delete(r.members, key)
		r.mu.Unlock()
		if ctx.Err() == nil && rng.IntN(2) == 0 {
			r.w.cover.hit(MemberLeft)
			m.as.leave(ctx)
		} else {
			r.w.cover.hit(MemberDied)
		}
		m.as.end()
		m.c.close()
		pauseFor(ctx, time.Duration(rng.IntN(3000))*time.Millisecond)
	}
}

// freeze lets a member stand still, maybe for longer than its session lasts.
func (r *groupRun) freeze(ctx context.Context, rng *rand.Rand) {
	if r.mustStay() {
		return
	}
	r.w.cover.hit(MemberFroze)
	pauseFor(ctx, time.Duration(3000+rng.IntN(9000))*time.Millisecond)
}

// mustStay tells whether the members that there are stay.
func (r *groupRun) mustStay() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settled
}

// standing is what a commit or a look at an offset that begins now is measured by.
func (r *groupRun) standing(p part) (floor record.Offset, owner int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.offsets[p].floor, r.offsets[p].owner
}

// wasCommitted notes the outcome of a commit by an ownership. before is the latest one that was known when it began.
func (r *groupRun) wasCommitted(p part, o record.Offset, owner, before int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.offsets[p]
	switch _, answered := err.(code); {
	case err != nil && !answered:
		at.unknown[o] = true
		r.w.cover.hit(CommitUnknown)
	case err != nil:
		r.w.cover.hit(CommitRefused)
	case before > owner:
		r.w.failf("S24: a commit of %d to %s was accepted by ownership %d, though %d had begun and committed", o, p, owner, before)
	default:
		if at.owner != 0 && at.owner != owner {
			r.w.cover.hit(OwnerChanged)
		}
		if owner >= at.owner { // else its answer was slower than those of the next one
			at.floor, at.owner = o, owner
		}
	}
}

// wasTold checks what somebody was told as the group's offset (S23): nothing below what was accepted or told before, but for a commit whose outcome
// nobody heard, which may have come late.
func (r *groupRun) wasTold(p part, o, floor record.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.offsets[p]
	if o < floor && !at.unknown[o] {
		r.w.failf("S23: the group's offset in %s is %d, %d was accepted or told before", p, o, floor)
	}
	at.floor = max(at.floor, o)
}

// awaitShared waits until the members share everything and have got to the end (V6).
func (r *groupRun) awaitShared() {
	r.mu.Lock()
	r.settled = true
	r.mu.Unlock()
	for began := time.Now(); !r.w.failed(); time.Sleep(200 * time.Millisecond) {
		lacks := r.lacksOf()
		if lacks == "" {
			break
		}
		if time.Since(began) > settling {
			r.w.failf("V6: %v after the last fault: %s", settling, lacks)
		}
	}
	for _, p := range r.parts[shared] {
		if r.w.failed() {
			return
		}
		floor, _ := r.standing(p)
		var o record.Offset
		if err := r.raw.until("the offset of "+p.String(), func(ctx context.Context) (err error) {
			o, err = r.raw.groupOffset(ctx, p, "", -1)
			return err
		}); err != nil {
			r.w.failf("the offset of %s: %v", p, err)
			return
		}
		r.wasTold(p, o, floor)
		start, content, _ := r.scan(p, 1<<20)
		if end := start + record.Offset(len(content)); o != end && !r.w.failed() {
			r.w.failf("S23: the group stands at %d of %s, which ends at %d", o, p, end)
		}
		r.h.checkEnd(p, start, content)
	}
}

// lacksOf says what the group lacks of being at rest and at the end.
func (r *groupRun) lacksOf() string {
	ends := map[part]record.Offset{}
	for _, p := range r.parts[shared] {
		_, ends[p] = r.bounds(p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	owners := map[part][]string{}
	for key, m := range r.members { // the id of a classic one is its goroutine's alone
		for p, o := range m.owned {
			owners[p] = append(owners[p], key)
			if o.committed < ends[p] {
				return fmt.Sprintf("the member of place and life %s is at %d of %s, which ends at %d", key, o.committed, p, ends[p])
			}
		}
	}
	for _, p := range r.parts[shared] {
		if len(owners[p]) != 1 {
			slices.Sort(owners[p])
			return fmt.Sprintf("%s is owned by %v of %d members", p, owners[p], len(r.members))
		}
	}
	return ""
}
