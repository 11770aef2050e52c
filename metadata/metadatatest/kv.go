// SPDX-License-Identifier: Apache-2.0

package metadatatest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
)

// KV is the suite of the seam itself.
func KV(t *testing.T, h Harness) {
	t.Run("Compares", func(t *testing.T) { testCompares(t, h) })
	t.Run("OneRevisionPerTxn", func(t *testing.T) { testOneRevision(t, h) })
	t.Run("WhatEtcdRefuses", func(t *testing.T) { testRefused(t, h) })
	t.Run("Range", func(t *testing.T) { testRange(t, h) })
	t.Run("Watch", func(t *testing.T) { testWatch(t, h) })
	t.Run("WatchProgress", func(t *testing.T) { testWatchProgress(t, h) })
	t.Run("WatchCompacted", func(t *testing.T) { testWatchCompacted(t, h) })
	t.Run("LeaseEnds", func(t *testing.T) { testLeaseEnds(t, h) })
	t.Run("LeaseRevoke", func(t *testing.T) { testLeaseRevoke(t, h) })
	t.Run("Outage", func(t *testing.T) { testKVOutage(t, h) })
	t.Run("Cancelled", func(t *testing.T) { testCancelled(t, h) })
}

func put(key, value string) metadata.Op {
	return metadata.Op{Kind: metadata.OpPut, Key: key, Value: []byte(value)}
}
func get(key string) metadata.Op { return metadata.Op{Kind: metadata.OpGet, Key: key} }
func del(key string) metadata.Op { return metadata.Op{Kind: metadata.OpDelete, Key: key} }

func do(t *testing.T, kv metadata.KV, txn metadata.Txn) metadata.TxnResult {
	t.Helper()
	res, err := kv.Txn(testContext(t), txn)
	if err != nil {
		t.Fatalf("Txn: %v", err)
	}
	return res
}

func must(t *testing.T, kv metadata.KV, ops ...metadata.Op) metadata.Revision {
	t.Helper()
	return do(t, kv, metadata.Txn{Then: ops}).Revision
}

func testCompares(t *testing.T, h Harness) {
	kv, p := client(t, h), prefix(t)
	created := must(t, kv, put(p+"a", "1"))
	modified := must(t, kv, put(p+"a", "2"))
	must(t, kv, put(p+"b", "x"))
	type c = metadata.Compare
	for name, tc := range map[string]struct {
		c    c
		want bool
	}{
		"mod equal":        {c{Key: p + "a", Target: metadata.TargetModRevision, Number: int64(modified)}, true},
		"mod not equal":    {c{Key: p + "a", Target: metadata.TargetModRevision, Number: int64(created)}, false},
		"create equal":     {c{Key: p + "a", Target: metadata.TargetCreateRevision, Number: int64(created)}, true},
		"create unequal":   {c{Key: p + "a", Target: metadata.TargetCreateRevision, Relation: metadata.NotEqual, Number: int64(created)}, false},
		"version":          {c{Key: p + "a", Target: metadata.TargetVersion, Number: 2}, true},
		"version less":     {c{Key: p + "a", Target: metadata.TargetVersion, Relation: metadata.Less, Number: 2}, false},
		"version greater":  {c{Key: p + "a", Target: metadata.TargetVersion, Relation: metadata.Greater, Number: 1}, true},
		"value":            {c{Key: p + "a", Target: metadata.TargetValue, Value: []byte("2")}, true},
		"other value":      {c{Key: p + "a", Target: metadata.TargetValue, Value: []byte("1")}, false},
		"absent: create 0": {c{Key: p + "none", Target: metadata.TargetCreateRevision, Number: 0}, true},
		"absent: mod 0":    {c{Key: p + "none", Target: metadata.TargetModRevision, Number: 0}, true},
		"absent: value":    {c{Key: p + "none", Target: metadata.TargetValue, Value: nil}, false},
		"absent: unequal":  {c{Key: p + "none", Target: metadata.TargetCreateRevision, Relation: metadata.NotEqual, Number: 7}, true},
		"range: all older": {c{Key: p, End: metadata.PrefixEnd(p), Target: metadata.TargetModRevision, Relation: metadata.Less, Number: int64(modified) + 2}, true},
		"range: one newer": {c{Key: p, End: metadata.PrefixEnd(p), Target: metadata.TargetModRevision, Relation: metadata.Less, Number: int64(modified) + 1}, false},
		"range: empty":     {c{Key: p + "z", End: p + "zz", Target: metadata.TargetCreateRevision, Number: 0}, true},
		"range: something": {c{Key: p, End: metadata.PrefixEnd(p), Target: metadata.TargetCreateRevision, Number: 0}, false},
	} {
		res := do(t, kv, metadata.Txn{If: []c{tc.c}, Then: []metadata.Op{get(p + "a")}, Else: []metadata.Op{get(p + "b")}})
		if res.Succeeded != tc.want {
			t.Errorf("%s: %v, want %v", name, res.Succeeded, tc.want)
		}
		want := "x"
		if res.Succeeded {
			want = "2"
		}
		if got := string(res.Reads[0][0].Value); got != want {
			t.Errorf("%s: the wrong branch ran: read %q", name, got)
		}
	}
}

func testOneRevision(t *testing.T, h Harness) {
	kv, p := client(t, h), prefix(t)
	first := do(t, kv, metadata.Txn{Then: []metadata.Op{put(p+"a", "1"), put(p+"b", "1"), get(p + "a")}})
	if got := first.Reads[2]; len(got) != 1 || string(got[0].Value) != "1" {
		t.Errorf("a read behind a put in one transaction sees %v", got)
	}
	read := do(t, kv, metadata.Txn{Then: []metadata.Op{get(p + "a"), get(p + "b"), get(p + "none")}})
	if read.Revision != first.Revision {
		t.Errorf("a transaction that only reads moved the revision from %d to %d", first.Revision, read.Revision)
	}
	if a, b := read.Reads[0][0], read.Reads[1][0]; a.ModRevision != first.Revision || b.ModRevision != first.Revision || len(read.Reads[2]) != 0 {
		t.Errorf("reads: %+v", read.Reads)
	}
	next := do(t, kv, metadata.Txn{Then: []metadata.Op{put(p+"a", "2"), del(p + "b")}})
	if next.Revision <= first.Revision || next.ClusterID != first.ClusterID || next.ClusterID == 0 {
		t.Errorf("headers: %+v then %+v", first.Header, next.Header)
	}
	read = do(t, kv, metadata.Txn{Then: []metadata.Op{get(p + "a"), get(p + "b")}})
	if a := read.Reads[0][0]; a.CreateRevision != first.Revision || a.ModRevision != next.Revision || a.Version != 2 || len(read.Reads[1]) != 0 {
		t.Errorf("after the second: %+v", read.Reads)
	}
}

func testRefused(t *testing.T, h Harness) {
	kv, p := client(t, h), prefix(t)
	ctx := testContext(t)
	if _, err := kv.Txn(ctx, metadata.Txn{Then: []metadata.Op{put(p+"a", "1"), put(p+"a", "2")}}); !errors.Is(err, metadata.ErrRefused) {
		t.Errorf("the same key twice: %v", err)
	}
	var many []metadata.Op
	for i := range 129 {
		many = append(many, put(fmt.Sprintf("%s%d", p, i), ""))
	}
	if _, err := kv.Txn(ctx, metadata.Txn{Then: many}); !errors.Is(err, metadata.ErrTooLarge) {
		t.Errorf("129 operations: %v", err)
	}
	if _, err := kv.Txn(ctx, metadata.Txn{Then: []metadata.Op{put(p+"a", string(make([]byte, 2<<20)))}}); !errors.Is(err, metadata.ErrTooLarge) {
		t.Errorf("2 MiB: %v", err)
	}
	if res, err := kv.Range(ctx, metadata.RangeRequest{Key: p, End: metadata.PrefixEnd(p)}); err != nil || res.Count != 0 {
		t.Errorf("refused transactions left %d keys, %v", res.Count, err)
	}
}

func testRange(t *testing.T, h Harness) {
	kv, p := client(t, h), prefix(t)
	ctx := testContext(t)
	var revs []metadata.Revision
	for i := range 5 {
		revs = append(revs, must(t, kv, put(fmt.Sprintf("%s%d", p, i), fmt.Sprint("v", i))))
	}
	last := must(t, kv, put(p+"1", "new"), del(p+"4"))
	all := metadata.RangeRequest{Key: p, End: metadata.PrefixEnd(p)}
	look := func(change func(*metadata.RangeRequest), want string) metadata.RangeResult {
		t.Helper()
		req := all
		change(&req)
		res, err := kv.Range(ctx, req)
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		got := ""
		for _, kv := range res.KVs {
			got += kv.Key[len(p):] + "=" + string(kv.Value) + " "
		}
		if got += fmt.Sprint(res.Count, res.More); got != want {
			t.Errorf("read %q, want %q", got, want)
		}
		return res
	}
	look(func(r *metadata.RangeRequest) {}, "0=v0 1=new 2=v2 3=v3 4 false")
	look(func(r *metadata.RangeRequest) { r.Limit = 2 }, "0=v0 1=new 4 true")
	look(func(r *metadata.RangeRequest) { r.Key, r.Limit = p+"1\x00", 2 }, "2=v2 3=v3 2 false")
	look(func(r *metadata.RangeRequest) { r.At = revs[4] }, "0=v0 1=v1 2=v2 3=v3 4=v4 5 false")
	look(func(r *metadata.RangeRequest) { r.At, r.Limit = revs[1], 1 }, "0=v0 2 true")
	look(func(r *metadata.RangeRequest) { r.MinModRevision = revs[3] }, "1=new 3=v3 4 false")
	look(func(r *metadata.RangeRequest) { r.At, r.MinModRevision = revs[4], revs[3] }, "3=v3 4=v4 5 false")
	look(func(r *metadata.RangeRequest) { r.KeysOnly, r.Limit = true, 1 }, "0= 4 true")
	look(func(r *metadata.RangeRequest) { r.CountOnly = true }, "4 false")
	one := look(func(r *metadata.RangeRequest) { r.Key, r.End = p+"1", "" }, "1=new 1 false")
	if k := one.KVs[0]; k.CreateRevision != revs[1] || k.ModRevision != last || k.Version != 2 || one.Revision < last {
		t.Errorf("one key: %+v at %d", k, one.Revision)
	}
	if err := kv.Compact(ctx, last); err != nil {
		t.Fatalf("Compact: %v", err)
	}
	if err := kv.Compact(ctx, revs[0]); err != nil {
		t.Errorf("compacting what is compacted: %v", err)
	}
	if _, err := kv.Range(ctx, metadata.RangeRequest{Key: p, At: revs[2]}); !errors.Is(err, metadata.ErrCompacted) {
		t.Errorf("reading a compacted revision: %v", err)
	}
	look(func(r *metadata.RangeRequest) { r.At = last }, "0=v0 1=new 2=v2 3=v3 4 false")
}

func next(t *testing.T, w metadata.Watcher) metadata.WatchBatch {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	b, err := w.Next(ctx)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return b
}

func testWatch(t *testing.T, h Harness) {
	kv, p := client(t, h), prefix(t)
	ctx := testContext(t)
	past := must(t, kv, put(p+"a", "1"))
	w := kv.Watch(ctx, p, past)
	defer w.Close()
	var want []string
	want = append(want, fmt.Sprintf("a=1 v1 @%d", past))
	for i := range 20 {
		r := must(t, kv, put(p+"a", fmt.Sprint(i)), put(p+"b", fmt.Sprint(i)), put("/elsewhere"+p, "x"))
		want = append(want, fmt.Sprintf("a=%d v%d @%d", i, i+2, r), fmt.Sprintf("b=%d v%d @%d", i, i+1, r))
	}
	r := must(t, kv, del(p+"a"))
	want = append(want, fmt.Sprintf("a gone @%d", r))
	var got []string
	seen := metadata.Revision(0)
	for len(got) < len(want) {
		b := next(t, w)
		for i, e := range b.Events {
			if e.ModRevision <= seen {
				t.Fatalf("revision %d was split or repeated", e.ModRevision)
			}
			if i == len(b.Events)-1 {
				seen = e.ModRevision
			}
			s := fmt.Sprintf("%s=%s v%d @%d", e.Key[len(p):], e.Value, e.Version, e.ModRevision)
			if e.Deleted {
				s = fmt.Sprintf("%s gone @%d", e.Key[len(p):], e.ModRevision)
			}
			got = append(got, s)
		}
		if b.Revision < seen {
			t.Errorf("batch of revision %d says it is complete to %d", seen, b.Revision)
		}
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("event %d is %q, want %q", i, got[i], want[i])
		}
	}
	w.Close()
	if _, err := w.Next(ctx); err == nil {
		t.Error("a closed watch gave something")
	}
}

func testWatchProgress(t *testing.T, h Harness) {
	kv, p := client(t, h), prefix(t)
	ctx := testContext(t)
	w := kv.Watch(ctx, p, must(t, kv, put(p+"a", "1")))
	defer w.Close()
	if b := next(t, w); len(b.Events) != 1 {
		t.Fatalf("first batch: %+v", b)
	}
	rev := must(t, kv, put("/elsewhere"+p, "1"))
	for {
		// Nothing under the prefix moves, so only a progress notice can say that the watch is there.
		if err := w.RequestProgress(ctx); err != nil {
			t.Fatalf("RequestProgress: %v", err)
		}
		if b := next(t, w); len(b.Events) != 0 {
			t.Fatalf("events from elsewhere: %+v", b)
		} else if b.Revision >= rev {
			return
		}
	}
}

func testWatchCompacted(t *testing.T, h Harness) {
	kv, p := client(t, h), prefix(t)
	ctx := testContext(t)
	first := must(t, kv, put(p+"a", "1"))
	must(t, kv, put(p+"a", "2"))
	last := must(t, kv, put(p+"a", "3"))
	if err := kv.Compact(ctx, last); err != nil {
		t.Fatal(err)
	}
	w := kv.Watch(ctx, p, first)
	defer w.Close()
	if _, err := w.Next(ctx); !errors.Is(err, metadata.ErrCompacted) {
		t.Errorf("watching from a compacted revision: %v", err)
	}
	w = kv.Watch(ctx, p, last)
	defer w.Close()
	if b := next(t, w); len(b.Events) != 1 || string(b.Events[0].Value) != "3" {
		t.Errorf("watching from the compaction itself: %+v", b)
	}
}

func leased(t *testing.T, kv metadata.KV, key string, ttl time.Duration) (metadata.LeaseID, time.Duration, metadata.Revision) {
	t.Helper()
	id, got, err := kv.Grant(testContext(t), ttl)
	if err != nil || id == 0 || got < ttl {
		t.Fatalf("Grant: lease %d of %s, %v", id, got, err)
	}
	return id, got, must(t, kv, metadata.Op{Kind: metadata.OpPut, Key: key, Value: []byte("x"), Lease: id})
}

func testLeaseEnds(t *testing.T, h Harness) {
	kv, p := client(t, h), prefix(t)
	ctx := testContext(t)
	id, ttl, rev := leased(t, kv, p+"a", time.Second)
	w := kv.Watch(ctx, p, rev+1)
	defer w.Close()
	begin := time.Now()
	for time.Since(begin) < 2*ttl {
		if err := kv.KeepAlive(ctx, id); err != nil {
			t.Fatalf("KeepAlive after %s: %v", time.Since(begin), err)
		}
		time.Sleep(ttl / 4)
	}
	if res, err := kv.Range(ctx, metadata.RangeRequest{Key: p + "a"}); err != nil || len(res.KVs) != 1 || res.KVs[0].Lease != id {
		t.Fatalf("key of a lease that was kept: %+v, %v", res, err)
	}
	if b := next(t, w); len(b.Events) != 1 || !b.Events[0].Deleted {
		t.Fatalf("end of the lease: %+v", b)
	}
	if err := kv.KeepAlive(ctx, id); !errors.Is(err, metadata.ErrLeaseNotFound) {
		t.Errorf("KeepAlive of an ended lease: %v", err)
	}
	if _, err := kv.Txn(ctx, metadata.Txn{Then: []metadata.Op{{Kind: metadata.OpPut, Key: p + "b", Lease: id}}}); !errors.Is(err, metadata.ErrLeaseNotFound) {
		t.Errorf("put under an ended lease: %v", err)
	}
}

func testLeaseRevoke(t *testing.T, h Harness) {
	kv, p := client(t, h), prefix(t)
	ctx := testContext(t)
	id, _, _ := leased(t, kv, p+"a", 10*time.Second)
	must(t, kv, put(p+"a", "no longer leased"))
	must(t, kv, metadata.Op{Kind: metadata.OpPut, Key: p + "b", Value: []byte("x"), Lease: id})
	for range 2 {
		if err := kv.Revoke(ctx, id); err != nil {
			t.Fatalf("Revoke: %v", err)
		}
	}
	if res, err := kv.Range(ctx, metadata.RangeRequest{Key: p, End: metadata.PrefixEnd(p)}); err != nil || len(res.KVs) != 1 || res.KVs[0].Key != p+"a" {
		t.Errorf("after Revoke: %+v, %v", res.KVs, err)
	}
}

func testKVOutage(t *testing.T, h Harness) {
	if h.Outage == nil {
		t.Skip("this harness cannot take its store away")
	}
	kv, p := client(t, h), prefix(t)
	must(t, kv, put(p+"a", "1"))
	restore := h.Outage(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := kv.Txn(ctx, metadata.Txn{Then: []metadata.Op{put(p+"a", "2")}})
	if !errors.Is(err, metadata.ErrUnavailable) && !errors.Is(err, metadata.ErrUnknown) {
		t.Errorf("Txn without a store: %v", err)
	}
	_, err = kv.Range(ctx, metadata.RangeRequest{Key: p + "a"})
	if !errors.Is(err, metadata.ErrUnavailable) {
		t.Errorf("Range without a store: %v", err)
	}
	if err := kv.KeepAlive(ctx, 1); !errors.Is(err, metadata.ErrUnavailable) {
		t.Errorf("KeepAlive without a store: %v", err)
	}
	restore()
	deadline := time.Now().Add(20 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := kv.Txn(ctx, metadata.Txn{Then: []metadata.Op{put(p+"a", "3")}})
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the store is back, the client is not: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func testCancelled(t *testing.T, h Harness) {
	kv, p := client(t, h), prefix(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := kv.Txn(ctx, metadata.Txn{Then: []metadata.Op{put(p+"a", "1")}}); !errors.Is(err, metadata.ErrUnavailable) && !errors.Is(err, metadata.ErrUnknown) {
		t.Errorf("Txn with a cancelled context: %v", err)
	}
	if _, err := kv.Range(ctx, metadata.RangeRequest{Key: p}); !errors.Is(err, metadata.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("Range with a cancelled context: %v", err)
	}
}
