// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
	"github.com/varve/varve/tiering/segment"
)

// following is the scope of following one leader in one epoch (B5). Its fields are the fetcher's own; that it is in force is
// guarded by Partition.mu.
type following struct {
	leader    record.NodeID
	epoch     record.Epoch
	unclean   record.Epoch // of the partition's last unclean election, 0 for none
	fetcher   *fetcher
	producers *producers
	told      record.Offset // the high watermark that the leader said last; Partition.mu
	heard     bool          // the leader has answered; Partition.mu
}

// lag is how many records a follower whose log ends at end lacks up to the high watermark that it was told last.
func (f *following) lag(end record.Offset) int64 { return max(0, int64(f.told-end)) }

// errStaleRole: the role in which something was begun has ended.
var errStaleRole = errors.New("broker: the replica has another role now")

// adopt makes the epoch that is to be followed durable: from here on nothing of an earlier leader is taken (protocols §2). wait is nil
// when it is already.
func (p *Partition) adopt(e record.Epoch) (wait func() error, err error) {
	if known := p.log.Meta().CurrentEpoch; known > e {
		return nil, fmt.Errorf("%w: epoch %d of %s is older than %d, which this node has followed or led", errStaleRole, e, p.id, known)
	}
	// Whom it followed until now must append and truncate nothing behind the adoption, whose sync covers what that one queued.
	p.endFollowing()
	return p.log.AdoptEpoch(e)
}

// needsRepair tells whether the hot log cannot follow as it is: it ends below what is in the bucket or deleted, or a truncation took
// producer entries away.
func (p *Partition) needsRepair() bool {
	p.mu.Lock()
	start := max(p.mu.head.TieredEnd, p.mu.head.LogStart)
	p.mu.Unlock()
	return p.log.AppendedEnd() < start || p.log.Meta().ProducersStale
}

func (p *Partition) isRepairing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.repairing
}

// startRepair has the hot log made one that can follow or lead, beside everything else: that reads the bucket, and may take as long as
// the bucket does not answer. While it is under way the replica has no role and gets none. false: one is under way already.
func (b *Broker) startRepair(p *Partition, e record.Epoch, done func(error)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.repairing || p.mu.lead != nil || p.mu.follow != nil || p.mu.closed {
		return false
	}
	p.mu.repairing = true
	b.start(func(ctx context.Context) error {
		err := b.repairs.Acquire(ctx, 1)
		if err == nil {
			err = p.repair(ctx, e)
			b.repairs.Release(1)
		}
		p.mu.Lock()
		p.mu.repairing = false
		p.mu.Unlock()
		done(err)
		return nil
	})
	return true
}

func (p *Partition) repair(ctx context.Context, e record.Epoch) error {
	if err := p.startAtTier(ctx, e); err != nil {
		return err
	}
	if p.log.Meta().ProducersStale {
		return p.rebuildProducers(ctx)
	}
	return nil
}

// beginFollowing begins the role. The producers are what the records say.
func (p *Partition) beginFollowing(f *following) error {
	producers, err := p.loadProducers()
	if err != nil {
		return err
	}
	f.producers = producers
	p.mu.Lock()
	defer p.mu.Unlock()
	head := p.mu.head
	if p.mu.closed || p.mu.repairing || p.mu.lead != nil || p.log.DurableEnd() < p.log.AppendedEnd() || p.log.Meta().CurrentEpoch != f.epoch || p.log.AppendedEnd() < max(head.TieredEnd, head.LogStart) {
		return errStaleRole
	}
	p.mu.follow, p.mu.end = f, p.log.AppendedEnd()
	// Not the tiered end: what lies below it here has not been compared with the leader's yet, and need not be what was committed.
	p.mu.hw = min(max(p.mu.hw, p.log.Meta().HighWatermark, head.LogStart), p.mu.end)
	producers.committed(p.mu.hw)
	p.mu.logStart = max(p.mu.logStart, head.LogStart)
	p.mu.epochs = record.MergeEpochs(head.EpochChain, p.log.Epochs())
	return nil
}

// startAtTier replaces what is here by an empty log that begins where the bucket ends (W2): a replica copies only the hot tail.
func (p *Partition) startAtTier(ctx context.Context, e record.Epoch) error {
	p.mu.Lock()
	head := p.mu.head
	p.mu.Unlock()
	if p.reachesTier(&head) {
		return nil
	}
	v, err := tiering.LoadView(ctx, p.broker.tier.Meta, p.id)
	if err != nil {
		return fmt.Errorf("%w: manifest of %s: %w", ErrStorage, p.id, err)
	}
	start := max(v.Head.TieredEnd, v.Head.LogStart)
	producers, err := p.tierProducers(ctx, v)
	if err != nil {
		return err
	}
	var entries []hotlog.Producer
	for _, s := range producers {
		entries = append(entries, hotlog.Producer{ID: s.ID, State: s.State})
	}
	old := p.log.AppendedEnd()
	if err := p.log.Reset(start, v.Head.EpochChain, entries); err != nil {
		return fmt.Errorf("starting %s at %d: %w", p.id, start, err)
	}
	p.mu.Lock()
	p.mu.end = p.log.AppendedEnd()
	p.mu.hw = min(p.mu.hw, p.mu.end)
	p.mu.Unlock()
	p.AdoptHead(v.Head)
	p.forgetTimes()
	p.broker.log.Info("replica starts at the end of the bucket", "topic", p.name, "partition", p.id.Index, "epoch", e, "had", old, "start", start)
	return nil
}

// reachesTier tells whether the log here continues what is in the bucket: it reaches the end of that, and the last offset below that end is
// of the same epoch in both, and so the same log (S12). That is known also where the hot log begins at that end: it may have been trimmed to it
// though it held other records there, which an unclean election gave up.
func (p *Partition) reachesTier(h *metadata.Head) bool {
	end := max(h.TieredEnd, h.LogStart)
	if p.log.AppendedEnd() < end {
		return false
	}
	epochs := p.log.Epochs()
	here, there := record.EpochAt(epochs, end-1), record.EpochAt(h.EpochChain, end-1)
	if here == record.NoEpoch && len(epochs) > 0 {
		return epochs[0].Epoch >= there // it begins here
	}
	return here == there || here == record.NoEpoch || there == record.NoEpoch
}

// predates tells whether all records here are from before an unclean election: what of them the one elected then does not have is lost.
func (p *Partition) predates(unclean record.Epoch) bool {
	return unclean > 0 && p.lastEpoch() < unclean
}

// tierProducers are the producers as of the end of the bucket.
func (p *Partition) tierProducers(ctx context.Context, v *tiering.View) ([]segment.Producer, error) {
	if v.Head.TieredEnd == 0 || v.Head.LogStart >= v.Head.TieredEnd {
		return nil, nil // nothing is there that a snapshot could be of
	}
	stored, err := p.broker.tier.Reader.Producers(ctx, v)
	if err != nil {
		return nil, fmt.Errorf("%w: producers of %s at %d: %w", ErrStorage, p.id, v.Head.TieredEnd, err)
	}
	for _, s := range stored {
		if _, err := decodeProducer(s.State); err != nil {
			return nil, fmt.Errorf("%w: producers of %s at %d: %w", ErrStorage, p.id, v.Head.TieredEnd, err)
		}
	}
	return stored, nil
}

// rebuildProducers makes the producer entries anew after a truncation took some of them away: those of the newest segment, and then
// what the records above it say.
func (p *Partition) rebuildProducers(ctx context.Context) error {
	v, err := tiering.LoadView(ctx, p.broker.tier.Meta, p.id)
	if err != nil {
		return fmt.Errorf("%w: manifest of %s: %w", ErrStorage, p.id, err)
	}
	from := p.log.Start()
	known := newProducers(from)
	if v.Head.TieredEnd > p.log.AppendedEnd() {
		// The bucket has grown past this log since the repair began. What a scan alone says lacks the transactions that were open below.
		p.AdoptHead(v.Head)
		return fmt.Errorf("%w: the bucket reaches to %d, %s ends at %d", errStaleRole, v.Head.TieredEnd, p.id, p.log.AppendedEnd())
	}
	stored, err := p.tierProducers(ctx, v)
	if err != nil {
		return err
	}
	for _, s := range stored {
		if err := known.load(s.ID, s.State); err != nil {
			return err // cannot be: checked
		}
	}
	from = max(from, v.Head.TieredEnd)
	// What was aborted below is still known here: a truncation takes away what lies above.
	err = p.log.Producers(func(key int64, state []byte) error {
		if key < abortKey || record.Offset(key&^abortKey) >= from {
			return nil
		}
		return known.load(key, state)
	})
	if err != nil {
		return fmt.Errorf("loading the producers of %s: %w", p.id, err)
	}
	known.settle()
	now := time.Now().UnixMilli()
	err = p.log.Scan(from, p.log.AppendedEnd(), func(b record.Batch) error {
		if b.BaseOffset() >= from {
			c := known.change(b, appendTime(b), now)
			known.remember(&c)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("rebuilding the producers of %s: %w", p.id, err)
	}
	return p.log.ReplaceProducers(known.stored())
}

// appendTime is the log append time of a batch as a producer's entry keeps it.
func appendTime(b record.Batch) int64 {
	if b.IsLogAppendTime() {
		return b.MaxTimestamp()
	}
	return -1
}

func (p *Partition) loadProducers() (*producers, error) {
	known := newProducers(p.log.Start())
	if err := p.log.Producers(known.load); err != nil {
		return nil, fmt.Errorf("loading the producers of %s: %w", p.id, err)
	}
	known.settle()
	return known, nil
}

// startInside lets an empty log begin where the first batch does: a log start may lie inside a batch, of which the leader has the whole.
func (p *Partition) startInside(f *following, data []byte) error {
	b, _, err := record.Split(data)
	at := p.log.AppendedEnd()
	if err != nil || p.log.Start() != at || b.BaseOffset() >= at || b.NextOffset() <= at {
		return nil // appendCopies tells what is wrong
	}
	p.mu.Lock()
	if p.mu.follow != f {
		p.mu.Unlock()
		return errStaleRole
	}
	p.mu.cutting = true
	defer p.endCut()
	producers := f.producers.stored()
	p.mu.Unlock()
	if err := p.log.Reset(b.BaseOffset(), p.log.Epochs(), producers); err != nil {
		return fmt.Errorf("starting %s at %d: %w", p.id, b.BaseOffset(), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.end = p.log.AppendedEnd()
	p.mu.hw = min(p.mu.hw, p.mu.end)
	f.producers.aborted.floor = min(f.producers.aborted.floor, b.BaseOffset())
	if p.mu.follow != f {
		return errStaleRole
	}
	return nil
}

// forgetEmptyEpochs takes the entries of epochs away that this replica began as the leader and wrote nothing in, when the log goes on in an
// earlier one: one who holds records of that, and was not heard of meanwhile, leads again. They would refuse these records.
func (p *Partition) forgetEmptyEpochs(f *following, data []byte) error {
	epochs, at := p.log.Epochs(), p.log.AppendedEnd()
	n := len(epochs)
	if n == 0 || epochs[n-1].Start < at {
		return nil
	}
	b, rest, err := record.Split(data)
	for err == nil && b.NextOffset() <= at && len(rest) > 0 {
		b, rest, err = record.Split(rest)
	}
	if err != nil || b.LeaderEpoch() >= epochs[n-1].Epoch {
		return nil // appendCopies tells what is wrong
	}
	p.mu.Lock()
	if p.mu.follow != f || p.mu.end != at {
		p.mu.Unlock()
		return errStaleRole
	}
	p.mu.cutting = true
	defer p.endCut()
	p.mu.Unlock()
	if err := p.log.Truncate(at); err != nil {
		return fmt.Errorf("forgetting the empty epochs of %s: %w", p.id, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.follow != f {
		return errStaleRole
	}
	p.mu.epochs = record.MergeEpochs(p.mu.head.EpochChain, p.log.Epochs())
	return nil
}

// appendCopies appends batches as the leader has them and returns the end of what it queued. They must stay untouched until that is
// durable.
func (p *Partition) appendCopies(f *following, data []byte) (end record.Offset, err error) {
	for rest := data; len(rest) > 0; {
		var b record.Batch
		if b, rest, err = record.Split(rest); err != nil {
			return p.log.AppendedEnd(), fmt.Errorf("%w: a batch of %s from node %d: %w", ErrStorage, p.id, f.leader, err)
		}
		if !b.CRCValid() {
			return p.log.AppendedEnd(), fmt.Errorf("%w: the batch of %s at %d from node %d fails its checksum", ErrStorage, p.id, b.BaseOffset(), f.leader)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.follow != f {
		return p.mu.end, errStaleRole
	}
	copied := 0
	defer func() { p.broker.metrics.copied.Add(float64(copied)) }()
	for rest := data; len(rest) > 0; {
		var b record.Batch
		b, rest, _ = record.Split(rest) // split above
		if b.NextOffset() <= p.mu.end {
			continue // a cold or an old answer may begin earlier
		}
		if err := p.copyLocked(f, b); err != nil {
			return p.mu.end, err
		}
		copied += len(b)
	}
	return p.mu.end, nil
}

func (p *Partition) copyLocked(f *following, b record.Batch) error {
	c := f.producers.change(b, appendTime(b), time.Now().UnixMilli())
	key, state := c.encode(f.fetcher.scratch[:0])
	if err := p.log.Append(b, key, state); err != nil {
		return appendError(p.id, err)
	}
	f.producers.remember(&c)
	if x := p.mu.times; x != nil {
		x.add(b)
	} else if x := p.mu.timesTail; x != nil {
		x.add(b)
	}
	p.mu.end = b.NextOffset()
	return nil
}

// learn takes over what the leader's answer says beside the records: its high watermark, as far as we have the records, and its log
// start.
func (p *Partition) learn(f *following, hw, logStart record.Offset) {
	p.mu.Lock()
	if p.mu.follow != f {
		p.mu.Unlock()
		return
	}
	f.told = hw
	first := !f.heard
	f.heard = true
	moved, evict := false, false
	if to := min(hw, p.log.AppendedEnd()); to > p.mu.hw {
		evict = p.mu.hw < p.mu.head.TieredEnd // so far it kept the hot log from being trimmed
		p.mu.hw, moved = to, true
		p.log.SetHighWatermark(to)
		f.producers.committed(to)
	}
	if logStart > p.mu.logStart {
		p.mu.logStart, moved = logStart, true
	}
	p.mu.Unlock()
	if first {
		p.broker.heard.ring()
	}
	if moved {
		p.notify()
	}
	if evict {
		p.broker.evictWork.add(p.id)
	}
}

// truncateTo removes what the leader does not have: it told where its log and ours part, by epoch (A4–A7).
func (p *Partition) truncateTo(f *following, d EpochEnd) error {
	p.mu.Lock()
	if p.mu.follow != f {
		p.mu.Unlock()
		return errStaleRole
	}
	to := partingPoint(p.log.Epochs(), p.mu.end, d)
	// What this replica knows to be committed in its own log. The tiered end and the log start are about the leaders' log: with them
	// passing an uncommitted tail of ours, that tail could never go.
	floor := p.log.Meta().HighWatermark
	if p.predates(f.unclean) {
		floor = 0 // it was committed, and the unclean election gave it up
	}
	was := p.mu.end
	p.mu.cutting = true
	defer p.endCut()
	p.mu.Unlock()
	if to < floor {
		// All of that is committed, so no leader can differ there: one of the two disks does not hold what it should.
		return fmt.Errorf("%w: %s parts from its leader, node %d, at %d, below %d, where everything is committed", ErrStorage, p.id, f.leader, to, floor)
	}
	anew := to < p.log.Start() && p.predates(f.unclean)
	switch {
	case anew:
		// It was trimmed by what a leader of the other log has moved to the bucket. Nothing here is of that log, and where this one ends now that
		// is in the bucket: the repair that follows begins there.
		epochs := p.log.Epochs()
		n, _ := slices.BinarySearchFunc(epochs, to, func(e record.EpochStart, at record.Offset) int { return cmp.Compare(e.Start, at) })
		if err := p.log.Reset(to, epochs[:n], nil); err != nil {
			return fmt.Errorf("truncating %s to %d: %w", p.id, to, err)
		}
	case to >= was || p.log.Start() >= was:
		return fmt.Errorf("%w: %s parts from its leader, node %d, at %d, where this log begins or ends", ErrStorage, p.id, f.leader, to)
	default:
		if err := p.log.Truncate(max(to, p.log.Start())); err != nil {
			return fmt.Errorf("truncating %s to %d: %w", p.id, to, err)
		}
	}
	p.forgetTimes()
	if end := p.log.AppendedEnd(); p.log.Meta().HighWatermark > end {
		p.log.SetHighWatermark(end)
	}
	producers, err := p.loadProducers()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.end = p.log.AppendedEnd()
	if p.mu.follow != f {
		return errStaleRole
	}
	f.producers = producers
	p.mu.hw = min(p.mu.hw, p.mu.end) // it may have been a log start above what was known to be committed
	producers.committed(p.mu.hw)
	p.mu.epochs = record.MergeEpochs(p.mu.head.EpochChain, p.log.Epochs())
	if p.log.Meta().ProducersStale || anew {
		p.mu.follow = nil // it begins anew once it is repaired
	}
	p.broker.log.Info("replica truncated", "topic", p.name, "partition", p.id.Index, "epoch", f.epoch, "leader", f.leader, "from", was, "to", p.mu.end)
	return nil
}

// endCut ends a time in which the log may be cut, when nobody may begin to lead it.
func (p *Partition) endCut() {
	p.mu.Lock()
	p.mu.cutting = false
	p.mu.Unlock()
}

// unsettled tells whether the log here may change by itself, or has to be repaired, before anybody leads it.
func (p *Partition) unsettled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.cutting || p.mu.repairing || p.log.Meta().ProducersStale
}

// partingPoint is where a log with these epochs and this end has to be cut when the leader says that its largest epoch not above ours
// ends there.
func partingPoint(epochs []record.EpochStart, end record.Offset, d EpochEnd) record.Offset {
	ours := record.Offset(0)
	at := slices.IndexFunc(epochs, func(e record.EpochStart) bool { return e.Epoch > d.Epoch })
	switch {
	case at < 0:
		ours = end
	default:
		ours = epochs[at].Start
	}
	return min(d.End, ours)
}

// endFollowing ends the role, if it is one of following. What was queued stays queued.
func (p *Partition) endFollowing() {
	p.mu.Lock()
	f := p.mu.follow
	p.mu.follow = nil
	p.mu.Unlock()
	if f != nil {
		f.fetcher.signal()
		p.notify()
	}
}

// forgetTimes drops the time index: the log was cut or replaced, and it is built anew when somebody asks.
func (p *Partition) forgetTimes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.times, p.mu.timesTail = nil, nil
	p.mu.timesCut++
}

// lastEpoch is the epoch of the last batch here, or of the records below where this log begins.
func (p *Partition) lastEpoch() record.Epoch {
	end := p.log.AppendedEnd()
	epochs := p.log.Epochs()
	for i := len(epochs) - 1; i >= 0; i-- {
		if epochs[i].Start < end {
			return epochs[i].Epoch
		}
	}
	return record.NoEpoch
}
