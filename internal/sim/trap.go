// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// trap crashes the node at the n-th call of one of its seams from now on: before the call takes effect, or after, unheard.
type trap struct {
	mu    sync.Mutex
	at    Event // "" when it is not set
	left  int
	after bool
}

func (t *trap) set(at Event, nth int, after bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.left, t.after = at, nth, after
}

// spring counts one call. It crashes the node at once, or returns what crashes it after the call.
func (t *trap) spring(at Event, n *node) (after func()) {
	t.mu.Lock()
	if t.at != at || n.dead.Load() {
		t.mu.Unlock()
		return nil
	}
	t.left--
	if t.left > 0 {
		t.mu.Unlock()
		return nil
	}
	t.at = ""
	late := t.after
	t.mu.Unlock()
	if late {
		return func() { n.w.crash(n, at) }
	}
	n.w.crash(n, at)
	return nil
}

// beforeSync runs ahead of every sync of the node's disk. Where the trap springs, everybody else gets a chance first to use what is
// written and not synced: whoever acknowledges it is found out. So they do in the syncs before, whose end must not acknowledge what came
// while they ran.
func (n *node) beforeSync() {
	t := &n.m.trap
	t.mu.Lock()
	due := t.at == CrashAtSync && t.left <= 3
	t.mu.Unlock()
	if due {
		for range 300 {
			runtime.Gosched()
		}
	}
	t.spring(CrashAtSync, n)
}

// txnFault decides about each metadata transaction of the node.
func (n *node) txnFault(t metadata.Txn) memory.Outcome {
	segment := touches(t, "/d/seg/")
	for _, at := range []struct {
		event Event
		is    bool
	}{{CrashAtCommit, segment}, {CrashAtTxn, true}} {
		if !at.is {
			continue
		}
		after := n.m.trap.spring(at.event, n)
		switch {
		case after != nil:
			after() // the node is cut off; the transaction is under way and happens
			return memory.Outcome{LoseReply: true}
		case n.dead.Load():
			return memory.Outcome{LoseRequest: true}
		}
	}
	if n.dead.Load() {
		return memory.Outcome{Unavailable: true}
	}
	if h := n.held.Load(); h != nil && touches(t, h.key) {
		return h.catch()
	}
	if m := n.entering(t); m != nil && n.w.springJoin() {
		n.w.failPower(m, FailureAtJoin)
		return memory.Outcome{LoseReply: true} // as above
	}
	if handsOver(t) && n.w.cutsHandOver(t) {
		n.w.cover.hit(HandOverUnknown)
		n.cutMetadata(memory.Faults{Outage: true})
		n.w.graves.Go(func() {
			time.Sleep(500*time.Millisecond + n.w.millis(int(cutFor.Milliseconds())-500))
			n.cutMetadata(memory.Faults{})
		})
		return memory.Outcome{LoseReply: true}
	}
	if n.releasesLate.Load() && releases(t) {
		return memory.Outcome{Late: lateRelease}
	}
	return n.w.txnFate(t)
}

// handsOver tells whether a transaction gives a leadership to another node.
func handsOver(t metadata.Txn) bool { return touches(t, "/s/leader/") && !touches(t, "/s/isr/") }

// releases tells whether a transaction gives up a coordinator's shard.
func releases(t metadata.Txn) bool {
	return len(t.Then) == 1 && t.Then[0].Kind == metadata.OpDelete && touches(t, "/s/coord/")
}

// cutsHandOver decides whether a node loses the metadata store at the moment at which it hands over, and does not hear that it has. That
// costs it its registration, so it is left in peace for a while then. The partition that is written all the time is preferred, and everybody
// is asked for its latest offset then: whoever answers must be the one who leads.
func (w *World) cutsHandOver(t metadata.Txn) bool {
	if !w.knobs.MetaFaults || !w.knobs.several() || w.calm.Load() {
		return false
	}
	of := keyOf(t, "/s/leader/")
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.mu.cut) < cutEvery || of != w.mu.probed && w.mu.rng.IntN(3) > 0 {
		return false
	}
	w.mu.cut, w.mu.cutOf = time.Now(), of
	return true
}

// inHandOver tells whether a node has lately been cut off as it handed over the partition.
func (w *World) inHandOver(id record.PartitionID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.cutOf == keyEnd(id) && time.Since(w.mu.cut) < cutFor
}

// keyEnd is how the keys of a partition's state end.
func keyEnd(id record.PartitionID) string { return fmt.Sprintf("%s/%d", id.Topic.Hex(), id.Index) }

// touches tells whether a transaction writes or deletes such a key. Transactions that only read are no changes.
func touches(t metadata.Txn, part string) bool {
	return slices.ContainsFunc(t.Then, func(op metadata.Op) bool { return op.Kind != metadata.OpGet && strings.Contains(op.Key, part) })
}
