// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"slices"
	"time"

	"github.com/varve/varve/metadata/memory"
)

// clientHosts are where the clients of a run are.
var clientHosts = []string{"producer0", "producer1", "consumer", "checker"}

// pauseFor waits; false when ctx ended first.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// nemesis makes faults on one machine until ctx ends.
func (w *World) nemesis(ctx context.Context, m *machine) {
	for pauseFor(ctx, 500*time.Millisecond+w.millis(6000)) {
		kind := w.draw(12)
		switch {
		case kind < 6 && w.knobs.Crashes:
			w.crashSoon(m, kind)
		case kind == 6 && w.knobs.Crashes:
			m.stopCleanly()
		case kind == 7 && w.knobs.MetaFaults:
			w.metadataAway(ctx)
		case kind == 8 && w.knobs.NetFaults:
			w.cutOff(ctx, m)
		case kind >= 9 && w.knobs.DiskStalls:
			w.stallDisk(ctx, m)
		}
	}
}

// nemeses makes faults on several machines until ctx ends; several of it run at a time.
func (w *World) nemeses(ctx context.Context) {
	for pauseFor(ctx, 500*time.Millisecond+w.millis(5000)) {
		m := w.machines[w.draw(len(w.machines))]
		kind := w.draw(32)
		switch {
		case kind < 7 && w.knobs.Crashes:
			w.mu.Lock()
			m.together = w.mu.rng.IntN(4) == 0
			w.mu.Unlock()
			w.crashSoon(m, min(kind, 5))
		case kind < 9 && w.knobs.Crashes:
			m.stopCleanly()
		case kind < 11 && w.knobs.Crashes:
			w.loseDisk(ctx, m)
		case kind < 13 && w.knobs.MetaFaults:
			w.nodeLosesMetadata(ctx, m)
		case kind == 13 && w.knobs.MetaFaults:
			w.metadataAway(ctx)
		case kind == 14 && w.knobs.NetFaults:
			w.cutOff(ctx, m)
		case kind < 18 && w.knobs.NetFaults:
			w.isolate(ctx, m)
		case kind < 21 && w.knobs.NetFaults && w.knobs.MetaFaults:
			w.outcast(ctx, m)
		case kind < 24 && w.knobs.DiskStalls:
			w.stallDisk(ctx, m)
		case kind >= 24 && kind < 27 && w.knobs.Crashes && w.knobs.DiskStalls:
			w.returnSlowly(ctx, m, kind >= 25)
		case kind >= 27 && kind < 29 && w.knobs.Crashes:
			w.setJoin()
		case kind == 29 && w.knobs.Crashes:
			w.emptyFirst(ctx, m)
		case kind >= 30 && w.knobs.Crashes:
			w.emptyEligible(ctx, m)
		}
	}
}

// returnSlowly crashes a node, maybe with its disk, and all others once it is back and its disk is too slow for it to catch up: it must
// not be taken for one that holds everything.
func (w *World) returnSlowly(ctx context.Context, m *machine, lose bool) {
	n := w.lifeOf(m)
	if n == nil {
		return
	}
	w.mu.Lock()
	m.slowStart = true
	w.mu.Unlock()
	if lose {
		w.loseDisk(ctx, m)
	} else {
		w.crash(n, CrashAnywhere)
	}
	for range 100 {
		if !pauseFor(ctx, 100*time.Millisecond) {
			return
		}
		if back := w.lifeOf(m); back != nil && back != n && back.meta.Session() != nil {
			break
		}
	}
	pauseFor(ctx, w.millis(1500))
	back := w.lifeOf(m)
	if back == nil || back == n {
		return
	}
	event := SlowReturn
	if back.store != n.store {
		event = SlowEmptyReturn
	}
	for _, other := range w.lives() {
		if other != back {
			w.crash(other, event)
		}
	}
}

// crashSoon crashes a machine's node, at once or at one of its next calls.
func (w *World) crashSoon(m *machine, kind int) {
	at := []Event{CrashAtSync, CrashAtSync, CrashAtTxn, CrashAtUpload, CrashAtCommit, CrashAnywhere}[kind]
	if at == CrashAnywhere {
		if n := w.lifeOf(m); n != nil {
			w.crash(n, at)
		}
		return
	}
	m.trap.set(at, 1+w.draw(map[Event]int{CrashAtSync: 30, CrashAtTxn: 12}[at]+3), w.draw(2) == 0)
}

func (m *machine) stopCleanly() {
	select {
	case m.restart <- struct{}{}:
	default:
	}
}

// metadataAway takes the metadata store away from everybody for a while. Leases stand still meanwhile.
func (w *World) metadataAway(ctx context.Context) {
	w.cover.hit(MetadataOutage)
	w.etcd.SetOutage(true)
	pauseFor(ctx, w.millis(12_000))
	w.etcd.SetOutage(false)
}

// nodeLosesMetadata takes the metadata store away from one node, maybe for longer than its lease lasts, or lets its watches hang.
func (w *World) nodeLosesMetadata(ctx context.Context, m *machine) {
	n := w.lifeOf(m)
	if n == nil {
		return
	}
	if w.draw(4) == 0 {
		n.cutMetadata(memory.Faults{DeadWatch: true})
	} else {
		n.cutMetadata(memory.Faults{Outage: true})
	}
	pauseFor(ctx, w.millis(3*int(w.knobs.Lease.Milliseconds())))
	n.cutMetadata(memory.Faults{})
}

// cutOff keeps a client from a node.
func (w *World) cutOff(ctx context.Context, m *machine) {
	w.cover.hit(ClientsCutOff)
	hosts := clientHosts
	if w.knobs.several() {
		hosts = append(slices.Clone(hosts), "producer2", "prober")
	}
	host := hosts[w.draw(len(hosts))]
	w.net.Partition(host, m.host)
	pauseFor(ctx, w.millis(4000))
	w.net.Heal(host, m.host)
}

// apart keeps a node from some or all of the others until the returned function is called. Clients still reach it.
func (w *World) apart(m *machine, all bool) (heal func()) {
	from := slices.DeleteFunc(slices.Clone(w.machines), func(other *machine) bool { return other == m })
	if !all {
		from = from[w.draw(len(from)):][:1]
	}
	for _, other := range from {
		w.net.Partition(m.host, other.host)
	}
	return func() {
		for _, other := range from {
			w.net.Heal(m.host, other.host)
		}
	}
}

func (w *World) isolate(ctx context.Context, m *machine) {
	defer w.apart(m, w.draw(2) == 0)()
	w.cover.hit(NodesApart)
	pauseFor(ctx, w.millis(8000))
}

// outcast cuts a node off from the metadata and from the other nodes, or one of them, but not from the clients: others take over what it
// leads while it still takes records. Sometimes it has the time to take them out of the in-sync sets first: then one that is only eligible
// takes over.
func (w *World) outcast(ctx context.Context, m *machine) {
	n := w.lifeOf(m)
	if n == nil {
		return
	}
	all, wait := w.draw(3) > 0, w.millis(1000)
	if all && w.draw(2) == 0 {
		wait += w.knobs.Lag + 2*time.Second
	}
	defer w.apart(m, all)()
	w.cover.hit(NodesApart)
	pauseFor(ctx, wait)
	n.cutMetadata(memory.Faults{Outage: true})
	pauseFor(ctx, w.knobs.Lease+w.millis(4000))
	n.cutMetadata(memory.Faults{})
}

// stallDisk keeps a disk from writing while records wait for it, lets their producers send them once more, and may then take the power
// away: what was answered meanwhile was answered too early.
func (w *World) stallDisk(ctx context.Context, m *machine) {
	for range 100 {
		if w.inFlight() {
			break
		}
		pauseFor(ctx, 50*time.Millisecond)
	}
	d, inSync := 300*time.Millisecond+w.millis(2000), w.draw(3) > 0
	w.mu.Lock()
	m.stall, m.stallSync = time.Now().Add(d), inSync
	w.mu.Unlock()
	w.cover.hit(DiskStalled)
	pauseFor(ctx, d/8)
	if w.draw(2) == 0 {
		w.cover.hit(CutInStall)
		w.net.Cut("producer0")
		w.net.Cut("producer1")
	}
	pauseFor(ctx, d-d/8-time.Millisecond)
	n := w.lifeOf(m)
	if n == nil || !w.knobs.Crashes {
		return
	}
	switch kind := w.draw(3); {
	case kind == 0 && inSync && w.knobs.several():
		w.failPower(m, UnsyncedFirst) // it must not have vouched for what its disk has lost
	case kind == 0 || kind == 1 && inSync:
		w.mu.Lock()
		m.together = w.mu.rng.IntN(2) == 0
		w.mu.Unlock()
		w.crash(n, CrashInStall)
		if inSync {
			w.cover.hit(CrashInSync)
		}
	case kind == 1:
		// The first sync is of what the disk was asked to write, the second of what came meanwhile.
		m.trap.set(CrashAtSync, 2, false)
	}
}

func (w *World) inFlight() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.waiting > 0
}

// stall lets the disk of a life take its time, for a sync of the log or ahead of a write to it.
func (w *World) stall(n *node, inSync bool) {
	w.mu.Lock()
	d := time.Duration(0)
	if n.m.node == n && !n.dead.Load() && !w.calm.Load() {
		if n.m.stallSync == inSync {
			d = time.Until(n.m.stall)
		}
		if inSync && d <= 0 {
			d = syncTime * time.Duration(1+w.mu.rng.IntN(10)) / 10
		}
	}
	w.mu.Unlock()
	time.Sleep(d)
}
