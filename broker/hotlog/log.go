// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/varve/varve/record"
)

// Log is the hot tail of one partition. Its changes (Append, BeginEpoch, Truncate, …) belong to one owner, who serialises
// them; its readers may be many. It has no goroutine, timer or buffer of its own.
type Log struct {
	db     *DB
	id     record.PartitionID
	prefix prefix
	obs    Observer

	// What readers look at. The committer writes all but durableEnd, which is the syncer's, and highWatermark, the owner's.
	start, kept, appendedEnd, durableEnd atomic.Int64
	startPosition, endPosition           atomic.Int64
	highWatermark                        atomic.Int64
	currentEpoch                         atomic.Int32
	producersStale, dropped              atomic.Bool
	epochs                               atomic.Pointer[[]record.EpochStart]
	// generation is odd while a truncate or reset is being applied, and differs after it.
	generation atomic.Uint64
	recent     recent
	// sized is the last answer of BytesFrom that needed a look-up.
	sized atomic.Pointer[sizedAt]

	// q is the queue's part; DB.mu guards it.
	q struct {
		nextLog    *Log
		head, tail *op
		inCommit   uint64
		structural int
		opening    bool
		dropped    bool
		end        record.Offset // where the next append begins
		epoch      record.Epoch  // of the last queued batch or epoch entry
	}
	// w is the committer's own view: what the log holds once everything encoded so far is applied.
	w struct {
		meta      stored
		end       record.Offset
		position  int64
		hwAt      time.Time
		counted   int64 // this log's part of DB.stats.live
		touchedIn uint64
		touchedAt int
		extents   []extent // fileSet.mu guards it: the reclaimer looks at it
		loaded    bool     // what Pebble holds has been read
	}
}

type sizedAt struct {
	generation uint64
	offset     record.Offset
	position   int64
}

// ID names the partition.
func (l *Log) ID() record.PartitionID { return l.id }

// Start is the local start: the first offset that may be read here.
func (l *Log) Start() record.Offset { return record.Offset(l.start.Load()) }

// AppendedEnd is the end of what is written and can be read.
func (l *Log) AppendedEnd() record.Offset { return record.Offset(l.appendedEnd.Load()) }

// DurableEnd is the end of what survives a crash.
func (l *Log) DurableEnd() record.Offset {
	return record.Offset(min(l.durableEnd.Load(), l.appendedEnd.Load()))
}

// Bytes is the size of the batches from Start to the end, those queued last included.
func (l *Log) Bytes() int64 { return max(0, l.endPosition.Load()-l.startPosition.Load()) }

// BytesFrom is the size of the batches that end above o. It keeps its last look-up, so asking for the same offset again, as for
// the end of what is sealed, costs nothing.
func (l *Log) BytesFrom(o record.Offset) int64 {
	if o <= l.Start() {
		return l.Bytes()
	}
	if o >= l.AppendedEnd() {
		return 0
	}
	generation := l.generation.Load()
	at := l.sized.Load()
	if at == nil || at.offset != o || at.generation != generation {
		k, size, found, err := l.lookUp(o)
		if err != nil || !found {
			return l.Bytes() // an upper bound; whoever reads there next gets the error
		}
		at = &sizedAt{generation, o, k.position}
		if k.next() <= o {
			at.position += size
		}
		l.sized.Store(at)
	}
	return max(0, l.endPosition.Load()-at.position)
}

// Epochs is the leader-epoch table, ascending. The slice is not to be changed.
func (l *Log) Epochs() []record.EpochStart {
	if p := l.epochs.Load(); p != nil {
		return *p
	}
	return nil
}

func (l *Log) setEpochs(e []record.EpochStart) { l.epochs.Store(&e) }

func (l *Log) lastEpoch() record.Epoch {
	if e := l.Epochs(); len(e) > 0 {
		return e[len(e)-1].Epoch
	}
	return record.NoEpoch
}

// Meta is the small state beside the records, as last applied; the high watermark as last set.
func (l *Log) Meta() Meta {
	return Meta{
		HighWatermark:  record.Offset(l.highWatermark.Load()),
		CurrentEpoch:   record.Epoch(l.currentEpoch.Load()),
		ProducersStale: l.producersStale.Load(),
	}
}

// SetHighWatermark keeps a checkpoint of the high watermark. It is stored beside a later batch, or at Close, without a sync of its own.
func (l *Log) SetHighWatermark(hw record.Offset) { l.highWatermark.Store(int64(hw)) }

// count brings the DB's sum of live bytes up to date.
func (l *Log) count() {
	live := l.w.position - l.w.meta.startPosition
	l.db.stats.live.Add(live - l.w.counted)
	l.w.counted = live
}

// publish makes the committer's view of start and end the readers'.
func (l *Log) publish() {
	l.startPosition.Store(l.w.meta.startPosition)
	l.endPosition.Store(l.w.position)
	l.kept.Store(int64(l.w.meta.kept))
	l.count()
	// Readers take start and end apart: while both move, start must never pass end.
	if l.w.meta.start <= record.Offset(l.start.Load()) {
		l.start.Store(int64(l.w.meta.start))
		l.appendedEnd.Store(int64(l.w.end))
		return
	}
	l.appendedEnd.Store(int64(l.w.end))
	l.start.Store(int64(l.w.meta.start))
}

// Append queues a stamped batch behind everything queued before, together with the entry of its producer (state may be nil).
// b must stay untouched until Observer.Durable covers it; state is copied. A batch of a newer leader epoch writes its epoch
// entry. On an error nothing is queued: ErrDiskFull, ErrQueueFull, ErrClosed, ErrBusy, ErrNotContiguous, ErrEpoch.
func (l *Log) Append(b record.Batch, pid int64, state []byte) error {
	d := l.db
	if d.disk.full.Load() {
		d.recheckDisk()
		return ErrDiskFull
	}
	size := len(b) + len(state) + opOverhead
	base, epoch := b.BaseOffset(), b.LeaderEpoch()
	d.mu.Lock()
	if err := d.admitLocked(l, size); err != nil {
		d.mu.Unlock()
		return err
	}
	if base != l.q.end || b.LastOffsetDelta() < 0 {
		end := l.q.end
		d.mu.Unlock()
		return fmt.Errorf("batch at %d of %v, end %d: %w", base, l.id, end, ErrNotContiguous)
	}
	if epoch < l.q.epoch {
		last := l.q.epoch
		d.mu.Unlock()
		return fmt.Errorf("batch of epoch %d after epoch %d of %v: %w", epoch, last, l.id, ErrEpoch)
	}
	o := d.newOpLocked(l, opAppend, size)
	o.batch, o.pid, o.state = b, pid, append(o.state, state...)
	o.newEpoch = epoch > l.q.epoch
	l.q.end, l.q.epoch = b.NextOffset(), epoch
	wake := d.enqueueLocked(o)
	d.mu.Unlock()
	if wake {
		d.wakeCommitter()
	}
	return nil
}

// admitLocked tells why a change of the log's content may not be queued now.
func (d *DB) admitLocked(l *Log, size int) error {
	switch {
	case d.mu.closing || d.mu.failed || l.q.dropped:
		return ErrClosed
	case l.q.structural > 0:
		return ErrBusy
	case size > 0 && d.mu.queuedOps > 0 && (d.mu.queuedOps >= maxQueuedOps || d.mu.queuedBytes+int64(size) > maxQueuedBytes):
		return ErrQueueFull
	}
	return nil
}

// change queues a change that is not an append. check runs under DB.mu, may be nil, and may refuse.
func (l *Log) change(kind opKind, r *opRest, check func() error) error {
	d := l.db
	r.done = make(chan struct{})
	d.mu.Lock()
	err := d.admitLocked(l, 0)
	if err == nil && check != nil {
		err = check()
	}
	if err != nil {
		d.mu.Unlock()
		return err
	}
	o := d.newOpLocked(l, kind, opOverhead)
	for _, p := range r.producers {
		o.size += len(p.State) + opOverhead
	}
	o.size += len(r.data) + len(r.moves)*opOverhead
	o.rest = r
	if kind.structural() {
		l.q.structural++
	}
	wake := d.enqueueLocked(o)
	d.mu.Unlock()
	if wake {
		d.wakeCommitter()
	}
	return nil
}

// wait blocks until the change is durable or refused.
func (r *opRest) wait() error {
	<-r.done
	return r.err
}

// BeginEpoch queues a leader-epoch entry that starts at the end of the log, and the adoption of that epoch. wait returns when
// they are durable; calls for many logs share a sync when all are queued before the first wait.
func (l *Log) BeginEpoch(e record.Epoch, start record.Offset) (wait func() error, err error) {
	r := &opRest{epoch: e, offset: start}
	err = l.change(opEpoch, r, func() error {
		if start != l.q.end {
			return fmt.Errorf("epoch %d of %v begins at %d, end %d: %w", e, l.id, start, l.q.end, ErrNotContiguous)
		}
		if e <= l.q.epoch {
			return fmt.Errorf("epoch %d of %v after %d: %w", e, l.id, l.q.epoch, ErrEpoch)
		}
		l.q.epoch = e
		return nil
	})
	return r.wait, err
}

// AdoptEpoch queues the adoption of a leader epoch that another node leads; a lower one than before changes nothing.
func (l *Log) AdoptEpoch(e record.Epoch) (wait func() error, err error) {
	r := &opRest{epoch: e}
	return r.wait, l.change(opAdopt, r, nil)
}

// DropProducers queues the removal of producer entries and does not wait.
func (l *Log) DropProducers(pids []int64) error {
	return l.change(opDropProducers, &opRest{pids: slices.Clone(pids)}, nil)
}

// ReplaceProducers makes these the log's only producer entries and clears Meta.ProducersStale, durably. It keeps the states until it returns.
func (l *Log) ReplaceProducers(producers []Producer) error {
	r := &opRest{producers: producers}
	if err := l.change(opReplaceProducers, r, nil); err != nil {
		return err
	}
	return r.wait()
}

// Truncate removes, durably and atomically, every batch that ends above to, the epoch entries that start at or above the new end,
// and the producer entries written beyond it (Meta.ProducersStale then tells that the owner has to rebuild). AppendedEnd is the
// new end: lower than to when to lay inside a batch. All callbacks for what was appended before come before it returns.
func (l *Log) Truncate(to record.Offset) error {
	r := &opRest{offset: to}
	if err := l.change(opTruncate, r, nil); err != nil {
		return err
	}
	return r.wait()
}

// Reset replaces, durably and atomically, everything the log holds by an empty log that starts at start with these epoch and
// producer entries, as a replica does that begins at the tiered end. The adopted epoch is kept.
func (l *Log) Reset(start record.Offset, epochs []record.EpochStart, producers []Producer) error {
	r := &opRest{offset: start, epochs: slices.Clone(epochs), producers: producers}
	if start < 0 {
		return fmt.Errorf("reset %v to %d: %w", l.id, start, ErrOutOfRange)
	}
	if err := l.change(opReset, r, nil); err != nil {
		return err
	}
	return r.wait()
}

// Trim moves the start up, durably, and gives the space below it back. The batch that holds the new start stays.
func (l *Log) Trim(to record.Offset) error {
	for {
		generation := l.generation.Load()
		if to <= l.Start() {
			return nil
		}
		if end := l.AppendedEnd(); to > end {
			return fmt.Errorf("trim %v to %d, end %d: %w", l.id, to, end, ErrOutOfRange)
		}
		k, size, found, err := l.lookUp(to)
		if err != nil {
			return fmt.Errorf("trim %v to %d: %w", l.id, to, err)
		}
		if !found || k.next() < to {
			if generation != l.generation.Load() {
				continue
			}
			return fmt.Errorf("trim %v to %d: %w: no batch holds it", l.id, to, ErrCorrupt)
		}
		if k.next() == to {
			k = dataKey{base: to, position: k.position + size}
		}
		r := &opRest{offset: to, at: k, generation: generation}
		if err := l.change(opTrim, r, nil); err != nil {
			return err
		}
		if err := r.wait(); err != errLookAgain {
			return err
		}
	}
}
