// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"runtime"
	"sync"

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
	return n.w.txnFate(t)
}

func touches(t metadata.Txn, part string) bool {
	for _, op := range t.Then {
		if bytes.Contains([]byte(op.Key), []byte(part)) {
			return true
		}
	}
	return false
}
