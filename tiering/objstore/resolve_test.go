// SPDX-License-Identifier: Apache-2.0

package objstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/mem"
	"github.com/varve/varve/tiering/objstore/objstoretest"
)

// Each case scripts what the network does; the outcome reported must be the truth in the store.
func TestCreateResolved(t *testing.T) {
	put, stat := objstore.OpCreate, objstore.OpStat
	for _, c := range []struct {
		name  string
		rules []objstore.Rule
		want  error
		there bool
	}{
		{"nothing goes wrong", nil, nil, true},
		{"reply lost", []objstore.Rule{{Op: put, Effect: objstore.LostReply, Times: 1}}, nil, true},
		{"request lost twice", []objstore.Rule{{Op: put, Effect: objstore.LostRequest, Times: 2}}, nil, true},
		{"late, lands between", []objstore.Rule{{Op: put, Effect: objstore.LateReply, Delay: time.Millisecond, Times: 1}}, nil, true},
		{"late, lands long after the retry", []objstore.Rule{{Op: put, Effect: objstore.LateReply, Delay: 10 * time.Second, Times: 1}}, nil, true},
		{"reply lost, stat unavailable", []objstore.Rule{{Op: put, Effect: objstore.LostReply, Times: 1}, {Op: stat, Effect: objstore.Unavailable, Times: 3}}, nil, true},
		{"reply lost, stat says no", []objstore.Rule{{Op: put, Effect: objstore.LostReply, Times: 1}, {Op: stat, Effect: objstore.NotThere, Times: 1}}, nil, true},
		{"denied", []objstore.Rule{{Op: put, Effect: objstore.Denied}}, objstore.ErrDenied, false},
		{"request lost, then denied", []objstore.Rule{{Op: put, Effect: objstore.LostRequest, Times: 1}, {Op: put, Effect: objstore.Denied}}, objstore.ErrUnknownOutcome, false},
		{"reply lost, stat denied", []objstore.Rule{{Op: put, Effect: objstore.LostReply, Times: 1}, {Op: stat, Effect: objstore.Denied}}, objstore.ErrUnknownOutcome, true},
		{"replies lost for ever, stat away", []objstore.Rule{{Op: put, Effect: objstore.LostReply}, {Op: stat, Effect: objstore.Unavailable}}, objstore.ErrUnknownOutcome, true},
		{"store away", []objstore.Rule{{Op: put, Effect: objstore.Unavailable}}, objstore.ErrUnavailable, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := mem.NewStore()
				f := objstore.Fault(inner, objstore.FaultOptions{})
				defer f.Close()
				for _, r := range c.rules {
					f.Add(r)
				}
				err := objstore.CreateResolved(t.Context(), f, "k", objstore.Bytes([]byte("value")), options("mine"))
				if c.want == nil && err != nil || !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if c.want != nil && objstore.OutcomeOf(err) != objstore.OutcomeOf(c.want) {
					t.Errorf("outcome %s of %v", objstore.OutcomeOf(err), err)
				}
				time.Sleep(time.Minute)
				if _, err := inner.Stat(t.Context(), "k"); (err == nil) != c.there {
					t.Errorf("object there: %v, want %v", err == nil, c.there)
				}
			})
		})
	}
}

// The call ends with its context, and without one by its own deadline.
func TestCreateResolvedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
		f.Add(objstore.Rule{Op: objstore.OpCreate, Effect: objstore.LostRequest})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		err := objstore.CreateResolved(ctx, f, "k", objstore.Bytes(nil), options("mine"))
		if !errors.Is(err, objstore.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		start = time.Now()
		err = objstore.CreateResolved(context.Background(), f, "k", objstore.Bytes(nil), options("mine"))
		if !errors.Is(err, objstore.ErrUnknownOutcome) || time.Since(start) != 4*objstore.DefaultDeadline {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
	})
}

// aborts notes which uploads are given up.
type aborts struct {
	objstore.Store
	ids []string
}

func (a *aborts) AbortUpload(ctx context.Context, key, id string) error {
	a.ids = append(a.ids, id)
	return a.Store.AbortUpload(ctx, key, id)
}

// Every upload id is announced, and those that came to nothing are freed in the end.
func TestCreateResolvedUploads(t *testing.T) {
	f := objstore.Fault(mem.NewStore(), objstore.FaultOptions{})
	f.Add(objstore.Rule{Op: objstore.OpCreate, Effect: objstore.LostReply, Times: 1})
	a := &aborts{Store: f}
	var announced []string
	o := options("mine")
	o.OnMultipart = func(id string) error { announced = append(announced, id); return nil }
	if err := objstore.CreateResolved(t.Context(), a, "k", objstoretest.Random(1, objstore.MaxSingleShot+1), o); err != nil {
		t.Fatal(err)
	}
	if len(announced) != 1 || !slices.Equal(a.ids, announced) {
		t.Fatalf("announced %q, aborted %q", announced, a.ids)
	}
}
