// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varve/varve/internal/invariant"
)

// guard is one compare of a change, and what its failure means.
type guard struct {
	Compare
	fails error
}

// change is one mutation, as rule 0 has it: one Txn that compares what it depends on, so that a second execution fails, and whose
// operation id is in the value that it puts at mark.
type change struct {
	what   func() string // for errors: what was being done to which thing
	op     UUID
	guards []guard
	ops    []Op
	mark   string // a key that ops puts, with op in its value; "": a change that only deletes
}

func newChange(format string, args ...any) *change {
	return &change{what: func() string { return fmt.Sprintf(format, args...) }, op: newUUID()}
}

func (c *change) require(cmp Compare, fails error) { c.guards = append(c.guards, guard{cmp, fails}) }

// unchanged requires that the key has this mod revision; 0: that it is absent.
func (c *change) unchanged(key string, rev Revision, fails error) {
	c.require(Compare{Key: key, Target: TargetModRevision, Number: int64(rev)}, fails)
}

// incarnation requires the relation between a key's create revision and a number.
func (c *change) created(key string, rel Relation, rev int64, fails error) {
	c.require(Compare{Key: key, Target: TargetCreateRevision, Relation: rel, Number: rev}, fails)
}

func (c *change) put(key string, value []byte) {
	c.ops = append(c.ops, Op{Kind: OpPut, Key: key, Value: value})
}

func (c *change) delete(key string) { c.ops = append(c.ops, Op{Kind: OpDelete, Key: key}) }

// txn is the transaction of a change. Its other branch reads the mark and every compared key, in one revision with the
// compares: that read decides an unknown outcome.
func (c *change) txn() Txn {
	t := txnOf(c)
	t.Else = reasons(c)
	return t
}

// txnOf is the transaction of several changes, all or none of which happen, without its other branch.
func txnOf(parts ...*change) Txn {
	guards, ops := 0, 0
	for _, c := range parts {
		guards, ops = guards+len(c.guards), ops+len(c.ops)
	}
	t := Txn{If: make([]Compare, 0, guards), Then: make([]Op, 0, ops)}
	for _, c := range parts {
		t.Then = append(t.Then, c.ops...)
		for i := range c.guards {
			t.If = append(t.If, c.guards[i].Compare)
		}
	}
	return t
}

// reasons is the other branch.
func reasons(parts ...*change) (reads []Op) {
	seen := map[string]bool{}
	read := func(key string) {
		if !seen[key] {
			seen[key] = true
			reads = append(reads, Op{Kind: OpGet, Key: key})
		}
	}
	for _, c := range parts {
		if c.mark != "" {
			read(c.mark)
		}
		for i := range c.guards {
			if g := &c.guards[i]; g.End == "" {
				read(g.Key)
			}
		}
	}
	return reads
}

// judge says what a refused transaction means for a change. unknown: an earlier execution of it may have happened. An error of nil means
// that it has; errOthers that nothing stands against it.
func (c *change) judge(res *TxnResult, found map[string]KeyValue, unknown bool) (Revision, error) {
	if kv, ok := found[c.mark]; ok && opOf(kv.Value) == c.op {
		return kv.ModRevision, nil
	}
	err := c.refusal(found)
	if err != nil && unknown && c.mark == "" && c.nothingLeft(found) {
		return res.Revision, nil // a change that only deletes, and everything is gone
	}
	if err == nil {
		err = errOthers
	}
	return 0, err
}

// errOthers: a transaction was refused, but not for what this change requires.
var errOthers = fmt.Errorf("%w: refused with others", ErrConflict)

// refusal is the meaning of the first guard that does not hold, nil when all do.
func (c *change) refusal(found map[string]KeyValue) (ranged error) {
	for _, g := range c.guards {
		if g.End != "" {
			ranged = g.fails // what it looks at is not among what was found
			continue
		}
		kv, ok := found[g.Key]
		if !g.holds(&kv, ok) {
			return g.fails
		}
	}
	return ranged
}

// found are the keys that a transaction has read.
func (r *TxnResult) found() map[string]KeyValue {
	all := map[string]KeyValue{}
	for _, kvs := range r.Reads {
		for _, kv := range kvs {
			all[kv.Key] = kv
		}
	}
	return all
}

func (g *guard) holds(kv *KeyValue, there bool) bool {
	if g.Target == TargetValue {
		return there && string(kv.Value) == string(g.Value) // the only relation that guards use on values
	}
	n := int64(kv.ModRevision)
	switch g.Target {
	case TargetCreateRevision:
		n = int64(kv.CreateRevision)
	case TargetVersion:
		n = kv.Version
	}
	switch g.Relation {
	case Equal:
		return n == g.Number
	case NotEqual:
		return n != g.Number
	case Less:
		return n < g.Number
	default:
		return n > g.Number
	}
}

// commit executes a change and finds out what became of it. It returns the revision of the change, or the meaning of the first
// guard that failed. While the outcome is unknown the same transaction is sent again, until it is decided or ctx ends: then the
// error is ErrUnknown and the change may still happen, once. ErrUnavailable: it did not and will not happen.
func (s *Store) commit(ctx context.Context, c *change) (Revision, error) {
	if s.genRev != 0 {
		c.unchanged(s.keys.key(keyGen), s.genRev, ErrGeneration)
	}
	t := c.txn()
	if err := checkSize(&t); err != nil {
		return 0, fmt.Errorf("%s: %w", c.what(), err)
	}
	rev, err := s.decide(ctx, t, nil, func(res *TxnResult, unknown bool) (Revision, error) {
		return c.judge(res, res.found(), unknown)
	})
	if err != nil {
		return 0, s.refused(c, err)
	}
	return rev, nil
}

// refused follows up why a change did not happen.
func (s *Store) refused(c *change, err error) error {
	s.metrics.failed(err)
	if errors.Is(err, ErrGeneration) {
		s.fail(err)
	}
	return fmt.Errorf("%s: %w", c.what(), err)
}

// decide executes a transaction until its outcome is known; judge says what it means that it was refused. With reasons, which is the other
// branch and half of the whole, it is sent without as long as no execution was refused or lost.
func (s *Store) decide(ctx context.Context, t Txn, reasons func() []Op, judge func(res *TxnResult, unknown bool) (Revision, error)) (Revision, error) {
	unknown := false
	complete := func() (was bool) {
		if reasons == nil {
			return true
		}
		t.Else, reasons = reasons(), nil
		return false
	}
	began := time.Now()
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		if err := s.Err(); err != nil {
			return 0, undecided(unknown, err)
		}
		floor := s.history.floor()
		res, err := s.txnOnce(ctx, t)
		if err == nil {
			if err := s.observe(ctx, res.Header, floor); err != nil {
				return 0, undecided(true, err)
			}
			if res.Succeeded {
				return res.Revision, nil
			}
			if complete() {
				return judge(&res, unknown)
			}
			continue // the reason is wanted
		}
		switch {
		case errors.Is(err, ErrUnknown):
			unknown = true
			complete()
		case errors.Is(err, ErrUnavailable):
			if !unknown && time.Since(began) > unavailableWait {
				return 0, err
			}
		default:
			// Refused by the store itself: this execution did nothing. An earlier one may have.
			return 0, undecided(unknown, err)
		}
		if sleep(ctx, jitter(pause)) != nil {
			return 0, undecided(unknown, fmt.Errorf("%w: %w", err, context.Cause(ctx)))
		}
	}
}

// undecided marks an error after which the change may have happened.
func undecided(unknown bool, err error) error {
	if unknown && !errors.Is(err, ErrUnknown) {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

func (c *change) nothingLeft(found map[string]KeyValue) bool {
	for _, op := range c.ops {
		if _, there := found[op.Key]; there {
			return false
		}
	}
	return true
}

func (s *Store) txnOnce(ctx context.Context, t Txn) (TxnResult, error) {
	actx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	began := time.Now()
	res, err := s.kv.Txn(actx, t)
	s.metrics.txn(time.Since(began), err)
	return res, err
}

func checkSize(t *Txn) error {
	if n := max(len(t.If), len(t.Then), len(t.Else)); n > MaxTxnOps+8 {
		// The batch constants of limits.go are below it; a topic-wide change cannot grow past it either.
		return fmt.Errorf("%d operations: %w", n, ErrTooLarge)
	}
	size := 0
	for i := range t.Then {
		if n := len(t.Then[i].Value); n > MaxValueBytes {
			return fmt.Errorf("value of %d bytes for %s, at most %d: %w", n, t.Then[i].Key, MaxValueBytes, ErrTooLarge)
		}
		size += len(t.Then[i].Key) + len(t.Then[i].Value)
	}
	if size > MaxTxnBytes {
		return fmt.Errorf("transaction of %d bytes, at most %d: %w", size, MaxTxnBytes, ErrTooLarge)
	}
	return nil
}

// read is a linearizable read that is tried again while the store is away, until ctx ends or the wait is over.
func (s *Store) read(ctx context.Context, req RangeRequest) (RangeResult, error) {
	began := time.Now()
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		if err := s.Err(); err != nil {
			return RangeResult{}, err
		}
		floor := s.history.floor()
		res, err := s.rangeOnce(ctx, req)
		if err == nil {
			return res, s.observe(ctx, res.Header, floor)
		}
		if !isRetriable(err) || time.Since(began) > unavailableWait {
			return res, err
		}
		if sleep(ctx, jitter(pause)) != nil {
			return res, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// readKeys reads keys at one revision, linearizably. Absent ones are missing in the answer.
func (s *Store) readKeys(ctx context.Context, keys ...string) (map[string]KeyValue, Revision, error) {
	var t Txn
	seen := map[string]bool{}
	for _, k := range keys {
		if !seen[k] {
			seen[k] = true
			t.Then = append(t.Then, Op{Kind: OpGet, Key: k})
		}
	}
	invariant.Check(len(t.Then) <= MaxTxnOps, "P1: a read of more keys than a transaction may have")
	began := time.Now()
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		if err := s.Err(); err != nil {
			return nil, 0, err
		}
		floor := s.history.floor()
		res, err := s.txnOnce(ctx, t)
		if err == nil {
			if err := s.observe(ctx, res.Header, floor); err != nil {
				return nil, 0, err
			}
			found := make(map[string]KeyValue, len(t.Then))
			for _, kvs := range res.Reads {
				for _, kv := range kvs {
					found[kv.Key] = kv
				}
			}
			return found, res.Revision, nil
		}
		if !isRetriable(err) || time.Since(began) > unavailableWait {
			return nil, 0, fmt.Errorf("%w: %w", ErrUnavailable, err) // a read changes nothing: never unknown
		}
		if sleep(ctx, jitter(pause)) != nil {
			return nil, 0, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
	}
}

// readAll reads all keys with a prefix at one revision (0: now), page by page.
func (s *Store) readAll(ctx context.Context, prefix string, at Revision, fn func(*KeyValue) error) (Revision, error) {
	req := RangeRequest{Key: prefix, End: prefixEnd(prefix), At: at, Limit: loadPage}
	for {
		res, err := s.read(ctx, req)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", prefix, err)
		}
		if req.At == 0 {
			req.At = res.Revision
		}
		for i := range res.KVs {
			if err := fn(&res.KVs[i]); err != nil {
				return 0, err
			}
		}
		if !res.More || len(res.KVs) == 0 {
			return req.At, nil
		}
		req.Key = res.KVs[len(res.KVs)-1].Key + "\x00"
	}
}

// partitionLocks serialise the changes of one partition's head within this process, across their round trips: while the outcome
// of one is unknown nothing else may be decided on the head (rule 0).
type partitionLocks struct {
	mu   sync.Mutex
	held map[PartitionID]*partitionLock
}

type partitionLock struct {
	turn chan struct{}
	refs int
}

func (p *partitionLocks) lock(ctx context.Context, id PartitionID) (unlock func(), err error) {
	p.mu.Lock()
	if p.held == nil {
		p.held = map[PartitionID]*partitionLock{}
	}
	l := p.held[id]
	if l == nil {
		l = &partitionLock{turn: make(chan struct{}, 1)}
		p.held[id] = l
	}
	l.refs++
	p.mu.Unlock()
	drop := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(p.held, id)
		}
	}
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn; drop() }, nil
	case <-ctx.Done():
		drop()
		return nil, fmt.Errorf("%s: %w: %w", id, ErrUnavailable, context.Cause(ctx))
	}
}
