// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// membership is what the group has given this member.
type membership struct {
	starts, ends map[int32]int64 // where the topic would be read from and to without committed offsets

	mu struct {
		sync.Mutex
		joined bool
		spans  map[int32]*span // one per assigned partition
	}
}

// asMember reads as a member of a group and commits what was printed. Without --follow it ends once every partition that the
// group gave it has been read up to where the topic ended at the start.
func (r *reading) asMember(ctx context.Context) error {
	reset := map[positionKind]kgo.Offset{
		atEarliest: kgo.NewOffset().AtStart(), atLatest: kgo.NewOffset().AtEnd(), atTime: kgo.NewOffset().AfterMilli(r.flags.start.at.time.UnixMilli()),
	}[r.flags.start.kind]
	if err := r.coordinated(ctx); err != nil {
		return err
	}
	m := new(membership)
	m.mu.spans = map[int32]*span{}
	cl, err := r.conn.open(ctx, kgo.ConsumerGroup(r.flags.group), kgo.ConsumeTopics(r.topic), kgo.ConsumeStartOffset(reset), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), kgo.FetchIsolationLevel(r.flags.isolationLevel()), kgo.KeepControlRecords(), kgo.FetchMaxBytes(maxFetchBytes),
		kgo.OnPartitionsAssigned(r.joined(m)), kgo.OnPartitionsRevoked(r.left(m)), kgo.OnPartitionsLost(r.left(m)))
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	if m.starts, m.ends, err = r.bounds(ctx, r.conn.adminOf(cl)); err != nil {
		return err
	}
	err = r.pollGroup(ctx, cl, m)
	return errors.Join(r.out.Flush(), err)
}

// coordinated is looked at before joining, by a client that is no member.
func (r *reading) coordinated(ctx context.Context) error {
	adm, err := r.conn.admin(ctx)
	if err != nil {
		return err
	}
	defer adm.Close()
	return r.conn.awaitCoordinator(ctx, adm, groupCoordinator, r.flags.group)
}

func (r *reading) joined(m *membership) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.mu.joined = true
		for _, p := range assigned[r.topic] {
			m.mu.spans[p] = &span{next: -1, end: noEnd}
		}
	}
}

func (r *reading) left(m *membership) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range gone[r.topic] {
			delete(m.mu.spans, p)
		}
	}
}

func (r *reading) pollGroup(ctx context.Context, cl *kgo.Client, m *membership) error {
	for {
		pollCtx, cancel := context.WithTimeout(ctx, idleProbe)
		fetches := cl.PollRecords(pollCtx, maxPollRecords)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if _, err := r.fetchError(fetches); err != nil {
			return err
		}
		read, err := r.printMember(fetches, m)
		if err != nil {
			return err
		}
		if len(read) > 0 {
			if err := r.commit(ctx, cl, read); err != nil {
				return err
			}
		}
		cl.AllowRebalance()
		if r.enough() {
			return nil
		}
		if len(read) == 0 && !r.flags.follow && r.caughtUp(ctx, cl, m) {
			return nil
		}
	}
}

func (r *reading) printMember(fetches kgo.Fetches, m *membership) (read []*kgo.Record, err error) {
	for iter := fetches.RecordIter(); !iter.Done() && !r.enough(); {
		rec := iter.Next()
		if !rec.Attrs.IsControl() {
			if err := r.printRecord(rec); err != nil {
				return nil, err
			}
		}
		read = append(read, rec)
		m.mu.Lock()
		if s := m.mu.spans[rec.Partition]; s != nil {
			s.next = rec.Offset + 1
		}
		m.mu.Unlock()
	}
	return read, r.out.Flush()
}

func (r *reading) enough() bool { return r.flags.count > 0 && r.printed >= r.flags.count }

// commit stores the offsets of what is on standard output by now; an interrupt does not undo the printing, so it waits.
func (r *reading) commit(ctx context.Context, cl *kgo.Client, records []*kgo.Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(r.conn.timeout, 10*time.Second))
	defer cancel()
	return explain("committing offsets of group "+r.flags.group, cl.CommitRecords(ctx, records...))
}

// caughtUp tells whether all partitions that this member holds are read up to the end. One of which nothing came yet is where
// the group's committed offset says, else where --from says.
func (r *reading) caughtUp(ctx context.Context, cl *kgo.Client, m *membership) bool {
	committed := cl.CommittedOffsets()[r.topic]
	behind := map[int32]*span{}
	m.mu.Lock()
	joined := m.mu.joined && len(m.mu.spans) > 0
	for p, s := range m.mu.spans {
		at := span{next: s.next, end: m.ends[p]}
		if at.next < 0 {
			at.next = m.starts[p]
			if c, ok := committed[p]; ok && c.Offset >= 0 {
				at.next = c.Offset
			}
		}
		if at.next < at.end {
			behind[p] = &at
		}
	}
	m.mu.Unlock()
	if !joined {
		return false
	}
	if err := r.skipInvisible(ctx, cl, behind); err != nil {
		r.note(err)
	}
	return len(behind) == 0
}
