// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/internal/memnet"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/mem"
)

// Knobs are what must not be visible in what clients read, and which faults there are.
type Knobs struct {
	Tier         bool  // false: nothing is ever sealed
	SegmentBytes int   // seal at
	CacheBytes   int64 // of the tier's reader; 1 holds one entry
	PageEntries  int   // entries of a folded page
	LocalMillis  int   // how long what is in the bucket stays local
	Lease        time.Duration
	Nodes        int           // 0 stands for 1
	Lag          time.Duration // replica.lag.time.max.ms
	Rebalance    bool          // leaders hand over to the preferred replica by themselves

	Crashes     bool
	StoreFaults bool
	MetaFaults  bool
	NetFaults   bool
	DiskStalls  bool
	Quotas      bool // clients are throttled now and then
}

// several tells whether there is more than one node.
func (k *Knobs) several() bool { return k.Nodes > 1 }

// World is what outlives the processes, and the machines that they run on.
type World struct {
	t      testing.TB
	seed   uint64
	knobs  Knobs
	cover  *Coverage
	log    *slog.Logger
	said   *bytes.Buffer
	static map[string]string

	net      *memnet.Network
	etcd     *memory.Server
	bucket   *objstore.Faulty
	machines []*machine
	watch    watch
	boots    atomic.Int64
	calm     atomic.Bool // no more faults
	graves   sync.WaitGroup
	losing   sync.Mutex // a disk

	mu struct {
		sync.Mutex
		rng      *rand.Rand
		failures int
		waiting  int // records without an answer
		// The life that became the controller last, and when one decided something last.
		controller *node
		decided    time.Time
		cut        time.Time // when a node was cut off last as it handed over
		cutOf      string    // the partition that it handed over, as it ends the keys of its metadata
		probed     string    // the partition that is written all the time, likewise
		joining    bool      // when a replica enters an in-sync set next, the power fails
	}
}

func newWorld(t testing.TB, seed uint64, knobs Knobs, cover *Coverage) *World {
	w := &World{
		t: t, seed: seed, knobs: knobs, cover: cover, log: slog.New(slog.DiscardHandler),
		net: memnet.New(seed), etcd: memory.New(), static: map[string]string{"auto.create.topics.enable": "false"},
	}
	for i := range max(1, knobs.Nodes) {
		w.machines = append(w.machines, newMachine(record.NodeID(i+1)))
	}
	if knobs.several() {
		w.static["replica.lag.time.max.ms"] = strconv.Itoa(int(knobs.Lag.Milliseconds()))
		w.static["auto.leader.rebalance.enable"] = strconv.FormatBool(knobs.Rebalance)
	}
	switch os.Getenv("VARVE_SIM_LOG") {
	case "":
	case "failed": // what a run that fails has logged, once it has ended
		w.said = &bytes.Buffer{}
		w.log = slog.New(slog.NewTextHandler(w.said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	default:
		w.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	w.net.SetFaults(memnet.Faults{DelayMin: latency})
	w.mu.rng = rand.New(rand.NewPCG(seed, 0xfa17))
	o := objstore.FaultOptions{Seed: seed, MaxDelay: 3 * time.Second}
	if knobs.StoreFaults {
		for _, e := range []objstore.Effect{
			objstore.LostReply, objstore.LostRequest, objstore.LateReply, objstore.Unavailable, objstore.Truncated, objstore.FlippedBit, objstore.NotThere, objstore.Slow,
		} {
			o.Rates = append(o.Rates, objstore.Rate{Effect: e, Probability: 0.03})
		}
	}
	w.bucket = objstore.Fault(mem.NewStore(), o)
	return w
}

// failf reports a finding with the seed that replays it.
func (w *World) failf(format string, args ...any) {
	w.mu.Lock()
	w.mu.failures++
	n := w.mu.failures
	w.mu.Unlock()
	if n <= maxFailures {
		w.t.Errorf("seed %d, %v: %s (knobs %+v)", w.seed, time.Since(epoch), fmt.Sprintf(format, args...), w.knobs)
	}
	if n == 1 && w.knobs.several() {
		w.t.Logf("not led, or not committed to the end, then:\n%s", w.unled())
	}
}

// epoch is when the clock of every bubble starts.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *World) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.failures > 0
}

func (w *World) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.rng.IntN(n)
}

// awayFor draws how long a node stays away after a crash. With others that can take over, its lease may end meanwhile; or it may be back
// before they notice.
func (w *World) awayFor() time.Duration {
	switch {
	case !w.knobs.several():
		return w.millis(3000)
	case w.draw(2) == 0:
		return w.millis(1000)
	}
	return w.millis(8000)
}

func (w *World) millis(n int) time.Duration { return time.Duration(w.draw(n)) * time.Millisecond }

// txnFate draws what becomes of a metadata transaction.
func (w *World) txnFate(t metadata.Txn) memory.Outcome {
	if !w.knobs.MetaFaults || w.calm.Load() {
		return memory.Outcome{}
	}
	d := w.draw(100)
	if d < 12 && (d < 8 || d >= 10) && touches(t, "/s/isr/") && !touches(t, "/s/leader/") {
		w.cover.hit(ISRChangeUnknown)
	}
	switch {
	case d < 5:
		if touches(t, "/d/seg/") {
			w.cover.hit(LostCommitReply)
		} else if touches(t, "/s/head/") {
			w.cover.hit(LostHeadReply)
		}
		return memory.Outcome{LoseReply: true}
	case d < 8:
		return memory.Outcome{LoseRequest: true}
	case d < 10:
		return memory.Outcome{Unavailable: true}
	case d < 12:
		late := w.millis(500)
		if w.knobs.several() && d == 11 {
			late = w.millis(int(lateTxn.Milliseconds())) // somebody else may lead by then
			w.cover.hit(LateTxn)
		}
		return memory.Outcome{Late: late}
	}
	return memory.Outcome{}
}

// close waits for what the world's nodes left behind and, of a run that failed, logs what was said. Nobody lives any more.
func (w *World) close(t testing.TB) {
	w.graves.Wait()
	if err := w.bucket.Close(); err != nil {
		w.failf("closing the bucket: %v", err)
	}
	if w.said != nil && w.failed() {
		t.Logf("%s", w.said)
	}
}

// end stops all faults for good.
func (w *World) end() {
	w.calm.Store(true)
	for _, m := range w.machines {
		m.trap.set("", 0, false)
	}
	w.bucket.Calm()
	w.net.SetFaults(memnet.Faults{DelayMin: latency})
}

// marks are the offsets of a partition inside the node that leads it, in the newest epoch if several take themselves for its leader;
// ok is false when none does.
func (w *World) marks(id record.PartitionID) (m broker.Marks, ok bool) {
	for _, n := range w.lives() {
		p, err := n.broker.Partition(id)
		if err != nil {
			continue
		}
		got := p.Marks()
		if got.Leading && got.Local > max(got.TieredEnd, got.LogStart) {
			w.failf("S21: partition %d of a topic is in the bucket below %d and local from %d on", id.Index, got.TieredEnd, got.Local)
		}
		if got.Leading && (!ok || got.Epoch > m.Epoch) {
			m, ok = got, true
		}
	}
	return m, ok
}

// head is the partition's manifest head in the newest of the nodes' images.
func (w *World) head(id record.PartitionID) (h metadata.Head, ok bool) {
	for _, n := range w.lives() {
		if state, known := n.meta.Image().Partition(id); known && (!ok || state.Head.Rev > h.Rev) {
			h, ok = state.Head, true
		}
	}
	return h, ok
}
