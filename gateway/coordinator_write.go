// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/consumer"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

var (
	// errOffsetTooLarge: the metadata strings of a topic's committed offsets do not fit into one value.
	errOffsetTooLarge = errors.New("metadata of committed offsets too large together")
	// errNotExpired: a group has offsets that its expiry did not know of. Nobody hears it.
	errNotExpired = errors.New("the group has offsets")
)

// offsetChange is one wish to change a group's offsets: a commit, a deletion, or what expiry found. It may take several
// transactions when it is large.
type offsetChange struct {
	// who commits; checked again when it is written, as the group may have moved on meanwhile. nil: not a member's doing.
	who *group.Committer
	// edits that set something are of different keys. What is written is taken off; checked: each of them fits.
	edits   []chunkEdit
	checked bool
	expiry  bool // of what nobody asked for
	// wholeGroup deletes the group with everything that it has, if it still is empty then.
	wholeGroup bool
	reply      func(error)
}

// chunkEdit changes one key: what is set, and which partitions are dropped.
type chunkEdit struct {
	id   metadata.ChunkID
	set  []metadata.CommittedOffset
	drop []int32
	// stale are dropped only as they were: a commit that came later stays.
	stale []metadata.CommittedOffset
	// all drops whatever is there.
	all bool
}

// groupBatch is what one transaction writes.
type groupBatch struct {
	changes []metadata.GroupChange
	parts   []batchPart
	ops     int
	bytes   int
}

// batchPart is one group's share of a batch.
type batchPart struct {
	e       *groupEntry
	state   bool
	pages   int
	deleted bool
	chunks  []batchChunk // what is put, by key
	replies []func(error)
	cut     bool // a change is written in part
	// committed, expired and deleted count partitions.
	committed, expired, deletedOffsets int
}

// batchChunk is what a batch leaves of a key; nothing: it is deleted.
type batchChunk struct {
	id   metadata.ChunkID
	list []metadata.CommittedOffset
}

// change lets a change of offsets wait to be written; first until it is known what transactions have made of them, where they may have.
func (sh *shard) change(e *groupEntry, c *offsetChange) {
	if b := sh.behind[e.id]; b != nil {
		sh.hold(e.id, b, c)
		return
	}
	sh.admit(e, c)
}

func (sh *shard) admit(e *groupEntry, c *offsetChange) {
	if sh.commits >= maxWaitingCommits && c.who != nil {
		c.reply(errGroupBusy)
		sh.forget(e)
		return
	}
	sh.commits++
	e.changes = append(e.changes, c)
	sh.enqueue(e)
}

// write sends the next transaction, if anything waits.
func (sh *shard) write() {
	for len(sh.flying) < maxShardFlights && len(sh.queue) > 0 {
		b := sh.gather()
		switch {
		case len(b.parts) == 0:
			return // more of groups that are on their way
		case !b.needed():
			sh.wrote(b, 0) // only refused or empty changes: nothing is to be written
		default:
			sh.flying = append(sh.flying, b)
			sh.send(b)
		}
	}
}

func (b *groupBatch) needed() bool {
	return slices.ContainsFunc(b.parts, func(p batchPart) bool { return p.state || p.deleted || len(p.chunks) > 0 })
}

// send has a batch written.
func (sh *shard) send(b *groupBatch) {
	change := metadata.ShardChange{Coordination: sh.co, Groups: b.changes}
	sh.c.writer.submit(sh.ctx, change, func(r metadata.ShardResult) { sh.sent(b, r) })
}

// sent takes in what became of a batch. A term that has ended does not care: the next one loads what there is.
func (sh *shard) sent(b *groupBatch, r metadata.ShardResult) {
	sh.turn.Lock()
	defer sh.give()
	switch err := r.Err; {
	case sh.ended, sh.ctx.Err() != nil:
		return
	case err == nil:
	case errors.Is(err, metadata.ErrUnavailable) && !errors.Is(err, metadata.ErrUnknown):
		sh.sendAgain(b)
		return
	case !sh.setAside(b, err):
		sh.refuses, sh.failure = true, err
		return
	case b.needed():
		sh.send(b)
		return
	}
	sh.flying = slices.DeleteFunc(sh.flying, func(x *groupBatch) bool { return x == b })
	sh.wrote(b, r.Revision)
}

// sendAgain sends what the store surely did not do, the same and after a pause: nothing else is decided on these groups meanwhile.
func (sh *shard) sendAgain(b *groupBatch) {
	sh.again.Go(func() {
		if pause(sh.ctx, groupRetry) {
			sh.send(b)
		}
	})
}

// gather makes a batch of what waits, group by group, but for groups that are on their way.
func (sh *shard) gather() *groupBatch {
	b := new(groupBatch)
	var rest []*groupEntry
	for i, e := range sh.queue {
		if b.ops >= maxGroupTxnOps-1 || b.bytes >= maxGroupTxnBytes {
			rest = append(rest, sh.queue[i:]...)
			break
		}
		e.queued = false
		if e.flying || !sh.gatherGroup(b, e) {
			rest = append(rest, e)
		}
	}
	sh.queue = rest
	for _, e := range rest {
		e.queued = true
	}
	return b
}

// gatherGroup puts a group's share into the batch, as far as there is room. done: nothing of it is left.
func (sh *shard) gatherGroup(b *groupBatch, e *groupEntry) (done bool) {
	p := batchPart{e: e}
	ch := metadata.GroupChange{ID: e.id, Rev: e.rev, Pages: e.pages}
	if e.dirty() {
		if e.encoded = e.encode(); len(e.encoded) > metadata.MaxGroupState {
			sh.tooLarge(e, len(e.encoded))
			e.encoded = nil
		}
	}
	if n := len(e.encoded); n > 0 {
		if b.ops > 0 && (b.bytes+n > maxGroupTxnBytes || b.ops+1+metadata.GroupPages(n) > maxGroupTxnOps) {
			return false // it fits into the next one
		}
		ch.State, p.state, p.pages = e.encoded, true, metadata.GroupPages(n)
		e.encoded = nil
	}
	left := sh.gatherChanges(&p, groupRoom{
		chunks: maxGroupTxnOps - b.ops - 1 - max(p.pages, e.pages), bytes: maxGroupTxnBytes - b.bytes - len(ch.State),
	})
	p.cut = left
	if p.deleted {
		ch.State, ch.Delete, p.state = nil, true, false
	}
	p.chunks = slices.DeleteFunc(p.chunks, func(c batchChunk) bool { return len(c.list) == 0 && e.chunks[c.id] == nil })
	if len(p.chunks) > 0 {
		ch.Offsets = make([]metadata.OffsetsChange, len(p.chunks))
	}
	for i, put := range p.chunks {
		ch.Offsets[i] = metadata.OffsetsChange{ChunkID: put.id, List: put.list}
		if c := e.chunks[put.id]; c != nil {
			ch.Offsets[i].Rev = c.rev
		}
	}
	if p.state || p.deleted {
		e.sent, e.held, e.stateSent = append(e.sent, e.held...), nil, true
	}
	e.flying = true
	b.parts = append(b.parts, p)
	if p.state || p.deleted || len(ch.Offsets) > 0 {
		ops, bytes := ch.Cost()
		b.changes = append(b.changes, ch)
		b.ops, b.bytes = b.ops+ops, b.bytes+bytes
	}
	return !left
}

// tooLarge answers those who wait for a state that cannot be stored.
func (sh *shard) tooLarge(e *groupEntry, size int) {
	sh.c.s.log.Error("group coordinator: the group's members and assignments are too large to be stored", "group", e.id, "bytes", size, "limit", metadata.MaxGroupState)
	held := e.held
	e.held = nil
	for _, done := range held {
		done(group.ErrTooLarge)
	}
	e.notStored() // its members are refused until it is small enough
}

// groupRoom is what a group may still take of a batch.
type groupRoom struct{ chunks, bytes int }

// gatherChanges applies waiting changes in order to copies of the chunks, as long as there is room. left: more wait.
func (sh *shard) gatherChanges(p *batchPart, room groupRoom) (left bool) {
	e := p.e
	used := 0
	for len(e.changes) > 0 {
		c := e.changes[0]
		if err := e.stillAllows(p, c); err != nil {
			sh.drop(e, p, c, err)
			continue
		}
		if c.wholeGroup && c.edits == nil {
			c.edits = e.everything(p)
		}
		if err := e.checkSizes(p, c); err != nil {
			sh.drop(e, p, c, err)
			continue
		}
		for len(c.edits) > 0 {
			edit := &c.edits[0]
			before := p.chunk(edit.id)
			old := e.current(p, edit.id)
			list := edit.apply(old)
			grown := used + sizeOf(list)
			if before != nil {
				grown -= sizeOf(before.list)
			}
			if before == nil && len(p.chunks) >= room.chunks || grown > room.bytes && grown > used {
				return true
			}
			if used = grown; before != nil {
				before.list = list
			} else {
				p.chunks = append(p.chunks, batchChunk{edit.id, list})
			}
			p.tally(c, len(edit.set), len(old)-len(list))
			c.edits = c.edits[1:]
		}
		if c.wholeGroup {
			p.deleted = true
		}
		sh.drop(e, p, c, nil)
	}
	return false
}

// tally counts what an edit does.
func (p *batchPart) tally(c *offsetChange, set, gone int) {
	p.committed += set
	switch {
	case set > 0:
	case c.expiry:
		p.expired += gone
	default:
		p.deletedOffsets += gone
	}
}

// checkSizes refuses a change of which something is too large before any of it is written, which may take several transactions. No other
// change of the group comes between those, so once is enough.
func (e *groupEntry) checkSizes(p *batchPart, c *offsetChange) error {
	if c.checked {
		return nil
	}
	for i := range c.edits {
		edit, old := &c.edits[i], e.current(p, c.edits[i].id)
		const most = metadata.MaxValueBytes - maxGroupID
		if sizeOf(old)+sizeOf(edit.set) <= most {
			continue // whatever of the old ones stays
		}
		if size := sizeOf(edit.apply(old)); size > most {
			return fmt.Errorf("%d bytes for one key: %w", size, errOffsetTooLarge)
		}
	}
	c.checked = true
	return nil
}

// drop takes the first change off. One that is written replies when its transaction is through, a refused one at once.
func (sh *shard) drop(e *groupEntry, p *batchPart, c *offsetChange, err error) {
	e.changes = e.changes[1:]
	sh.commits--
	if err != nil {
		c.reply(err)
		return
	}
	p.replies = append(p.replies, c.reply)
}

// places calls each for every partition whose offset is set, until it says no.
func (c *offsetChange) places(each func(consumer.Place) bool) {
	for i := range c.edits {
		for k := range c.edits[i].set {
			if !each(consumer.Place{Topic: c.edits[i].id.Topic, Index: c.edits[i].set[k].Partition}) {
				return
			}
		}
	}
}

// stillAllows checks a change that is to be written. A group that has expired is deleted only if it has no offsets then: one that was committed
// since it was looked at, or that a transaction has committed, stays.
func (e *groupEntry) stillAllows(p *batchPart, c *offsetChange) error {
	if c.wholeGroup && c.expiry && e.hasOffsets(p) {
		return errNotExpired
	}
	return e.allows(c)
}

// hasOffsets tells whether the batch leaves the group any offset.
func (e *groupEntry) hasOffsets(p *batchPart) bool {
	if slices.ContainsFunc(p.chunks, func(c batchChunk) bool { return len(c.list) > 0 }) {
		return true
	}
	for id := range e.chunks {
		if len(e.current(p, id)) > 0 {
			return true
		}
	}
	return false
}

// allows checks a change against the group as it is now (Q1).
func (e *groupEntry) allows(c *offsetChange) error {
	switch {
	case c.wholeGroup && !e.empty():
		return group.ErrNotEmpty
	case c.who != nil && e.c != nil:
		return e.c.MayCommit(*c.who, c.places)
	case c.who != nil:
		return e.g.MayCommit(*c.who)
	}
	return nil
}

// chunk is what the batch has of a key. A transaction has few of them.
func (p *batchPart) chunk(id metadata.ChunkID) *batchChunk {
	for i := range p.chunks {
		if p.chunks[i].id == id {
			return &p.chunks[i]
		}
	}
	return nil
}

// current is a chunk as the batch leaves it so far.
func (e *groupEntry) current(p *batchPart, id metadata.ChunkID) []metadata.CommittedOffset {
	if c := p.chunk(id); c != nil {
		return c.list
	}
	if c := e.chunks[id]; c != nil {
		return c.list
	}
	return nil
}

func (e *groupEntry) everything(p *batchPart) []chunkEdit {
	edits := make([]chunkEdit, 0, len(e.chunks))
	for id := range e.chunks {
		edits = append(edits, chunkEdit{id: id, all: true})
	}
	for i := range p.chunks {
		if id := p.chunks[i].id; e.chunks[id] == nil {
			edits = append(edits, chunkEdit{id: id, all: true})
		}
	}
	return edits
}

func sizeOf(list []metadata.CommittedOffset) (n int) {
	for i := range list {
		n += list[i].Size()
	}
	return n
}

// apply gives the list after the edit; the old one stays as it is.
func (c *chunkEdit) apply(old []metadata.CommittedOffset) []metadata.CommittedOffset {
	switch {
	case c.all:
		return nil
	case c.replaces(old):
		return c.set
	}
	list := slices.Clone(old)
	at := func(partition int32) (int, bool) {
		return slices.BinarySearchFunc(list, partition, func(o metadata.CommittedOffset, p int32) int { return int(o.Partition) - int(p) })
	}
	for _, o := range c.set {
		if i, ok := at(o.Partition); ok {
			list[i] = o
		} else {
			list = slices.Insert(list, i, o)
		}
	}
	for _, partition := range c.drop {
		if i, ok := at(partition); ok {
			list = slices.Delete(list, i, i+1)
		}
	}
	for _, o := range c.stale {
		if i, ok := at(o.Partition); ok && list[i] == o {
			list = slices.Delete(list, i, i+1)
		}
	}
	return list
}

// replaces tells that the edit only sets, in order, and among others every partition that is there: nothing of the old list stays.
func (c *chunkEdit) replaces(old []metadata.CommittedOffset) bool {
	k := 0
	for i := range c.set {
		if i > 0 && c.set[i].Partition <= c.set[i-1].Partition {
			return false
		}
		if k < len(old) && c.set[i].Partition == old[k].Partition {
			k++
		}
	}
	return k == len(old) && len(c.set) > 0 && len(c.drop)+len(c.stale) == 0
}

// wrote takes in that a batch is stored, as of the revision; 0: nothing was to be stored.
func (sh *shard) wrote(b *groupBatch, at metadata.Revision) {
	for i := range b.parts {
		p := &b.parts[i]
		e := p.e
		e.flying = false
		switch {
		case p.deleted:
			e.rev, e.pages = 0, 0
		case p.state:
			e.rev, e.pages = at, p.pages
		}
		m := sh.c.metrics
		m.commits.Add(float64(p.committed))
		m.expired.Add(float64(p.expired))
		m.deleted.Add(float64(p.deletedOffsets))
		for _, put := range p.chunks {
			if len(put.list) == 0 {
				delete(e.chunks, put.id)
				sh.deletions++
			} else {
				e.chunks[put.id] = &offsetChunk{rev: at, list: put.list}
			}
		}
		if p.state || p.deleted {
			e.stateSent = false
			sent := e.sent
			e.sent = nil
			for _, done := range sent {
				done(nil)
			}
		}
		for _, reply := range p.replies {
			reply(nil)
		}
		sh.forget(e)
	}
}

// sweep looks for what has expired. A group's offsets expire when it has been empty for the retention; those of clients without a
// group when they were committed that long ago, and so do those of topics that a stable group no longer reads.
func (sh *shard) sweep(now time.Time) {
	sh.dropGoneTopics()
	img := sh.c.s.meta.Image()
	retention := sh.c.config().OffsetsRetention
	for _, e := range sh.groups {
		reads, _ := sh.subscribed(e, now)
		var edits []chunkEdit
		kept := len(e.changes) > 0
		for id, c := range e.chunks {
			edit := chunkEdit{id: id}
			topic := img.TopicByID(id.Topic)
			for _, o := range c.list {
				if e.expired(now, &o, topic, reads, retention) {
					edit.stale = append(edit.stale, o)
				} else {
					kept = true
				}
			}
			if len(edit.stale) > 0 {
				edits = append(edits, edit)
			}
		}
		if len(edits) > 0 {
			sh.change(e, &offsetChange{edits: edits, expiry: true, reply: func(error) {}})
		}
		if !kept && e.unused() && !e.unsaved() && (e.rev != 0 || len(e.chunks) > 0) {
			sh.change(e, &offsetChange{wholeGroup: true, expiry: true, reply: func(error) {}})
		}
	}
}

// dropGoneTopics drops the offsets of topics that are deleted. A topic's id never comes back; one that the image does not show is gone
// only if the image is as new as the commit that named it.
func (sh *shard) dropGoneTopics() {
	img := sh.c.s.meta.Image()
	gone := func(id record.TopicID, c *offsetChunk) bool {
		t := img.TopicByID(id)
		return t == nil && img.Revision >= c.rev || t != nil && t.Deleting
	}
	for _, e := range sh.groups {
		var edits []chunkEdit
		for id, c := range e.chunks {
			if gone(id.Topic, c) {
				edits = append(edits, chunkEdit{id: id, all: true})
			}
		}
		if len(edits) > 0 {
			sh.change(e, &offsetChange{edits: edits, reply: func(error) {}})
		}
	}
}
