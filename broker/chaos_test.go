// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/objstore"
)

// TestEveryRecordOnce: idempotent producers that send again after each error, beside lost registrations, outages and lost answers of
// the metadata store, a failing bucket and a disk that stalls. Every record is there once and in its producer's order (B1, B3).
func TestEveryRecordOnce(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { everyRecordOnce(t, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func everyRecordOnce(t *testing.T, rnd *rand.Rand) {
	const producers, batches = 3, 80
	n := startNode(t, nil)
	p := n.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "2000", "retention.ms": "-1"})
	var senders sync.WaitGroup
	for pid := range int64(producers) {
		own := rand.New(rand.NewPCG(rnd.Uint64(), 3))
		senders.Go(func() { sendAll(t, p, pid, batches, own) })
	}
	sent := make(chan struct{})
	go func() { senders.Wait(); close(sent) }()
	for open := true; open; {
		heal := n.disturb(rnd)
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		heal()
		select {
		case <-sent:
			open = false
		case <-time.After(time.Duration(rnd.IntN(12000)) * time.Millisecond):
		}
	}
	n.await("the leader", func() bool { return n.broker.Ready() == nil && p.Marks().Leading })
	got, err := p.readAll(0)
	check(t, err)
	next := [producers]int64{}
	for o, v := range got {
		var ts int64
		if _, err := fmt.Sscanf(v, "at %d", &ts); err != nil {
			t.Fatal(err)
		}
		pid, i := ts/1000, ts%1000
		if i != next[pid] {
			t.Fatalf("at %d: record %d of producer %d, want %d", o, i, pid, next[pid])
		}
		next[pid]++
	}
	if len(got) != producers*batches {
		t.Fatalf("%d records, want %d; %+v", len(got), producers*batches, p.Marks())
	}
}

// sendAll sends one producer's records, each until it is acknowledged.
func sendAll(t *testing.T, p *Partition, pid int64, batches int, rnd *rand.Rand) {
	for i := range batches {
		for tries := 0; ; tries++ {
			w, pend := p.start(built(t, record.Producer{ID: pid, Sequence: int32(i)}, pid*1000+int64(i)), int16(1-2*rnd.IntN(2)))
			if rnd.IntN(4) == 0 {
				time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
				p.Expire(pend)
			}
			<-w.C()
			if pend.Err == nil {
				break
			}
			if !errors.Is(pend.Err, ErrNotLeader) && !errors.Is(pend.Err, ErrTimedOut) || tries > 5000 {
				t.Errorf("producer %d record %d: %v", pid, i, pend.Err)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
	}
}

// disturb begins one fault and returns what ends it.
func (n *node) disturb(rnd *rand.Rand) (heal func()) {
	switch rnd.IntN(5) {
	case 0:
		if s := n.broker.session.Load(); s != nil {
			_ = s.Close(n.t.Context()) // also when it is lost already
		}
	case 1:
		n.server.SetOutage(true)
		return func() { n.server.SetOutage(false) }
	case 2:
		var mu sync.Mutex
		own := rand.New(rand.NewPCG(rnd.Uint64(), 4))
		n.kv.SetFaults(memory.Faults{Txn: func(metadata.Txn) memory.Outcome {
			mu.Lock()
			defer mu.Unlock()
			return memory.Outcome{LoseReply: own.IntN(3) == 0, LoseRequest: own.IntN(4) == 0}
		}})
		return func() { n.kv.SetFaults(memory.Faults{}) }
	case 3:
		n.store.Add(objstore.Rule{Effect: []objstore.Effect{objstore.Unavailable, objstore.LostReply, objstore.NotThere}[rnd.IntN(3)]})
		return n.store.Calm
	case 4:
		return n.holdSyncs()
	}
	return func() {}
}
