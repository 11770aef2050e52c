// SPDX-License-Identifier: Apache-2.0

package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/mem"
	"github.com/varve/varve/tiering/objstore/objstoretest"
)

func options(attempt string) objstore.PutOptions {
	return objstore.PutOptions{Metadata: map[string]string{objstore.MetaAttempt: attempt}}
}

func metrics(t testing.TB, s objstore.Store, reg prometheus.Registerer) objstore.Store {
	t.Helper()
	m, err := objstore.Metrics(s, reg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Every decorator, and the stack a broker uses, passes the suite of the drivers.
func TestConformance(t *testing.T) {
	quick := objstore.RetryOptions{Tries: 12, BackoffBase: time.Millisecond, BackoffMax: 4 * time.Millisecond}
	for name, wrap := range map[string]func(testing.TB, objstore.Store) objstore.Store{
		"retry":   func(_ testing.TB, s objstore.Store) objstore.Store { return objstore.Retry(s, quick) },
		"limit":   func(_ testing.TB, s objstore.Store) objstore.Store { return objstore.Limit(s, objstore.LimitOptions{}) },
		"metrics": func(t testing.TB, s objstore.Store) objstore.Store { return metrics(t, s, prometheus.NewRegistry()) },
		"fault":   func(_ testing.TB, s objstore.Store) objstore.Store { return objstore.Fault(s, objstore.FaultOptions{}) },
		"stack": func(t testing.TB, s objstore.Store) objstore.Store {
			return objstore.Retry(objstore.Limit(metrics(t, s, prometheus.NewRegistry()), objstore.LimitOptions{
				Reads: objstore.Lane{Concurrency: 2, Bytes: 1 << 20}, Writes: objstore.Lane{Concurrency: 2, Bytes: 1 << 20}}), quick)
		},
		"retry over faults": func(_ testing.TB, s objstore.Store) objstore.Store {
			return objstore.Retry(objstore.Fault(s, objstore.FaultOptions{Seed: 1, Rates: []objstore.Rate{
				{Effect: objstore.Unavailable, Probability: 0.2}, {Effect: objstore.Truncated, Probability: 0.1}}}), quick)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := objstoretest.RunSmall
			if name == "stack" {
				run = objstoretest.Run
			}
			run(t, func(t testing.TB) objstore.Store {
				s := wrap(t, mem.NewStore())
				t.Cleanup(func() { s.Close() })
				return s
			})
		})
	}
}

func TestRetryBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
		hits := f.Add(objstore.Rule{Op: objstore.OpStat, Effect: objstore.Unavailable})
		s := objstore.Retry(f, objstore.RetryOptions{Tries: 5, BackoffBase: time.Second, BackoffMax: 3 * time.Second, Jitter: func() float64 { return 0.5 }})
		start := time.Now()
		_, err := s.Stat(t.Context(), "x")
		if !errors.Is(err, objstore.ErrUnavailable) || hits() != 5 {
			t.Fatalf("after %d tries: %v", hits(), err)
		}
		// Half of 1, 2, 3 and 3 seconds.
		if took := time.Since(start); took != 4500*time.Millisecond {
			t.Fatalf("took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		start = time.Now()
		if _, err := s.Stat(ctx, "x"); err == nil || time.Since(start) != 700*time.Millisecond {
			t.Fatalf("with a deadline: %v after %v", err, time.Since(start))
		}
	})
}

// A try that hangs is ended by its own deadline, which grows with the bytes; the next one may succeed.
func TestRetryTryDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
		s := objstore.Retry(f, objstore.RetryOptions{TryDeadline: 10 * time.Second, MinRate: 1000, Jitter: func() float64 { return 0 }})
		body := objstoretest.Random(1, 5000)
		if err := s.Create(t.Context(), "x", body, options("a")); err != nil {
			t.Fatal(err)
		}
		f.Add(objstore.Rule{Op: objstore.OpGet, Effect: objstore.Hold, Times: 1})
		start := time.Now()
		got, err := s.Get(t.Context(), "x", 0, 5000, nil)
		if err != nil || !bytes.Equal(got, objstoretest.Content(body)) {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 15*time.Second {
			t.Fatalf("took %v, want 10 s and 5 s for the bytes", took)
		}
	})
}

// Only what may be repeated is: a create in doubt is not, whatever else its error says.
func TestRetryKinds(t *testing.T) {
	for _, c := range []struct {
		op     objstore.Op
		effect objstore.Effect
		tries  int
	}{
		{objstore.OpCreate, objstore.LostReply, 1}, {objstore.OpCreate, objstore.LostRequest, 1}, {objstore.OpCreate, objstore.Unavailable, 3},
		{objstore.OpCreate, objstore.Denied, 1}, {objstore.OpGet, objstore.NotThere, 1}, {objstore.OpGet, objstore.Truncated, 3}, {objstore.OpGet, objstore.Denied, 1},
		{objstore.OpDelete, objstore.LostReply, 3}, {objstore.OpDelete, objstore.Unavailable, 3}, {objstore.OpDelete, objstore.Denied, 1},
		{objstore.OpAbort, objstore.LostRequest, 3}, {objstore.OpList, objstore.Unavailable, 3}, {objstore.OpStat, objstore.LostReply, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
			if c.op != objstore.OpCreate {
				if err := f.Create(t.Context(), "k", objstore.Bytes([]byte("v")), options("a")); err != nil {
					t.Fatal(err)
				}
			}
			hits := f.Add(objstore.Rule{Op: c.op, Effect: c.effect})
			if err := call(t.Context(), objstore.Retry(f, objstore.RetryOptions{Tries: 3}), c.op); err == nil || hits() != c.tries {
				t.Errorf("%s with %s: %d tries, want %d: %v", c.op, c.effect, hits(), c.tries, err)
			}
		})
	}
}

// call makes one request of a kind about the object "k".
func call(ctx context.Context, s objstore.Store, op objstore.Op) error {
	switch op {
	case objstore.OpCreate:
		return s.Create(ctx, "k", objstore.Bytes([]byte("v")), options("a"))
	case objstore.OpGet:
		_, err := s.Get(ctx, "k", 0, 1, nil)
		return err
	case objstore.OpStat:
		_, err := s.Stat(ctx, "k")
		return err
	case objstore.OpList:
		return s.List(ctx, "", "", func(objstore.Info) error { return nil })
	case objstore.OpDelete:
		return s.Delete(ctx, []string{"k"})[0]
	}
	return s.AbortUpload(ctx, "k", "id")
}

// brokenList fails after every third key.
type brokenList struct {
	objstore.Store
	lists int
}

func (b *brokenList) List(ctx context.Context, prefix, after string, fn func(objstore.Info) error) error {
	b.lists++
	n := 0
	err := b.Store.List(ctx, prefix, after, func(i objstore.Info) error {
		if n++; n > 3 {
			return fmt.Errorf("list: %w", objstore.ErrUnavailable)
		}
		return fn(i)
	})
	return err
}

// A listing that breaks goes on where it broke, as long as it makes headway; no key is seen twice.
func TestRetryList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &brokenList{Store: mem.NewStore()}
		var want []string
		for i := range 30 {
			key := fmt.Sprintf("l/%02d", i)
			want = append(want, key)
			if err := b.Create(t.Context(), key, objstore.Bytes(nil), options("a")); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		s := objstore.Retry(b, objstore.RetryOptions{Tries: 2})
		err := s.List(t.Context(), "l/", "", func(i objstore.Info) error { got = append(got, i.Key); return nil })
		if err != nil || !slices.Equal(got, want) || b.lists != 10 {
			t.Fatalf("%d listings, %v, %q", b.lists, err, got)
		}
	})
}

func TestLimitConcurrencyAndBytes(t *testing.T) {
	for _, c := range []struct {
		name string
		lane objstore.Lane
		want int
	}{
		{"requests", objstore.Lane{Concurrency: 3, Bytes: 1 << 20}, 3},
		{"bytes", objstore.Lane{Concurrency: 10, Bytes: 2500}, 2},
		{"larger than the limit, alone", objstore.Lane{Concurrency: 10, Bytes: 10}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
				if err := f.Create(t.Context(), "k", objstoretest.Random(1, 1000), options("a")); err != nil {
					t.Fatal(err)
				}
				release := make(chan struct{})
				hits := f.Add(objstore.Rule{Op: objstore.OpGet, Effect: objstore.Hold, Release: release})
				s := objstore.Limit(f, objstore.LimitOptions{Reads: c.lane})
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						if _, err := s.Get(t.Context(), "k", 0, 1000, nil); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				if hits() != c.want {
					t.Errorf("%d requests under way, want %d", hits(), c.want)
				}
				// The other lane is free, and one that waits for admission was never sent.
				if err := s.Create(t.Context(), "other", objstoretest.Random(2, 1000), options("b")); err != nil {
					t.Error(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err := s.Get(ctx, "k", 0, 1000, nil)
				cancel()
				if !errors.Is(err, objstore.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || hits() != c.want {
					t.Errorf("a get that was not admitted: %v, %d sent", err, hits())
				}
				close(release)
				wg.Wait()
				if hits() != 8 {
					t.Errorf("%d requests in the end", hits())
				}
			})
		})
	}
}

func TestLimitDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
		f.Add(objstore.Rule{Effect: objstore.Hold})
		s := objstore.Limit(f, objstore.LimitOptions{Deadline: 2 * time.Second, MinRate: 1000})
		start := time.Now()
		err := s.Create(t.Context(), "k", objstoretest.Random(1, 3000), options("a"))
		if !errors.Is(err, objstore.ErrUnknownOutcome) || time.Since(start) != 5*time.Second {
			t.Fatalf("create: %v after %v", err, time.Since(start))
		}
	})
}

// gather returns the series of a metric by their label values: the value, or the count of a histogram.
func gather(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range all {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			out[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
	s := metrics(t, f, reg)
	start := gather(t, reg, "varve_objstore_requests_total")
	if want := len(objstore.Ops()) * len(objstore.Outcomes()); len(start) != want {
		t.Fatalf("%d series at the start, want %d", len(start), want)
	}
	if err := s.Create(t.Context(), "k", objstoretest.Random(1, 1000), options("a")); err != nil {
		t.Fatal(err)
	}
	_ = s.Create(t.Context(), "k", objstoretest.Random(1, 1000), options("b"))
	_, _ = s.Get(t.Context(), "k", 0, 600, nil)
	_, _ = s.Get(t.Context(), "absent", 0, 600, nil)
	f.Add(objstore.Rule{Op: objstore.OpDelete, Effect: objstore.LostReply})
	_ = s.Delete(t.Context(), []string{"k"})
	if moved := gather(t, reg, "varve_objstore_bytes_total"); moved["create"] != 1000 || moved["get"] != 600 {
		t.Errorf("bytes: %v", moved)
	}
	if n := gather(t, reg, "varve_objstore_request_duration_seconds"); n["create"] != 2 || n["get"] != 2 || n["stat"] != 0 || len(n) != len(objstore.Ops()) {
		t.Errorf("durations: %v", n)
	}
	counts := gather(t, reg, "varve_objstore_requests_total")
	maps.DeleteFunc(counts, func(_ string, v float64) bool { return v == 0 })
	for _, series := range []string{"create ok", "create exists", "get ok", "get not_found", "delete unknown"} {
		if counts[series] != 1 {
			t.Errorf("%s: %v; all: %v", series, counts[series], counts)
		}
	}
	if len(counts) != 5 {
		t.Errorf("series: %v", counts)
	}
	metrics(t, mem.NewStore(), reg) // a second store on one registry is no error
}

func TestFaultScript(t *testing.T) {
	f := objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
	f.Add(objstore.Rule{Op: objstore.OpGet, Key: "k", Effect: objstore.NotThere, Nth: 2, Times: 1})
	hits := f.Add(objstore.Rule{Op: objstore.OpGet, Key: "k", Effect: objstore.FlippedBit, Nth: 2, Times: 1})
	if err := f.Create(t.Context(), "k", objstore.Bytes([]byte("value")), options("a")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 4 {
		v, err := f.Get(t.Context(), "k", 0, 5, nil)
		switch {
		case err != nil:
			got = append(got, string(objstore.OutcomeOf(err)))
		case string(v) == "value":
			got = append(got, "value")
		default:
			got = append(got, "flipped")
		}
	}
	if want := []string{"value", "not_found", "flipped", "value"}; !slices.Equal(got, want) || hits() != 1 {
		t.Fatalf("got %q, want %q", got, want)
	}
	if v, err := f.Get(t.Context(), "k", 0, 5, nil); err != nil || string(v) != "value" {
		t.Fatalf("the flip reached the store: %q, %v", v, err)
	}
	f.Add(objstore.Rule{Effect: objstore.Unavailable})
	if _, err := f.Stat(t.Context(), "k"); !errors.Is(err, objstore.ErrUnavailable) {
		t.Fatal(err)
	}
	f.Calm()
	if _, err := f.Stat(t.Context(), "k"); err != nil {
		t.Fatalf("after Calm: %v", err)
	}
}

// One seed gives one sequence of faults, another a different one.
func TestFaultSeed(t *testing.T) {
	run := func(seed uint64) string {
		f := objstore.Fault(mem.NewStore(), objstore.FaultOptions{Seed: seed, Rates: []objstore.Rate{
			{Effect: objstore.Unavailable, Probability: 0.2}, {Effect: objstore.NotThere, Probability: 0.2}, {Effect: objstore.FlippedBit, Probability: 0.2}}})
		var b strings.Builder
		for range 60 {
			_, err := f.Stat(t.Context(), "k")
			b.WriteString(string(objstore.OutcomeOf(err)) + " ")
		}
		return b.String()
	}
	if run(1) != run(1) || run(1) == run(2) || !strings.Contains(run(1), "unavailable") {
		t.Fatalf("seed 1: %s\nagain: %s\nseed 2: %s", run(1), run(1), run(2))
	}
}

// A late upload lands after its reply was lost; Close drops one whose time has not come and leaves no goroutine.
func TestFaultLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
		f.Add(objstore.Rule{Op: objstore.OpCreate, Effect: objstore.LateReply, Delay: time.Minute, Times: 2})
		for _, key := range []string{"late", "never"} {
			if err := f.Create(t.Context(), key, objstore.Bytes([]byte("v")), options("a")); !errors.Is(err, objstore.ErrUnknownOutcome) {
				t.Fatal(err)
			}
			if _, err := f.Stat(t.Context(), key); !errors.Is(err, objstore.ErrNotFound) {
				t.Fatal(err)
			}
			if key == "late" {
				time.Sleep(61 * time.Second)
				if _, err := f.Stat(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.Close()
		if _, err := f.Stat(t.Context(), "never"); !errors.Is(err, objstore.ErrNotFound) {
			t.Fatal(err)
		}
	})
}
