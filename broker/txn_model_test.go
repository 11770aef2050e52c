// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
)

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
