// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// This file elects leaders uncleanly. While a leadership changes cleanly, who led before may commit a segment late without harm: all that it
// holds is committed, so the next leader holds it too, and the tiered end that it continues is compared. One elected uncleanly has other records
// there, and what it acknowledges is never to be replaced by what was given up.

// riskedConfigs are those of the topic: a leader alone acknowledges, seals soon, and reads from the bucket what is there.
var riskedConfigs = map[string]string{"min.insync.replicas": "1", "retention.ms": "-1", "segment.ms": riskedSegmentMillis, "local.retention.ms": "1"}

// risking tells whether there are unclean elections.
func (k *Knobs) risking() bool { return k.Nodes == 3 && k.Tier && k.MetaFaults && k.NetFaults }

// risk is who writes and reads the partition and who elects its leaders. Nobody else does, so that it is known to whom what is
// acknowledged and seen belongs.
type risk struct {
	r    *run // of its own client
	p    part
	sent int
}

func newRisk(r *run) *risk {
	return &risk{r: &run{w: r.w, h: r.h, raw: newRawClient(r.w, "riskier", watcherTimeout)}, p: r.parts[risked][0]}
}

// held is a kind of metadata transaction of one life that is under way until it is let go.
type held struct {
	key    string // that it writes, in part
	once   sync.Once
	caught chan struct{} // closed with the first
	gone   chan struct{} // closed when they are let go
}

func (h *held) catch() memory.Outcome {
	h.once.Do(func() { close(h.caught) })
	return memory.Outcome{Held: h.gone}
}

// elections strikes again and again until ctx ends.
func (k *risk) elections(ctx context.Context) {
	defer k.r.raw.close()
	for pauseFor(ctx, time.Second+k.r.w.millis(4000)) {
		k.strike(ctx)
	}
}

// strike lets the leader be alone in the in-sync set, acknowledge records and upload them; cuts it off as it commits the segment; elects another
// leader uncleanly, which acknowledges others at the same offsets; and then the commit arrives.
func (k *risk) strike(ctx context.Context) {
	w := k.r.w
	if !k.write(ctx, 2) || !w.losing.TryLock() { // no disk may be lost while one of them holds everything
		return
	}
	defer w.losing.Unlock()
	l, err := k.r.raw.leader(ctx, k.p)
	if err != nil {
		return
	}
	n := w.lifeOf(w.machines[l.node-1])
	if n == nil {
		return
	}
	defer w.apart(n.m, true)()
	if !k.alone(ctx, n) {
		return
	}
	h := &held{key: "/d/seg/" + keyEnd(k.p.id) + "/", caught: make(chan struct{}), gone: make(chan struct{})}
	letGo := sync.OnceFunc(func() { close(h.gone) })
	defer letGo()
	n.held.Store(h)
	defer n.held.Store(nil)
	if !k.writeAt(ctx, n, 20) {
		return
	}
	select {
	case <-h.caught:
	case <-time.After(commitWait):
		return
	case <-ctx.Done():
		return
	}
	n.cutMetadata(memory.Faults{Outage: true})
	defer n.cutMetadata(memory.Faults{})
	if !k.elect(ctx, n) || !k.write(ctx, 10) {
		return
	}
	k.r.scan(k.p, 1<<20)
	letGo()
	w.cover.hit(UncleanInCommit)
	w.log.Info("sim: the commit of a leader before an unclean election arrives", "node", n.m.id)
	pauseFor(ctx, time.Second)
	k.r.scan(k.p, 1<<20)
}

// alone waits until a node is the only member of the in-sync set.
func (k *risk) alone(ctx context.Context, n *node) bool {
	for until := time.Now().Add(k.r.w.knobs.Lag + aloneWait); time.Now().Before(until) && pauseFor(ctx, 100*time.Millisecond); {
		s, err := n.meta.ReadPartition(ctx, k.p.id)
		if _, member := s.ISR.Member(n.m.id); err == nil && s.Leader.Node == n.m.id && member && len(s.ISR.Members) == 1 && len(s.ISR.ELR) == 0 {
			return true
		}
	}
	return false
}

// write sends records to whoever leads; false: not all of them were acknowledged.
func (k *risk) write(ctx context.Context, records int) bool {
	for until := time.Now().Add(writeWait); records > 0; {
		l, err := k.r.raw.leader(ctx, k.p)
		if err == nil {
			err = k.r.raw.forget(k.p, k.send(ctx, l.node))
		}
		switch {
		case err == nil:
			records--
		case time.Now().After(until) || !pauseFor(ctx, 100*time.Millisecond):
			return false
		}
	}
	return true
}

// writeAt sends records to one node.
func (k *risk) writeAt(ctx context.Context, n *node, records int) bool {
	for range records {
		if k.send(ctx, n.m.id) != nil {
			return false
		}
	}
	return true
}

func (k *risk) send(ctx context.Context, to record.NodeID) error {
	k.sent++
	value := []byte(fmt.Sprintf("record %d of node %d", k.sent, to))
	s := &send{p: k.p, key: fmt.Sprintf("risked/%d", k.sent), producer: riskier, idempotent: true, node: to, timestamp: epoch.UnixMilli(), hash: k.r.h.hash(value)}
	k.r.h.invoke(s)
	offset, err := k.r.raw.produce(ctx, s, value)
	k.r.h.answer(s, offset, err)
	return err
}

// elect has another node elect a leader uncleanly once the registration of n has ended. From then on what was acknowledged and seen before may
// be gone.
func (k *risk) elect(ctx context.Context, n *node) (elected bool) {
	w := k.r.w
	for until := time.Now().Add(w.knobs.Lease + electWait); time.Now().Before(until) && pauseFor(ctx, 100*time.Millisecond); {
		for _, other := range w.lives() {
			if other == n {
				continue
			}
			// Also when ctx ends: while the outcome is unknown, nothing can be checked.
			ectx, cancel := context.WithTimeout(context.Background(), recovery)
			l, err := other.meta.ElectUnclean(ectx, k.p.id)
			cancel()
			switch {
			case err == nil:
				k.r.h.giveUp(k.p)
				return l.Node != n.m.id
			case errors.Is(err, metadata.ErrUnknown):
				// Its node has ended, and what it sent may still arrive.
				time.Sleep(lateTxn)
				k.r.h.giveUp(k.p)
				return false
			}
		}
	}
	return false
}
