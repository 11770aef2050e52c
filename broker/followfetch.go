// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// fetcher follows one other node: one goroutine fetches every partition that this node replicates from it, in one incremental
// session, and appends what comes. The next fetch is the acknowledgement, so it is sent once what came is durable.
type fetcher struct {
	b       *Broker
	node    record.NodeID
	wake    chan struct{}
	hurry   chan struct{}          // a token: the fetch under way should not wait, there is more to be asked for
	scratch [maxProducerBytes]byte // of the goroutine

	mu struct {
		sync.Mutex
		wanted  map[record.PartitionID]*followed
		changed bool
	}

	// The goroutine's own.
	parts      map[record.PartitionID]*followed
	peer       *peer
	under      *metadata.Session // the registration that the leader knows us by
	session    struct{ id, epoch int32 }
	forget     []record.PartitionID // to be named as forgotten in the next request
	forgetNext []record.PartitionID // in the one after it
	said       time.Time            // when it last complained
	backoff    time.Duration
}

// followed is one partition that a fetcher fetches. All but what it is made with belongs to the fetcher's goroutine.
type followed struct {
	p       *Partition
	epoch   record.Epoch
	unclean record.Epoch // of the last unclean election, 0 for none

	role     *following // nil until the replica is ready to follow
	adopted  chan error // not nil while its epoch is on its way to the disk
	ready    bool       // its epoch is, and it has no role yet
	repair   chan error // not nil while the bucket is read for it
	unable   bool       // the disk is full: the leader is told not to wait for this replica
	told     record.Offset
	toldAt   int64     // Partition.assigned, then
	inFetch  bool      // the session knows it
	retry    time.Time // not before
	backoff  time.Duration
	appended record.Offset
	hw       record.Offset // the leader's, as last told
}

func newFetcher(b *Broker, node record.NodeID) *fetcher {
	f := &fetcher{b: b, node: node, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), parts: map[record.PartitionID]*followed{}}
	f.mu.wanted = map[record.PartitionID]*followed{}
	return f
}

// follow makes the fetcher fetch a partition from that leader.
func (f *fetcher) follow(p *Partition, leader *metadata.LeaderState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.mu.wanted[p.id]; w != nil && w.p == p && w.epoch == leader.Epoch {
		return
	}
	f.mu.wanted[p.id], f.mu.changed = &followed{p: p, epoch: leader.Epoch, unclean: leader.UncleanEpoch, told: record.NoOffset}, true
	f.nudge()
}

// nudge is signal, and does not let a fetch that is under way wait for its time.
func (f *fetcher) nudge() {
	select {
	case f.hurry <- struct{}{}:
	default:
	}
	f.signal()
}

// drop ends the fetching of a partition.
func (f *fetcher) drop(id record.PartitionID) {
	f.mu.Lock()
	_, known := f.mu.wanted[id]
	if known {
		delete(f.mu.wanted, id)
		f.mu.changed = true
	}
	f.mu.Unlock()
	if known {
		f.signal()
	}
}

func (f *fetcher) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run fetches until ctx ends.
func (f *fetcher) run(ctx context.Context) error {
	defer f.disconnect()
	for ctx.Err() == nil {
		select {
		case <-f.hurry: // what it is about is looked at now
		default:
		}
		f.takeWanted()
		if len(f.parts) == 0 {
			f.disconnect()
			if f.sleep(ctx, idleFetcher) != nil {
				return nil
			}
			continue
		}
		if wait := f.prepare(); wait > 0 {
			_ = f.sleep(ctx, wait) // the loop looks at ctx
			continue
		}
		if err := f.round(ctx); err != nil {
			f.disconnect()
			f.backoff = min(max(2*f.backoff, fetchBackoffMin), fetchBackoffMax)
			if ctx.Err() == nil && !f.b.leaving.Load() {
				f.complain("cannot replicate", "from", f.node, "partitions", len(f.parts), "error", err)
			}
			_ = f.sleep(ctx, f.backoff)
			continue
		}
		f.backoff = 0
	}
	return nil
}

// sleep waits for a change, or so long.
func (f *fetcher) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-f.wake:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (f *fetcher) disconnect() {
	if f.peer != nil {
		f.peer.close()
	}
	f.peer, f.forget, f.forgetNext = nil, nil, nil
	f.session.id, f.session.epoch = 0, 0
	for _, w := range f.parts {
		w.inFetch, w.told = false, record.NoOffset
	}
}

// takeWanted brings the goroutine's partitions up to date.
func (f *fetcher) takeWanted() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.mu.changed {
		return
	}
	f.mu.changed = false
	for id, w := range f.parts {
		if f.mu.wanted[id] != w {
			f.leave(w)
			delete(f.parts, id)
		}
	}
	for id, w := range f.mu.wanted {
		f.parts[id] = w
	}
}

// leave takes a partition out of the session.
func (f *fetcher) leave(w *followed) {
	if w.inFetch {
		f.forget = append(f.forget, w.p.id)
		w.inFetch, w.told = false, record.NoOffset
	}
}

// prepare makes the replicas that are new here follow: many adopt their epoch in one sync, for which the others do not wait. wait > 0: none is
// ready yet.
func (f *fetcher) prepare() (wait time.Duration) {
	var fresh []*followed
	var begun []adopting
	now, soonest, ready := time.Now(), fetchBackoffMax, 0
	for _, w := range f.parts {
		switch {
		case now.Before(w.retry):
			soonest = min(soonest, w.retry.Sub(now))
			continue
		case w.role != nil && w.p.follows(w.role):
			ready++
			continue
		case w.adopted != nil:
			select {
			case err := <-w.adopted:
				if w.adopted = nil; err != nil {
					f.later(w, err)
				} else {
					w.ready, fresh = true, append(fresh, w)
				}
			default:
			}
			continue
		case w.ready:
			fresh = append(fresh, w)
			continue
		}
		f.leave(w)
		w.role = nil
		done, err := w.p.adopt(w.epoch)
		if err != nil {
			f.later(w, err)
			continue
		}
		w.adopted = make(chan error, 1)
		begun = append(begun, adopting{done, w.adopted})
	}
	f.awaitAdopted(begun)
	for _, w := range fresh {
		if !f.repaired(w) {
			continue
		}
		role := &following{leader: f.node, epoch: w.epoch, unclean: w.unclean, fetcher: f}
		if err := w.p.beginFollowing(role); err != nil {
			f.later(w, err)
			continue
		}
		w.role, w.ready = role, false
		ready++
	}
	if ready > 0 {
		return 0
	}
	return max(soonest, time.Millisecond)
}

// adopting is an epoch on its way to the disk.
type adopting struct {
	wait func() error
	done chan<- error
}

func (f *fetcher) awaitAdopted(begun []adopting) {
	if len(begun) == 0 {
		return
	}
	f.b.start(func(context.Context) error {
		for _, a := range begun {
			a.done <- a.wait()
		}
		f.nudge()
		return nil
	})
}

// repaired tells whether the hot log can follow as it is. If not, the bucket is read for it beside the fetching: what does not need
// the bucket must not wait for it.
func (f *fetcher) repaired(w *followed) bool {
	if w.repair != nil {
		select {
		case err := <-w.repair:
			if w.repair = nil; err != nil {
				f.later(w, err)
				return false
			}
		default:
			return false
		}
	}
	if !w.p.needsRepair() {
		return true
	}
	w.p.endFollowing()
	done := make(chan error, 1)
	if !f.b.startRepair(w.p, w.epoch, func(err error) {
		done <- err
		f.signal()
	}) {
		f.later(w, errStaleRole) // another one, of an earlier epoch, is under way
		return false
	}
	w.repair = done
	return false
}

// later puts a partition aside for a while. The session forgets it: it would be answered again and again.
func (f *fetcher) later(w *followed, err error) {
	f.leave(w)
	w.ready = false
	w.retry = time.Now().Add(partitionBackoff)
	switch {
	case errors.Is(err, ErrBusy):
		return
	case errors.Is(err, errStaleRole):
		w.backoff = min(max(2*w.backoff, partitionBackoffMin), partitionBackoff)
		w.retry = time.Now().Add(w.backoff)
		time.AfterFunc(w.backoff, f.nudge)
		f.b.dirty.addPartition(w.p.id) // the image may say something else by now
		f.b.kick()
		return
	}
	w.retry = time.Now().Add(fetchBackoffMax)
	w.unable = errors.Is(err, ErrDiskFull)
	f.complain("replica cannot follow yet", "topic", w.p.name, "partition", w.p.id.Index, "leader", f.node, "epoch", w.epoch, "error", err)
}

// complain logs what is likely to come again and again, now and then.
func (f *fetcher) complain(what string, args ...any) {
	if time.Since(f.said) > complainEvery {
		f.said = time.Now()
		f.b.log.Warn(what, args...)
	}
}

// follows tells whether a role is the one in force.
func (p *Partition) follows(role *following) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.follow == role && !p.mu.closed
}

func (p *Partition) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.closed
}

// round sends one fetch and takes over its answer.
func (f *fetcher) round(ctx context.Context) error {
	session := f.b.session.Load()
	if session == nil {
		return metadata.ErrSessionLost
	}
	if f.under != session {
		// The leader must hear of every partition under the new registration, or it never takes those back into the in-sync set of which
		// it hears nothing new.
		f.disconnect()
		f.under = session
	}
	if f.peer == nil {
		n := f.b.meta.Image().Broker(f.node)
		if n == nil {
			return fmt.Errorf("node %d is not registered", f.node)
		}
		var err error
		if f.peer, err = f.b.dialPeer(ctx, n); err != nil {
			return err
		}
	}
	req := f.request(f.b.me(session))
	resp := kmsg.NewPtrFetchResponse()
	if err := f.peer.request(ctx, req, resp, peerFetchTimeout, f.hurry); err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("node %d refuses the fetch: %w", f.node, err)
	}
	f.session.id = resp.SessionID
	f.session.epoch++
	if resp.SessionID == 0 {
		f.session.epoch = 0 // no room for a session there: every fetch names all
	}
	f.forget = append(f.forget[:0], f.forgetNext...)
	f.forgetNext = f.forgetNext[:0]
	var appended []*followed
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			r := &t.Partitions[j]
			w := f.parts[record.PartitionID{Topic: t.TopicID, Index: r.Partition}]
			if w == nil || w.role == nil || !w.inFetch {
				continue
			}
			took, err := f.take(ctx, w, r)
			if err != nil {
				f.later(w, err)
			}
			if took {
				appended = append(appended, w)
			}
		}
	}
	return f.awaitDurable(ctx, appended)
}

// request names what the session does not know yet of each partition that is ready.
func (f *fetcher) request(me Replica) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = fetchVersion
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(replicaFetchWait/time.Millisecond), 1, replicaFetchBytes
	req.ReplicaState.ID, req.ReplicaState.Epoch = int32(me.Node), int64(me.Incarnation)
	req.ReplicaState.UnknownTags.Set(StoreTag, me.Store[:])
	if me.Assigns {
		req.ReplicaState.UnknownTags.Set(AssignsTag, nil)
	}
	if me.Leaving {
		req.ReplicaState.UnknownTags.Set(LeavingTag, nil)
	}
	req.SessionID, req.SessionEpoch = f.session.id, f.session.epoch
	full := f.session.epoch == 0
	now := time.Now()
	topics := map[record.TopicID]int{}
	for id, w := range f.parts {
		if w.role == nil || now.Before(w.retry) && !w.unable {
			continue
		}
		at := w.p.log.DurableEnd()
		assigned := w.p.assigned.Load() // before a look at closed: a log is removed only by a later assignment
		if !full && w.inFetch && w.told == at && (assigned == 0 || w.toldAt == assigned) {
			continue
		}
		i, ok := topics[id.Topic]
		if !ok {
			i = len(req.Topics)
			topics[id.Topic] = i
			t := kmsg.NewFetchRequestTopic()
			t.TopicID = id.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.FetchOffset = id.Index, int32(w.epoch), int64(at)
		p.LastFetchedEpoch, p.PartitionMaxBytes = int32(w.p.lastEpoch()), replicaPartitionBytes
		p.LogStartOffset = int64(w.p.log.Start())
		if assigned != 0 && !w.p.isClosed() {
			p.UnknownTags.Set(AssignedTag, binary.BigEndian.AppendUint64(nil, uint64(assigned)))
		}
		if w.unable {
			// Said once; the next fetch forgets the partition until it is tried again.
			p.UnknownTags.Set(UnableTag, nil)
			f.forgetNext = append(f.forgetNext, id)
			w.unable, w.inFetch, w.told = false, false, record.NoOffset
		} else {
			w.inFetch, w.told, w.toldAt = true, at, assigned
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	if !full {
		req.ForgottenTopics = forgotten(f.forget)
	}
	return req
}

// forgotten groups by topic what the session shall forget. What is asked for again in the same request is among it: the leader forgets
// first, and then tells anew what it had told an earlier role here.
func forgotten(ids []record.PartitionID) (out []kmsg.FetchRequestForgottenTopic) {
	topics := map[record.TopicID]int{}
	for _, id := range ids {
		i, ok := topics[id.Topic]
		if !ok {
			i = len(out)
			topics[id.Topic] = i
			t := kmsg.NewFetchRequestForgottenTopic()
			t.TopicID = id.Topic
			out = append(out, t)
		}
		out[i].Partitions = append(out[i].Partitions, id.Index)
	}
	return out
}

// take takes over the answer for one partition. took: something was appended, the answer's bytes must stay until it is durable.
func (f *fetcher) take(ctx context.Context, w *followed, r *kmsg.FetchResponseTopicPartition) (took bool, err error) {
	p := w.p
	switch err := kerr.ErrorForCode(r.ErrorCode); {
	case errors.Is(err, kerr.OffsetMovedToTieredStorage), errors.Is(err, kerr.OffsetOutOfRange):
		w.role = nil // it begins anew, where the bucket ends by now
		return false, f.behind(ctx, w)
	case errors.Is(err, kerr.NotLeaderForPartition), errors.Is(err, kerr.FencedLeaderEpoch), errors.Is(err, kerr.UnknownLeaderEpoch),
		errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return false, fmt.Errorf("%w: node %d answers: %w", errStaleRole, f.node, err)
	case err != nil:
		return false, fmt.Errorf("%w: node %d answers: %w", ErrStorage, f.node, err)
	}
	if d := r.DivergingEpoch; d.EndOffset >= 0 {
		// The rest of such an answer is void (A7).
		return false, p.truncateTo(w.role, EpochEnd{Epoch: record.Epoch(d.Epoch), End: record.Offset(d.EndOffset)})
	}
	if len(r.RecordBatches) > 0 {
		if err := p.startInside(w.role, r.RecordBatches); err != nil {
			return false, err
		}
		if err := p.forgetEmptyEpochs(w.role, r.RecordBatches); err != nil {
			return false, err
		}
		before := p.log.AppendedEnd()
		w.appended, err = p.appendCopies(w.role, r.RecordBatches)
		took = w.appended > before
	}
	w.hw, w.backoff = record.Offset(r.HighWatermark), 0
	p.learn(w.role, w.hw, record.Offset(r.LogStartOffset))
	return took, err
}

// behind brings a replica whose end the leader does not have in its hot log any more to where the bucket ends.
func (f *fetcher) behind(ctx context.Context, w *followed) error {
	ctx, cancel := context.WithTimeout(ctx, retryPause) // everything else from that leader waits
	defer cancel()
	state, err := f.b.meta.ReadPartition(ctx, w.p.id)
	if err != nil {
		return err
	}
	w.p.AdoptHead(state.Head)
	if max(state.Head.TieredEnd, state.Head.LogStart) <= w.p.log.AppendedEnd() {
		return fmt.Errorf("%w: node %d does not have offset %d of %s, and the bucket ends at %d", ErrStorage, f.node, w.p.log.AppendedEnd(), w.p.id, state.Head.TieredEnd)
	}
	return nil
}

// awaitDurable waits for the syncs that cover what was appended. What is in the answer's buffer is still needed when a role ended
// meanwhile: then the buffer is left to the garbage collector.
func (f *fetcher) awaitDurable(ctx context.Context, appended []*followed) error {
	for _, w := range appended {
		for w.p.log.DurableEnd() < w.appended {
			if !w.p.follows(w.role) {
				f.peer.in = nil
				break
			}
			select {
			case <-f.wake:
			case <-ctx.Done():
				f.peer.in = nil
				return ctx.Err()
			}
		}
		// The leader does not repeat a high watermark; what of it lay above our end counts now.
		w.p.learn(w.role, w.hw, record.NoOffset)
	}
	f.signal() // what woke us may have been meant for the loop
	return nil
}
