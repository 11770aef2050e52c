// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/consumer"
	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// readPending reads what open transactions will commit for a group, from the store, as readOffsets does.
func (s *Server) readPending(ctx context.Context, id string) ([]metadata.PendingOffsets, error) {
	sh, err := s.groups.find(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, groupWait)
	defer cancel()
	if err := s.groups.reads.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.groups.reads.Release(1)
	return s.meta.ReadPending(ctx, sh.co, id)
}

func isPending(list []metadata.PendingOffsets, topic record.TopicID, partition int32) bool {
	for i := range list {
		if list[i].Has(topic, partition) {
			return true
		}
	}
	return false
}

// unstableOffset is the answer for a partition for which a transaction will commit: the client asks again.
func unstableOffset(partition int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := noOffset(partition)
	p.ErrorCode = codeUnstableOffsetCommit.int16()
	return p
}

// txnCommit is what a transaction commits for a group.
type txnCommit struct {
	id       string // transactional
	who      txn.Producer
	group    string
	member   group.Committer
	topics   []metadata.TopicOffsets
	addGroup bool // the client leaves it to us to make the group part of the transaction
}

// pendOffsets stores a transaction's offsets until it ends. What it checks, the change compares: the group's generation, and that the
// transaction is open and the producer's.
func (s *Server) pendOffsets(ctx context.Context, c *txnCommit) error {
	sh, err := s.groups.find(c.group)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, groupWait)
	defer cancel()
	for until := time.Now().Add(coordinatorWait); ; {
		rev, at, err := sh.mayPend(ctx, c)
		if err != nil {
			return err
		}
		c.stamp(at)
		again, err := s.pendOnce(ctx, sh, c, rev)
		if err == nil && !again {
			sh.pended(c.group)
		}
		late := !time.Now().Before(until)
		switch {
		case errors.Is(err, txn.ErrConcurrent) && !late: // the one before completes: old clients do not wait for it
			if !pause(ctx, coordinatorPause) {
				return err
			}
		case !again || late:
			return err
		}
	}
}

// pendOnce is one attempt. again: something else came first.
func (s *Server) pendOnce(ctx context.Context, sh *shard, c *txnCommit, groupRev metadata.Revision) (again bool, err error) {
	st, err := s.meta.ReadTxn(ctx, c.id)
	if err != nil {
		return false, err
	}
	if st.Rev == 0 {
		return false, txn.ErrMapping
	}
	t, err := txn.Decode(st.Value)
	if err != nil {
		return false, err
	}
	switch err := t.VerifyGroup(c.who, c.group); {
	case errors.Is(err, txn.ErrNotAdded) && c.addGroup:
		code := s.addGroupToTxn(ctx, c.id, c.who, c.group)
		if code == codeConcurrentTransactions {
			return false, txn.ErrConcurrent
		}
		if code != codeNone {
			return false, &refusal{code: code, message: "the group cannot be made part of the transaction"}
		}
		return true, metadata.ErrTxnChanged
	case err != nil:
		return false, err
	}
	list, err := s.meta.ReadPendingOf(ctx, c.who.ID, []string{c.group})
	if err != nil {
		return false, err
	}
	p := metadata.PendingChange{PendingOffsets: list[0], GroupRev: groupRev, Txn: c.id, TxnRev: st.Rev}
	p.Merge(c.topics)
	if p.Size() > maxPendingBytes {
		return false, fmt.Errorf("%d bytes of offsets for group %q in one transaction: %w", p.Size(), c.group, errOffsetTooLarge)
	}
	if err := s.groups.writes.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer s.groups.writes.Release(1)
	_, err = s.meta.PendOffsets(ctx, sh.co, &p)
	return metadata.IsConflict(err), err
}

// stamp gives the offsets their time.
func (c *txnCommit) stamp(at metadata.UnixMillis) {
	for i := range c.topics {
		for k := range c.topics[i].List {
			c.topics[i].List[k].Committed = at
		}
	}
}

// mayPend has the shard check who commits, and gives the revision of the group's state that this holds for, once it is stored, and the
// time to write the offsets with.
func (sh *shard) mayPend(ctx context.Context, c *txnCommit) (metadata.Revision, metadata.UnixMillis, error) {
	type verdict struct {
		rev metadata.Revision
		at  metadata.UnixMillis
		err error
	}
	v, err := ask(ctx, sh, func(now time.Time, reply func(verdict)) {
		e := sh.groups[c.group]
		if e == nil {
			v := verdict{at: sh.stamp(now, true)}
			if c.member.Generation >= 0 {
				v.err = group.ErrNotFound
			}
			reply(v)
			return
		}
		if err := e.mayPend(c); err != nil {
			reply(verdict{err: err})
			return
		}
		if e.c == nil {
			e.g.Commit(now, c.member)
			sh.schedule(e)
		}
		at := sh.stamp(now, true)
		sh.after(e, func(err error) {
			if err == nil {
				err = e.mayPend(c)
			}
			reply(verdict{rev: e.rev, at: at, err: err})
		})
	})
	return v.rev, v.at, errors.Join(err, v.err)
}

// mayPend checks a member. Who says nothing of itself is not checked, as in Kafka: old clients cannot.
func (e *groupEntry) mayPend(c *txnCommit) error {
	m := c.member
	if m.Generation < 0 && m.MemberID == "" && m.Instance == nil {
		return nil
	}
	if e.c != nil {
		return e.c.MayCommit(m, c.places)
	}
	if err := e.g.MayCommit(m); !errors.Is(err, group.ErrRebalance) { // the generation is known to its members, that is enough
		return err
	}
	return nil
}

// places calls each for every partition whose offset is committed, until it says no.
func (c *txnCommit) places(each func(consumer.Place) bool) {
	for i := range c.topics {
		for k := range c.topics[i].List {
			if !each(consumer.Place{Topic: c.topics[i].Topic, Index: c.topics[i].List[k].Partition}) {
				return
			}
		}
	}
}

// behindGroup is a group whose offsets transactions write too, so that what the shard knows of them may be old.
type behindGroup struct {
	reading bool
	pended  int             // how often a transaction added something
	waiting []*offsetChange // for what is read
}

// pended remembers that a transaction writes the group's offsets.
func (sh *shard) pended(id string) {
	_ = sh.call(func(now time.Time) { // a term that ends decides nothing more
		if len(sh.behind) == 0 {
			sh.refreshAt = now.Add(pendingRefresh)
		}
		if sh.behind[id] == nil {
			sh.behind[id] = new(behindGroup)
		}
		sh.behind[id].pended++
	})
}

// hold lets a change wait until the group's offsets are read: decided on old ones it would fail.
func (sh *shard) hold(id string, b *behindGroup, c *offsetChange) {
	if len(b.waiting) >= maxWaitingCommits && c.who != nil {
		c.reply(errGroupBusy)
		return
	}
	b.waiting = append(b.waiting, c)
	sh.reread(id, b)
}

// refresh reads the offsets of groups that transactions write.
func (sh *shard) refresh() {
	for id, b := range sh.behind {
		sh.reread(id, b)
	}
}

func (sh *shard) reread(id string, b *behindGroup) {
	if b.reading {
		return
	}
	b.reading = true
	pended, deletions := b.pended, sh.deletions
	sh.txns.spawn(func() {
		ctx, cancel := context.WithTimeout(sh.txns.ctx, groupWait)
		defer cancel()
		var chunks []metadata.Offsets
		pending, err := sh.c.s.meta.ReadPending(ctx, sh.co, id)
		if err == nil {
			chunks, err = sh.c.s.meta.ReadOffsets(ctx, sh.co, id, nil)
		}
		_ = sh.call(func(now time.Time) {
			b.reading = false
			if err == nil && !sh.caughtUp(now, id, chunks, deletions) {
				sh.refreshAt = now.Add(groupRetry)
				return
			}
			if err == nil && len(pending) == 0 && b.pended == pended {
				delete(sh.behind, id)
			}
			waiting := b.waiting
			b.waiting = nil
			for _, c := range waiting {
				sh.admit(sh.entry(id, now), c)
			}
		})
	})
}

// caughtUp takes up what was read; what this shard has written since is newer. false: changes that were decided on what was known go first, or
// something was deleted since, before which the shard had made so many deletions: what was read may be that, and has no newer revision.
func (sh *shard) caughtUp(now time.Time, id string, chunks []metadata.Offsets, deletions int) bool {
	e := sh.entry(id, now)
	if e.flying || len(e.changes) > 0 || sh.deletions != deletions {
		return false
	}
	for _, o := range chunks {
		if c := e.chunks[o.ChunkID]; c == nil || c.rev < o.Rev {
			e.chunks[o.ChunkID] = &offsetChunk{rev: o.Rev, list: o.List}
		}
	}
	sh.schedule(e)
	sh.forget(e)
	return true
}

// setAside takes a group's offsets out of the batch that was refused for them: a transaction ended after they were read. Who commits them hears
// that nothing was done; the shard's other groups must not lose their coordinator for it. false: that is not why it was refused.
func (sh *shard) setAside(b *groupBatch, err error) bool {
	id, ok := metadata.ConflictingGroup(err)
	behind := sh.behind[id]
	if !ok || behind == nil {
		return false
	}
	at := slices.IndexFunc(b.parts, func(p batchPart) bool { return p.e.id == id })
	if at < 0 {
		return false
	}
	p := &b.parts[at]
	if len(p.chunks) == 0 || p.deleted || p.cut {
		return false
	}
	for i := range b.changes {
		if b.changes[i].ID == id {
			b.changes[i].Offsets = nil
		}
	}
	b.changes = slices.DeleteFunc(b.changes, func(c metadata.GroupChange) bool { return c.State == nil && !c.Delete && len(c.Offsets) == 0 })
	p.chunks, p.committed, p.expired, p.deletedOffsets = nil, 0, 0, 0
	replies := p.replies
	p.replies = nil
	for _, reply := range replies {
		reply(errGroupBusy)
	}
	sh.reread(id, behind)
	return true
}
