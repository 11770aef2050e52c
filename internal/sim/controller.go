// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/varve/varve/record"
)

// This file is about worlds with more nodes than a partition has replicas: there the controller has something to decide. It runs on every
// node of every cluster; here it empties nodes that drain, raises factors, balances, and is itself crashed and cut off.

// replicas is how many replicas a partition has.
func (w *World) replicas() int { return min(3, len(w.machines)) }

// placing tells whether there are nodes without a replica of a partition.
func (k *Knobs) placing() bool { return k.Nodes > 3 }

// load is what a node's controller reports: the bytes that came in at each partition that it leads.
func load(n *node) func() map[record.PartitionID]int64 {
	ends, bytes := map[record.PartitionID]record.Offset{}, map[record.PartitionID]int64{}
	return func() map[record.PartitionID]int64 {
		out := map[record.PartitionID]int64{}
		for _, p := range n.broker.Partitions() {
			m := p.Marks()
			if !m.Leading {
				continue
			}
			if end, known := ends[p.ID()]; known && m.LogEnd > end {
				bytes[p.ID()] += int64(m.LogEnd-end) * loadPerRecord
			}
			ends[p.ID()], out[p.ID()] = m.LogEnd, bytes[p.ID()]
		}
		return out
	}
}

// tookOffice notes which life is the controller.
func (w *World) tookOffice(n *node) {
	w.mu.Lock()
	again := w.mu.controller != nil && w.mu.controller != n
	w.mu.controller = n
	w.mu.Unlock()
	if again {
		w.cover.hit(ControllerChanged)
	}
}

// leftOffice counts the end of a life that was the controller and had a move under way.
func (w *World) leftOffice(n *node) {
	w.mu.Lock()
	was := w.mu.controller == n
	w.mu.Unlock()
	if !was {
		return
	}
	for t := range n.meta.Image().Topics() {
		if len(t.Moves) > 0 {
			w.cover.hit(ControllerDied)
			return
		}
	}
}

// decided counts what a controller decided, by its reason.
func (w *World) decided(r slog.Record) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "why" {
			w.cover.hit(Event("controller: " + a.Value.String()))
		}
		return true
	})
	w.mu.Lock()
	w.mu.decided = time.Now()
	w.mu.Unlock()
}

// drains empties one node after the other while ctx lasts, or begins to: faults and the next one may come in between.
func (w *World) drains(ctx context.Context) {
	for pauseFor(ctx, time.Second+w.millis(8000)) {
		m := w.machines[w.draw(len(w.machines))]
		w.mark(ctx, m, true) // what nobody answers may have happened, or happen yet
		until := time.Now().Add(time.Second + w.millis(20_000))
		for time.Now().Before(until) && pauseFor(ctx, 200*time.Millisecond) {
			if w.holds(m) == 0 {
				w.cover.hit(NodeDrained)
				break
			}
		}
		w.keepAgain(m)
	}
}

// mark says that a node drains, or does not any more. false: nobody could be asked.
func (w *World) mark(ctx context.Context, m *machine, drain bool) bool {
	lives := w.lives()
	if len(lives) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n, err := lives[w.draw(len(lives))], error(nil)
	if drain {
		_, err = n.meta.Drain(ctx, m.id)
	} else {
		_, err = n.meta.Undrain(ctx, m.id)
	}
	return err == nil
}

// keepAgain undoes a drain.
func (w *World) keepAgain(m *machine) {
	for !w.mark(context.Background(), m, false) {
		time.Sleep(200 * time.Millisecond)
	}
}

// holds is how many replicas are, or will be, on a machine, as the newest of all images says.
func (w *World) holds(m *machine) (n int) {
	w.watch.mu.Lock()
	img := w.watch.newest
	w.watch.mu.Unlock()
	if img == nil {
		return 1
	}
	for t := range img.Topics() {
		for i := range t.Partitions {
			if a := t.Assignment(int32(i)); !t.Deleting && (slices.Contains(a.Replicas, m.id) || slices.Contains(a.Goal(), m.id)) {
				n++
			}
		}
	}
	return n
}

// checkController asks for what it has to do when nothing is in its way: it comes to rest (C4), empties a node that drains, and comes to
// rest again.
func (r *run) checkController() {
	w := r.w
	if !w.knobs.placing() || w.failed() {
		return
	}
	time.Sleep(lateTxn)
	for _, m := range w.machines { // marks that came late
		if !w.mark(context.Background(), m, false) {
			w.failf("V1: node %d cannot be kept", m.id)
		}
	}
	r.awaitRest()
	m := w.machines[w.draw(len(w.machines))]
	if !w.mark(context.Background(), m, true) {
		w.failf("V1: node %d cannot be drained", m.id)
	}
	deadline := time.Now().Add(settling)
	for w.holds(m) > 0 && !w.failed() {
		if time.Now().After(deadline) {
			w.failf("V1: node %d drains for %v and holds %d replicas:\n%s", m.id, settling, w.holds(m), w.assignments())
		}
		time.Sleep(200 * time.Millisecond)
	}
	r.awaitInSync(time.Now())
	if !w.mark(context.Background(), m, false) {
		w.failf("V1: node %d cannot be kept", m.id)
	}
	r.awaitRest()
	r.awaitInSync(time.Now())
}

// awaitRest waits until the controller has decided nothing for longer than it looks at the loads.
func (r *run) awaitRest() {
	w := r.w
	for deadline := time.Now().Add(settling + calmFor); !w.failed(); time.Sleep(time.Second) {
		w.mu.Lock()
		last := w.mu.decided
		w.mu.Unlock()
		if time.Since(last) > calmFor {
			return
		}
		if time.Now().After(deadline) {
			w.failf("V1: the controller does not come to rest:\n%s", w.assignments())
		}
	}
}

// assignments is where everything is.
func (w *World) assignments() string {
	return w.describe(func(record.PartitionID) bool { return true })
}

// unled is what nobody leads, and what the nodes themselves say about it.
func (w *World) unled() string {
	return w.describe(func(id record.PartitionID) bool {
		m, led := w.marks(id)
		return !led || m.HW < m.LogEnd
	})
}

// describe is where partitions are, as one of the nodes sees it.
func (w *World) describe(which func(record.PartitionID) bool) string {
	var b strings.Builder
	lives := w.lives()
	if len(lives) == 0 {
		return "no node runs\n"
	}
	img := lives[0].meta.Image()
	for t := range img.Topics() {
		for i := range t.Partitions {
			id := record.PartitionID{Topic: t.ID, Index: int32(i)}
			if !which(id) {
				continue
			}
			s, _ := img.Partition(id)
			a := t.Assignment(int32(i))
			fmt.Fprintf(&b, "%s-%d on %v of %v, in sync %v, eligible %v, led by %+v\n%s", t.Name, i, a.Replicas, a.Goal(), s.ISR.Members, s.ISR.ELR, s.Leader, w.why(id))
			for _, n := range lives {
				if p, err := n.broker.Partition(id); err == nil {
					fmt.Fprintf(&b, "node %d has %+v\n", n.m.id, p.Marks())
				}
			}
		}
	}
	return b.String()
}
