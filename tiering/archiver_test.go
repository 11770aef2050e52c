// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/varve/varve/internal/testenv"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/objstore"
)

var _ Metadata = (*metadata.Store)(nil)

// now is a timestamp in the bubble's time.
func now() int64 { return time.Now().UnixMilli() }

func (w *world) tieredEnd() record.Offset {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if w.p.view == nil {
		return -1
	}
	return w.p.view.Head.TieredEnd
}

func TestSealBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 10_000
		n := w.start(t.Context(), nil)
		for range 100 {
			w.p.add(record.Zstd, 1000, now())
		}
		synctest.Wait()
		v := w.check(n.meta)
		var m dto.Metric
		if err := n.a.metrics.copiedBytes.Write(&m); err != nil || m.Counter.GetValue() != float64(v.Head.TieredBytes) {
			t.Errorf("%v bytes were copied as the metric has it, %d as the manifest does (%v)", m.Counter.GetValue(), v.Head.TieredBytes, err)
		}
		if rest := w.p.Hot(v.Head.TieredEnd).UnsealedBytes; rest >= 10_000 || v.Head.TieredEnd == 0 {
			t.Fatalf("tiered end %d, %d bytes left", v.Head.TieredEnd, rest)
		}
		for _, e := range v.Manifest.Entries {
			if e.DataBytes > 10_000 || e.DataBytes < 8000 {
				t.Errorf("segment of %d bytes", e.DataBytes)
			}
		}
		n.stop()
	})
}

// TestSealByAge: an idle topic too is sealed when its first unsealed record is as old as the topic or the node allows, and then nothing wakes up any more.
func TestSealByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.SegmentMaxAge = 10 * time.Minute
		w.p.policy.SegmentAge = time.Hour // the node's bound is lower
		n := w.start(t.Context(), nil)
		w.p.add(record.None, 10, now())
		time.Sleep(5 * time.Minute)
		w.p.add(record.None, 10, now())
		time.Sleep(5*time.Minute - time.Second)
		synctest.Wait()
		if w.tieredEnd() != 0 {
			t.Fatal("sealed too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if w.tieredEnd() != 2 {
			t.Fatalf("tiered end %d", w.tieredEnd())
		}
		w.p.setPolicy(func(p *Policy) { p.SegmentAge = time.Second })
		w.p.add(record.None, 10, now())
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if w.tieredEnd() != 3 {
			t.Fatalf("tiered end %d", w.tieredEnd())
		}
		w.check(n.meta)
		before := w.server.Txns()
		time.Sleep(time.Minute)
		n.a.mu.Lock()
		if len(n.a.mu.timers) != 0 {
			t.Error("an idle partition has a deadline")
		}
		n.a.mu.Unlock()
		if after := w.server.Txns(); after-before > 60 { // its registration's keepalives
			t.Errorf("%d transactions while idle", after-before)
		}
		n.stop()
	})
}

// TestBound is T1: nothing at or above min(HW, LSO) is sealed, unless the node is over budget because of an open transaction.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentAge = time.Second
		n := w.start(t.Context(), nil)
		w.p.setLSO(0)
		w.p.mu.Lock()
		w.p.lso = -1 // held from here on
		w.p.mu.Unlock()
		for range 20 {
			w.p.add(record.None, 1000, now())
		}
		w.p.setLSO(5)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if w.tieredEnd() != 5 {
			t.Fatalf("tiered end %d, LSO 5", w.tieredEnd())
		}
		n.stop()

		w.cfg.HotBytes = 5000
		n = w.start(t.Context(), nil)
		time.Sleep(time.Second)
		synctest.Wait()
		v := w.check(n.meta)
		if v.Head.TieredEnd != 20 || v.Manifest.FirstUnstable() != 5 {
			t.Fatalf("tiered end %d, first unstable %d", v.Head.TieredEnd, v.Manifest.FirstUnstable())
		}
		w.p.setLSO(20)
		w.p.add(record.None, 1000, now())
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if v = w.check(n.meta); v.Manifest.FirstUnstable() != 21 {
			t.Fatalf("first unstable %d: the newest entry decides", v.Manifest.FirstUnstable())
		}
		n.stop()
	})
}

// TestHotBudget: over budget the node first gives up what is in the bucket already, then seals the partition with most unsealed bytes.
func TestHotBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.HotBytes = 20_000
		n := w.start(t.Context(), nil)
		for range 15 {
			w.p.add(record.None, 1000, now())
		}
		time.Sleep(time.Second)
		if w.tieredEnd() != 0 {
			t.Fatal("sealed under budget")
		}
		n.a.PauseSealing(true) // else it begins as soon as the budget is exceeded
		for range 15 {
			w.p.add(record.None, 1000, now())
		}
		n.a.PauseSealing(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if local := w.p.Hot(0).LocalBytes; local > 20_000 {
			t.Fatalf("%d local bytes", local)
		}
		if w.tieredEnd() != 30 || w.p.localStart() == 0 {
			t.Fatalf("tiered end %d, local start %d", w.tieredEnd(), w.p.localStart())
		}
		w.check(n.meta)
		n.stop()
	})
}

// TestFold: pages of four entries; reads, retention and restarts go through them.
func TestFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 3000
		w.cfg.PageEntries, w.cfg.MinFold, w.cfg.ManifestEntries = 4, 7, 1
		n := w.start(t.Context(), nil)
		for i := range 100 {
			w.p.add(record.None, 1000, now())
			synctest.Wait()
			if i%20 == 0 {
				w.check(n.meta)
			}
		}
		v := w.check(n.meta)
		if len(v.Manifest.Pages) < 8 || len(v.Manifest.Entries) > 7 {
			t.Fatalf("%d pages, %d entries", len(v.Manifest.Pages), len(v.Manifest.Entries))
		}
		for _, p := range v.Manifest.Pages[:len(v.Manifest.Pages)-1] {
			if p.Count != 4 {
				t.Errorf("page of %d", p.Count)
			}
		}
		n.stop()
		n = w.start(t.Context(), nil)
		if _, err := n.h.AdvanceLogStart(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if v = w.check(n.meta); v.Manifest.Pages[0].End <= 50 || v.Manifest.Pages[0].Base > 50 {
			t.Fatalf("first page [%d, %d)", v.Manifest.Pages[0].Base, v.Manifest.Pages[0].End)
		}
		w.p.setPolicy(func(p *Policy) { p.RetentionBytes = 10_000 })
		synctest.Wait()
		v = w.check(n.meta)
		if kept := v.Manifest.DataBytes() + w.p.Hot(v.Head.TieredEnd).UnsealedBytes; kept < 10_000 || len(v.Manifest.Pages) > 1 {
			t.Fatalf("%d bytes kept in %d pages", kept, len(v.Manifest.Pages))
		}
		n.stop()
	})
}

// TestFenced: an archiver whose leader was replaced changes nothing any more and leaves its attempt to garbage collection.
func TestFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 3000
		old := w.start(t.Context(), nil)
		hold := make(chan struct{})
		w.faulty.Add(objstore.Rule{Op: objstore.OpCreate, Effect: objstore.Hold, Release: hold, Times: 1})
		for range 4 {
			w.p.add(record.None, 1000, now())
		}
		synctest.Wait()
		if err := old.sess.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := w.start(t.Context(), nil)
		synctest.Wait()
		end := w.tieredEnd()
		if end == 0 {
			t.Fatal("the new leader does not seal")
		}
		close(hold)
		synctest.Wait()
		if old.h.ctx.Err() == nil {
			t.Error("the old handle's term goes on")
		}
		if v := w.check(n.meta); v.Head.TieredEnd != end || len(v.Manifest.Entries) != 1 {
			t.Fatalf("%+v", v.Head)
		}
		if intents, err := n.meta.Intents(t.Context(), w.id); err != nil || len(intents) != 1 {
			t.Fatalf("intents %v %v: the lost attempt must stay accounted for", intents, err)
		}
		old.cancel()
		old.h.Close()
		<-old.done
		n.stop()
	})
}

// TestRecordBehindTheLook: a record that comes right after a step saw nothing unsealed is sealed when its age says, not at the sweep.
func TestRecordBehindTheLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentAge = time.Second
		n := w.start(t.Context(), nil)
		w.p.mu.Lock()
		w.p.afterHot = func(h Hot) {
			if w.tieredEnd() != 1 || h.UnsealedBytes != 0 {
				return
			}
			w.p.mu.Lock()
			w.p.afterHot = nil
			w.p.mu.Unlock()
			w.p.add(record.None, 10, now())
		}
		w.p.mu.Unlock()
		w.p.add(record.None, 10, now())
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if w.p.end() != 2 {
			t.Error("the record did not come in between")
		}
		if w.tieredEnd() != 2 {
			t.Errorf("tiered end %d: the record that came behind the look is not sealed", w.tieredEnd())
		}
		w.check(n.meta)
		n.stop()
	})
}

// TestOutage: while the store is away attempts are spaced out, nothing is lost, what is in the bucket is still evicted, and it recovers by itself.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 3000
		w.p.policy.LocalRetentionAge = 20 * time.Second
		n := w.start(t.Context(), nil)
		for range 10 {
			w.p.add(record.None, 1000, now())
		}
		synctest.Wait()
		sealed := w.tieredEnd()
		w.faulty.Add(objstore.Rule{Op: objstore.OpCreate, Effect: objstore.Denied})
		for range 300 {
			w.p.add(record.None, 1000, now())
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if w.tieredEnd() != sealed || w.p.localStart() != sealed {
			t.Fatalf("tiered end %d, local start %d, sealed before %d", w.tieredEnd(), w.p.localStart(), sealed)
		}
		if tries := w.faulty.Count(objstore.OpCreate); tries > 40 {
			t.Errorf("%d PUTs in 30 s of outage", tries)
		}
		w.faulty.Calm()
		time.Sleep(time.Minute)
		synctest.Wait()
		if v := w.check(n.meta); v.Head.TieredEnd < 300 {
			t.Fatalf("tiered end %d", v.Head.TieredEnd)
		}
		n.stop()
	})
}

// TestOutageIsTold: while the first step in an outage still tries, `why` and the log say that the bucket does not answer, since when and how;
// the log says so once, and `why` no more when the bucket has answered.
func TestOutageIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 3000
		var log testenv.Log
		w.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		w.faulty.Add(objstore.Rule{Op: objstore.OpCreate, Effect: objstore.Unavailable})
		n := w.start(t.Context(), nil)
		for range 10 {
			w.p.add(record.None, 1000, now())
		}
		began := time.Now()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if strings.Contains(log.String(), "msg=archive") {
			t.Fatal("the step has given up: that was told before")
		}
		since := "the bucket does not answer since " + began.UTC().Format(time.RFC3339) + ": "
		if why := strings.Join(n.h.Why(time.Now()), "\n"); !strings.Contains(why, since) || !strings.Contains(why, "injected") {
			t.Errorf("why: %s", why)
		}
		if text := log.String(); strings.Count(text, "the bucket does not answer") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "injected") {
			t.Errorf("log:\n%s", text)
		}
		w.faulty.Calm()
		time.Sleep(time.Minute)
		synctest.Wait()
		if why := strings.Join(n.h.Why(time.Now()), "\n"); strings.Contains(why, "does not answer") {
			t.Errorf("the bucket is back: %s", why)
		}
		n.stop()
	})
}

func TestPauseSealing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 3000
		n := w.start(t.Context(), nil)
		n.a.PauseSealing(true)
		for range 10 {
			w.p.add(record.None, 1000, now())
		}
		time.Sleep(time.Minute)
		if w.tieredEnd() != 0 {
			t.Fatalf("tiered end %d", w.tieredEnd())
		}
		n.a.PauseSealing(false)
		synctest.Wait()
		if end := w.tieredEnd(); end < 8 {
			t.Fatalf("tiered end %d", end)
		}
		n.stop()
	})
}

// TestPinsAgainstEviction is C5: while a segment is being read for its upload nothing of it is evicted.
func TestPinsAgainstEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 3000
		n := w.start(t.Context(), nil)
		w.p.mu.Lock()
		w.p.release = make(chan struct{})
		w.p.mu.Unlock()
		for range 4 {
			w.p.add(record.None, 1000, now())
		}
		synctest.Wait()
		w.p.mu.Lock()
		pins := len(w.p.pins)
		close(w.p.release)
		w.p.mu.Unlock()
		if pins != 1 {
			t.Fatalf("%d pins during an upload", pins)
		}
		synctest.Wait()
		w.p.mu.Lock()
		pins = len(w.p.pins)
		w.p.mu.Unlock()
		if pins != 0 || w.tieredEnd() == 0 {
			t.Fatalf("%d pins after it", pins)
		}
		n.stop()
	})
}

// TestPanicIsContained: a bug in one partition's step is that partition's failure; it is tried again and others go on.
func TestPanicIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 3000
		var boom atomic.Bool
		boom.Store(true)
		n := w.start(t.Context(), func(m Metadata, s objstore.Store) (Metadata, objstore.Store) {
			return m, panicStore{s, &boom}
		})
		for range 4 {
			w.p.add(record.None, 1000, now())
		}
		time.Sleep(10 * time.Second)
		boom.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.tieredEnd() == 0 {
			t.Fatal("never recovered")
		}
		n.stop()
	})
}

type panicStore struct {
	objstore.Store
	boom *atomic.Bool
}

func (s panicStore) Create(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) error {
	if s.boom.Load() {
		panic("boom")
	}
	return s.Store.Create(ctx, key, body, o)
}

// TestManyPartitions: one fixed pool serves many; each gets its turn and the same number of goroutines does it.
func TestManyPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.start(t.Context(), nil)
		topic, err := n.meta.CreateTopic(t.Context(), metadata.TopicSpec{Name: "many", Partitions: slices.Repeat([][]record.NodeID{{1}}, 50)})
		if err != nil {
			t.Fatal(err)
		}
		var ids []record.PartitionID
		for i := range 50 {
			ids = append(ids, record.PartitionID{Topic: topic.ID, Index: int32(i)})
		}
		ls, err := n.meta.TakeOver(t.Context(), n.sess, ids)
		if err != nil {
			t.Fatal(err)
		}
		var ps []*fakePartition
		var hs []*Handle
		for _, l := range ls {
			p := newPartition(t)
			p.policy.SegmentBytes = 2000
			p.lead(l.Epoch)
			h := n.a.Lead(t.Context(), Term{Leadership: l, ClusterID: n.meta.ClusterID(), TopicName: "many"}, p)
			p.handle = h
			ps, hs = append(ps, p), append(hs, h)
		}
		for range 5 {
			for _, p := range ps {
				p.add(record.None, 1000, now())
			}
		}
		time.Sleep(time.Second) // uploads have a pace
		synctest.Wait()
		for i, p := range ps {
			if p.view == nil || p.view.Head.TieredEnd < 4 {
				t.Fatalf("partition %d is not archived", i)
			}
		}
		for _, h := range hs {
			h.Close()
		}
		n.stop()
	})
}
