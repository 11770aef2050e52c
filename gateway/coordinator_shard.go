// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/consumer"
	"github.com/varve/varve/metadata"
)

// shard is one term of coordinating a shard's groups: one goroutine, which alone touches them. Requests come as functions for
// it to call. At most one transaction of a group is on its way, and what waits meanwhile goes into the next.
type shard struct {
	c          *coordinators
	co         metadata.Coordination
	session    *metadata.Session
	inputs     chan func(now time.Time)
	loaded     atomic.Bool
	topicsGone chan struct{}
	leave      chan struct{} // give it up in good order
	over       chan struct{} // the term has ended
	done       chan struct{} // nobody serves any more
	leaveOnce  sync.Once
	overOnce   sync.Once

	// Of the shard's goroutine only:
	groups  map[string]*groupEntry
	timers  groupTimers
	queue   []*groupEntry // with something to write, in order of arrival
	waiters map[group.Token]func(group.Output)
	tokens  group.Token
	commits int           // waiting
	flying  []*groupBatch // on their way, of different groups
	written chan writtenBatch
	sweepAt time.Time
	// stamped is the newest time that an offset of the shard was written with.
	stamped metadata.UnixMillis

	txns *txnTerm // the shard's transactional ids, which have their own goroutines
	// behind are groups whose offsets transactions write as well: they are read again at refreshAt.
	behind    map[string]*behindGroup
	refreshAt time.Time
}

// groupEntry is one group as its coordinator has it.
type groupEntry struct {
	id     string
	g      *group.Group
	c      *consumer.Group   // not nil: a group of the consumer protocol, and g counts for nothing
	rev    metadata.Revision // of its state, 0 when none is stored
	pages  int
	chunks map[metadata.ChunkID]*offsetChunk
	// changes of offsets that wait, in order.
	changes []*offsetChange
	// held answers wait for a state that was not sent yet, sent ones for the one on its way (Q5).
	held, sent []func(error)
	stateSent  bool
	encoded    []byte // a state that found no room in the last transaction
	queued     bool
	flying     bool      // in a batch that is on its way: nothing else is decided on the group until its outcome is known
	at         time.Time // when it has something to do by time alone
	index      int       // among the timers, -1: not there
	// For the metrics: the state and the epoch of a consumer group that were seen last, and since when it has not been stable.
	shown    string
	epoch    int32
	restless time.Time
}

// offsetChunk are the committed offsets of one key, as they were written last.
type offsetChunk struct {
	rev  metadata.Revision
	list []metadata.CommittedOffset
}

func newShard(c *coordinators, session *metadata.Session, co metadata.Coordination) *shard {
	sh := &shard{
		c: c, co: co, session: session, inputs: make(chan func(time.Time), maxShardInputs), topicsGone: make(chan struct{}, 1),
		leave: make(chan struct{}), over: make(chan struct{}), done: make(chan struct{}), written: make(chan writtenBatch, maxShardFlights),
		groups: map[string]*groupEntry{}, waiters: map[group.Token]func(group.Output){},
	}
	sh.txns, sh.behind = newTxnTerm(sh), map[string]*behindGroup{}
	return sh
}

func (sh *shard) giveUp() { sh.leaveOnce.Do(func() { close(sh.leave) }) }
func (sh *shard) end()    { sh.overOnce.Do(func() { close(sh.over) }) }

// serves tells whether requests may go to the shard. A node that may have lost its lease answers nothing.
func (sh *shard) serves() error {
	if sh == nil || !sh.session.Alive() || isClosed(sh.leave) || isClosed(sh.over) {
		return errNotCoordinator
	}
	if !sh.loaded.Load() {
		return errGroupLoading
	}
	return nil
}

// ask has fn called by the shard's goroutine and waits until it, or something later, replies. A shard that ends replies to nobody:
// whoever waits then is told to look for another coordinator.
func ask[T any](ctx context.Context, sh *shard, fn func(now time.Time, reply func(T))) (T, error) {
	answer, err := tell(ctx, time.Time{}, sh, fn)
	if err != nil {
		var none T
		return none, err
	}
	return hear(ctx, time.Time{}, sh, answer)
}

// tell is the first half of ask: it returns when fn is sure to be called, if the shard does not end before. What is told by one goroutine
// comes in order. A deadline of zero is none.
func tell[T any](ctx context.Context, deadline time.Time, sh *shard, fn func(now time.Time, reply func(T))) (<-chan T, error) {
	answer := make(chan T, 1)
	told := time.Now()
	input := func(now time.Time) {
		sh.c.metrics.queueTime.observe(now.Sub(told))
		fn(now, func(v T) {
			select {
			case answer <- v:
			default: // a second answer must not stop the shard
			}
		})
	}
	select {
	case sh.inputs <- input:
		return answer, nil
	default:
	}
	ctx, cancel := until(ctx, deadline)
	defer cancel()
	select {
	case sh.inputs <- input:
		return answer, nil
	case <-sh.done:
		return nil, errNotCoordinator
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// hear is the second half of ask.
func hear[T any](ctx context.Context, deadline time.Time, sh *shard, answer <-chan T) (T, error) {
	var none T
	select {
	case v := <-answer:
		return v, nil
	default:
	}
	var late <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		late = t.C
	}
	select {
	case v := <-answer:
		return v, nil
	case <-sh.done:
	case <-late:
		return none, context.DeadlineExceeded
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	select {
	case v := <-answer:
		return v, nil
	default:
		return none, errNotCoordinator
	}
}

func until(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	if deadline.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// run serves the term until it ends. released: this node has given the shard up.
func (sh *shard) run(ctx context.Context) (released bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var writer sync.WaitGroup
	defer writer.Wait()
	defer cancel()
	defer close(sh.done)
	watch := make(chan struct{})
	writer.Go(func() {
		defer cancel()
		leave := sh.leave
		for {
			select {
			case <-leave:
				if !sh.loaded.Load() {
					return // a load that may last is not waited for; there is nothing to write yet
				}
				leave = nil
			case <-sh.over:
				return
			case <-sh.session.Lost():
				return
			case <-watch:
				return
			}
		}
	})
	defer close(watch)
	defer sh.txns.end()
	err = sh.load(ctx)
	if err == nil {
		err = sh.txns.load(ctx)
	}
	if err != nil {
		if sh.session.Err() != nil || isClosed(sh.over) || isClosed(sh.leave) {
			return false, nil
		}
		return false, err
	}
	sh.loaded.Store(true)
	sh.txns.begin(ctx)
	return sh.serve(ctx, &writer)
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// load takes up what is stored.
func (sh *shard) load(ctx context.Context) error {
	now := time.Now()
	at, err := sh.c.s.meta.LoadShard(ctx, sh.co, func(st metadata.GroupState) error {
		e := sh.entry(st.ID, now)
		e.rev, e.pages = st.Rev, st.Pages
		return sh.decode(e, st.Value, now)
	}, func(id string, o metadata.Offsets) error {
		sh.entry(id, now).chunks[o.ChunkID] = &offsetChunk{rev: o.Rev, list: o.List}
		for i := range o.List {
			sh.stamped = max(sh.stamped, o.List[i].Committed)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("loading shard %d: %w", sh.co.Shard, err)
	}
	// What the image does not show is gone only when the image is as new as what was loaded.
	if err := sh.c.s.meta.WaitFor(ctx, at); err != nil {
		return err
	}
	pending, newest, err := sh.c.s.meta.PendingGroups(ctx, sh.co)
	if err != nil {
		return err
	}
	sh.stamped = max(sh.stamped, newest)
	for _, id := range pending {
		sh.behind[id] = new(behindGroup)
	}
	for _, e := range sh.groups {
		sh.schedule(e)
		sh.moved(e)
	}
	sh.c.metrics.loadTime.observe(time.Since(now))
	sh.dropGoneTopics()
	sh.sweepAt = now.Add(sh.c.config().OffsetsRetentionCheck)
	sh.c.s.log.Debug("group coordinator: shard loaded", "shard", sh.co.Shard, "epoch", sh.co.Epoch, "groups", len(sh.groups))
	return nil
}

// stamp is the time to write offsets with. It says in which order they came, also where the clock does not: of a partition that a
// transaction commits as well the newest stays. What a transaction writes is newer than all before it, and not than what comes after.
func (sh *shard) stamp(now time.Time, txn bool) metadata.UnixMillis {
	if txn {
		sh.stamped++
	}
	sh.stamped = max(sh.stamped, metadata.MillisOf(now))
	return sh.stamped
}

func (sh *shard) serve(ctx context.Context, writer *sync.WaitGroup) (released bool, err error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var alarm time.Time // what timer is set to
	inputs, leave := sh.inputs, sh.leave
	var flushed <-chan time.Time
	leaving := false
	for {
		sh.write(ctx)
		if leaving && len(sh.flying) == 0 && len(sh.queue) == 0 {
			// With the metadata store away the outcome stays unknown, and the end of this node's registration gives the shard up.
			rctx, cancel := context.WithTimeout(ctx, shardReleaseWait)
			defer cancel()
			err := sh.c.s.meta.ReleaseShard(rctx, sh.co)
			return err == nil, err
		}
		if at := sh.nextDeadline(); at != alarm {
			alarm = at
			timer.Reset(time.Until(at))
		}
		select {
		case fn := <-inputs:
			began := time.Now()
			fn(began)
			sh.c.metrics.processingTime.observe(time.Since(began))
		case res := <-sh.written:
			switch err := res.Err; {
			case err == nil:
			case ctx.Err() != nil:
				return false, nil
			case errors.Is(err, metadata.ErrUnavailable) && !errors.Is(err, metadata.ErrUnknown):
				sh.sendAgain(ctx, writer, res.batch)
				continue
			case !sh.setAside(res.batch, err):
				return false, err // the shard is loaded anew
			case res.batch.needed():
				sh.send(ctx, res.batch)
				continue
			}
			sh.flying = slices.DeleteFunc(sh.flying, func(b *groupBatch) bool { return b == res.batch })
			sh.wrote(res.batch, res.Revision)
		case <-timer.C:
			alarm = time.Time{}
			sh.tick(time.Now())
		case <-sh.topicsGone:
			sh.dropGoneTopics()
		case <-leave:
			leaving, inputs, leave = true, nil, nil
			t := time.NewTimer(shardFlush)
			defer t.Stop()
			flushed = t.C
		case <-flushed:
			return false, nil // the store is away: the key goes with the lease, or the next pass gives it up
		case <-ctx.Done():
			return false, nil
		}
	}
}

// entry finds a group or makes one, which is kept only if something comes of it.
func (sh *shard) entry(id string, now time.Time) *groupEntry {
	e := sh.groups[id]
	if e == nil {
		e = &groupEntry{id: id, g: group.New(now), chunks: map[metadata.ChunkID]*offsetChunk{}, index: -1}
		sh.groups[id] = e
	}
	return e
}

// wait gives a token to a request whose answer goes to give.
func (sh *shard) wait(give func(group.Output)) group.Token {
	sh.tokens++
	sh.waiters[sh.tokens] = give
	return sh.tokens
}

// stepped lets out what a step of the group has brought.
func (sh *shard) stepped(e *groupEntry) {
	sh.answer(e)
	sh.moved(e)
	if e.unsaved() {
		sh.enqueue(e)
	}
	sh.schedule(e)
	sh.forget(e)
}

// answer lets out the answers of a classic group's step.
func (sh *shard) answer(e *groupEntry) {
	for _, o := range e.g.Take() {
		give := sh.waiters[o.Token]
		delete(sh.waiters, o.Token)
		if !o.Durable {
			give(o)
			continue
		}
		sh.after(e, func(err error) {
			if err != nil {
				o = group.Output{Token: o.Token, Err: err, MemberID: o.MemberID}
			}
			give(o)
		})
	}
}

// after calls done when the group is stored as it is now, or with an error when that cannot be (Q5).
func (sh *shard) after(e *groupEntry, done func(error)) {
	switch {
	case e.unsaved():
		e.held = append(e.held, done)
	case e.stateSent:
		e.sent = append(e.sent, done)
	default:
		done(nil)
	}
}

// unsaved tells that the group's state has changed since what was stored or is on its way.
func (e *groupEntry) unsaved() bool { return e.dirty() || e.encoded != nil }

func (sh *shard) enqueue(e *groupEntry) {
	if !e.queued {
		e.queued = true
		sh.queue = append(sh.queue, e)
	}
}

// forget drops a group of which nothing is stored and that nobody has joined.
func (sh *shard) forget(e *groupEntry) {
	if e.unused() && e.rev == 0 && len(e.chunks) == 0 && len(e.changes) == 0 && !e.queued && !e.flying && !e.stateSent && !e.unsaved() {
		delete(sh.groups, e.id)
		if e.index >= 0 {
			heap.Remove(&sh.timers, e.index)
		}
	}
}

// tick is called when a deadline has come.
func (sh *shard) tick(now time.Time) {
	for len(sh.timers) > 0 && !now.Before(sh.timers[0].at) {
		e := sh.timers[0]
		if e.c != nil {
			e.c.Tick(now)
			sh.consumerStepped(e, now, func(error) {})
		} else {
			e.g.Tick(now, sh.groupConfig())
			sh.stepped(e)
		}
		if len(sh.timers) > 0 && sh.timers[0] == e && !now.Before(e.at) {
			break // nothing moved it: the next round of the loop looks again
		}
	}
	if len(sh.behind) > 0 && !now.Before(sh.refreshAt) {
		sh.refreshAt = now.Add(pendingRefresh)
		sh.refresh()
	}
	if !now.Before(sh.sweepAt) {
		sh.sweepAt = now.Add(sh.c.config().OffsetsRetentionCheck)
		sh.sweep(now)
	}
}

func (sh *shard) nextDeadline() time.Time {
	at := sh.sweepAt
	if len(sh.behind) > 0 && sh.refreshAt.Before(at) {
		at = sh.refreshAt
	}
	if len(sh.timers) > 0 && sh.timers[0].at.Before(at) {
		at = sh.timers[0].at
	}
	return at
}

func (sh *shard) groupConfig() group.Config {
	b := sh.c.config()
	return group.Config{MinSession: b.GroupMinSessionTimeout, MaxSession: b.GroupMaxSessionTimeout, InitialDelay: b.GroupInitialDelay, MaxSize: b.GroupMaxSize}
}

// schedule puts the group where its deadline belongs.
func (sh *shard) schedule(e *groupEntry) {
	at := e.next()
	switch {
	case at.IsZero() && e.index >= 0:
		heap.Remove(&sh.timers, e.index)
	case at.IsZero():
	case e.index < 0:
		e.at = at
		heap.Push(&sh.timers, e)
	case !e.at.Equal(at):
		e.at = at
		heap.Fix(&sh.timers, e.index)
	}
}

// groupTimers is a heap of groups by deadline.
type groupTimers []*groupEntry

func (t groupTimers) Len() int           { return len(t) }
func (t groupTimers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t groupTimers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push is heap's.
func (t *groupTimers) Push(x any) {
	e := x.(*groupEntry)
	e.index = len(*t)
	*t = append(*t, e)
}

// Pop is heap's.
func (t *groupTimers) Pop() any {
	old := *t
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	e.index = -1
	return e
}
