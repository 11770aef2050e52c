// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
)

// TestTransactionsInRandomClusters: transactions beside nodes that stop, lose their disk, or are cut off with a tail that nobody else has,
// while the log settles in the bucket. What a reader of committed data gets at the end, at every node, is what a walk over the log says
// (S14), and no two nodes have different logs.
func TestTransactionsInRandomClusters(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				r := &randomTxns{c: c, t: t, rnd: rand.New(rand.NewPCG(seed, 9)), of: map[int64]*randomProducer{}}
				local := []string{"0", "5000", "-1"}[r.rnd.IntN(3)]
				r.id = c.topic("t", map[string]string{"segment.ms": "2000", "local.retention.ms": local, "retention.ms": "-1"})
				for range 70 {
					r.step()
				}
				r.compare()
				for pid := range r.of {
					r.end(pid)
				}
				r.compare()
			})
		})
	}
}

type randomTxns struct {
	c    *cluster
	t    *testing.T
	rnd  *rand.Rand
	id   record.PartitionID
	of   map[int64]*randomProducer
	sent int
	cuts int
}

type randomProducer struct {
	epoch    int16
	sequence int32
	open     bool
	failed   bool // an outcome is unknown: only an abort comes next
}

func (r *randomTxns) leader() *broker.Partition { return r.c.awaitLeader(r.id, 1, 2, 3) }

func (r *randomTxns) step() {
	pid := r.rnd.Int64N(4)
	switch r.rnd.IntN(16) {
	case 0, 1:
		time.Sleep(time.Duration(r.rnd.IntN(4000)) * time.Millisecond)
	case 2:
		r.restart(r.rnd.IntN(2) == 0)
	case 3:
		r.cutOff(pid)
	case 4, 5:
		r.sent++
		_, _ = r.c.produce(r.leader(), -1, fmt.Sprint("plain ", r.sent)) // in the log or not: the walk tells
	case 6, 7, 8:
		r.end(pid)
	default:
		r.write(r.leader(), pid, -1)
	}
}

func (r *randomTxns) producer(pid int64) *randomProducer {
	if r.of[pid] == nil {
		r.of[pid] = &randomProducer{}
	}
	return r.of[pid]
}

func (r *randomTxns) write(p *broker.Partition, pid int64, acks int16) {
	x := r.producer(pid)
	if x.failed {
		return
	}
	r.sent++
	x.open = true
	if r.c.txn(p, acks, txnValues(r.t, pid, x.epoch, x.sequence, fmt.Sprint("of ", pid, ", ", r.sent))) != nil {
		x.failed = true
		return
	}
	x.sequence++
}

// end ends a transaction as a coordinator does: the decision stands, and its marker is sent until a leader has it committed.
func (r *randomTxns) end(pid int64) {
	x := r.producer(pid)
	if !x.open {
		return
	}
	m := broker.TxnMarker{ProducerID: pid, ProducerEpoch: x.epoch + 1, Bumped: true, Commit: !x.failed && r.rnd.IntN(2) == 0, CoordinatorEpoch: 1}
	for tries := 0; r.c.mark(r.leader(), m) != nil; tries++ {
		if tries > 200 {
			r.t.Fatal("no leader takes a marker")
		}
		time.Sleep(100 * time.Millisecond)
	}
	*x = randomProducer{epoch: x.epoch + 1}
}

// restart stops a node for a while, and may take its disk away.
func (r *randomTxns) restart(lost bool) {
	n := record.NodeID(1 + r.rnd.IntN(3))
	r.awaitAll()
	r.c.nodes[n].stop()
	if lost {
		delete(r.c.peers.disks, n)
	}
	for range r.rnd.IntN(6) {
		r.write(r.leader(), r.rnd.Int64N(4), -1)
	}
	r.c.start(n)
}

// awaitAll waits until all replicas are in sync.
func (r *randomTxns) awaitAll() {
	r.c.await("all to be in sync", func() bool {
		for n := range record.NodeID(3) {
			if in, _ := r.c.isr(n+1, r.id); len(in) != 3 {
				return false
			}
		}
		return true
	})
}

// cutOff gives the leader a tail that nobody else has: of a transaction, and of its end.
func (r *randomTxns) cutOff(pid int64) {
	r.awaitAll()
	p := r.leader()
	old := record.NodeID(0)
	for n := range record.NodeID(3) {
		if q, err := r.c.nodes[n+1].broker.Partition(r.id); err == nil && q == p {
			old = n + 1
		}
	}
	r.c.isolate(old, true)
	r.write(p, pid, 1)
	r.producer(pid).failed = true
	if r.rnd.IntN(2) == 0 {
		x := r.producer(pid)
		_ = r.c.mark(p, broker.TxnMarker{ProducerID: pid, ProducerEpoch: x.epoch + 1, Bumped: true, CoordinatorEpoch: 1}) // lost with the leader
	}
	r.c.nodes[old].kv.SetFaults(memory.Faults{Outage: true})
	others := slices.DeleteFunc([]record.NodeID{1, 2, 3}, func(n record.NodeID) bool { return n == old })
	next := r.c.awaitLeader(r.id, others...)
	for range r.rnd.IntN(4) {
		r.write(next, r.rnd.Int64N(4), -1)
	}
	r.c.nodes[old].kv.SetFaults(memory.Faults{})
	r.c.isolate(old, false)
	r.cuts++
	r.awaitAll()
}

// walked is what one walk over the whole log says.
type walked struct {
	committed []string
	aborted   []string
	lso       record.Offset
}

// walk reads everything below the high watermark of a node, and goes through it batch by batch.
func (r *randomTxns) walk(n record.NodeID) (w walked) {
	p, err := r.c.nodes[n].broker.Partition(r.id)
	check(r.t, err)
	type txn struct {
		first  record.Offset
		values []int
	}
	open := map[int64]*txn{}
	var values []string
	drop := map[int]bool{}
	from := record.Offset(0)
	for {
		var res broker.ReadResult
		req := broker.ReadRequest{Offset: from, MaxBytes: 1 << 20, FirstWhole: true, CurrentEpoch: record.NoEpoch, LastFetchedEpoch: record.NoEpoch, AnyReplica: true}
		check(r.t, p.Read(&req, &res))
		if res.Cold {
			check(r.t, p.ReadCold(r.t.Context(), &req, &res))
		}
		if len(res.Data) == 0 {
			break
		}
		for rest := res.Data; len(rest) > 0; {
			b, more, err := record.Split(rest)
			check(r.t, err)
			rest, from = more, b.NextOffset()
			pid := b.ProducerID()
			switch {
			case b.IsControl():
				m, _, err := b.Marker()
				check(r.t, err)
				if x := open[pid]; x != nil && !m.Commit {
					w.aborted = append(w.aborted, fmt.Sprint(pid, " from ", x.first))
					for _, i := range x.values {
						drop[i] = true
					}
				}
				delete(open, pid)
			default:
				if b.IsTransactional() {
					if open[pid] == nil {
						open[pid] = &txn{first: b.BaseOffset()}
					}
					open[pid].values = append(open[pid].values, len(values))
				}
				for _, v := range contents(r.t, b) {
					values = append(values, fmt.Sprint(b.BaseOffset(), " ", v))
				}
			}
		}
	}
	w.lso = from
	for _, x := range open {
		w.lso = min(w.lso, x.first)
	}
	for i, v := range values {
		var at record.Offset
		_, err := fmt.Sscan(v, &at)
		check(r.t, err)
		if at < w.lso && !drop[i] {
			w.committed = append(w.committed, v[len(fmt.Sprint(at))+1:])
		}
	}
	return w
}

func (r *randomTxns) compare() {
	r.awaitAll()
	end := record.NoOffset
	r.c.await("every replica to have everything, and to know that it is committed", func() bool {
		end = r.leader().Marks().LogEnd
		for n := range record.NodeID(3) {
			if p, err := r.c.nodes[n+1].broker.Partition(r.id); err != nil || p.Marks().HW != end {
				return false
			}
		}
		return true
	})
	var first walked
	for n := range record.NodeID(3) {
		w := r.walk(n + 1)
		if n == 0 {
			first = w
		}
		if !slices.Equal(w.committed, first.committed) || !slices.Equal(w.aborted, first.aborted) || w.lso != first.lso {
			r.t.Fatalf("the logs of nodes 1 and %d differ:\n%v\n%v", n+1, first, w)
		}
		got, lso := r.c.committed(n+1, r.id)
		if !slices.Equal(got, w.committed) || lso != w.lso {
			r.t.Fatalf("S14: node %d delivers %q up to %d, the log says %q up to %d", n+1, got, lso, w.committed, w.lso)
		}
	}
	r.t.Logf("%d records committed, %d transactions aborted, last stable offset %d of %d, %d leaders cut off", len(first.committed), len(first.aborted), first.lso, end, r.cuts)
}
