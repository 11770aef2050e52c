// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/broker/isr"
	"github.com/varve/varve/internal/invariant"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
	"github.com/varve/varve/tiering/segment"
)

// Partition is this node's replica of one partition.
type Partition struct {
	id     record.PartitionID
	name   string // topic name, for logs and objects; never an identity
	broker *Broker
	log    *hotlog.Log
	db     *hotlog.DB

	subs atomic.Pointer[[]*subscription] // copy on write, under mu
	view atomic.Pointer[tiering.View]    // what is in the bucket; nil until the archiver has loaded it
	// assigned is the revision of the topic that says that this replica is assigned; 0 while it is in sync, and need not prove that.
	assigned atomic.Int64

	mu struct {
		sync.Mutex
		lead      *leadership // nil unless this node leads
		follow    *following  // nil unless it follows
		repairing bool        // the hot log is being made one that can have a role
		cutting   bool        // a follower's log may be cut now
		replicas  []record.NodeID
		config    *config.Topic
		end       record.Offset // next offset to assign; may run ahead of the disk
		hw        record.Offset
		logStart  record.Offset
		head      metadata.Head
		epochs    []record.EpochStart // of the hot log and, from the head, of what was tiered
		unsealed  int64               // bytes at or above the tiered end
		times     *hotIndex           // nil until somebody asked by time
		timesTail *hotIndex           // while times is being built: what is appended meanwhile
		timesCut  int                 // how often the log was cut or replaced under the time index
		pins      []*pin              // ranges of the hot log that must stay
		evicting  record.Offset       // the hot log is being trimmed below this
		closed    bool                // the topic was deleted or the broker stops
	}

	// buildTimes lets one goroutine build the time index; others wait as long as their requests do.
	buildTimes *semaphore.Weighted
}

// leadership is the scope of one epoch as leader (B5). All of it is guarded by Partition.mu.
type leadership struct {
	metadata.Leadership
	session   *metadata.Session // the registration it was taken under, and ends with
	isr       *isr.State
	replicas  int // replication factor
	producers *producers
	guards    map[guardKey]*TxnGuard
	acksOne   pendingQueue // waits for the own durable end
	acksAll   pendingQueue // waits for the high watermark
	held      pendingQueue // came while the partition is handed over; in the order of their coming, and not appended
	scratch   [maxProducerBytes]byte
	began     time.Time
	followers map[record.NodeID]*follower
	assigned  map[record.NodeID]metadata.Revision // of the topic, of replicas that are not in sync
	committed metadata.ISRState                   // the in-sync set in force
	undecided *metadata.ISRChange                 // the change whose outcome is not known yet
	unknown   bool                                // an attempt of it may still be on its way
	changing  bool                                // somebody is at it
	moving    bool                                // being handed over: nothing more is appended
	holds     bool                                // what comes meanwhile is held back, not refused
	sealed    bool                                // until the handover is decided nobody is answered
	news      chan<- struct{}                     // of whoever hands over: told when a follower or the high watermark moved
	asked     bool                                // whether to hand over is asked again by itself
	archiving bool                                // being handed to the archiver
	archive   *tiering.Handle                     // nil until the high watermark of the epoch is known
	outline   segment.Outline                     // of what was appended in this epoch and is not sealed
}

// AppendOptions says how an append is to be acknowledged.
type AppendOptions struct {
	Acks int16 // -1, 0 or 1
	// Guard and Revision are of a transactional batch that the coordinator has confirmed. Nil: its transaction is under way here.
	Guard    *TxnGuard
	Revision metadata.Revision
}

// Append assigns offsets to batch, which record.Validate accepted, and queues it. It never waits: the outcome is in pend once
// w.C is closed, with acks=0 as soon as it is queued. The batch's bytes must stay untouched until then.
func (p *Partition) Append(batch record.Batch, o AppendOptions, w *Wait, pend *Pending) {
	pend.wait = w
	pend.LogAppendTime = -1
	if batch.IsLogAppendTime() {
		pend.LogAppendTime = batch.MaxTimestamp()
	}
	p.mu.Lock()
	wait, err := p.appendLocked(batch, o, pend)
	p.mu.Unlock()
	if !wait {
		pend.decide(err)
	}
}

// appendLocked tells whether pend now waits in a queue; if not it is to be decided with err.
func (p *Partition) appendLocked(batch record.Batch, o AppendOptions, pend *Pending) (wait bool, err error) {
	if lead := p.mu.lead; lead != nil && lead.holds {
		// Whatever becomes of the handover is known in a moment: to be refused now would cost the client a pause and a look for a leader
		// whom nobody knows yet.
		pend.batch, pend.options = batch, o
		pend.need = 0
		lead.held.add(pend)
		return true, nil
	}
	lead, err := p.acceptingLocked(o.Acks)
	if err != nil {
		return false, err
	}
	pend.LogStart = p.mu.logStart
	var known *producer
	if pid := batch.ProducerID(); pid >= 0 {
		known = lead.producers.byID[pid]
		switch v := judge(known, batch); {
		case v.err != nil:
			return false, v.err
		case v.duplicate != nil:
			// The resend waits for what the original waits for, and gets its offset (B3).
			pend.Duplicate, pend.Base, pend.LogAppendTime = true, v.duplicate.base, v.duplicate.timestamp
			return p.queueLocked(lead, o, pend, v.duplicate.next()), nil
		}
	}
	if err := lead.admitTxn(known, batch, &o); err != nil {
		return false, err
	}
	batch.Stamp(p.mu.end, lead.Epoch)
	if err := p.storeLocked(lead, batch, pend.LogAppendTime, o.Revision); err != nil {
		return false, err
	}
	if o.Guard != nil {
		delete(lead.guards, guardKey{batch.ProducerID(), batch.ProducerEpoch()}) // the open transaction stands for it
	}
	pend.Base = batch.BaseOffset()
	return p.queueLocked(lead, o, pend, p.mu.end), nil
}

// acceptingLocked returns the leadership if something may be appended under it now.
func (p *Partition) acceptingLocked(acks int16) (*leadership, error) {
	lead, err := p.leadingLocked()
	if err != nil {
		return nil, err
	}
	if lead.moving || p.broker.closing.Load() {
		return nil, ErrNotLeader
	}
	if acks == -1 && !lead.isr.Enough() {
		return nil, fmt.Errorf("%w: %d in sync, %d needed", ErrNotEnoughReplicas, len(lead.isr.Members()), lead.isr.MinISR())
	}
	return lead, nil
}

// storeLocked queues a stamped batch with what it does to its producer, and takes both into account.
func (p *Partition) storeLocked(lead *leadership, batch record.Batch, appendTime int64, verified metadata.Revision) error {
	c := lead.producers.change(batch, appendTime, time.Now().UnixMilli())
	key, state := c.encode(lead.scratch[:0])
	if err := p.log.Append(batch, key, state); err != nil {
		if errors.Is(err, hotlog.ErrDiskFull) {
			p.broker.moveWork.add(p.id) // another replica may have space
		}
		return appendError(p.id, err)
	}
	if lead.producers.remember(&c) {
		p.broker.producers.Add(1)
	}
	if t := c.entry.txn; t != nil && verified > t.revision {
		t.revision = verified
	}
	if x := p.mu.times; x != nil {
		x.add(batch)
	} else if x := p.mu.timesTail; x != nil {
		x.add(batch)
	}
	lead.outline.Add(batch)
	p.mu.unsealed += int64(len(batch))
	p.mu.end = batch.NextOffset()
	return nil
}

// queueLocked makes pend wait for its acknowledgement unless that is due already.
func (p *Partition) queueLocked(lead *leadership, o AppendOptions, pend *Pending, need record.Offset) (wait bool) {
	pend.need = need
	switch o.Acks {
	case 0:
		return false
	case 1:
		if p.log.DurableEnd() >= need {
			return false
		}
		lead.acksOne.add(pend)
	default:
		if p.mu.hw >= need {
			return false
		}
		lead.acksAll.add(pend)
	}
	return true
}

// Expire decides a pending whose request has waited long enough, unless it is decided already. The batch stays in the log.
func (p *Partition) Expire(pend *Pending) {
	p.mu.Lock()
	waiting := pend.queue != nil
	err := ErrTimedOut
	if waiting {
		held := p.mu.lead != nil && pend.queue == &p.mu.lead.held // not appended, and never will be
		pend.queue.remove(pend)
		if p.mu.lead != nil && !held && !p.mu.lead.isr.Enough() {
			err = ErrNotEnoughReplicasAfterAppend
		}
	}
	p.mu.Unlock()
	if waiting {
		pend.decide(err)
	}
}

// leadingLocked returns the leadership if this node leads and its lease lets it act.
func (p *Partition) leadingLocked() (*leadership, error) {
	if p.mu.closed {
		return nil, ErrUnknownPartition
	}
	if p.mu.lead == nil || p.mu.lead.sealed || !p.broker.mayServeUnder(p.mu.lead.session) {
		return nil, ErrNotLeader
	}
	return p.mu.lead, nil
}

// Appended implements hotlog.Observer: followers may read below end, so that their syncs overlap ours.
func (p *Partition) Appended(record.Offset) { p.notifyReplicas() }

// Durable implements hotlog.Observer: everything below end survives a power failure (H2).
func (p *Partition) Durable(record.Offset) {
	p.mu.Lock()
	// Read under the lock instead of taking the argument: a call that was delayed across a change of epoch must not bring an
	// older end than the one the new epoch began with.
	end := p.log.DurableEnd()
	lead, follow := p.mu.lead, p.mu.follow
	if lead == nil {
		p.mu.Unlock()
		if follow != nil {
			follow.fetcher.signal()
		}
		return
	}
	ones := lead.acksOne.take(end)
	alls, moved := (*Pending)(nil), false
	if lead.isr.OwnDurable(end) {
		moved = true
		alls = p.advanceLocked(lead)
	}
	p.mu.Unlock()
	var err error
	if ones != nil && !p.broker.mayServeUnder(lead.session) {
		err = ErrNotLeader // as in committed
	}
	decideAll(ones, err)
	p.committed(lead, alls, moved)
}

// advanceLocked takes over a moved high watermark and returns the appends that it decides (B2).
func (p *Partition) advanceLocked(lead *leadership) *Pending {
	hw := lead.isr.HighWatermark()
	invariant.Check(hw >= p.mu.hw, "I1: the high watermark never decreases within an epoch")
	p.mu.hw = hw
	p.log.SetHighWatermark(hw)
	lead.producers.committed(hw)
	lead.tell()
	return lead.acksAll.take(hw)
}

// tell wakes whoever hands the partition over.
func (l *leadership) tell() {
	if l.news != nil {
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
}

// Marks are a partition's offsets at one instant.
type Marks struct {
	LogStart   record.Offset
	Local      record.Offset // first offset in the hot log
	TieredEnd  record.Offset // first offset that is not in the bucket
	HW, LSO    record.Offset
	LogEnd     record.Offset
	Epoch      record.Epoch
	Leading    bool
	Following  bool
	InSync     int
	MinISR     int
	Replicas   int
	TieredSize int64 // bytes of the segments at or above the log start
	HotSize    int64 // bytes in the hot log
	Lag        int64 // of a follower: records up to the leader's high watermark that it lacks, as far as the leader has told
}

// Marks returns the partition's offsets.
func (p *Partition) Marks() Marks {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := Marks{
		LogStart: p.mu.logStart, Local: max(p.log.Start(), p.mu.logStart), TieredEnd: p.mu.head.TieredEnd,
		HW: p.mu.hw, LSO: p.lsoLocked(), LogEnd: p.mu.end, Epoch: record.NoEpoch, Leading: p.mu.lead != nil, Following: p.mu.follow != nil,
		TieredSize: p.mu.head.TieredBytes, HotSize: p.log.Bytes(),
	}
	if f := p.mu.follow; f != nil {
		m.Lag = f.lag(p.mu.end)
	}
	if l := p.mu.lead; l != nil {
		m.Epoch, m.InSync, m.MinISR, m.Replicas = l.Epoch, len(l.isr.Members()), l.isr.MinISR(), l.replicas
	}
	return m
}

// ID is the partition's identity.
func (p *Partition) ID() record.PartitionID { return p.id }

// Topic is the topic's name.
func (p *Partition) Topic() string { return p.name }
