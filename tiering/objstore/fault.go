// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// Effect is what a fault does to a request.
type Effect string

const (
	// LostReply applies the request and loses the answer.
	LostReply Effect = "lost-reply"
	// LostRequest loses the request; to the caller it looks like LostReply.
	LostRequest Effect = "lost-request"
	// LateReply answers a mutation "unknown" at once and applies it after Rule.Delay, as a request that lingers in a
	// network does. Only for Create; the others are applied before the answer is lost.
	LateReply Effect = "late"
	// Unavailable answers 503 and does nothing.
	Unavailable Effect = "unavailable"
	// Truncated ends the body of a Get early: the driver notices and reports ErrUnavailable. Other operations: Unavailable.
	Truncated Effect = "truncated"
	// FlippedBit flips one bit of what Get returns, without an error. Other operations are untouched.
	FlippedBit Effect = "flipped-bit"
	// NotThere answers a Get or Stat with ErrNotFound. Other operations: Unavailable.
	NotThere Effect = "not-there"
	// Slow waits Rule.Delay, then applies the request.
	Slow Effect = "slow"
	// Hold waits until Rule.Release is closed, then applies the request. When ctx ends first, it is not applied.
	Hold Effect = "hold"
	// Denied answers 403.
	Denied Effect = "denied"
)

// Rule says which requests suffer what. Requests match by Op ("" every one) and Key (a part of the key; "" every one); for
// Delete each key is a request.
type Rule struct {
	Op     Op
	Key    string
	Effect Effect
	// Nth is the first match that suffers, counted from 1; 0 means 1.
	Nth int
	// Times is how many matches from Nth on suffer; 0 means all.
	Times   int
	Delay   time.Duration
	Release <-chan struct{}
}

// FaultOptions of Faulty. Rates and seed make random faults: each request draws once, with the probability of each effect.
type FaultOptions struct {
	Seed uint64
	// Rates is a list, not a map, so that one seed gives one sequence of draws.
	Rates []Rate
	// MaxDelay bounds the random delay of Slow and LateReply.
	MaxDelay time.Duration
}

// Rate is the probability of an effect.
type Rate struct {
	Effect      Effect
	Probability float64
}

// Fault returns s behind scripted and random faults, for tests and simulation.
func Fault(s Store, o FaultOptions) *Faulty {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Faulty{inner: s, o: o, ctx: ctx, cancel: cancel}
	f.mu.rng = rand.New(rand.NewPCG(o.Seed, 0x5eed))
	return f
}

// Faulty is the Store that Fault returns.
type Faulty struct {
	inner  Store
	o      FaultOptions
	ctx    context.Context
	cancel context.CancelFunc
	late   sync.WaitGroup

	mu struct {
		sync.Mutex
		rules  []*activeRule
		rng    *rand.Rand
		counts map[Op]int
		calm   bool
		late   int
	}
}

type activeRule struct {
	Rule
	seen, hits int
}

// Add puts a rule after those there are; the first that matches decides. The returned function tells how often it struck.
func (f *Faulty) Add(r Rule) (hits func() int) {
	a := &activeRule{Rule: r}
	f.mu.Lock()
	f.mu.rules = append(f.mu.rules, a)
	f.mu.Unlock()
	return func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return a.hits
	}
}

// Calm ends all faults, scripted and random; requests held stay so until released.
func (f *Faulty) Calm() {
	f.mu.Lock()
	f.mu.calm = true
	f.mu.Unlock()
}

// Count tells how many requests of a kind were made.
func (f *Faulty) Count(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.counts[op]
}

// strike decides what one request suffers.
func (f *Faulty) strike(op Op, key string) Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.counts == nil {
		f.mu.counts = map[Op]int{}
	}
	f.mu.counts[op]++
	if f.mu.calm {
		return Rule{}
	}
	for _, r := range f.mu.rules {
		if (r.Op != "" && r.Op != op) || !strings.Contains(key, r.Key) {
			continue
		}
		r.seen++
		first := max(r.Nth, 1)
		if r.seen >= first && (r.Times == 0 || r.seen < first+r.Times) {
			r.hits++
			return r.Rule
		}
	}
	if len(f.o.Rates) == 0 {
		return Rule{}
	}
	draw, delay := f.mu.rng.Float64(), f.mu.rng.Float64()
	for _, rate := range f.o.Rates {
		if draw -= rate.Probability; draw < 0 {
			return Rule{Effect: rate.Effect, Delay: time.Duration(delay * float64(f.o.MaxDelay))}
		}
	}
	return Rule{}
}

// suffer lets one request suffer what strike decided; apply sends it.
func (f *Faulty) suffer(ctx context.Context, r Rule, op Op, key string, apply func(context.Context) error) error {
	if ctx.Err() != nil {
		return apply(ctx) // the caller's end comes before any fault
	}
	switch r.Effect {
	case LostReply, LateReply:
		if err := apply(ctx); err != nil && !errors.Is(err, ErrUnknownOutcome) {
			return err // an answer that was no success is passed on: a lost one would say less
		}
		return lost(op, key)
	case LostRequest:
		return lost(op, key)
	case Unavailable:
		return fmt.Errorf("%s %s: %w: injected", op, key, ErrUnavailable)
	case Denied:
		return fmt.Errorf("%s %s: %w: injected", op, key, ErrDenied)
	case NotThere:
		if op == OpGet || op == OpStat {
			return fmt.Errorf("%s %s: %w: injected", op, key, ErrNotFound)
		}
		return fmt.Errorf("%s %s: %w: injected", op, key, ErrUnavailable)
	case Truncated:
		return fmt.Errorf("%s %s: %w: injected short body", op, key, ErrUnavailable)
	case Slow:
		if err := pause(ctx, r.Delay); err != nil {
			return fmt.Errorf("%w: %w", lost(op, key), err)
		}
	case Hold:
		select {
		case <-r.Release:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", lost(op, key), ctx.Err())
		}
	}
	return apply(ctx)
}

// lost is the error of a request without an answer: only a mutation has an outcome to be in doubt about.
func lost(op Op, key string) error {
	if op == OpCreate || op == OpDelete || op == OpAbort {
		return fmt.Errorf("%s %s: %w: injected", op, key, ErrUnknownOutcome)
	}
	return fmt.Errorf("%s %s: %w: injected loss of the reply", op, key, ErrUnavailable)
}

func (f *Faulty) Create(ctx context.Context, key string, body Body, o PutOptions) error {
	r := f.strike(OpCreate, key)
	if r.Effect == LateReply && f.createLater(ctx, key, body, o, r.Delay) {
		return lost(OpCreate, key)
	}
	return f.suffer(ctx, r, OpCreate, key, func(ctx context.Context) error { return f.inner.Create(ctx, key, body, o) })
}

// createLater starts an upload that outlives its caller, as bytes in a network do; it must read the body now, as the
// caller's may be gone by then. Close waits for it. False: too many are under way.
func (f *Faulty) createLater(ctx context.Context, key string, body Body, o PutOptions, delay time.Duration) bool {
	data, err := readAll(body)
	if err != nil {
		return false
	}
	f.mu.Lock()
	ok := f.mu.late < maxLateCreates
	if ok {
		f.mu.late++
	}
	f.mu.Unlock()
	if !ok {
		return false
	}
	o.OnMultipart = nil
	f.late.Go(func() {
		if pause(f.ctx, delay) == nil {
			_ = f.inner.Create(context.WithoutCancel(ctx), key, Bytes(data), o)
		}
		f.mu.Lock()
		f.mu.late--
		f.mu.Unlock()
	})
	return true
}

func readAll(body Body) ([]byte, error) {
	r, err := body.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func (f *Faulty) Get(ctx context.Context, key string, off, n int64, dst []byte) ([]byte, error) {
	r := f.strike(OpGet, key)
	out := dst
	err := f.suffer(ctx, r, OpGet, key, func(ctx context.Context) (err error) {
		out, err = f.inner.Get(ctx, key, off, n, dst)
		return err
	})
	if err != nil {
		return dst, err
	}
	if r.Effect == FlippedBit && len(out) > len(dst) {
		f.mu.Lock()
		bit := f.mu.rng.IntN((len(out) - len(dst)) * 8)
		f.mu.Unlock()
		out[len(dst)+bit/8] ^= 1 << (bit % 8)
	}
	return out, nil
}

func (f *Faulty) Stat(ctx context.Context, key string) (Info, error) {
	var info Info
	err := f.suffer(ctx, f.strike(OpStat, key), OpStat, key, func(ctx context.Context) (err error) {
		info, err = f.inner.Stat(ctx, key)
		return err
	})
	if err != nil {
		return Info{}, err
	}
	return info, nil
}

func (f *Faulty) List(ctx context.Context, prefix, startAfter string, fn func(Info) error) error {
	return f.suffer(ctx, f.strike(OpList, prefix), OpList, prefix, func(ctx context.Context) error {
		return f.inner.List(ctx, prefix, startAfter, fn)
	})
}

// Delete deletes key by key, so that some may fail and some not (faults D9).
func (f *Faulty) Delete(ctx context.Context, keys []string) []error {
	errs := make([]error, len(keys))
	for i, key := range keys {
		errs[i] = f.suffer(ctx, f.strike(OpDelete, key), OpDelete, key, func(ctx context.Context) error {
			return f.inner.Delete(ctx, []string{key})[0]
		})
	}
	return errs
}

func (f *Faulty) AbortUpload(ctx context.Context, key, uploadID string) error {
	return f.suffer(ctx, f.strike(OpAbort, key), OpAbort, key, func(ctx context.Context) error {
		return f.inner.AbortUpload(ctx, key, uploadID)
	})
}

// Close waits for late uploads under way, dropping those whose time has not come.
func (f *Faulty) Close() error {
	f.cancel()
	f.late.Wait()
	return f.inner.Close()
}
