// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kind is a kind of fault.
type kind string

const (
	killOne    kind = "kill"
	killAll    kind = "kill all"
	freeze     kind = "freeze beyond the lease"
	hiccup     kind = "freeze below the lease"
	partition  kind = "partition"
	oneWay     kind = "one-way partition"
	cutEtcd    kind = "cut from etcd"
	cutStore   kind = "cut from the store"
	isolate    kind = "cut from all but clients"
	slow       kind = "slow links"
	reset      kind = "connections reset"
	loseDisk   kind = "disk lost"
	fillDisk   kind = "disk full"
	roll       kind = "rolling restart"
	killMember kind = "etcd member killed"
	reassign   kind = "replicas reassigned"
	swizzle    kind = "links cut one by one"
)

// step is one fault of a schedule.
type step struct {
	kind  kind
	node  place
	other place // of a pair; 0: all others
	dir   int   // of a one-way fault; 0 or 1
	reset bool  // heal by breaking what was held
	hold  time.Duration
	delay time.Duration
	pause time.Duration // after it
	under *step         // a fault of the network meanwhile
}

func (s step) String() string {
	out := string(s.kind)
	if s.node != 0 {
		out += fmt.Sprintf(", %s", s.node)
	}
	if s.other != 0 {
		out += fmt.Sprintf(" and %s", s.other)
	}
	out = fmt.Sprintf("%s, %s", out, s.hold.Round(time.Millisecond))
	if s.under != nil {
		out += " (meanwhile " + s.under.String() + ")"
	}
	return out
}

// plan is the schedule of a seed: every kind in some order, again and again, later also two at a time. victim is the node whose disk
// may be lost.
func plan(rnd *rand.Rand, steps int, victim, small place, members int) (all []step) {
	kinds := []kind{killOne, killOne, killOne, killAll, freeze, hiccup, partition, oneWay, cutEtcd, cutStore, isolate, slow, reset, loseDisk, roll, reassign, swizzle}
	if small != 0 {
		kinds = append(kinds, fillDisk)
	}
	if members > 1 {
		kinds = append(kinds, killMember)
	}
	ttl := func(least, most float64) time.Duration {
		return time.Duration((least + (most-least)*rnd.Float64()) * float64(lease))
	}
	for len(all) < steps {
		for _, k := range rnd.Perm(len(kinds)) {
			s := step{kind: kinds[k], node: place(1 + rnd.IntN(nodes)), dir: rnd.IntN(2), reset: rnd.IntN(2) == 0, pause: ttl(0.1, 0.8)}
			switch s.kind {
			case killOne:
				s.hold = ttl(0, 2)
			case killAll:
				s.node, s.hold = 0, ttl(0, 1.5)
			case freeze:
				s.hold = ttl(1.3, 2.2)
			case hiccup:
				s.hold = ttl(0.1, 0.6)
			case partition, oneWay:
				s.hold = ttl(0.3, 2.2)
				if rnd.IntN(2) == 0 {
					s.other = others(s.node)[rnd.IntN(nodes-1)]
				}
			case cutEtcd, cutStore, isolate:
				s.hold = ttl(0.5, 2.2)
			case slow:
				s.hold, s.delay = ttl(0.5, 1.5), time.Duration(5+rnd.IntN(200))*time.Millisecond
			case reset:
				s.hold = ttl(0.3, 1)
			case loseDisk:
				s.node, s.hold = victim, ttl(0, 1)
			case fillDisk:
				s.node, s.hold, s.reset = small, ttl(0.5, 1.5), rnd.IntN(3) == 0
			case roll:
				s.node = 0
			case swizzle:
				s.dir, s.hold = rnd.IntN(1<<20), ttl(0.5, 2)
			case reassign:
				s.dir, s.hold = rnd.IntN(1<<20), ttl(0.1, 1)
			case killMember:
				s.node, s.hold = etcd+place(rnd.IntN(members)), ttl(0.3, 2)
			}
			if len(all) > len(kinds)/2 && rnd.IntN(3) == 0 && s.allowsMore() {
				s.under = &step{kind: []kind{partition, oneWay, cutEtcd, cutStore, slow}[rnd.IntN(5)], node: place(1 + rnd.IntN(nodes)), dir: rnd.IntN(2),
					delay: time.Duration(5+rnd.IntN(100)) * time.Millisecond, reset: rnd.IntN(2) == 0}
			}
			all = append(all, s)
		}
	}
	return all[:steps]
}

// allowsMore tells whether another fault may come on top: not where the cluster has to be whole meanwhile.
func (s step) allowsMore() bool { return s.kind != loseDisk && s.kind != roll }

// happened is a fault that was made.
type happened struct {
	step
	began, ended time.Time
	at           int64 // on the history's clock
}

// nemesis makes the faults.
type nemesis struct {
	c    *cluster
	l    *load
	done []happened
}

// run makes one fault, waits, and ends it.
func (n *nemesis) run(s step) {
	c := n.c
	did := happened{step: s, began: time.Now(), at: n.l.h.now()}
	c.t.Logf("%s %s", clock(did.at), s)
	if s.under != nil {
		n.disturb(*s.under)
	}
	switch s.kind {
	case killOne:
		c.kill(s.node)
		if s.under != nil {
			time.Sleep(s.hold)
			c.launch(s.node)
			break
		}
		n.awaitAcks("a kill", did.at, s.hold, func() { c.launch(s.node) })
	case killAll:
		for m := range c.node {
			c.kill(m)
		}
		time.Sleep(s.hold)
		for m := range c.node {
			c.launch(m)
		}
	case freeze, hiccup:
		n.freeze(s)
	case partition, oneWay, cutEtcd, cutStore, isolate, slow:
		n.disturb(s)
		time.Sleep(s.hold)
		n.heal(s)
	case reset:
		for end := time.Now().Add(s.hold); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			c.net.reset(n.around(s.node)...)
		}
	case swizzle:
		n.swizzle(s)
	case loseDisk:
		n.loseDisk(s)
	case fillDisk:
		n.fillDisk(s)
	case roll:
		n.roll()
	case reassign:
		if err := n.l.reassign(s); err != nil {
			c.t.Logf("the reassignment is refused: %v", err)
		}
		time.Sleep(s.hold)
	case killMember:
		e := c.etcd[s.node-etcd]
		e.Kill()
		time.Sleep(s.hold)
		e.Start()
	}
	if s.under != nil {
		n.heal(*s.under)
	}
	did.ended = time.Now()
	n.done = append(n.done, did)
	n.sweep(s)
	time.Sleep(s.pause)
}

// awaitAcks waits until every partition acknowledges to all replicas again, but not for ever, and calls back after a while.
func (n *nemesis) awaitAcks(what string, since int64, after time.Duration, back func()) {
	began, called := time.Now(), false
	for {
		if !called && time.Since(began) >= after {
			called = true
			back()
		}
		waiting := time.Since(began) < failoverPatience
		waiting = waiting && len(n.l.waiting(since)) > 0
		if called && !waiting {
			if time.Since(began) >= failoverPatience {
				n.l.h.note("%s after %s at %s no acks=all yet in %v", failoverPatience, what, clock(since), n.l.waiting(since))
			}
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// disturb begins a fault of the network, heal ends it.
func (n *nemesis) disturb(s step) {
	n.c.net.set(rule{held: s.kind != slow, delay: s.delay}, n.directions(s)...)
}

func (n *nemesis) heal(s step) {
	ds := n.directions(s)
	if s.reset {
		n.c.net.reset(ds...)
	}
	n.c.net.set(rule{}, ds...)
}

// waiting lists the partitions that have acknowledged nothing to all replicas that was sent since.
func (l *load) waiting(since int64) (all []part) {
	for p, promise := range l.h.parts() {
		if promise.replicas == nodes && promise.durable && !l.h.ackedSince(p, since) {
			all = append(all, p)
		}
	}
	return all
}

// sweep finds nodes that ended by themselves.
func (n *nemesis) sweep(s step) {
	for _, m := range n.c.ended() {
		if s.kind == fillDisk && s.node == m && s.reset {
			continue // a disk without any space ends a node; with space it has to come back
		}
		n.l.h.note("%s ended by itself around %s (%s); its log: %s", m, clock(n.l.h.now()), s, lastLines(n.c.node[m].Tail(), 5))
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

func (n *nemesis) freeze(s step) {
	n.c.node[s.node].Signal(syscall.SIGSTOP)
	time.Sleep(s.hold)
	n.c.node[s.node].Signal(syscall.SIGCONT)
}

// directions are those that a fault disturbs.
func (n *nemesis) directions(s step) (ds []direction) {
	pairs := others(s.node)
	if s.other != 0 {
		pairs = []place{s.other}
	}
	switch s.kind {
	case partition:
		for _, o := range pairs {
			ds = append(ds, both(s.node, o)...)
		}
	case oneWay:
		for _, o := range pairs {
			ds = append(ds, both(s.node, o)[s.dir])
		}
	case cutEtcd:
		for i := range n.c.etcd {
			ds = append(ds, both(s.node, etcd+place(i))...)
		}
	case cutStore:
		ds = both(s.node, store)
	case isolate, slow:
		ds = n.around(s.node)
	}
	return ds
}

func (n *nemesis) around(m place) (ds []direction) {
	for _, o := range others(m) {
		ds = append(ds, both(m, o)...)
	}
	for i := range n.c.etcd {
		ds = append(ds, both(m, etcd+place(i))...)
	}
	return append(ds, both(m, store)...)
}

// swizzle cuts the directions around a node one by one and lets them work again in another order.
func (n *nemesis) swizzle(s step) {
	ds := n.around(s.node)
	rnd := rand.New(rand.NewPCG(uint64(s.dir), 0))
	each := s.hold / time.Duration(2*len(ds))
	for _, held := range []bool{true, false} {
		for _, i := range rnd.Perm(len(ds)) {
			n.c.net.set(rule{held: held}, ds[i])
			time.Sleep(each)
		}
	}
}

// loseDisk empties a node's disk. One disk at a time: the next one must not go before all copies are there again.
func (n *nemesis) loseDisk(s step) {
	n.awaitWhole("before a disk is lost")
	c := n.c
	if only := n.l.onlyOn(s.node); len(only) > 0 {
		c.t.Logf("%s keeps its disk: the balancer put the only replica of %v there", s.node, only)
		return
	}
	c.kill(s.node)
	if err := os.RemoveAll(c.node[s.node].Config.Data); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(s.hold)
	c.launch(s.node)
	n.awaitWhole("after a disk was lost")
}

// fillDisk takes the space of a node's disk for a while: nearly all, which it has to bear, or all.
func (n *nemesis) fillDisk(s step) {
	c := n.c
	name := filepath.Join(filepath.Dir(c.node[s.node].Config.Data), "filler")
	f, err := os.Create(name)
	if err != nil {
		c.t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for size, least := len(block), 4096; size >= least; {
		if free, err := freeBytes(name); err != nil {
			c.t.Fatal(err)
		} else if !s.reset && free < smallDiskLeft {
			break
		}
		if _, err := f.Write(block[:size]); err != nil {
			size /= 2
		}
	}
	if err := f.Close(); err != nil {
		c.t.Fatal(err)
	}
	if full := n.l.h.now(); !s.reset && s.under == nil {
		// The others go on without this node.
		n.awaitAcks("a disk was full", full, s.hold, func() {})
	} else {
		time.Sleep(s.hold)
	}
	if err := os.Remove(name); err != nil {
		c.t.Fatal(err)
	}
}

// roll restarts one node after the other, as /readyz allows.
func (n *nemesis) roll() {
	c := n.c
	for m := place(1); m <= nodes; m++ {
		if err := c.awaitReady(recovery); err != nil {
			n.l.h.note("V1: rolling restart at %s: not ready after %s: %v", clock(n.l.h.now()), recovery, err)
			return
		}
		c.down[m] = true
		if code := c.node[m].Terminate(); code != 0 {
			n.l.h.note("SIGTERM ended %s with code %d at %s: %s", m, code, clock(n.l.h.now()), lastLines(c.node[m].Tail(), 5))
		}
		c.launch(m)
	}
}

// awaitWhole waits until every partition has a leader and all its replicas in sync, and every node is ready (V1).
func (n *nemesis) awaitWhole(when string) {
	deadline := time.Now().Add(recovery)
	for {
		missing := n.l.unwhole()
		err := n.c.awaitReady(0)
		if len(missing) == 0 && err == nil {
			return
		}
		if time.Now().After(deadline) {
			n.l.h.note("V1: %s, at %s: not whole after %s: %v %v", when, clock(n.l.h.now()), recovery, missing, err)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// unwhole lists the partitions that lack a leader or a replica, by the word of every node that runs.
func (l *load) unwhole() (missing []string) {
	c := conns{}
	defer c.close()
	for n := place(1); n <= nodes; n++ {
		if l.c.down[n] {
			continue
		}
		var names []string
		for topic := range promises {
			names = append(names, topic)
		}
		invoked := l.h.now()
		topics, err := l.conn(c, n).metadata(names)
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s: %v", n, err))
			continue
		}
		l.learn(n, topics, invoked, l.h.now())
		for p, promise := range l.h.parts() {
			for _, mp := range topics[p.topic].partitions {
				if mp.Partition == p.index && (mp.Leader < 0 || len(mp.ISR) < promise.replicas) {
					missing = append(missing, fmt.Sprintf("%s by %s: leader %d, in sync %v", p, n, mp.Leader, mp.ISR))
				}
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// onlyOn lists the partitions that a node has the only replica of, or may soon.
func (l *load) onlyOn(n place) (all []part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, promise := range l.h.parts() {
		if promise.replicas == 1 && slices.Contains(l.routes[p].replicas, int32(n)) {
			all = append(all, p)
		}
	}
	return all
}

// reassign moves every partition with one replica to the next keeper, and turns the order of some others' replicas.
func (l *load) reassign(s step) error {
	ctx, cancel := context.WithTimeout(l.all, 5*time.Second)
	defer cancel()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	l.mu.Lock()
	for topic, promise := range promises {
		rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		rt.Topic = topic
		for i := range int32(partitions) {
			now := l.routes[part{topic, i}].replicas
			if len(now) != promise.replicas {
				continue // on its way
			}
			rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
			rp.Partition = i
			if promise.replicas == 1 {
				at := slices.Index(l.keepers, place(now[0]))
				rp.Replicas = []int32{int32(l.keepers[(at+1)%len(l.keepers)])}
			} else if s.dir>>i&1 == 1 {
				rp.Replicas = append(slices.Clone(now[1:]), now[0])
			} else {
				continue
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	l.mu.Unlock()
	resp, err := req.RequestWith(ctx, l.admin)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("%s-%d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}
