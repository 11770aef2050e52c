// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"testing"
	"time"

	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// pose is a state in which members keep a group, so that its coordinator can fail in it.
type pose int

const (
	poseNone       pose = iota
	poseStable          // everybody has an assignment
	posePreparing       // one has joined, the others are yet to
	poseCompleting      // the leader does not say who gets what
	posePending         // a new member has its id, and has not come back with it
)

// stir is what brings a group out of its rest.
type stir int

const (
	stirNone stir = iota
	stirJoin      // a member joins with other metadata than before
	stirAnew      // a member leaves and comes as a new one
)

// poses say how each is come to, how it is called in the group's description, and what a failover in it counts as.
var poses = map[pose]struct {
	state string // "": a member tells
	stir  stir
	event Event
}{
	poseStable:     {"Stable", stirNone, FailoverStable},
	posePreparing:  {"PreparingRebalance", stirJoin, FailoverPreparing},
	poseCompleting: {"CompletingRebalance", stirJoin, FailoverCompleting},
	posePending:    {"", stirAnew, FailoverPending},
}

// RunClassicGroup plays a seed's history of a group of the classic protocol, eager or cooperative, with static members or without, and in
// some seeds with members of the consumer protocol beside. Its coordinator fails in each state of the group. What is checked is what
// RunGroup checks, that a generation never goes back, and that it is the same to all who are told of it (S24).
func RunClassicGroup(t testing.TB, seed uint64, knobs Knobs, cover *Coverage) {
	r := newGroupRun(t, seed, knobs, cover)
	r.classic = classicRun{cooperative: seed%2 == 0, static: seed%3 > 0, mixed: seed%5 == 0, generations: map[int32]*generation{}}
	r.w.static["group.initial.rebalance.delay.ms"] = []string{"0", "1000", "3000"}[seed/2%3]
	r.play(t, func(ctx context.Context) {
		if seed%3 == 0 {
			r.w.graves.Go(func() { r.w.nemeses(ctx) })
		}
		r.strikes(ctx)
	}, func(i, life int) *member {
		if r.classic.mixed && i == 0 && life%2 == 1 {
			if life%4 == 1 {
				r.awaitRebalance()
			}
			return &newConsumerMember(r, i, life).member
		}
		return &newClassicMember(r, i).member
	})
}

// awaitRebalance waits a while for the group to be in the midst of a rebalance: who comes then makes it change its protocol in there.
func (r *groupRun) awaitRebalance() {
	for until := time.Now().Add(rebalanceWithin); time.Now().Before(until) && !r.w.failed(); time.Sleep(lookEvery) {
		r.mu.Lock()
		met := r.classic.posed && (r.classic.pose == posePreparing || r.classic.pose == poseCompleting)
		settled := r.settled
		r.mu.Unlock()
		if met || settled {
			return
		}
	}
}

func (r *groupRun) setPose(p pose, s stir) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.classic.pose, r.classic.posed, r.classic.stir = p, false, s
}

// takeStir is for the one member that is to bring the group out of its rest.
func (r *groupRun) takeStir() stir {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.classic.stir
	r.classic.stir = stirNone
	return s
}

// hold keeps a member in a pose as long as it is wanted.
func (r *groupRun) hold(ctx context.Context, p pose) {
	for until := time.Now().Add(holdFor); time.Now().Before(until); {
		r.mu.Lock()
		wanted := r.classic.pose == p && !r.settled
		r.classic.posed = r.classic.posed || wanted
		r.mu.Unlock()
		if !wanted || !pauseFor(ctx, lookEvery) {
			return
		}
	}
}

// strikes bring the group into one pose after the other, and let its coordinator fail there.
func (r *groupRun) strikes(ctx context.Context) {
	c := newRawClient(r.w, "striker", watcherTimeout)
	defer c.close()
	for pauseFor(ctx, time.Second+r.w.millis(3000)) {
		if r.w.knobs.MetaFaults && r.w.draw(5) == 0 {
			r.releaseLate(ctx, c)
			continue
		}
		p := pose(1 + r.w.draw(len(poses)))
		if n := r.awaitPose(ctx, c, p); n != nil {
			r.strike(ctx, c, n, p)
		}
		r.setPose(poseNone, stirNone)
	}
}

// awaitPose waits until the group is at rest, and then until it is in the pose. It gives the life that coordinates it then.
func (r *groupRun) awaitPose(ctx context.Context, c *rawClient, p pose) *node {
	n := r.awaitState(ctx, c, poses[poseStable].state)
	if n == nil || p == poseStable {
		return n
	}
	r.setPose(p, poses[p].stir)
	return r.awaitState(ctx, c, poses[p].state)
}

func (r *groupRun) awaitState(ctx context.Context, c *rawClient, want string) *node {
	for until := time.Now().Add(poseWait); time.Now().Before(until); {
		state, at, err := c.askState(ctx)
		r.mu.Lock()
		posed := r.classic.posed
		r.mu.Unlock()
		if err == nil && (state == want || want == "" && posed) {
			return r.w.lifeOf(r.w.machines[at-1])
		}
		if !pauseFor(ctx, lookEvery) {
			break
		}
	}
	return nil
}

// strike takes the group away from the life that coordinates it, and waits until another one does.
func (r *groupRun) strike(ctx context.Context, c *rawClient, n *node, p pose) {
	w, m := r.w, n.m
	var how Event
	switch kind := w.draw(4); {
	case kind == 0 && w.knobs.Crashes:
		how = CoordinatorCrashed
		w.crash(n, CrashAnywhere)
	case kind == 1 && w.knobs.Crashes:
		how = CoordinatorStopped
		m.stopCleanly()
	case kind == 2 && w.knobs.MetaFaults:
		// Clients still reach it, and it them.
		how = CoordinatorCutOff
		n.cutMetadata(memory.Faults{Outage: true})
		defer n.cutMetadata(memory.Faults{})
	default:
		how = CoordinatorDrained
		w.mark(ctx, m, true)
		defer w.keepAgain(m)
	}
	pauseFor(ctx, w.millis(2500))
	r.setPose(poseNone, stirNone)
	if r.awaitSuccessor(ctx, c, n, w.knobs.Lease+poseWait, false) {
		w.cover.hit(poses[p].event)
		w.cover.hit(how)
	}
}

// awaitSuccessor waits until another life than n answers for the group; anew: any node is asked each time who that is.
func (r *groupRun) awaitSuccessor(ctx context.Context, c *rawClient, n *node, atMost time.Duration, anew bool) bool {
	for until := time.Now().Add(atMost); time.Now().Before(until) && pauseFor(ctx, 100*time.Millisecond); {
		if anew {
			c.coordinator, c.turn = 0, r.w.draw(len(r.w.machines))
		}
		_, at, err := c.askState(ctx)
		if err != nil {
			continue
		}
		if now := r.w.lifeOf(r.w.machines[at-1]); now != nil && now != n {
			return true
		}
	}
	return false
}

// releaseLate lets the coordinator of a group at rest give up what it coordinates, hear nothing of it and, as it is not drained any more, go on. Then it
// does not hear what the metadata say, and what it had sent arrives: others take over beside it, and its members go on to ask it.
func (r *groupRun) releaseLate(ctx context.Context, c *rawClient) {
	w, n := r.w, r.awaitState(ctx, c, poses[poseStable].state)
	if n == nil {
		return
	}
	n.releasesLate.Store(true)
	w.mark(ctx, n.m, true)
	pauseFor(ctx, time.Second)
	w.keepAgain(n.m)
	pauseFor(ctx, lateRelease-3*time.Second) // it gave up at the mark, a second ago: 2 s are left until that arrives
	n.releasesLate.Store(false)
	n.cutMetadata(memory.Faults{DeadWatch: true})
	w.mark(ctx, n.m, true)
	if r.awaitSuccessor(ctx, c, n, poseWait, true) {
		w.cover.hit(CoordinatorReleasedLate)
		pauseFor(ctx, time.Second+w.millis(3000))
	}
	n.cutMetadata(memory.Faults{})
	w.keepAgain(n.m)
}

// lookOn asks for the group's offsets all the time. Each time it asks a node anew who coordinates the group; one that stays goes on with who
// answered last.
func (r *groupRun) lookOn(ctx context.Context, stays bool) {
	c := newRawClient(r.w, "onlooker", watcherTimeout)
	defer c.close()
	for pauseFor(ctx, lookEvery+r.w.millis(150)) {
		if !stays {
			c.coordinator, c.turn = 0, r.w.draw(len(r.w.machines))
		}
		floors := map[part]record.Offset{}
		for _, p := range r.parts[shared] {
			floors[p], _ = r.standing(p)
		}
		all, _ := c.groupOffsets(ctx, r.parts[shared], "", -1) // no answer, nothing to check
		for p, o := range all {
			r.wasTold(p, o, floors[p])
		}
	}
}
