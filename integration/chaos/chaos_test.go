// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// TestChaos makes faults for a while, heals everything, and checks what clients saw.
func TestChaos(t *testing.T) {
	seed := number(t, "VARVE_CHAOS_SEED", shortSeed)
	seconds, members := shortSeconds, 1
	if harness.Long() {
		seconds, members = longSeconds, 3
	}
	seconds = int(number(t, "VARVE_CHAOS_SECONDS", uint64(seconds)))
	t.Logf("VARVE_CHAOS_SEED=%d VARVE_CHAOS_SECONDS=%d (the seed decides the faults and their times; the rest is up to the scheduler)", seed, seconds)
	rnd := rand.New(rand.NewPCG(seed, 1))
	victim := place(1 + rnd.IntN(nodes-1)) // never the one with the small disk
	h := newHistory()
	c := startCluster(t, members)
	l := startLoad(t, c, h, rnd, others(victim))
	n := &nemesis{c: c, l: l}
	t.Cleanup(func() {
		if t.Failed() {
			c.keep(fmt.Sprint("seed-", seed))
		}
	})
	n.awaitWhole("before the first fault")
	time.Sleep(time.Second)
	steps := plan(rnd, 10000, victim, c.small, members)
	if only := os.Getenv("VARVE_CHAOS_ONLY"); only != "" { // to reduce a finding
		steps = slices.DeleteFunc(steps, func(s step) bool { return !slices.Contains(strings.Split(only, ","), string(s.kind)) })
	}
	for _, s := range steps {
		if time.Since(h.began) > time.Duration(seconds)*time.Second {
			break
		}
		n.run(s)
	}
	n.finish(rnd)
	for _, finding := range check(h) {
		t.Error(finding)
	}
	if strangers := c.net.strangers(); strangers > 0 {
		t.Errorf("%d connections between nodes did not say whose they were: faults did not reach them", strangers)
	}
	n.report()
}

func number(t *testing.T, env string, otherwise uint64) uint64 {
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s is no number", env, text)
	}
	return n
}

// finish is FIN: everything is healed and whole again in time, then all is read, also from one replica alone.
func (n *nemesis) finish(rnd *rand.Rand) {
	began := time.Now()
	n.c.t.Logf("%s healed", clock(n.l.h.now()))
	n.awaitWhole("after all faults")
	n.l.stopProducing()
	n.flush()
	whole := time.Since(began)
	n.readAll("whole", nil)
	n.lookups(rnd)
	last := place(1 + rnd.IntN(nodes))
	all := []place{last}
	if harness.Long() {
		all = others(0)
	}
	for _, m := range all {
		n.alone(m, rnd)
	}
	n.readAll("in the end", nil) // what was still on its way is there now
	n.l.stopAll()
	n.l.workers.Wait()
	n.c.t.Logf("whole again %s after the last fault; FIN took %s", whole.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

// flush waits for the outcome of every record of the idempotent producers.
func (n *nemesis) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), recovery)
	defer cancel()
	for i, c := range n.l.producers {
		if err := c.Flush(ctx); err != nil {
			n.l.h.note("V1: %s after the last fault the records of producer %d are not all acknowledged: %v", recovery, i+1, err)
		}
	}
}

// readAll reads every partition from its log start to its end, for the final log. only: those alone, by the leader that they have.
func (n *nemesis) readAll(when string, only func(part) bool) {
	c := conns{}
	defer c.close()
	for p := range n.l.h.parts() {
		if only != nil && !only(p) {
			continue
		}
		deadline := time.Now().Add(recovery)
		for next := int64(-1); ; {
			if next < 0 {
				if start, ok := n.l.list(c, p, earliest); ok && start.code == codeNone {
					next = start.offset
				}
			}
			f := (*fetch)(nil)
			if next >= 0 {
				f = n.l.fetch(c, p, next, fetchBytes, 100, true)
			}
			if f != nil && f.code == codeNone {
				if len(f.batches) > 0 {
					next = f.batches[len(f.batches)-1].last + 1
				}
				if next >= f.hw {
					break
				}
			} else {
				time.Sleep(20 * time.Millisecond)
			}
			if time.Now().After(deadline) {
				r, _ := n.l.route(p)
				n.l.h.cannotRead(p, "V1: %s: %s cannot be read at %d from %s, epoch %d: %s", when, p, next, r.node, r.epoch, f)
				break
			}
		}
	}
}

// lookups asks for times in every partition, with nothing else going on.
func (n *nemesis) lookups(rnd *rand.Rand) {
	c := conns{}
	defer c.close()
	age := time.Since(n.l.h.began) + 2*time.Second
	for p := range n.l.h.parts() {
		for range 5 {
			n.l.list(c, p, time.Now().Add(-time.Duration(rnd.Int64N(int64(age)))).UnixMilli())
		}
		for back := range int32(10) {
			n.l.askEpoch(c, p, back)
		}
		n.l.list(c, p, maxTimestamp)
		n.l.list(c, p, earliest)
		n.l.list(c, p, latest)
	}
}

// alone ends the other nodes, so that one replica has to lead everything, reads it all there, and starts the others again.
func (n *nemesis) alone(m place, rnd *rand.Rand) {
	c := n.c
	polite := rnd.IntN(2) == 0
	c.t.Logf("%s reading all from %s alone (the others end politely: %v)", clock(n.l.h.now()), m, polite)
	for _, o := range others(m) {
		if polite {
			c.down[o] = true
			if code := c.node[o].Terminate(); code != 0 {
				n.l.h.note("SIGTERM ended %s with code %d at %s: %s", o, code, clock(n.l.h.now()), lastLines(c.node[o].Tail(), 5))
			}
		} else {
			c.kill(o)
		}
	}
	replicated := func(p part) bool { return promises[p.topic].replicas == nodes }
	deadline := time.Now().Add(recovery)
	for {
		missing := 0
		n.l.unwhole() // learns the routes
		for p := range n.l.h.parts() {
			if r, ok := n.l.route(p); replicated(p) && (!ok || r.node != m) {
				missing++
			}
		}
		if missing == 0 {
			break
		}
		if time.Now().After(deadline) {
			n.l.h.note("V1: %s alone does not lead %d partitions after %s", m, missing, recovery)
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	n.readAll(fmt.Sprintf("%s alone", m), replicated)
	own := conns{}
	for p := range n.l.h.parts() {
		for back := range int32(10) {
			if replicated(p) {
				n.l.askEpoch(own, p, back)
			}
		}
	}
	own.close()
	for _, o := range others(m) {
		c.launch(o)
	}
	n.awaitWhole("after reading from one alone")
	n.sweep(step{kind: "reading from one alone"})
}

// report prints what the run did.
func (n *nemesis) report() {
	t := n.c.t
	sent, acked, read := n.l.h.counts()
	t.Logf("%d records sent, %d acknowledged, %d read; %d fetches, %d lookups, %d DeleteRecords", sent, acked, read, len(n.l.h.fetches), len(n.l.h.lookups), len(n.l.h.deletes))
	kinds := map[kind]int{}
	var worst, all []time.Duration
	for i, f := range n.done {
		kinds[f.kind]++
		if f.kind != killOne || f.under != nil {
			continue
		}
		until := never
		if i+1 < len(n.done) {
			until = n.done[i+1].at
		}
		most := time.Duration(0)
		for p, promise := range n.l.h.parts() {
			if promise.replicas != nodes || !promise.durable {
				continue
			}
			at, ok := n.l.h.firstAck(p, f.at)
			if !ok || at > until {
				continue // another fault came first
			}
			all = append(all, time.Duration(at-f.at))
			most = max(most, time.Duration(at-f.at))
		}
		worst = append(worst, most)
		if most > failoverPromise {
			t.Logf("%s: %s after the kill of %s, more than %s", clock(f.at), most.Round(time.Millisecond), f.node, failoverPromise)
		}
	}
	t.Logf("faults: %v", kinds)
	for what, n := range n.coverage() {
		t.Logf("%s: %d", what, n)
		if n == 0 {
			t.Errorf("the run had no %s: it did not test what it should", what)
		}
	}
	t.Logf("from a kill to the first acks=all: per partition %s; worst partition per kill %s", quantiles(all), quantiles(worst))
	t.Logf("registrations lost without a cause: %d", n.lostLeases())
}

// coverage counts what a run must have had for its rules to mean something.
func (n *nemesis) coverage() map[string]int {
	h := n.l.h
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]int{"deletions": 0, "lives of a topic that were read": 0, "ends of epochs": 0, "changes of leader": 0, "sealed segments": 0}
	for _, d := range h.deletes {
		if d.ok {
			out["deletions"]++
		}
	}
	lives, epochs := map[part]bool{}, map[part]int32{}
	for _, f := range h.fetches {
		if promises[f.p.topic].replicas == 0 && len(f.batches) > 0 {
			lives[f.p] = true
		}
	}
	out["lives of a topic that were read"] = len(lives)
	for _, e := range h.ends {
		if e.code == codeNone && e.end >= 0 {
			out["ends of epochs"]++
		}
	}
	for _, e := range h.epochs {
		epochs[e.p] = max(epochs[e.p], e.epoch)
	}
	for _, e := range epochs {
		out["changes of leader"] += int(e)
	}
	for i := range int32(partitions) {
		if s, err := n.c.node[1].Segments(safe, i); err == nil {
			out["sealed segments"] += len(s.Segments)
		}
	}
	return out
}

func quantiles(d []time.Duration) string {
	if len(d) == 0 {
		return "(none)"
	}
	slices.Sort(d)
	at := func(q float64) time.Duration { return d[int(q*float64(len(d)-1)+0.5)].Round(time.Millisecond) }
	return fmt.Sprintf("n=%d p50 %s p99 %s max %s", len(d), at(0.5), at(0.99), at(1))
}

// lostLeases counts registrations that nodes lost while no fault explained it.
func (n *nemesis) lostLeases() (lost int) {
	for m, node := range n.c.node {
		for line := range strings.Lines(node.Log()) {
			if !strings.Contains(line, "registration lost") {
				continue
			}
			at, err := logTime(line)
			if err != nil {
				n.c.t.Errorf("a log line without a time: %s", line)
				continue
			}
			if !slices.ContainsFunc(n.done, func(f happened) bool { return f.explains(m, at) }) {
				n.c.t.Logf("%s: %s", m, strings.TrimSpace(line))
				lost++
			}
		}
	}
	return lost
}

// explains tells whether a fault may have cost a node its registration at a time.
func (f happened) explains(m place, at time.Time) bool {
	if at.Before(f.began) || at.After(f.ended.Add(2*lease)) {
		return false
	}
	if u := f.under; u != nil && (u.kind == cutEtcd || u.kind == slow) && u.node == m {
		return true
	}
	switch f.kind {
	case freeze, cutEtcd, isolate, slow, reset, swizzle:
		return f.node == m
	case killMember, killAll:
		return true
	case fillDisk:
		return f.node == m
	}
	return false
}

func logTime(line string) (time.Time, error) {
	_, rest, _ := strings.Cut(line, "time=")
	stamp, _, _ := strings.Cut(rest, " ")
	return time.Parse(time.RFC3339Nano, stamp)
}
