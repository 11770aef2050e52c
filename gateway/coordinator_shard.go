// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/consumer"
	"github.com/varve/varve/metadata"
)

// shard is one term of coordinating a shard's groups. Whoever has its turn alone touches them: a request in its own goroutine, since each
// goroutine more on its way costs it a wake-up, the outcome of a transaction in that of the sender, and what comes by time in the shard's own. At
// most one transaction of a group is on its way, and what waits meanwhile goes into the next.
type shard struct {
	c          *coordinators
	co         metadata.Coordination
	session    *metadata.Session
	loaded     atomic.Bool
	waiting    atomic.Int32 // requests that wait for their turn
	topicsGone chan struct{}
	leave      chan struct{} // give it up in good order
	over       chan struct{} // the term has ended
	done       chan struct{} // nobody serves any more
	leaveOnce  sync.Once
	overOnce   sync.Once
	// wake tells the shard's goroutine that something is new to it: an earlier deadline, a failure, or nothing left to write.
	wake chan struct{}

	ctx   context.Context // of the term; set before it is loaded
	again sync.WaitGroup  // of what is sent again

	turn sync.Mutex
	// Of whoever has the turn only:
	refuses bool  // requests: the term is about to end
	leaving bool  // in good order
	failure error // for which the term ends
	ended   bool
	alarm   time.Time // when the shard's goroutine looks again
	groups  map[string]*groupEntry
	timers  groupTimers
	queue   []*groupEntry // with something to write, in order of arrival
	waiters map[group.Token]func(group.Output)
	tokens  group.Token
	commits int           // waiting
	flying  []*groupBatch // on their way, of different groups
	sweepAt time.Time
	// stamped is the newest time that an offset of the shard was written with.
	stamped metadata.UnixMillis

	txns *txnTerm // the shard's transactional ids, which have their own goroutines
	// behind are groups whose offsets transactions write as well: they are read again at refreshAt.
	behind    map[string]*behindGroup
	refreshAt time.Time
	deletions int // of keys of offsets, in this term
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
		c: c, co: co, session: session, topicsGone: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		leave: make(chan struct{}), over: make(chan struct{}), done: make(chan struct{}),
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

// take gives the turn, unless the term has ended or is about to. Who has it gives it back soon, and waits for nothing; load does, but nobody asks a
// shard that is not loaded (serves).
func (sh *shard) take() error {
	sh.waiting.Add(1)
	sh.turn.Lock()
	sh.waiting.Add(-1)
	if sh.refuses {
		sh.turn.Unlock()
		return errNotCoordinator
	}
	return nil
}

// give gives the turn back, with what there is to write on its way.
func (sh *shard) give() {
	if !sh.ended && sh.failure == nil {
		sh.write()
	}
	wake := sh.failure != nil || sh.leaving && sh.idle() || sh.nextDeadline().Before(sh.alarm)
	sh.turn.Unlock()
	if wake {
		select {
		case sh.wake <- struct{}{}:
		default:
		}
	}
}

// idle tells that there is nothing left to write.
func (sh *shard) idle() bool { return len(sh.flying) == 0 && len(sh.queue) == 0 }

// call has fn called with the turn, or gives an error.
func (sh *shard) call(fn func(now time.Time)) error {
	if err := sh.take(); err != nil {
		return err
	}
	defer sh.give()
	fn(time.Now())
	return nil
}

// ask has fn called with the turn and waits until it, or something later, replies. A shard that ends replies to nobody:
// whoever waits then is told to look for another coordinator.
func ask[T any](ctx context.Context, sh *shard, fn func(now time.Time, reply func(T))) (T, error) {
	answer, err := tell(sh, fn)
	if err != nil {
		var none T
		return none, err
	}
	return hear(ctx, time.Time{}, sh, answer)
}

// tell is the first half of ask: fn has been called when it returns.
func tell[T any](sh *shard, fn func(now time.Time, reply func(T))) (<-chan T, error) {
	answer := make(chan T, 1)
	told := time.Now()
	return answer, sh.call(func(now time.Time) {
		sh.c.metrics.queueTime.observe(now.Sub(told))
		fn(now, func(v T) {
			select {
			case answer <- v:
			default: // a second answer must not stop the shard
			}
		})
		sh.c.metrics.processingTime.observe(time.Since(now))
	})
}

// hear is the second half of ask. A deadline of zero is none.
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

// run serves the term until it ends. released: this node has given the shard up.
func (sh *shard) run(ctx context.Context) (released bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer sh.again.Wait()
	defer cancel()
	defer close(sh.done)
	watch := make(chan struct{})
	watcher.Go(func() {
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
	defer sh.finish()
	sh.turn.Lock()
	sh.ctx = ctx
	err = sh.load(ctx)
	sh.turn.Unlock()
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
	return sh.serve(ctx)
}

// finish ends the turns: from here on nothing is decided any more.
func (sh *shard) finish() {
	sh.turn.Lock()
	defer sh.turn.Unlock()
	sh.refuses, sh.ended = true, true
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
	// Before the offsets: what is pending becomes one of them when its transaction ends, maybe now, and nothing new is pending before this shard serves.
	pending, newest, err := sh.c.s.meta.PendingGroups(ctx, sh.co)
	if err != nil {
		return err
	}
	sh.stamped = max(sh.stamped, newest)
	for _, id := range pending {
		sh.behind[id] = new(behindGroup)
	}
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

// serve does what comes by time until the term ends.
func (sh *shard) serve(ctx context.Context) (released bool, err error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	leave := sh.leave
	var flushed <-chan time.Time
	var alarm time.Time // what timer is set to
	for {
		at, left, failure := sh.look()
		switch {
		case failure != nil:
			return false, failure // the shard is loaded anew
		case left:
			// With the metadata store away the outcome stays unknown, and the end of this node's registration gives the shard up.
			rctx, cancel := context.WithTimeout(ctx, shardReleaseWait)
			defer cancel()
			err := sh.c.s.meta.ReleaseShard(rctx, sh.co)
			return err == nil, err
		case at != alarm:
			alarm = at
			timer.Reset(time.Until(at))
		}
		select {
		case <-sh.wake:
		case <-timer.C:
			alarm = time.Time{}
			sh.own(func() { sh.tick(time.Now()) })
		case <-sh.topicsGone:
			sh.own(sh.dropGoneTopics)
		case <-leave:
			leave = nil
			sh.own(func() { sh.refuses, sh.leaving = true, true })
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

// own takes a turn of the shard's own goroutine, which looks afterwards.
func (sh *shard) own(fn func()) {
	sh.turn.Lock()
	defer sh.turn.Unlock()
	fn()
}

// look sends what there is to write, and tells when the shard's goroutine has to look again, whether a shard that is given up has written
// everything, and for what the term has to end.
func (sh *shard) look() (at time.Time, left bool, failure error) {
	sh.turn.Lock()
	defer sh.turn.Unlock()
	if sh.failure == nil {
		sh.write()
	}
	sh.alarm = sh.nextDeadline()
	return sh.alarm, sh.leaving && sh.idle(), sh.failure
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
