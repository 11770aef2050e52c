// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/broker/isr"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
)

// keepRoles looks at the partitions that changed and gives each the role that the metadata says. What has to be tried again is, a little
// later; what changes meanwhile does not wait for that.
func (b *Broker) keepRoles(ctx context.Context) error {
	var again <-chan time.Time
	for {
		select {
		case <-b.wake:
		case <-again:
			again = nil
			for id := range b.again {
				b.dirty.addPartition(id)
			}
			clear(b.again)
		case <-ctx.Done():
			return nil
		}
		retry, err := b.settleRoles(ctx)
		if err != nil {
			return err
		}
		if retry && again == nil {
			again = time.After(retryPause)
		}
	}
}

// settleRoles looks at what is dirty once. It tells whether something has to be tried again; an error ends the process, since
// the disk of the hot log failed.
func (b *Broker) settleRoles(ctx context.Context) (retry bool, err error) {
	if !b.meta.Image().Loaded() {
		return true, nil
	}
	if !b.swept {
		if err := b.dropOrphans(ctx); err != nil {
			return false, err
		}
		b.swept = true
	}
	img, ids := b.toLookAt(b.meta.Image)
	var take []record.PartitionID
	for _, id := range ids {
		topic := img.TopicByID(id.Topic)
		moving := b.leadsElsewhere(img, topic, id)
		switch {
		case !b.assigned(topic, id.Index) && !moving:
			delete(b.vacant, id)
			if err := b.retire(ctx, id); err != nil {
				b.log.Warn("cannot give up a partition yet", "partition", id, "error", err)
				b.again[id] = struct{}{}
				retry = true
			}
		default:
			if moving {
				b.moveWork.add(id)
				b.again[id] = struct{}{}
				retry = true
			}
			switch want, err := b.roleOf(img, topic, id); {
			case err != nil:
				return false, err
			case want == roleLead:
				take = append(take, id)
			case want == roleWait:
				b.again[id] = struct{}{}
				retry = true
			}
		}
	}
	session := b.session.Load()
	switch {
	case session == nil || b.leaving.Load():
		return retry, nil // registering marks everything dirty
	case !session.Alive():
		// It may be sure of its lease again without having been lost, and then nothing else would bring these back.
		for _, id := range take {
			b.again[id] = struct{}{}
		}
		return retry || len(take) > 0, nil
	}
	for chunk := range slices.Chunk(take, takeOverBatch) {
		again, err := b.takeOver(ctx, session, chunk)
		if err != nil {
			return false, err
		}
		for _, id := range again {
			b.again[id] = struct{}{}
			retry = true
		}
	}
	return retry, nil
}

// toLookAt resolves the dirty set to partitions of the image that it returns. The set comes first: an image that arrives meanwhile
// leaves what it changed in the set, where the other order would look for it in the image before.
func (b *Broker) toLookAt(image func() *metadata.Image) (img *metadata.Image, ids []record.PartitionID) {
	all, topics, partitions := b.dirty.take()
	img = image()
	whole := func(t *metadata.Topic) {
		for i := range t.Partitions {
			ids = append(ids, record.PartitionID{Topic: t.ID, Index: int32(i)})
		}
	}
	if all {
		for t := range img.Topics() {
			whole(t)
		}
	}
	for id := range topics {
		if t := img.TopicByID(id); t != nil && !all {
			whole(t)
		}
	}
	for id := range partitions {
		if _, seen := topics[id.Topic]; !seen && !all {
			ids = append(ids, id)
		}
	}
	// What is here of topics that are gone: of those that are there all was listed above.
	b.mu.RLock()
	defer b.mu.RUnlock()
	for id := range b.mu.partitions {
		_, seen := topics[id.Topic]
		if t := img.TopicByID(id.Topic); (all || seen) && (t == nil || int(id.Index) >= len(t.Partitions)) {
			ids = append(ids, id)
		}
	}
	return img, ids
}

// leadsElsewhere tells whether a partition that is assigned to others still counts on this node: as its leader, until one of those
// leads, since nobody takes over from a leader that is registered; or as one of its in-sync or eligible replicas, until it is none any more: it
// may be the only one that has everything and is there.
func (b *Broker) leadsElsewhere(img *metadata.Image, t *metadata.Topic, id record.PartitionID) bool {
	session := b.session.Load()
	state, ok := img.Partition(id)
	return ok && session != nil && t != nil && !t.Deleting && int(id.Index) < len(t.Partitions) && !b.assigned(t, id.Index) &&
		(state.Leader.Node == b.cfg.Node.Node && state.Leader.Incarnation == session.Incarnation() || b.counts(&state.ISR))
}

// counts tells whether this node, with its disk, is one of the in-sync or eligible replicas.
func (b *Broker) counts(s *metadata.ISRState) bool {
	return b.isMember(s) || slices.Contains(s.ELR, metadata.ELRMember{Node: b.cfg.Node.Node, StoreID: b.cfg.Node.StoreID})
}

func (b *Broker) isMember(s *metadata.ISRState) bool {
	m, ok := s.Member(b.cfg.Node.Node)
	return ok && m.StoreID == b.cfg.Node.StoreID
}

func (b *Broker) assigned(t *metadata.Topic, index int32) bool {
	return t != nil && !t.Deleting && int(index) < len(t.Partitions) && slices.Contains(t.Partitions[index], b.cfg.Node.Node)
}

// takeOver tries to become the leader of ids and begins the epochs that it got. It returns those to be tried again.
func (b *Broker) takeOver(ctx context.Context, session *metadata.Session, ids []record.PartitionID) (again []record.PartitionID, err error) {
	var opened []record.PartitionID
	img := b.meta.Image()
	for _, id := range ids {
		p, err := b.open(id)
		switch {
		case errors.Is(err, metadata.ErrUnknownTopic): // deleted meanwhile
		case err != nil:
			return nil, err
		case p.lacksCommitted(img):
			b.log.Error("this node does not stand for a partition: its disk lost records that were committed", "topic", p.name, "partition", id.Index, "end", p.log.AppendedEnd())
		case p.log.Meta().ProducersStale || p.isRepairing():
			b.stopFollowing(p)
			b.repairToLead(p)
			again = append(again, id)
		default:
			opened = append(opened, id)
		}
	}
	ids = opened
	got, rest := b.handed(img, session, ids)
	taken, err := b.meta.TakeOver(ctx, session, rest)
	got = append(got, taken...)
	var begun []*starting
	won := make(map[record.PartitionID]bool, len(got))
	for _, l := range got {
		won[l.ID] = true
		if b.leads(session, &l) {
			continue // asked for by an image that was behind: what this leadership has heard of its followers they do not say again
		}
		s, err := b.beginEpoch(session, l)
		switch {
		case errors.Is(err, errNotServable):
			b.log.Error("partition stays offline", "partition", l.ID, "error", err)
		case errors.Is(err, errUnsettled):
			again = append(again, l.ID) // the key is ours: the next look begins the epoch
		case err != nil:
			return nil, err
		default:
			begun = append(begun, s)
		}
	}
	for _, s := range begun {
		if err := s.lead(b); err != nil {
			return nil, err
		}
	}
	failed := refusals(err)
	for _, id := range ids {
		if won[id] {
			continue
		}
		switch reason := failed[id]; {
		case errors.Is(reason, metadata.ErrNotEligible):
			b.log.Error("partition stays offline: this node does not hold an in-sync copy of it", "partition", id, "error", reason)
		case errors.Is(reason, metadata.ErrLeaderAlive), errors.Is(reason, metadata.ErrUnknownTopic), errors.Is(reason, metadata.ErrUnknownPartition):
		default:
			again = append(again, id)
		}
	}
	if err != nil && len(again) > 0 {
		b.log.Warn("takeover to be tried again", "partitions", len(again), "error", err)
	}
	return again, nil
}

// handed are the leaderships that the image tells all of: others gave them to this node, in epochs of which it has not begun any. The rest has
// to be taken, or looked at.
func (b *Broker) handed(img *metadata.Image, session *metadata.Session, ids []record.PartitionID) (got []metadata.Leadership, rest []record.PartitionID) {
	for _, id := range ids {
		p, err := b.Partition(id)
		if l, ok := img.Handed(session, id); ok && err == nil && l.Epoch > p.log.Meta().CurrentEpoch {
			got = append(got, l)
		} else {
			rest = append(rest, id)
		}
	}
	return got, rest
}

// repairToLead has the log made one that can lead. Whoever asks comes back for it.
func (b *Broker) repairToLead(p *Partition) {
	b.startRepair(p, record.NoEpoch, func(err error) {
		if err != nil {
			b.log.Warn("cannot take a partition over yet", "topic", p.name, "partition", p.id.Index, "error", err)
		}
	})
}

// lacksCommitted tells whether the log here ends below what the metadata proves to be committed (B2, B4): the disk lost records.
func (p *Partition) lacksCommitted(img *metadata.Image) bool {
	state, ok := img.Partition(p.id)
	return ok && len(state.ISR.Members) > 1 && p.log.AppendedEnd() < max(state.ISR.HWFloor, state.Head.TieredEnd, state.Head.LogStart)
}

// refusals takes a joined error apart by partition.
func refusals(err error) map[record.PartitionID]error {
	out := map[record.PartitionID]error{}
	var walk func(error)
	walk = func(err error) {
		var pe *metadata.PartitionError
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				walk(e)
			}
		} else if errors.As(err, &pe) {
			out[pe.ID] = pe.Err
		}
	}
	if err != nil {
		walk(err)
	}
	return out
}

// open returns this node's replica, opening its log if need be.
func (b *Broker) open(id record.PartitionID) (*Partition, error) {
	b.mu.RLock()
	p := b.mu.partitions[id]
	b.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	db, err := b.dbFor(id)
	if err != nil {
		return nil, err
	}
	topic := b.meta.Image().TopicByID(id.Topic)
	if topic == nil {
		return nil, fmt.Errorf("opening %s: %w", id, metadata.ErrUnknownTopic)
	}
	p = &Partition{id: id, name: topic.Name, broker: b, db: db, buildTimes: semaphore.NewWeighted(1)}
	if p.log, err = db.OpenLog(id, p); err != nil {
		return nil, fmt.Errorf("opening the hot log of %s: %w", id, err)
	}
	p.mu.config = topic.Config
	p.mu.end = p.log.AppendedEnd()
	p.mu.hw = p.log.Meta().HighWatermark
	b.mu.Lock()
	b.mu.partitions[id] = p
	b.mu.Unlock()
	return p, nil
}

// dbFor chooses the directory of a partition: the one that has it, else the one with the least data.
func (b *Broker) dbFor(id record.PartitionID) (*hotlog.DB, error) {
	if len(b.dbs) == 1 {
		return b.dbs[0], nil
	}
	best, least := b.dbs[0], int64(-1)
	for _, db := range b.dbs {
		known, err := db.Partitions()
		if err != nil {
			return nil, err
		}
		if slices.Contains(known, id) {
			return db, nil
		}
		if n := db.Metrics().LiveBytes; least < 0 || n < least {
			best, least = db, n
		}
	}
	return best, nil
}

// errNotServable: this node won the takeover but must not serve; the partition waits for an operator.
var errNotServable = errors.New("broker: the hot log here ends below what the metadata proves to be committed")

// errUnsettled: what this replica did as a follower is not through yet.
var errUnsettled = errors.New("broker: the log is still being changed")

// starting is an epoch whose entry is on its way to the disk.
type starting struct {
	p          *Partition
	leadership metadata.Leadership
	session    *metadata.Session
	start      record.Offset
	wait       func() error
}

// beginEpoch queues the epoch entry (protocols §2, new leader start 1–4). Many of them share one sync.
func (b *Broker) beginEpoch(session *metadata.Session, l metadata.Leadership) (*starting, error) {
	p, err := b.open(l.ID)
	if err != nil {
		return nil, err
	}
	p.endLeading(ErrNotLeader)
	b.stopFollowing(p)
	if p.unsettled() {
		return nil, errUnsettled
	}
	if p.predates(l.UncleanEpoch) && !p.reachesTier(&l.Head) {
		// Elected uncleanly with a log that does not continue what is in the bucket. That is not given up as well.
		p.AdoptHead(l.Head)
		b.repairToLead(p)
		return nil, errUnsettled
	}
	end := p.log.AppendedEnd()
	p.mu.Lock()
	queued := p.mu.end
	p.mu.Unlock()
	end = max(end, queued)
	committed := max(l.Head.TieredEnd, l.Head.LogStart, l.ISR.HWFloor)
	if end < committed {
		return nil, fmt.Errorf("%w: it ends at %d, %d is committed; the disk of node %d lost records", errNotServable, end, committed, b.cfg.Node.Node)
	}
	wait, err := p.log.BeginEpoch(l.Epoch, end)
	if errors.Is(err, hotlog.ErrEpoch) && p.log.Meta().CurrentEpoch == l.Epoch {
		// This process began the epoch before and gave it up; the leader key never changed, so nobody else led meanwhile.
		// Adopting it once more waits for what it had queued.
		wait, err = p.log.AdoptEpoch(l.Epoch)
	}
	if errors.Is(err, hotlog.ErrBusy) || errors.Is(err, hotlog.ErrNotContiguous) {
		return nil, errUnsettled
	}
	if err != nil {
		return nil, fmt.Errorf("beginning epoch %d of %s: %w", l.Epoch, l.ID, err)
	}
	return &starting{p: p, leadership: l, session: session, start: end, wait: wait}, nil
}

// lead waits for the epoch entry, loads the producers and serves (protocols §2, 3–6).
func (s *starting) lead(b *Broker) error {
	if err := s.wait(); err != nil {
		return fmt.Errorf("beginning epoch %d of %s: %w", s.leadership.Epoch, s.leadership.ID, err)
	}
	p, l := s.p, s.leadership
	producers, err := p.loadProducers()
	if err != nil {
		return err
	}
	durable := p.log.DurableEnd()
	logStart := l.Head.LogStart
	topic := b.meta.Image().TopicByID(l.ID.Topic)
	lead := &leadership{Leadership: l, session: s.session, producers: producers, guards: map[guardKey]*TxnGuard{}, committed: l.ISR, began: time.Now(), followers: map[record.NodeID]*follower{}}
	p.mu.Lock()
	known := max(p.mu.hw, p.log.Meta().HighWatermark, l.Head.TieredEnd, logStart)
	if topic != nil {
		p.mu.config, p.mu.replicas = topic.Config, topic.Partitions[l.ID.Index]
		lead.assignedBy(topic.Rev, p.mu.replicas)
	}
	replicas := max(1, len(p.mu.replicas))
	lead.replicas = replicas
	lead.isr = isr.New(isr.Start{
		Self: b.cfg.Node.Node, Replicas: replicas, MinISR: p.mu.config.MinInSyncReplicas, Members: members(l.ISR.Members), ELR: elr(l.ISR.ELR),
		HW: min(known, durable), EpochStart: s.start, DurableEnd: durable,
	})
	p.mu.lead, p.mu.end, p.mu.hw, p.mu.logStart, p.mu.head = lead, s.start, lead.isr.HighWatermark(), logStart, l.Head
	p.mu.epochs = record.MergeEpochs(l.Head.EpochChain, p.log.Epochs())
	p.mu.unsealed = p.log.BytesFrom(max(l.Head.TieredEnd, p.log.Start()))
	hw := p.mu.hw
	producers.committed(hw)
	b.producers.Add(int64(len(producers.byID)))
	p.mu.Unlock() // from here on appends and syncs change what the leadership holds
	b.metrics.takeovers.Inc()
	b.late.forget(p.id)
	b.roles.ring()
	p.archiveIfKnown()
	p.notify()
	if p.wantsISRChange() {
		b.isrWork.add(p.id)
	}
	if p.wantsToMove() {
		b.moveWork.add(p.id)
	}
	b.log.Debug("leading", "topic", p.name, "partition", l.ID, "epoch", l.Epoch, "start", s.start, "hw", hw)
	return nil
}

func members(in []metadata.ISRMember) []isr.Member {
	out := make([]isr.Member, len(in))
	for i, m := range in {
		out[i] = isr.Member{Node: m.Node, Store: m.StoreID}
	}
	return out
}

func elr(in []metadata.ELRMember) []isr.Member {
	out := make([]isr.Member, len(in))
	for i, m := range in {
		out[i] = isr.Member{Node: m.Node, Store: m.StoreID}
	}
	return out
}

// leads tells whether this process serves under that leadership already.
func (b *Broker) leads(s *metadata.Session, l *metadata.Leadership) bool {
	p, err := b.Partition(l.ID)
	return err == nil && p.leadsFor(s, l.Epoch)
}

// leadsFor tells whether this process leads under that registration, in that epoch or a later one.
func (p *Partition) leadsFor(s *metadata.Session, e record.Epoch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.lead != nil && p.mu.lead.session == s && p.mu.lead.Epoch >= e
}

// apply takes over what an image says about the partition.
func (p *Partition) apply(topic *metadata.Topic, state metadata.PartitionState) {
	c := topic.Config
	p.mu.Lock()
	policy := p.mu.config != c
	p.mu.config = c
	before := p.mu.replicas
	p.mu.replicas = topic.Partitions[p.id.Index]
	assigned := int64(topic.Rev)
	if p.broker.isMember(&state.ISR) {
		assigned = 0
	}
	p.assigned.Store(assigned)
	var archive *tiering.Handle
	var chain *Pending
	moved, fenced, evict := false, false, false
	if lead := p.mu.lead; lead != nil {
		lead.replicas = max(1, len(p.mu.replicas))
		if !slices.Equal(before, p.mu.replicas) {
			lead.assignedBy(topic.Rev, p.mu.replicas)
		}
		if fenced = state.Leader.Epoch > lead.Epoch; !fenced {
			lowered := lead.isr.SetMinISR(c.MinInSyncReplicas)
			if grown := lead.isr.SetReplicas(lead.replicas); grown || lowered {
				moved, chain = true, p.advanceLocked(lead)
			}
		}
		if !fenced && state.Leader.Epoch == lead.Epoch {
			moved = p.adoptHeadLocked(state.Head) || moved
		}
		archive = lead.archive
	} else {
		evict = state.Head.TieredEnd > p.mu.head.TieredEnd || state.Head.LogStart > p.mu.head.LogStart
		moved = p.adoptHeadLocked(state.Head)
	}
	p.mu.Unlock()
	if moved {
		p.notify()
	}
	decideAll(chain, nil)
	switch {
	case fenced:
		p.endLeading(ErrNotLeader)
	case policy && archive != nil:
		archive.Kick()
	case evict:
		p.broker.evictWork.add(p.id)
	}
	if p.wantsISRChange() {
		p.broker.isrWork.add(p.id)
	}
	if p.wantsToMove() {
		p.broker.moveWork.add(p.id)
	}
}

// assignedBy notes by which revision of the topic replicas are assigned that are not in sync, and forgets what they held before that: one
// that had been taken away meanwhile has removed it. What a member of the in-sync set holds nobody removes.
func (l *leadership) assignedBy(rev metadata.Revision, replicas []record.NodeID) {
	for _, n := range replicas {
		if _, member := l.committed.Member(n); member {
			continue
		}
		if l.assigned == nil {
			l.assigned = map[record.NodeID]metadata.Revision{}
		}
		l.assigned[n] = rev
		if f := l.followers[n]; f != nil && f.Assigns && f.assigned < rev {
			delete(l.followers, n)
		}
	}
}

// endLeading ends the leadership, if any: what waits gets err, and an append that is on its way stays of unknown outcome.
func (p *Partition) endLeading(err error) { p.endLeadership(nil, err) }

// endLeadership is endLeading for one leadership: a later one that is in force by now does not end. Nil: any.
func (p *Partition) endLeadership(only *leadership, err error) {
	p.mu.Lock()
	lead := p.mu.lead
	if lead == nil || only != nil && only != lead {
		p.mu.Unlock()
		return
	}
	p.mu.lead = nil
	ones, alls, held := lead.acksOne.takeAll(), lead.acksAll.takeAll(), lead.held.takeAll()
	lead.tell()
	archive := lead.archive
	p.mu.Unlock()
	p.broker.producers.Add(-int64(len(lead.producers.byID)))
	decideAll(held, err)
	decideAll(ones, err)
	decideAll(alls, err)
	p.notify()
	p.broker.roles.ring()
	if archive != nil {
		archive.Close()
	}
}

// retire gives up a partition that is not assigned to this node any more, nor counts on it.
func (b *Broker) retire(ctx context.Context, id record.PartitionID) error {
	b.mu.RLock()
	p := b.mu.partitions[id]
	b.mu.RUnlock()
	if p == nil {
		return nil
	}
	if needed, err := b.needed(ctx, id); err != nil || needed {
		return err
	}
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.endLeading(ErrUnknownPartition)
	b.stopFollowing(p)
	p.notify()
	// It stays listed until its log is gone: what is not listed would not be tried again.
	if err := p.db.Drop(id); err != nil && !errors.Is(err, hotlog.ErrClosed) {
		return fmt.Errorf("removing the hot log of %s: %w", id, err)
	}
	b.mu.Lock()
	delete(b.mu.partitions, id)
	b.mu.Unlock()
	b.late.forget(id)
	b.log.Info("partition removed", "topic", p.name, "partition", id)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
