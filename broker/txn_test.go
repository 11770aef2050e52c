// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// judgeTxns is a coordinator that says what the test wants.
type judgeTxns struct {
	mu    sync.Mutex
	say   func(q *TxnQuestion) TxnVerdict
	asked []TxnQuestion
}

func (j *judgeTxns) VerifyTxn(_ context.Context, q *TxnQuestion) []TxnVerdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked = append(j.asked, *q)
	out := make([]TxnVerdict, len(q.Partitions))
	for i := range out {
		out[i] = j.say(q)
	}
	return out
}

// confirm makes a coordinator that confirms everything, at revisions that count up.
func confirm() *judgeTxns {
	revision := metadata.Revision(0)
	return &judgeTxns{say: func(*TxnQuestion) TxnVerdict { revision++; return TxnVerdict{Revision: revision} }}
}

// txnBatch is one transactional batch.
func txnBatch(t testing.TB, pid int64, epoch int16, sequence int32, timestamps ...int64) record.Batch {
	t.Helper()
	return built(t, record.Producer{ID: pid, Epoch: epoch, Sequence: sequence, Transactional: true}, timestamps...)
}

// appendTxn asks the coordinator if need be, and appends.
func (p *Partition) appendTxn(t testing.TB, batch record.Batch) *Pending {
	t.Helper()
	o := AppendOptions{Acks: -1, Guard: p.GuardTxn(batch)}
	w, pend := new(Wait), new(Pending)
	w.Init(1)
	if o.Guard != nil {
		v := p.broker.VerifyTxn(t.Context(), &TxnQuestion{TransactionalID: "t", ProducerID: batch.ProducerID(), ProducerEpoch: batch.ProducerEpoch(), Add: true, Partitions: []record.PartitionID{p.id}})[0]
		if v.Err != nil {
			return &Pending{Err: v.Err, Base: record.NoOffset}
		}
		o.Revision = v.Revision
	}
	p.Append(batch, o, w, pend)
	<-w.C()
	return pend
}

// mark appends a marker and waits for it.
func (p *Partition) mark(t testing.TB, m TxnMarker) *Pending {
	t.Helper()
	w, pend := new(Wait), new(Pending)
	w.Init(1)
	p.AppendMarker(t.Context(), &m, w, pend)
	<-w.C()
	return pend
}

// takeOver ends the leadership and waits for the next epoch.
func (n *node) takeOver(p *Partition) {
	n.t.Helper()
	epoch := p.Marks().Epoch
	check(n.t, n.broker.session.Load().Close(context.Background()))
	n.await("the next epoch", func() bool { now := p.Marks(); return now.Leading && now.Epoch > epoch })
}

// TestMarkerBelowTheHighWatermark: a transaction is open until its marker is committed, also for who leads next (protocols §10.5).
func TestMarkerBelowTheHighWatermark(t *testing.T) {
	for _, commit := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := startNode(t, nil)
			n.broker.SetTxnVerifier(confirm())
			p := n.topic("t", nil)
			check(t, p.appendTxn(t, txnBatch(t, 7, 0, 0, 1)).Err)
			release := n.holdSyncs()
			defer release()
			w, pend := new(Wait), new(Pending)
			w.Init(1)
			m := TxnMarker{ProducerID: 7, ProducerEpoch: 0, Commit: commit}
			p.AppendMarker(t.Context(), &m, w, pend)
			time.Sleep(time.Second)
			if got := p.Marks(); decided(w) || got.LSO != 0 || got.HW != 1 {
				t.Errorf("the marker is not committed: answered %v, last stable offset %d, high watermark %d", decided(w), got.LSO, got.HW)
			}
			release()
			<-w.C()
			if got := p.Marks(); pend.Err != nil || got.LSO != 2 {
				t.Errorf("after the marker: %v, last stable offset %d", pend.Err, got.LSO)
			}
			known, err := p.loadProducers()
			check(t, err)
			known.committed(1)
			if got := known.lastStable(0, 1); got != 0 {
				t.Errorf("with the high watermark below the marker the last stable offset is %d after a restart, want 0", got)
			}
			if known.committed(2); known.lastStable(0, 2) != 2 {
				t.Error("with the marker below the high watermark the transaction is not over after a restart")
			}
		})
	}
}

// TestTransactionsAreAdmitted: what a leader takes as part of a transaction, and what it refuses.
func TestTransactionsAreAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		refused := func(what string, pend *Pending, want error) {
			t.Helper()
			if !errors.Is(pend.Err, want) || want == nil && pend.Err != nil {
				t.Errorf("%s: %v, want %v", what, pend.Err, want)
			}
		}
		refused("without a coordinator to ask", p.appendTxn(t, txnBatch(t, 7, 0, 0, 1)), ErrTxnNotAdded)
		refused("unasked", p.append(t, txnBatch(t, 7, 0, 0, 1), -1), ErrTxnUnavailable)
		said := TxnVerdict{Err: ErrInvalidProducerEpoch}
		coordinator := &judgeTxns{say: func(*TxnQuestion) TxnVerdict { return said }}
		n.broker.SetTxnVerifier(coordinator)
		refused("not confirmed", p.appendTxn(t, txnBatch(t, 7, 0, 0, 1)), ErrInvalidProducerEpoch)
		said.Err = nil
		refused("a later batch first", p.appendTxn(t, txnBatch(t, 7, 0, 1, 2)), ErrOutOfOrderSequence)
		refused("confirmed", p.appendTxn(t, txnBatch(t, 7, 0, 0, 1)), nil)
		asked := len(coordinator.asked)
		refused("the next one", p.appendTxn(t, txnBatch(t, 7, 0, 1, 2)), nil)
		refused("sent again", p.appendTxn(t, txnBatch(t, 7, 0, 1, 2)), nil)
		if len(coordinator.asked) != asked {
			t.Error("the coordinator was asked about a transaction that is open here")
		}
		refused("outside the transaction", p.append(t, built(t, record.Producer{ID: 7, Sequence: 2}, 3), -1), ErrInvalidTxnState)
		refused("of the next one, before the marker", p.appendTxn(t, txnBatch(t, 7, 1, 0, 3)), ErrTxnUnavailable)
		refused("the marker", p.mark(t, TxnMarker{ProducerID: 7, ProducerEpoch: 1, Bumped: true, Commit: true, CoordinatorEpoch: 5}), nil)
		refused("late, of the ended one", p.appendTxn(t, txnBatch(t, 7, 0, 2, 3)), ErrInvalidProducerEpoch)
		refused("the new epoch from 1", p.appendTxn(t, txnBatch(t, 7, 1, 1, 3)), ErrOutOfOrderSequence)

		// The transaction ends between the question and the append: what was confirmed is void (I9).
		late := txnBatch(t, 9, 0, 0, 4)
		guard := p.GuardTxn(late)
		refused("the marker of another", p.mark(t, TxnMarker{ProducerID: 9, ProducerEpoch: 0}), nil)
		w, pend := new(Wait), new(Pending)
		w.Init(1)
		p.Append(late, AppendOptions{Acks: -1, Guard: guard}, w, pend)
		<-w.C()
		refused("asked before the marker", pend, ErrTxnUnavailable)

		late = txnBatch(t, 11, 0, 0, 4)
		guard = p.GuardTxn(late)
		n.takeOver(p)
		w.Init(1)
		p.Append(late, AppendOptions{Acks: -1, Guard: guard}, w, pend)
		<-w.C()
		refused("asked in another epoch", pend, ErrTxnUnavailable)
	})
}

// TestMarkersAreJudged: a marker ends the transaction that it was made for, and no other.
func TestMarkersAreJudged(t *testing.T) {
	open := func(epoch int16, coordinator int32, revision metadata.Revision) *producer {
		p := newProducer(epoch, 0)
		p.coordinatorEpoch, p.first, p.txn = coordinator, 10, &txn{revision: revision}
		return &p
	}
	ended := newProducer(4, 0)
	ended.coordinatorEpoch = 2
	for _, tc := range []struct {
		name  string
		known *producer
		m     TxnMarker
		want  error
	}{
		{"of an unknown producer", nil, TxnMarker{ProducerEpoch: 3}, nil},
		{"bumped", open(4, 2, 9), TxnMarker{ProducerEpoch: 5, Bumped: true, CoordinatorEpoch: 2}, nil},
		{"bumped, of the transaction before", open(4, 2, 9), TxnMarker{ProducerEpoch: 4, Bumped: true, CoordinatorEpoch: 2}, ErrInvalidProducerEpoch},
		{"bumped, again", &ended, TxnMarker{ProducerEpoch: 4, Bumped: true, CoordinatorEpoch: 2}, nil},
		{"of an old epoch", &ended, TxnMarker{ProducerEpoch: 3, CoordinatorEpoch: 2}, ErrInvalidProducerEpoch},
		{"of an old coordinator", &ended, TxnMarker{ProducerEpoch: 4, CoordinatorEpoch: 1}, ErrCoordinatorFenced},
		{"old client", open(4, 2, 9), TxnMarker{ProducerEpoch: 4, CoordinatorEpoch: 2, Decision: 10}, nil},
		{"old client, of the transaction before", open(4, 2, 9), TxnMarker{ProducerEpoch: 4, CoordinatorEpoch: 2, Decision: 8}, ErrInvalidProducerEpoch},
		{"old client, fenced", open(4, 2, 9), TxnMarker{ProducerEpoch: 5, CoordinatorEpoch: 2, Decision: 8}, nil},
		{"of a tool", open(4, 2, 9), TxnMarker{ProducerEpoch: 4, CoordinatorEpoch: 2}, nil},
	} {
		if err := judgeMarker(tc.known, &tc.m); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

// TestMarkerAfterATakeover: of a transaction that was open when the leadership began nothing here says whether a marker of its epoch is
// its own or a late one, so the coordinator is asked (protocols §10.4).
func TestMarkerAfterATakeover(t *testing.T) {
	for _, tc := range []struct {
		name string
		said TxnVerdict
		want error
	}{
		{"under way", TxnVerdict{Revision: 60}, ErrInvalidProducerEpoch},
		{"being ended by this decision", TxnVerdict{Err: ErrTxnConcurrent, Revision: 50}, nil},
		{"being ended by another", TxnVerdict{Err: ErrTxnConcurrent, Revision: 55}, ErrInvalidProducerEpoch},
		{"over", TxnVerdict{Err: ErrTxnNotAdded}, ErrInvalidProducerEpoch},
		{"not to be asked", TxnVerdict{Err: context.DeadlineExceeded}, ErrTxnUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nil)
				coordinator := confirm()
				n.broker.SetTxnVerifier(coordinator)
				p := n.topic("t", nil)
				check(t, p.appendTxn(t, txnBatch(t, 7, 0, 0, 1)).Err)
				n.takeOver(p)
				coordinator.say = func(q *TxnQuestion) TxnVerdict {
					if q.Add || q.TransactionalID != "mine" {
						t.Errorf("asked %+v", q)
					}
					return tc.said
				}
				pend := p.mark(t, TxnMarker{ProducerID: 7, Decision: 50, TransactionalID: "mine"})
				if !errors.Is(pend.Err, tc.want) || tc.want == nil && pend.Err != nil {
					t.Errorf("%v, want %v", pend.Err, tc.want)
				}
				want := record.Offset(0)
				if tc.want == nil {
					want = 2
				}
				if got := p.Marks().LSO; got != want {
					t.Errorf("the last stable offset is %d, want %d", got, want)
				}
			})
		})
	}
}

// TestListBesideEviction: what was read from the hot log is planned anew when the list that belongs to it was evicted meanwhile.
func TestListBesideEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		n.broker.SetTxnVerifier(confirm())
		p := n.topic("t", nil)
		check(t, p.appendTxn(t, txnBatch(t, 7, 0, 0, 1)).Err)
		check(t, p.mark(t, TxnMarker{ProducerID: 7, ProducerEpoch: 1, Bumped: true}).Err)
		var res ReadResult
		if again, err := p.hotAborted(0, 2, &res); again || err != nil || len(res.Aborted) != 1 {
			t.Errorf("%+v, again %v, %v", res.Aborted, again, err)
		}
		p.mu.Lock()
		p.producersLocked().aborted.trim(2)
		p.mu.Unlock()
		if again, err := p.hotAborted(0, 2, &res); !again || err != nil {
			t.Errorf("the list was evicted, and the read is not planned anew: %v", err)
		}
	})
}

// TestAbortsOutliveTruncations: a replica whose log is cut twice, the second time below where its producers were rebuilt, still has the list of
// what was aborted below the end of the bucket: its copy of that is read with it (S14). One that ends below the bucket is not rebuilt from its
// records alone.
func TestAbortsOutliveTruncations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		n.broker.SetTxnVerifier(confirm())
		p := n.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "-1", "retention.ms": "-1"})
		check(t, p.appendTxn(t, txnBatch(t, 7, 0, 0, 1)).Err)
		check(t, p.mark(t, TxnMarker{ProducerID: 7, ProducerEpoch: 1, Bumped: true}).Err)
		n.await("the seal", func() bool { return p.Marks().TieredEnd == 2 })
		n.archiver.PauseSealing(true)
		for i := range int32(4) {
			check(t, p.append(t, built(t, record.Producer{ID: 9, Sequence: i}, 1), -1).Err)
		}
		for _, to := range []record.Offset{5, 3} {
			check(t, p.log.Truncate(to))
			if !p.log.Meta().ProducersStale {
				t.Fatalf("cut at %d nothing is to be rebuilt: the test tests nothing", to)
			}
			check(t, p.rebuildProducers(t.Context()))
			known, err := p.loadProducers()
			check(t, err)
			if got := known.aborted.within(0, 2, nil); len(got) != 1 || known.aborted.floor != 0 {
				t.Errorf("cut at %d it knows of the aborts %v, from %d on", to, got, known.aborted.floor)
			}
		}
		check(t, p.log.Truncate(1))
		if err := p.rebuildProducers(t.Context()); !errors.Is(err, errStaleRole) || !p.log.Meta().ProducersStale {
			t.Errorf("below the end of the bucket: %v", err)
		}
	})
}

// TestTransactionsAreNotForgotten: a producer with an open transaction, or with an abort in the hot log, does not expire; it does once
// both are over, and its abort markers go with it.
func TestTransactionsAreNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, map[string]string{"producer.id.expiration.ms": "600000"})
		n.broker.SetTxnVerifier(confirm())
		p := n.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "-1", "retention.ms": "-1"})
		check(t, p.appendTxn(t, txnBatch(t, 7, 0, 0, 1)).Err)
		check(t, p.appendTxn(t, txnBatch(t, 8, 0, 0, 1)).Err)
		check(t, p.mark(t, TxnMarker{ProducerID: 8, ProducerEpoch: 1, Bumped: true}).Err)
		time.Sleep(time.Hour)
		if got := n.broker.Producers(); got != 2 {
			t.Errorf("%d producers are remembered, want one with an open transaction and one with an abort in the hot log", got)
		}
		if n.broker.LateTransactions() != 1 {
			t.Error("a transaction that is open for an hour is not late")
		}
		check(t, p.mark(t, TxnMarker{ProducerID: 7, Commit: true}).Err)
		n.await("the seal", func() bool { return p.Marks().TieredEnd == 4 })
		check(t, p.Evict(4))
		time.Sleep(time.Hour)
		keys := 0
		check(t, p.log.Producers(func(int64, []byte) error { keys++; return nil }))
		if got := n.broker.Producers(); got != 0 || keys != 0 || n.broker.LateTransactions() != 0 {
			t.Errorf("%d producers are remembered, %d entries are on the disk, want none", got, keys)
		}
	})
}
