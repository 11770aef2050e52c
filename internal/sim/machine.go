// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// machine is what of a node outlives its processes, and the process that runs now.
type machine struct {
	id      record.NodeID
	host    string
	trap    trap
	restart chan struct{} // asks for a clean stop

	// Guarded by World.mu.
	disk      *hotlog.MemFS
	node      *node     // nil while none runs
	stall     time.Time // until then the disk takes no writes, or syncs
	stallSync bool      // it is the syncs
	slowStart bool      // when it starts next, its syncs stall for a while
	emptied   bool      // it lost its disk and has not been in all in-sync sets since
	uploading bool      // its last process died during an upload
	together  bool      // when it crashes next, all others do
	backAt    time.Time // not before; the past: when it comes
}

func newMachine(id record.NodeID) *machine {
	return &machine{id: id, host: hostOf(id), restart: make(chan struct{}, 1), disk: hotlog.NewMemFS()}
}

func hostOf(id record.NodeID) string { return fmt.Sprintf("node%d", id) }

func addressOf(id record.NodeID) string { return hostOf(id) + ":9092" }

// keep runs one life of a machine's node after the other until ctx ends.
func (w *World) keep(ctx context.Context, m *machine) {
	for ctx.Err() == nil {
		w.mu.Lock()
		disk := m.disk
		w.mu.Unlock()
		n, err := newNode(ctx, w, m, disk)
		if err != nil {
			w.log.Warn("sim: the node did not start", "node", m.id, "error", err)
			w.net.Cut(m.host)
			time.Sleep(300 * time.Millisecond)
			continue
		}
		w.setNode(m, n)
		select {
		case <-n.gone:
			w.setNode(m, nil)
			w.graves.Go(n.close)
			time.Sleep(lastWords)
			w.net.Cut(m.host)
			w.stayAway(m)
		case <-m.restart:
			w.setNode(m, nil)
			w.cover.hit(CleanStop)
			n.stop()
		case <-ctx.Done():
			w.setNode(m, nil)
			n.stop()
		}
	}
}

// stayAway waits between two lives of a machine's node.
func (w *World) stayAway(m *machine) {
	if w.untilBack(m) <= 0 {
		time.Sleep(w.awayFor())
		return
	}
	for left := w.untilBack(m); left > 0 && !w.calm.Load(); left = w.untilBack(m) {
		time.Sleep(min(left, 100*time.Millisecond))
	}
}

func (w *World) untilBack(m *machine) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(m.backAt)
}

func (w *World) setNode(m *machine, n *node) {
	w.mu.Lock()
	m.node = n
	m.uploading = m.uploading && n == nil
	if n != nil && m.slowStart {
		m.slowStart, m.stall, m.stallSync = false, time.Now().Add(slowStart), true
	}
	w.mu.Unlock()
}

// lifeOf is a machine's node that runs now, or nil.
func (w *World) lifeOf(m *machine) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := m.node; n != nil && !n.dead.Load() {
		return n
	}
	return nil
}

// lives are the nodes that run now.
func (w *World) lives() (out []*node) {
	for _, m := range w.machines {
		if n := w.lifeOf(m); n != nil {
			out = append(out, n)
		}
	}
	return out
}

// crash ends a life as a power failure does: at once, with any part of what was not synced.
func (w *World) crash(n *node, at Event) {
	w.mu.Lock()
	waiting := w.mu.waiting
	percent := []int{0, 0, 50, 100}[w.mu.rng.IntN(4)]
	seed := w.mu.rng.Uint64()
	w.mu.Unlock()
	if w.calm.Load() || !n.kill() {
		return
	}
	w.mu.Lock()
	unsynced := n.m.disk.Unsynced()
	n.m.disk = n.m.disk.Crash(percent, seed)
	n.m.uploading = n.uploads.Load() > 0
	all := n.m.together
	n.m.together = false
	w.mu.Unlock()
	w.cover.hit(at)
	w.leftOffice(n)
	if waiting > 0 {
		w.cover.hit(CrashInProduce)
	}
	if unsynced && percent < 100 {
		w.cover.hit(UnsyncedTail)
	} else if unsynced {
		w.cover.hit(UnsyncedKept)
	}
	w.log.Info("sim: crash", "node", n.m.id, "at", at, "percent", percent, "unsynced", unsynced)
	close(n.gone)
	if all {
		for _, other := range w.lives() {
			w.crash(other, PowerFailure)
		}
	}
}

// loseDisk ends a life together with its disk, if everything that was acknowledged is on two others by then.
func (w *World) loseDisk(ctx context.Context, m *machine) {
	if !w.losing.TryLock() {
		return // another one is being lost; waiting for a mutex would stop the bubble's clock
	}
	defer w.losing.Unlock()
	if n := w.lifeOf(m); n != nil && w.allInSync(ctx) {
		w.destroy(n)
	}
}

// destroy ends a life together with its disk.
func (w *World) destroy(n *node) (done bool) {
	m := n.m
	if w.calm.Load() || !n.kill() {
		return false
	}
	w.mu.Lock()
	m.disk, m.emptied, m.uploading = hotlog.NewMemFS(), true, n.uploads.Load() > 0
	w.mu.Unlock()
	w.cover.hit(DiskLost)
	w.log.Info("sim: disk lost", "node", m.id)
	close(n.gone)
	return true
}

// allInSync tells whether every partition there is has all its replicas, three, in sync with the disks that they have now.
func (w *World) allInSync(ctx context.Context) bool {
	lives := w.lives()
	if len(lives) < len(w.machines) {
		return false
	}
	stores := map[record.NodeID]metadata.UUID{}
	for _, n := range lives {
		stores[n.m.id] = n.store
	}
	return w.everyISR(ctx, lives[0], func(s *metadata.ISRState) bool {
		lost := func(m metadata.ISRMember) bool { return stores[m.Node] != m.StoreID }
		return len(s.Members) >= w.replicas() && !slices.ContainsFunc(s.Members, lost)
	})
}

// everyISR tells whether it is so with the in-sync set of every partition there is, read by n.
func (w *World) everyISR(ctx context.Context, n *node, is func(*metadata.ISRState) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for t := range n.meta.Image().Topics() {
		for i := range t.Partitions {
			s, err := n.meta.ReadPartition(ctx, record.PartitionID{Topic: t.ID, Index: int32(i)})
			if err != nil || !t.Deleting && !is(&s.ISR) {
				return false
			}
		}
	}
	return true
}
