// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
)

var errInvalidTxnID = errors.New("invalid transactional id")

// txnTerm are a shard's transactional ids in one term of its coordinator. A step of an id is decided on what is known of it, and every answer
// comes from a transaction of the store that shows that it was so: the memory of one that lost the shard is not enough.
type txnTerm struct {
	sh     *shard
	ctx    context.Context // of the term
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		ids   map[string]*txnEntry
		ended bool
	}
}

// txnEntry is one transactional id as its coordinator knows it.
type txnEntry struct {
	id   string
	turn chan struct{} // held by who decides on it
	refs int           // who holds or waits for the turn; under the term's mutex
	// Of who has the turn:
	txn      *txn.Txn // nil: nobody has used the id
	rev      metadata.Revision
	unmoved  bool // decided, and offsets are still pending
	finishes bool // somebody completes it

	shown    atomic.Pointer[txn.Txn] // txn, for who only looks
	stale    atomic.Bool             // what was stored last is not known; who has the turn sets it
	sweeping atomic.Bool             // the sweep is at work on it
}

func newTxnTerm(sh *shard) *txnTerm {
	t := &txnTerm{sh: sh}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.mu.ids = map[string]*txnEntry{}
	return t
}

// load takes up what is stored.
func (t *txnTerm) load(ctx context.Context) error {
	err := t.sh.c.s.meta.LoadTxns(ctx, t.sh.co, func(st metadata.TxnState) error {
		e := newTxnEntry(st.ID)
		if err := e.take(st); err != nil {
			return err
		}
		t.mu.ids[st.ID] = e
		return nil
	})
	if err != nil {
		return fmt.Errorf("loading shard %d: %w", t.sh.co.Shard, err)
	}
	return nil
}

func newTxnEntry(id string) *txnEntry { return &txnEntry{id: id, turn: make(chan struct{}, 1)} }

// take makes what was read the entry's. Of a decision it does not tell whether there was room for its offsets.
func (e *txnEntry) take(st metadata.TxnState) error {
	e.unmoved = true
	if st.Rev == 0 {
		e.set(nil, 0)
		return nil
	}
	t, err := txn.Decode(st.Value)
	if err != nil {
		return fmt.Errorf("transactional id %q: %w", st.ID, err)
	}
	e.set(t, st.Rev)
	return nil
}

func (e *txnEntry) set(t *txn.Txn, rev metadata.Revision) {
	e.txn, e.rev = t, rev
	e.stale.Store(false)
	e.shown.Store(t)
}

// begin serves the term: what was decided before is completed.
func (t *txnTerm) begin(ctx context.Context) {
	for _, e := range t.entries() {
		if is := e.shown.Load(); is == nil || !is.State.Prepared() {
			continue // who decides from here on completes it as well
		}
		e, release, err := t.acquire(ctx, e.id)
		if err != nil {
			return
		}
		t.finish(e)
		release()
	}
}

// end ends the term, and waits for those who work for it.
func (t *txnTerm) end() {
	t.mu.Lock()
	t.mu.ended = true
	t.mu.Unlock()
	t.cancel()
	t.wg.Wait()
}

// spawn runs fn for as long as the term lasts.
func (t *txnTerm) spawn(fn func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.ended {
		t.wg.Go(fn)
	}
}

func (t *txnTerm) entries() []*txnEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*txnEntry, 0, len(t.mu.ids))
	for _, e := range t.mu.ids {
		list = append(list, e)
	}
	return list
}

// look is what is known of an id, nil when it is not used.
func (t *txnTerm) look(id string) *txn.Txn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.mu.ids[id]; e != nil {
		return e.shown.Load()
	}
	return nil
}

// acquire waits for the turn to decide on an id. release gives it back, and forgets an id that is not used.
func (t *txnTerm) acquire(ctx context.Context, id string) (e *txnEntry, release func(), err error) {
	t.mu.Lock()
	e = t.mu.ids[id]
	if e == nil {
		e = newTxnEntry(id)
		t.mu.ids[id] = e
	}
	e.refs++
	t.mu.Unlock()
	drop := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if e.refs--; e.refs == 0 && e.shown.Load() == nil && !e.stale.Load() {
			delete(t.mu.ids, id)
		}
	}
	select {
	case e.turn <- struct{}{}:
		return e, func() { <-e.turn; drop() }, nil
	case <-ctx.Done():
		drop()
		return nil, nil, context.Cause(ctx)
	}
}

// txnStep decides what becomes of an id; cur is nil for one that nobody has used. It may be called again, and changes nothing itself.
type txnStep func(now time.Time, cur *txn.Txn) (next *txn.Txn, err error)

// txnOutcome is what became of an id, as stored at revision at. Reason is why the step was refused.
type txnOutcome struct {
	txn    *txn.Txn
	at     metadata.Revision // at which it was so
	rev    metadata.Revision // of what is stored
	reason error
}

// step decides, stores what comes of it, and only then tells of it. err: it is not known what became of it.
func (t *txnTerm) step(ctx context.Context, id string, decide txnStep) (txnOutcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), groupWait) // who asked may be gone: the outcome is wanted all the same
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	e, release, err := t.acquire(ctx, id)
	if err != nil {
		return txnOutcome{}, t.over(err)
	}
	defer release()
	for range maxTxnRetries {
		if e.stale.Load() {
			if err := t.reload(ctx, e); err != nil {
				return txnOutcome{}, t.over(err)
			}
		}
		next, reason := decide(time.Now().Truncate(time.Millisecond), e.txn)
		at, err := t.store(ctx, e, next)
		if metadata.IsConflict(err) {
			if errors.Is(err, metadata.ErrTxnChanged) {
				e.stale.Store(true)
			}
			continue
		}
		if err != nil {
			return txnOutcome{}, t.over(err)
		}
		t.finish(e)
		return txnOutcome{txn: e.txn, at: at, rev: e.rev, reason: reason}, nil
	}
	return txnOutcome{}, fmt.Errorf("transactional id %q: %w", id, metadata.ErrConflict)
}

// over is what an error means when the term has ended meanwhile.
func (t *txnTerm) over(err error) error {
	if t.ctx.Err() != nil {
		return errNotCoordinator
	}
	return err
}

func (t *txnTerm) reload(ctx context.Context, e *txnEntry) error {
	st, err := t.sh.c.s.meta.ReadTxn(ctx, e.id)
	if err != nil {
		return err
	}
	return e.take(st)
}

// store makes next what is stored, or confirms what is.
func (t *txnTerm) store(ctx context.Context, e *txnEntry, next *txn.Txn) (at metadata.Revision, err error) {
	meta := t.sh.c.s.meta
	if next == nil {
		return meta.ConfirmTxn(ctx, t.sh.co, e.id, e.rev)
	}
	ch := metadata.TxnChange{ID: e.id, Rev: e.rev, Value: next.Encode(), Delete: next.State == txn.Dead}
	unmoved := false
	if e.txn != nil && e.txn.State == txn.Ongoing && next.State.Prepared() && len(next.Groups) > 0 {
		if ch.Moves, unmoved, err = t.moves(ctx, next); err != nil {
			return 0, err
		}
	}
	if err := t.sh.c.writes.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	rev, err := meta.ChangeTxn(ctx, t.sh.co, ch)
	t.sh.c.writes.Release(1)
	switch {
	case err == nil && ch.Delete:
		e.set(nil, 0)
	case err == nil:
		e.set(next, rev)
		e.unmoved = unmoved
	case !metadata.IsConflict(err) && !errors.Is(err, metadata.ErrFenced):
		e.stale.Store(true) // it may have been stored
	}
	return rev, err
}

// moves takes the transaction's offsets with the decision, when one change has room for all of them; else they follow (unmoved).
func (t *txnTerm) moves(ctx context.Context, next *txn.Txn) (moves []metadata.OffsetsMove, unmoved bool, err error) {
	meta := t.sh.c.s.meta
	pending, err := meta.ReadPendingOf(ctx, next.ID, next.Groups)
	if err != nil {
		return nil, false, err
	}
	moves, all, err := meta.NextMoves(ctx, pending, next.State == txn.PrepareCommit)
	if err != nil || !all {
		return nil, true, err
	}
	return moves, false, nil
}

// finish completes a transaction, if it is decided, however long that takes. The caller has the turn.
func (t *txnTerm) finish(e *txnEntry) {
	decided := e.txn != nil && e.txn.State.Prepared()
	started := e.finishes
	e.finishes = decided
	if !decided || started {
		return
	}
	t.spawn(func() {
		for wait := markerRetryMin; ; wait = min(2*wait, markerRetryMax) {
			done, err := t.complete(e)
			if done || t.ctx.Err() != nil {
				return
			}
			t.sh.c.s.complain("transaction coordinator: completing a transaction failed; it is tried again", "id", e.id, "error", err)
			if !pause(t.ctx, wait) {
				return
			}
		}
	})
}

// complete tells everybody of the decision and then forgets about it.
func (t *txnTerm) complete(e *txnEntry) (done bool, err error) {
	if err := t.moveRest(e); err != nil {
		return errors.Is(err, metadata.ErrFenced), err
	}
	_, release, err := t.acquire(t.ctx, e.id)
	if err != nil {
		return true, err
	}
	cur, rev := e.txn, e.rev
	decided := cur != nil && cur.State.Prepared()
	e.finishes = decided
	release()
	if !decided {
		return true, nil
	}
	if !t.sh.c.s.markers.write(t.ctx, t.marker(e.id, cur, rev), cur.Partitions) {
		return true, nil // the term has ended
	}
	_, err = t.step(t.ctx, e.id, func(now time.Time, is *txn.Txn) (*txn.Txn, error) {
		if is == nil || !is.State.Prepared() || is.Producer != cur.Producer {
			return nil, nil
		}
		return is.Complete(now), nil
	})
	return err == nil || errors.Is(err, metadata.ErrFenced), err
}

// moveRest moves offsets that the decision had no room for.
func (t *txnTerm) moveRest(e *txnEntry) error {
	for {
		more, err := t.moveSome(e)
		if err != nil && !metadata.IsConflict(err) || err == nil && !more {
			return err
		}
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
	}
}

func (t *txnTerm) moveSome(e *txnEntry) (more bool, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, groupWait)
	defer cancel()
	_, release, err := t.acquire(ctx, e.id)
	if err != nil {
		return false, err
	}
	defer release()
	if e.stale.Load() {
		if err := t.reload(ctx, e); err != nil {
			return false, err
		}
	}
	if e.txn == nil || !e.txn.State.Prepared() || !e.unmoved {
		return false, nil
	}
	meta := t.sh.c.s.meta
	all, err := meta.ReadPendingOf(ctx, e.txn.ID, e.txn.Groups)
	if err != nil {
		return false, err
	}
	var pending []metadata.PendingOffsets
	for _, p := range all {
		if p.Rev != 0 {
			pending = append(pending, p)
		}
	}
	moves, last, err := meta.NextMoves(ctx, pending, e.txn.State == txn.PrepareCommit)
	if err != nil {
		return false, err
	}
	if _, err := meta.ChangeTxn(ctx, t.sh.co, metadata.TxnChange{ID: e.id, Rev: e.rev, Moves: moves}); err != nil {
		if errors.Is(err, metadata.ErrTxnChanged) {
			e.stale.Store(true)
		}
		return true, err
	}
	e.unmoved = !last
	return !last, nil
}

// settle finds out what is stored of an id, when the outcome of the last change is not known: nobody else may ever ask. What may still be on
// its way to the store must not come after that look, so it is made to fail. A decision is not touched, its revision counts; its end is the
// next change.
func settle(_ time.Time, cur *txn.Txn) (*txn.Txn, error) {
	if cur == nil || cur.State.Prepared() {
		return nil, nil
	}
	same := *cur
	return &same, nil
}

// sweep aborts the transactions whose time is over and, when expiry is asked for too, drops ids that nobody has used for long.
func (t *txnTerm) sweep(now time.Time, expiry bool) {
	unused := t.sh.c.config().TransactionalIDExpiration
	for _, e := range t.entries() {
		cur := e.shown.Load()
		switch {
		case e.stale.Load():
			t.sweepOne(e, func() { _, _ = t.step(t.ctx, e.id, settle) }) // else it is tried again
		case cur == nil:
		case cur.State == txn.Ongoing && !now.Before(cur.Deadline()):
			t.sweepOne(e, func() {
				out, err := t.step(t.ctx, e.id, func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
					if cur == nil || cur.State != txn.Ongoing || now.Before(cur.Deadline()) {
						return nil, nil
					}
					return cur.Abort(now), nil
				})
				if err == nil && out.txn != nil && out.txn.State != txn.Ongoing {
					t.sh.c.s.log.Info("transaction coordinator: a transaction's time was over, it is aborted", "id", e.id, "producer", cur.ID, "epoch", cur.Epoch, "timeout", cur.Timeout)
					t.sh.c.s.txnMetrics.timeouts.Inc()
				}
			})
		case expiry && cur.Expire(now, unused) != nil:
			t.sweepOne(e, func() {
				_, _ = t.step(t.ctx, e.id, func(now time.Time, cur *txn.Txn) (*txn.Txn, error) { // else it is tried again
					if cur == nil {
						return nil, nil
					}
					return cur.Expire(now, unused), nil
				})
			})
		}
	}
}

// sweepOne works on an entry beside the others, unless the sweep before is still at it.
func (t *txnTerm) sweepOne(e *txnEntry, work func()) {
	if e.sweeping.CompareAndSwap(false, true) {
		t.spawn(func() {
			defer e.sweeping.Store(false)
			work()
		})
	}
}

// sweepTxns looks after the transactional ids of this node's shards until ctx ends.
func (c *coordinators) sweepTxns(ctx context.Context) {
	expiry := time.Now().Add(txnExpirySweep)
	for pause(ctx, txnSweep) {
		now := time.Now()
		expire := !now.Before(expiry)
		if expire {
			expiry = now.Add(txnExpirySweep)
		}
		for _, sh := range c.serving() {
			sh.txns.sweep(now, expire)
		}
	}
}

// findTxn is the term that coordinates a transactional id, if this node does.
func (c *coordinators) findTxn(id string) (*txnTerm, error) {
	if id == "" || len(id) > maxTxnID {
		return nil, fmt.Errorf("transactional id of %d bytes, from 1 to %d: %w", len(id), maxTxnID, errInvalidTxnID)
	}
	sh, err := c.find(id)
	if err != nil {
		return nil, err
	}
	return sh.txns, nil
}

// stepTxn is a step of an id that this node coordinates.
func (s *Server) stepTxn(ctx context.Context, id string, decide txnStep) (txnOutcome, error) {
	t, err := s.groups.findTxn(id)
	if err != nil {
		return txnOutcome{}, err
	}
	return t.step(ctx, id, decide)
}

// existing makes a step of ids that are used: others have no producer.
func existing(step func(now time.Time, cur *txn.Txn) (*txn.Txn, error)) txnStep {
	return func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
		if cur == nil {
			return nil, txn.ErrMapping
		}
		return step(now, cur)
	}
}

// txnCode is the code of what became of a step. Clients end for good on codes that they do not know, so there is no server error.
func txnCode(err error) Code {
	if errors.Is(err, errInvalidTxnID) {
		return codeInvalidRequest
	}
	code := groupCode(err)
	if code == codeUnknownServerError || code == codeNotLeaderOrFollower {
		return codeCoordinatorNotAvailable
	}
	return code
}

// fencedBefore gives clients of versions below first the code for a fenced producer that they know.
func (c Code) fencedBefore(version, first int16) Code {
	if c == codeProducerFenced && version < first {
		return codeInvalidProducerEpoch
	}
	return c
}

// marker is what tells of a decision.
func (t *txnTerm) marker(id string, cur *txn.Txn, decided metadata.Revision) txnMarker {
	m := txnMarker{id: id, producer: cur.Producer, commit: cur.State == txn.PrepareCommit, coordinator: coordinatorEpoch(t.sh.c.s.meta.Gen(), t.sh.co.Epoch), decided: decided, version: 1}
	if cur.Bumped {
		m.version = 2
	}
	return m
}
