// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
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

// modelTxn is a transaction as a test knows it.
type modelTxn struct {
	pid           int64
	epoch         int16
	first, marker int
	commit        bool
}

// txnModel is a partition as a list.
type txnModel struct {
	times []int64     // of each offset; -1: control
	of    []*modelTxn // nil: of none
	txns  []*modelTxn
	start int
}

func (m *txnModel) add(x *modelTxn, times ...int64) {
	for _, ts := range times {
		m.times, m.of = append(m.times, ts), append(m.of, x)
	}
}

func (m *txnModel) startOffset() record.Offset { return record.Offset(m.start) }

func (m *txnModel) lso() record.Offset {
	for o, x := range m.of {
		if x != nil && x.marker < 0 {
			return record.Offset(max(o, m.start))
		}
	}
	return record.Offset(len(m.of))
}

// visible is what a reader of committed data gets from an offset on.
func (m *txnModel) visible(from int) (out []string) {
	for o := from; o < int(m.lso()); o++ {
		if m.times[o] >= 0 && (m.of[o] == nil || m.of[o].commit) {
			out = append(out, fmt.Sprintf("%d at %d", o, m.times[o]))
		}
	}
	return out
}

// aborted is the list that belongs to a read of [from, to).
func (m *txnModel) aborted(from, to record.Offset) (out []AbortedTxn) {
	for _, x := range m.txns {
		if x.marker >= int(from) && !x.commit && x.first < int(to) {
			out = append(out, AbortedTxn{x.pid, record.Offset(x.first)})
		}
	}
	slices.SortFunc(out, func(a, b AbortedTxn) int { return int(a.FirstOffset - b.FirstOffset) })
	return out
}

// readCommitted reads as a consumer does, and holds each answer's list against the model.
func (p *Partition) readCommitted(t *testing.T, m *txnModel, from record.Offset, maxBytes int) (values []string) {
	t.Helper()
	start := from
	skip := map[int64]bool{}
	for {
		var res ReadResult
		req := ReadRequest{Offset: from, MaxBytes: maxBytes, FirstWhole: true, ReadCommitted: true, CurrentEpoch: record.NoEpoch, LastFetchedEpoch: record.NoEpoch}
		check(t, p.Read(&req, &res))
		if res.Cold {
			check(t, p.ReadCold(t.Context(), &req, &res))
		}
		if len(res.Data) == 0 {
			if !res.Bounded {
				t.Fatalf("no data and no end at %d", from)
			}
			if from < m.lso() {
				t.Fatalf("the data ends at %d, the last stable offset is %d; %+v", from, m.lso(), p.Marks())
			}
			return values
		}
		list, next := res.Aborted, from
		for rest := res.Data; len(rest) > 0; {
			b, more, err := record.Split(rest)
			check(t, err)
			check(t, b.Check())
			rest, next = more, b.NextOffset()
			for len(list) > 0 && list[0].FirstOffset <= b.LastOffset() {
				skip[list[0].ProducerID] = true
				list = list[1:]
			}
			if b.IsControl() {
				if mark, _, err := b.Marker(); err != nil || !mark.Commit {
					delete(skip, b.ProducerID())
				}
				continue
			}
			if b.IsTransactional() && skip[b.ProducerID()] {
				continue
			}
			check(t, b.Each(func(r *record.Record) bool {
				if r.Offset >= start {
					values = append(values, fmt.Sprintf("%d %s", r.Offset, r.Value))
				}
				return true
			}))
		}
		if want := m.aborted(from, next); !slices.Equal(res.Aborted, want) {
			t.Fatalf("S14: aborted transactions of [%d, %d): %v, want %v; %+v", from, next, res.Aborted, want, p.Marks())
		}
		if next > m.lso() {
			t.Fatalf("S14: read up to %d, the last stable offset is %d", next, m.lso())
		}
		from = next
	}
}

func (m *txnModel) compare(t *testing.T, p *Partition, rnd *rand.Rand) {
	t.Helper()
	if got := p.Marks(); got.LSO != m.lso() || got.HW != record.Offset(len(m.of)) {
		t.Fatalf("the last stable offset is %d, want %d; high watermark %d, want %d", got.LSO, m.lso(), got.HW, len(m.of))
	}
	r := LookupRequest{CurrentEpoch: record.NoEpoch, ReadCommitted: true}
	if at, err := p.Special(SpecialLatest, r); err != nil || at.Offset != m.lso() {
		t.Fatalf("latest, committed: %+v, %v; want %d", at, err, m.lso())
	}
	ts := rnd.Int64N(42)
	want := record.NoOffset
	for o := m.start; o < int(m.lso()); o++ {
		if m.times[o] >= ts {
			want = record.Offset(o)
			break
		}
	}
	if at, err := p.OffsetForTime(t.Context(), ts, r); err != nil || at.Offset != want {
		t.Fatalf("time %d, committed: %+v, %v; want %d; %+v", ts, at, err, want, p.Marks())
	}
	largest := int64(-1)
	for o := m.start; o < int(m.lso()); o++ {
		largest = max(largest, m.times[o])
	}
	at, err := p.MaxTimestamp(t.Context(), r)
	unknown := at.Offset == record.NoOffset && p.Marks().TieredEnd > m.lso() // sealed past an open transaction
	if err != nil || at.Timestamp != largest && !unknown || at.Offset >= m.lso() {
		t.Fatalf("largest timestamp, committed: %+v, %v; want %d; last stable offset %d", at, err, largest, m.lso())
	}
	from := m.start
	if n := len(m.of) - m.start; n > 0 && rnd.IntN(2) == 0 {
		from += rnd.IntN(n)
	}
	got := p.readCommitted(t, m, record.Offset(from), []int{1, 300, 1 << 20}[rnd.IntN(3)])
	if want := m.visible(from); !slices.Equal(got, want) {
		t.Fatalf("S14: committed from %d: %q, want %q; %+v", from, got, want, p.Marks())
	}
	open := map[int64]record.Offset{}
	for _, x := range m.txns {
		if x.marker < 0 {
			open[x.pid] = record.Offset(x.first)
		}
	}
	all, err := p.Producers()
	check(t, err)
	for _, s := range all {
		if s.TxnStart >= 0 && open[s.ID] != s.TxnStart {
			t.Fatalf("producer %d has a transaction from %d, want %v", s.ID, s.TxnStart, open)
		}
		delete(open, s.ID)
	}
	if len(open) > 0 {
		t.Fatalf("nobody knows of the open transactions %v", open)
	}
}

// TestTransactionsAgainstModel: random transactions of several producers, with and without an epoch of their own, committed and aborted,
// markers sent again, beside changes of leadership, tier cuts, seals above open transactions, eviction, deleted records and rebuilt
// producers. The last stable offset, the aborted transactions of each answer and what a reader of committed data sees are those of a
// list (S14).
func TestTransactionsAgainstModel(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { transactionsAgainstModel(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

// txnRun is one random run.
type txnRun struct {
	t     *testing.T
	n     *node
	p     *Partition
	rnd   *rand.Rand
	m     txnModel
	open  map[int64]*modelTxn
	epoch map[int64]int16
	seq   map[int64]int32
	last  map[int64]TxnMarker
	early *tiering.View
}

// oldClient tells which producers keep their epoch.
func oldClient(pid int64) bool { return pid%2 == 1 }

func transactionsAgainstModel(t *testing.T, rnd *rand.Rand) {
	n := startNode(t, nil)
	n.broker.SetTxnVerifier(confirm())
	local := []string{"1000", "10000", "-1"}[rnd.IntN(3)]
	r := &txnRun{
		t: t, n: n, rnd: rnd, open: map[int64]*modelTxn{}, epoch: map[int64]int16{}, seq: map[int64]int32{}, last: map[int64]TxnMarker{},
		p: n.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": local, "retention.ms": "-1"}),
	}
	for range 250 {
		r.step()
		r.m.compare(t, r.p, rnd)
		r.compareReplica()
		r.compareBucket()
	}
}

func (r *txnRun) step() {
	rnd, p, pid := r.rnd, r.p, r.rnd.Int64N(5)
	switch rnd.IntN(20) {
	case 0, 1:
		time.Sleep(time.Duration(rnd.IntN(4000)) * time.Millisecond)
	case 2:
		if rnd.IntN(3) == 0 {
			r.n.takeOver(p)
		}
	case 3:
		// Over the budget: also what lies above an open transaction is sealed.
		r.n.archiver.SetLimits(tiering.Limits{HotBytes: 1})
		time.Sleep(5 * time.Second)
		r.n.archiver.SetLimits(tiering.Limits{})
	case 4:
		if rnd.IntN(3) == 0 {
			to := r.m.start + rnd.IntN(min(len(r.m.of)-r.m.start, 8)+1)
			_, err := p.DeleteRecords(r.t.Context(), record.Offset(to))
			check(r.t, err)
			r.m.start = to
		}
	case 5:
		if rnd.IntN(3) == 0 {
			r.rebuild()
		}
	case 6:
		// A node that leads again may have the manifest of its earlier leadership.
		if v := p.view.Load(); r.early != nil && r.early.Head.LogStart == r.m.startOffset() {
			p.view.Store(r.early)
			r.early = nil
		} else {
			r.early = v
		}
	case 7, 8:
		times := r.times()
		p.must(r.t, built(r.t, nobody, times...))
		r.m.add(nil, times...)
	case 9, 10, 11, 12:
		r.end(pid)
	case 13:
		if m, ok := r.last[pid]; ok && r.open[pid] == nil { // sent again, its answer was lost
			check(r.t, p.mark(r.t, m).Err)
			r.m.add(nil, -1)
		}
	default:
		r.write(pid)
	}
}

// rebuild makes the producers anew as after a truncation. Of what began below a log start inside the hot log the records are not there.
func (r *txnRun) rebuild() {
	r.p.mu.Lock()
	head := r.p.mu.head
	r.p.mu.Unlock()
	if head.LogStart == 0 || head.LogStart < head.TieredEnd {
		check(r.t, r.p.rebuildProducers(r.t.Context()))
		r.n.takeOver(r.p)
	}
}

func (r *txnRun) times() []int64 {
	times := make([]int64, 1+r.rnd.IntN(4))
	for i := range times {
		times[i] = r.rnd.Int64N(40)
	}
	return times
}

func (r *txnRun) write(pid int64) {
	times := r.times()
	pend := r.p.appendTxn(r.t, txnBatch(r.t, pid, r.epoch[pid], r.seq[pid], times...))
	check(r.t, pend.Err)
	r.seq[pid] += int32(len(times))
	x := r.open[pid]
	if x == nil {
		x = &modelTxn{pid: pid, epoch: r.epoch[pid], first: int(pend.Base), marker: -1}
		r.open[pid], r.m.txns = x, append(r.m.txns, x)
	}
	if int(pend.Base) != len(r.m.of) {
		r.t.Fatalf("appended at %d, want %d", pend.Base, len(r.m.of))
	}
	r.m.add(x, times...)
}

func (r *txnRun) end(pid int64) {
	x := r.open[pid]
	if x == nil {
		return
	}
	m := TxnMarker{ProducerID: pid, ProducerEpoch: x.epoch, Commit: r.rnd.IntN(2) == 0, CoordinatorEpoch: 3}
	if !oldClient(pid) {
		m.ProducerEpoch, m.Bumped = x.epoch+1, true
		r.epoch[pid], r.seq[pid] = x.epoch+1, 0
	}
	pend := r.p.mark(r.t, m)
	check(r.t, pend.Err)
	x.marker, x.commit = len(r.m.of), m.Commit
	r.m.add(nil, -1)
	r.last[pid] = m
	delete(r.open, pid)
}

// compareReplica builds what a replica knows that starts at the end of the bucket and copies what follows. It is what the leader
// knows.
func (r *txnRun) compareReplica() {
	p := r.p
	v := p.view.Load()
	if v == nil || v.Head.TieredEnd == 0 || v.Head.LogStart >= v.Head.TieredEnd || p.log.Start() > v.Head.TieredEnd {
		return
	}
	entries, err := p.tierProducers(r.t.Context(), v)
	check(r.t, err)
	copied := newProducers(v.Head.TieredEnd)
	for _, e := range entries {
		check(r.t, copied.load(e.ID, e.State))
	}
	copied.settle()
	check(r.t, p.log.Scan(v.Head.TieredEnd, p.log.AppendedEnd(), func(b record.Batch) error {
		if b.BaseOffset() >= v.Head.TieredEnd {
			c := copied.change(b, -1, 0)
			copied.remember(&c)
		}
		return nil
	}))
	copied.committed(p.Marks().HW)
	p.mu.Lock()
	defer p.mu.Unlock()
	led := p.mu.lead.producers
	if got, want := copied.lastStable(p.mu.logStart, p.mu.hw), p.lsoLocked(); got != want {
		r.t.Fatalf("a replica that starts at %d has the last stable offset %d, the leader %d", v.Head.TieredEnd, got, want)
	}
	if got, want := copied.aborted.within(v.Head.TieredEnd, p.mu.end, nil), led.aborted.within(v.Head.TieredEnd, p.mu.end, nil); !slices.Equal(got, want) {
		r.t.Fatalf("a replica that starts at %d knows of the aborts %v, the leader of %v", v.Head.TieredEnd, got, want)
	}
	for pid, want := range led.byID {
		got := copied.byID[pid]
		if got == nil {
			if want.at >= v.Head.TieredEnd || want.at < 0 && want.batches[want.n-1].base >= v.Head.TieredEnd {
				r.t.Fatalf("a replica that starts at %d does not know producer %d, which wrote at %d", v.Head.TieredEnd, pid, want.at)
			}
			continue
		}
		if got.fresh && !want.fresh {
			r.t.Fatalf("a replica that starts at %d takes the epoch of producer %d for one that wrote nothing", v.Head.TieredEnd, pid)
		}
		if got, want := essence(got), essence(want); got != want {
			r.t.Fatalf("a replica that starts at %d knows of producer %d %s, the leader %s", v.Head.TieredEnd, pid, got, want)
		}
	}
}

// compareBucket reads committed data from the bucket alone, as a tool does that knows no hot log: up to where the newest segment says that
// it may.
func (r *txnRun) compareBucket() {
	v := r.p.view.Load()
	if v == nil || v.Head.LogStart != r.m.startOffset() {
		return
	}
	end := v.Manifest.FirstUnstable()
	for from := r.m.startOffset(); from < end; {
		got, err := r.p.broker.tier.Reader.Read(r.t.Context(), tiering.ReadRequest{View: v, Offset: from, Limit: end, MaxBytes: 400, FirstWhole: true, Aborted: true})
		check(r.t, err)
		var res ReadResult
		res.abort(got.Aborted)
		if want := r.m.aborted(from, got.Next); !slices.Equal(res.Aborted, want) {
			r.t.Fatalf("in the bucket [%d, %d) has the aborted transactions %v, want %v; it may be read up to %d", from, got.Next, res.Aborted, want, end)
		}
		from = got.Next
	}
}

// essence is what of a producer decides about what comes.
func essence(e *producer) string {
	first, last := record.NoOffset, int32(-1)
	if e.open() {
		first = e.first
	}
	if e.n > 0 {
		last = e.batches[e.n-1].lastSeq
	}
	return fmt.Sprint("epoch ", e.epoch, " sequence ", last, " open ", first)
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
		data, err := p.log.Read(0, 2, 1<<20, true, nil)
		check(t, err)
		var res ReadResult
		if again, err := p.hotAborted(0, data, &res); again || err != nil || len(res.Aborted) != 1 {
			t.Errorf("%+v, again %v, %v", res.Aborted, again, err)
		}
		p.mu.Lock()
		p.producersLocked().aborted.trim(2)
		p.mu.Unlock()
		if again, err := p.hotAborted(0, data, &res); !again || err != nil {
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
