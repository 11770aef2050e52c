// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/segment"
)

func TestLocalRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 5000
		w.p.policy.LocalRetentionAge = time.Minute
		n := w.start(t.Context(), nil)
		for range 20 {
			w.p.add(record.None, 1000, now()+1e9) // timestamps of the future do not count (G5)
		}
		synctest.Wait()
		sealed := w.tieredEnd()
		if sealed < 16 || w.p.localStart() != 0 {
			t.Fatalf("tiered end %d, local start %d", sealed, w.p.localStart())
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if w.p.localStart() != sealed {
			t.Fatalf("local start %d, tiered end %d", w.p.localStart(), sealed)
		}
		w.p.setPolicy(func(p *Policy) { p.LocalRetentionAge, p.LocalRetentionBytes = -1, 8000 })
		for range 30 {
			w.p.add(record.None, 1000, now())
			synctest.Wait()
		}
		if h := w.p.Hot(w.tieredEnd()); h.LocalBytes < 8000 || h.LocalBytes > 8000+2*5000 {
			t.Fatalf("%d local bytes, local.retention.bytes 8000", h.LocalBytes)
		}
		w.check(n.meta)
		n.stop()
	})
}

func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 5000
		n := w.start(t.Context(), nil)
		for range 40 {
			w.p.add(record.None, 1000, now())
			time.Sleep(time.Second)
		}
		synctest.Wait()
		produced := w.p.Hot(0).LocalBytes
		w.p.setPolicy(func(p *Policy) { p.RetentionBytes = 20_000 })
		synctest.Wait()
		v := w.check(n.meta)
		kept := v.Manifest.DataBytes() + w.p.Hot(v.Head.TieredEnd).UnsealedBytes
		if v.Head.LogStart == 0 || kept < min(20_000, produced) || kept > 25_000 {
			t.Fatalf("log start %d, %d bytes kept", v.Head.LogStart, kept)
		}
		if v.Manifest.Entries[0].Base != v.Head.LogStart {
			t.Fatalf("log start %d inside a segment from %d", v.Head.LogStart, v.Manifest.Entries[0].Base)
		}
		// By time: each segment goes when its largest timestamp is older, by itself.
		w.p.setPolicy(func(p *Policy) { p.RetentionBytes, p.RetentionAge = -1, time.Minute })
		first := v.Head.LogStart
		last := first
		for range 70 {
			time.Sleep(time.Second)
			synctest.Wait()
			start := n.h.View().Head.LogStart
			if start < last {
				t.Fatal("log start went back")
			}
			last = start
			for _, b := range w.p.all {
				if b.BaseOffset() >= first && b.BaseOffset() < start && now()-b.MaxTimestamp() < 60_000 {
					t.Fatalf("offset %d is gone after %d ms", b.BaseOffset(), now()-b.MaxTimestamp())
				}
			}
		}
		if v = w.check(n.meta); v.Head.LogStart != v.Head.TieredEnd || len(v.Manifest.Entries) != 0 || v.Head.TieredBytes != 0 {
			t.Fatalf("head %+v, %d entries", v.Head, len(v.Manifest.Entries))
		}
		n.stop()
	})
}

// TestExpiredUnsealed: what expires before it was sealed goes without an upload (G6), and sealing goes on behind it.
func TestExpiredUnsealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.RetentionAge = 30 * time.Second
		n := w.start(t.Context(), nil)
		for range 5 {
			w.p.add(record.None, 1000, now())
		}
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if v := n.h.View(); v.Head.LogStart != 0 {
			t.Fatalf("log start %d too early", v.Head.LogStart)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		v := w.check(n.meta)
		if v.Head.LogStart != 5 || v.Head.TieredEnd != 5 || w.faulty.Count(objstore.OpCreate) != 0 || w.p.localStart() != 5 {
			t.Fatalf("log start %d, tiered end %d, local start %d, %d PUTs", v.Head.LogStart, v.Head.TieredEnd, w.p.localStart(), w.faulty.Count(objstore.OpCreate))
		}
		w.p.setPolicy(func(p *Policy) { p.RetentionAge, p.SegmentAge = time.Hour, time.Second })
		w.p.add(record.None, 1000, now())
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if v = w.check(n.meta); v.Head.TieredEnd != 6 || len(v.Manifest.Entries) != 1 {
			t.Fatalf("tiered end %d", v.Head.TieredEnd)
		}
		// retention.bytes alone: data above it that was never uploaded.
		w.faulty.Add(objstore.Rule{Op: objstore.OpCreate, Effect: objstore.Denied, Times: 3})
		w.p.setPolicy(func(p *Policy) { p.SegmentBytes, p.RetentionBytes = 4000, 6000 })
		for range 12 {
			w.p.add(record.None, 1000, now())
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.check(n.meta)
		n.stop()
	})
}

func TestDeleteRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentBytes = 5000
		n := w.start(t.Context(), nil)
		for range 40 {
			w.p.add(record.None, 1000, now())
		}
		synctest.Wait()
		v, err := n.h.AdvanceLogStart(t.Context(), 13)
		if err != nil || v.Head.LogStart != 13 {
			t.Fatalf("%+v %v", v, err)
		}
		synctest.Wait()
		if v = w.check(n.meta); v.Manifest.Entries[0].End <= 13 || v.Manifest.Entries[0].Base > 13 {
			t.Fatalf("first segment [%d, %d)", v.Manifest.Entries[0].Base, v.Manifest.Entries[0].End)
		}
		// Beyond the tiered end: the next segment starts there.
		if v, err = n.h.AdvanceLogStart(t.Context(), 39); err != nil || v.Head.TieredEnd != 39 {
			t.Fatalf("%+v %v", v, err)
		}
		for range 10 {
			w.p.add(record.None, 1000, now())
		}
		synctest.Wait()
		if v = w.check(n.meta); v.Manifest.Entries[0].Base != 39 {
			t.Fatalf("%+v", v.Manifest.Entries[0])
		}
		n.stop()
	})
}

// TestDeleteRecordsInsideABatch: the log start may cut a batch that is not sealed yet. It stays whole, and sealing goes on.
func TestDeleteRecordsInsideABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.p.policy.SegmentAge = time.Minute
		w.p.policy.LocalRetentionAge = 0
		n := w.start(t.Context(), nil)
		w.p.add(record.None, 100, now()+900, now(), now()+500, now()+1, now()+2)
		w.p.add(record.None, 100, now())
		synctest.Wait()
		for _, to := range []record.Offset{1, 3} {
			if v, err := n.h.AdvanceLogStart(t.Context(), to); err != nil || v.Head.TieredEnd != to {
				t.Fatalf("%+v %v", v, err)
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		v := w.check(n.meta)
		if v.Head.TieredEnd != 6 || v.Manifest.Entries[0].Base != 3 || w.p.localStart() != 6 {
			t.Fatalf("%+v", v.Head)
		}
		r := NewReader(ReaderConfig{}, w.inner)
		if got, ok, err := r.MaxTimestamp(t.Context(), v); err != nil || !ok || got.Offset != 4 {
			t.Fatalf("%v %v %v", got, ok, err)
		}
		_ = r.Close()
		n.stop()
	})
}

func TestExpiry(t *testing.T) {
	p := Policy{RetentionAge: time.Hour, TimestampAfterMax: time.Minute}
	hour := time.Hour.Milliseconds()
	for _, c := range []struct{ maxTs, sealed, want int64 }{
		{1000, 5000, 1000 + hour},
		{5000 + 60_001, 5000, 5000 + 60_000 + hour},
		{segment.NoTimestamp, 5000, 5000 + hour},
	} {
		if got := expiry(&p, c.maxTs, c.sealed).UnixMilli(); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
