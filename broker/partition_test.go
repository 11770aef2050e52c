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

	"github.com/varve/varve/broker/isr"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
)

// holdSyncs makes syncs of the disk wait until release.
func (n *node) holdSyncs() (release func()) {
	c := make(chan struct{})
	n.gate.Store(&c)
	return sync.OnceFunc(func() { n.gate.Store(nil); close(c) })
}

func decided(w *Wait) bool {
	select {
	case <-w.C():
		return true
	default:
		return false
	}
}

// slowListener hears news when it is let.
type slowListener struct{ until chan struct{} }

func (l slowListener) PartitionChanged(*Partition) { <-l.until }

// TestReadersHearFirst: an append is acknowledged once every fetch session knows of it, so that a client finds what it was told is there.
func TestReadersHearFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		slow := slowListener{make(chan struct{})}
		defer p.Subscribe(slow, false)()
		w, _ := p.start(built(t, nobody, 1), -1)
		time.Sleep(time.Second)
		synctest.Wait()
		if decided(w) {
			t.Error("acknowledged before a reader had heard of it")
		}
		close(slow.until)
		<-w.C()
	})
}

// TestAcksWaitForTheDisk: acks=0 is decided when it is queued, acks=1 and acks=all when they are durable, and what is not durable
// is not read. A resend joins the wait of the original (B2, B3, B4).
func TestAcksWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		release := n.holdSyncs()
		defer release()
		producer := record.Producer{ID: 7, Epoch: 0, Sequence: 0}
		w0, first := p.start(built(t, nobody, 1), 0)
		w1, one := p.start(built(t, nobody, 2), 1)
		wAll, all := p.start(built(t, producer, 3, 4), -1)
		wOne, again := p.start(built(t, producer, 3, 4), 1)
		wAgain, third := p.start(built(t, producer, 3, 4), -1)
		time.Sleep(time.Second)
		synctest.Wait()
		if !decided(w0) || first.Err != nil || first.Base != 0 {
			t.Errorf("acks=0 has to be decided when it is queued: %+v", first)
		}
		for i, w := range []*Wait{w1, wAll, wOne, wAgain} {
			if decided(w) {
				t.Errorf("append %d was acknowledged before its sync", i+1)
			}
		}
		if got, err := p.readAll(0); err != nil || len(got) != 0 {
			t.Errorf("B4: %q was read before its sync, %v", got, err)
		}
		release()
		for _, w := range []*Wait{w1, wAll, wOne, wAgain} {
			<-w.C()
		}
		if one.Err != nil || one.Base != 1 || all.Err != nil || all.Base != 2 || all.Duplicate {
			t.Errorf("acks=1 %+v, acks=all %+v", one, all)
		}
		for _, dup := range []*Pending{again, third, p.append(t, built(t, producer, 3, 4), -1)} {
			if dup.Err != nil || !dup.Duplicate || dup.Base != 2 {
				t.Errorf("B3: a resend is answered with %+v", dup)
			}
		}
		if got, err := p.readAll(0); err != nil || !slices.Equal(got, []string{"at 1", "at 2", "at 3", "at 4"}) {
			t.Errorf("read %q, %v", got, err)
		}
	})
}

// TestWaitsThatEndEarly: a wait that expires or whose leadership ends is answered with an error; the batch may be there all the
// same, and a resend in the next epoch finds it (B2, B3, B5).
func TestWaitsThatEndEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		release := n.holdSyncs()
		defer release()
		producer := record.Producer{ID: 7}
		w, expired := p.start(built(t, producer, 1), -1)
		p.Expire(expired)
		<-w.C()
		if !errors.Is(expired.Err, ErrTimedOut) || expired.Base != record.NoOffset {
			t.Errorf("an expired wait is answered with %+v", expired)
		}
		p.Expire(expired) // decided already: nothing happens
		w1, one := p.start(built(t, nobody, 2), 1)
		wAll, all := p.start(built(t, nobody, 3), -1)
		session := n.broker.session.Load()
		check(t, session.Close(context.Background()))
		<-w1.C()
		<-wAll.C()
		if !errors.Is(one.Err, ErrNotLeader) || !errors.Is(all.Err, ErrNotLeader) {
			t.Errorf("waits of an ended leadership are answered with %v and %v", one.Err, all.Err)
		}
		if late := p.append(t, built(t, nobody, 4), 1); !errors.Is(late.Err, ErrNotLeader) {
			t.Errorf("an append without leadership is answered with %+v", late)
		}
		release()
		n.await("the next epoch", func() bool { m := p.Marks(); return m.Leading && m.Epoch == 1 })
		if dup := p.append(t, built(t, producer, 1), -1); dup.Err != nil || !dup.Duplicate || dup.Base != 0 {
			t.Errorf("B3: a resend in the next epoch is answered with %+v", dup)
		}
		if next := p.must(t, built(t, nobody, 5)); next != 3 {
			t.Errorf("the next batch got offset %d, want 3", next)
		}
		if e, err := p.EndOffsetForEpoch(0, 1); err != nil || e != (EpochEnd{0, 3}) {
			t.Errorf("epoch 0 ends at %+v, %v", e, err)
		}
		if n.broker.Producers() != 1 {
			t.Errorf("%d producers are counted, want 1", n.broker.Producers())
		}
	})
}

// TestReadersBesideEviction: readers that begin anywhere get every record once and in order, while what they read is sealed and
// evicted under them.
func TestReadersBesideEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "1000", "retention.ms": "-1"})
		const records = 400
		var readers sync.WaitGroup
		for r := range 4 {
			readers.Go(func() {
				next := r * 20
				for next < records {
					if p.Marks().HW < record.Offset(next) {
						time.Sleep(time.Second)
						continue
					}
					got, err := p.readAll(record.Offset(next))
					if err != nil {
						t.Errorf("reading at %d: %v", next, err)
						return
					}
					for _, v := range got {
						if v != fmt.Sprint("at ", next) {
							t.Errorf("at %d: %q", next, v)
							return
						}
						next++
					}
					time.Sleep(70 * time.Millisecond)
				}
			})
		}
		for i := range records {
			p.must(t, built(t, nobody, int64(i)))
			time.Sleep(50 * time.Millisecond)
		}
		readers.Wait()
		if p.Marks().Local == 0 {
			t.Error("nothing was evicted")
		}
	})
}

// logModel is a partition as a list.
type logModel struct {
	times  []int64
	epochs []record.Epoch
	start  int
}

func (m *logModel) first(ts int64) TimeOffset {
	for o := m.start; o < len(m.times); o++ {
		if m.times[o] >= ts {
			return TimeOffset{record.Offset(o), m.times[o], m.epochs[o]}
		}
	}
	return noTimeOffset
}

// TestLookupsAgainstModel: lookups by time and reads, with timestamps in any order, across the bucket and the hot log, log starts
// anywhere, and changes of leadership, beside a list.
func TestLookupsAgainstModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lookupsAgainstModel(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func lookupsAgainstModel(t *testing.T, rnd *rand.Rand) {
	n := startNode(t, nil)
	local := []string{"1000", "10000", "-1"}[rnd.IntN(3)]
	p := n.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": local, "retention.ms": "-1"})
	width := []int{0, 30 << 10}[rnd.IntN(2)] // wide records make many stretches of the time index
	var m logModel
	for range 120 {
		switch rnd.IntN(9) {
		case 0:
			time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
		case 1:
			to := m.start + rnd.IntN(min(len(m.times)-m.start, 12)+1)
			low, err := p.DeleteRecords(t.Context(), record.Offset(to))
			if err != nil || low != record.Offset(to) {
				t.Fatalf("DeleteRecords to %d gave %d, %v", to, low, err)
			}
			m.start = to
		case 2:
			if rnd.IntN(4) == 0 {
				epoch := p.Marks().Epoch
				check(t, n.broker.session.Load().Close(t.Context()))
				n.await("the next epoch", func() bool { now := p.Marks(); return now.Leading && now.Epoch > epoch })
			}
		default:
			times := make([]int64, 1+rnd.IntN(5))
			for i := range times {
				times[i] = rnd.Int64N(40)
				m.times, m.epochs = append(m.times, times[i]), append(m.epochs, p.Marks().Epoch)
			}
			p.must(t, wide(t, width, times...))
		}
		m.compare(t, p, rnd.Int64N(42))
	}
}

func (m *logModel) compare(t *testing.T, p *Partition, ts int64) {
	t.Helper()
	r := LookupRequest{CurrentEpoch: record.NoEpoch}
	if got, err := p.OffsetForTime(t.Context(), ts, r); err != nil || got != m.first(ts) {
		t.Fatalf("time %d: %+v, %v; want %+v; %+v", ts, got, err, m.first(ts), p.Marks())
	}
	largest := int64(-1)
	var values []string
	for o := m.start; o < len(m.times); o++ {
		largest = max(largest, m.times[o])
		values = append(values, fmt.Sprint("at ", m.times[o]))
	}
	got, err := p.MaxTimestamp(t.Context(), r)
	if err != nil || got.Timestamp != largest {
		t.Fatalf("largest timestamp: %+v, %v; want %d; %+v", got, err, largest, p.Marks())
	}
	if o := int(got.Offset); largest >= 0 && (o < m.start || o >= len(m.times) || m.times[o] != largest || m.epochs[o] != got.Epoch) {
		t.Fatalf("largest timestamp: %+v is not such a record; %+v", got, p.Marks())
	}
	if read, err := p.readAll(record.Offset(m.start)); err != nil || !slices.Equal(read, values) {
		t.Fatalf("read %q, %v; want %q; %+v", read, err, values, p.Marks())
	}
	if m.start > 0 {
		if _, err := p.readAll(record.Offset(m.start - 1)); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Fatalf("a read below the log start: %v", err)
		}
	}
	if at, err := p.Special(SpecialEarliest, r); err != nil || int(at.Offset) != m.start {
		t.Fatalf("earliest: %+v, %v; want %d", at, err, m.start)
	}
	if at, err := p.Special(SpecialLatest, r); err != nil || int(at.Offset) != len(m.times) {
		t.Fatalf("latest: %+v, %v; want %d", at, err, len(m.times))
	}
}

// TestLookupWithAnEarlierManifest: a node that leads again may still have the manifest of its earlier leadership, while its hot log
// was trimmed to what another leader sealed. What lies between the two is found. (S13)
func TestLookupWithAnEarlierManifest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", map[string]string{"segment.ms": "1000", "local.retention.ms": "1000", "retention.ms": "-1"})
		var m logModel
		var early *tiering.View
		for i := range int64(3) {
			p.must(t, built(t, nobody, i))
			m.times, m.epochs = append(m.times, i), append(m.epochs, p.Marks().Epoch)
			n.await("the trim", func() bool { return p.Marks().Local == record.Offset(i+1) })
			if i == 0 {
				early = p.view.Load()
			}
		}
		for _, ts := range []int64{1, 2, 3} {
			p.view.Store(early)
			m.compare(t, p, ts)
		}
	})
}

// TestProducersAreForgotten: idle ones after producer.id.expiration.ms, and those idle longest beyond the limit; a change of epoch does
// not bring them back.
func TestProducersAreForgotten(t *testing.T) {
	defer func(n int) { maxProducersPerPartition = n }(maxProducersPerPartition)
	maxProducersPerPartition = 3
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, map[string]string{"producer.id.expiration.ms": "600000"})
		p := n.topic("t", nil)
		for pid := range int64(5) {
			p.must(t, built(t, record.Producer{ID: pid}, pid))
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		if got := n.broker.Producers(); got != 3 {
			t.Errorf("%d producers are remembered, want the limit of 3", got)
		}
		if dup := p.append(t, built(t, record.Producer{ID: 2}, 2), -1); !dup.Duplicate || dup.Base != 2 {
			t.Errorf("a resend of one that is remembered: %+v", dup)
		}
		if fresh := p.append(t, built(t, record.Producer{ID: 1}, 1), -1); fresh.Duplicate || fresh.Err != nil {
			t.Errorf("a batch of one that is forgotten: %+v", fresh)
		}
		time.Sleep(9 * time.Minute)
		if got := n.broker.Producers(); got != 1 {
			t.Errorf("%d producers are remembered, want the one in use", got)
		}
		check(t, n.broker.session.Load().Close(t.Context()))
		n.await("the next epoch", func() bool { m := p.Marks(); return m.Leading && m.Epoch == 1 })
		if got := n.broker.Producers(); got != 1 {
			t.Errorf("%d producers came back, want 1", got)
		}
	})
}

// TestLeavingWithAStalledDisk: leaving waits for what is on its way to the disk, but not beyond its time.
func TestLeavingWithAStalledDisk(t *testing.T) {
	for _, stall := range []time.Duration{time.Second, time.Hour} {
		t.Run(stall.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, nil)
				p := n.topic("t", nil)
				release := n.holdSyncs()
				defer release()
				w, pend := p.start(built(t, nobody, 1), -1)
				time.AfterFunc(stall, release)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				_ = n.broker.Leave(ctx) // without time left the registration may have to run out
				<-w.C()
				if d := time.Since(began); d > 6*time.Second {
					t.Errorf("leaving took %s", d)
				}
				if want := stall < 5*time.Second; (pend.Err == nil) != want {
					t.Errorf("the append that was on its way: %v", pend.Err)
				}
			})
		})
	}
}

// TestDeleteBeforeTheHighWatermarkIsKnown: a new leader does not call an offset out of range that an earlier one told as committed.
func TestDeleteBeforeTheHighWatermarkIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, nil)
		p := n.topic("t", nil)
		p.must(t, built(t, nobody, 1, 2, 3))
		p.mu.Lock()
		p.mu.lead.isr = isr.New(isr.Start{Self: testNode, Replicas: 2, MinISR: 1, Members: []isr.Member{{Node: testNode}, {Node: 2}}, HW: 1, EpochStart: 3, DurableEnd: 3})
		p.mu.hw = 1
		p.mu.Unlock()
		for to, want := range map[record.Offset]error{record.NoOffset: ErrOffsetNotAvailable, 3: ErrOffsetNotAvailable, 4: ErrOffsetOutOfRange} {
			if _, err := p.DeleteRecords(context.Background(), to); !errors.Is(err, want) {
				t.Errorf("deleting below %d: %v, want %v", to, err, want)
			}
		}
	})
}
