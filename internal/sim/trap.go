// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"runtime"
	"sync"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
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
	if handsOver(t) && n.w.cutsHandOver() {
		n.w.cover.hit(HandOverUnknown)
		n.cutMetadata(memory.Faults{Outage: true})
		n.w.graves.Go(func() {
			time.Sleep(500*time.Millisecond + n.w.millis(5500))
			n.cutMetadata(memory.Faults{})
		})
		return memory.Outcome{LoseReply: true}
	}
	return n.w.txnFate(t)
}

// handsOver tells whether a transaction gives a leadership to another node.
func handsOver(t metadata.Txn) bool { return touches(t, "/s/leader/") && !touches(t, "/s/isr/") }

// cutsHandOver decides whether a node loses the metadata store at the moment at which it hands over, and does not hear that it has. That
// costs it its registration, so it is left in peace for a while then.
func (w *World) cutsHandOver() bool {
	if !w.knobs.MetaFaults || !w.knobs.several() || w.calm.Load() || w.draw(3) > 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.mu.cut) < cutEvery {
		return false
	}
	w.mu.cut = time.Now()
	return true
}

func touches(t metadata.Txn, part string) bool {
	for _, op := range t.Then {
		if bytes.Contains([]byte(op.Key), []byte(part)) {
			return true
		}
	}
	return false
}
