// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
)

// Errors of the coordinator that never leave this package but as codes.
var (
	errNotCoordinator = errors.New("this node does not coordinate the group")
	errGroupLoading   = errors.New("the group's shard is being loaded")
	errGroupBusy      = errors.New("too many commits wait")
	errInvalidGroupID = errors.New("invalid group id")
)

// groupCode is the code of an error for a client that talks to a group's coordinator.
func groupCode(err error) Code {
	switch {
	case err == nil:
		return codeNone
	case errors.Is(err, errNotCoordinator), errors.Is(err, metadata.ErrFenced), errors.Is(err, metadata.ErrSessionLost):
		return codeNotCoordinator
	case errors.Is(err, errGroupLoading):
		return codeCoordinatorLoadInProgress
	case errors.Is(err, errInvalidGroupID):
		return codeInvalidGroupID
	case errors.Is(err, errOffsetTooLarge):
		return codeOffsetMetadataTooLarge
	case errors.Is(err, errGroupBusy), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return codeCoordinatorNotAvailable
	}
	code := codeOf(err)
	if code == codeRequestTimedOut { // the store is away: clients of a coordinator know another word for it
		return codeCoordinatorNotAvailable
	}
	return code
}

// coordinators are the shards that this node owns: it takes those that it is the preferred owner of, and gives up those that
// another live node is.
type coordinators struct {
	s      *Server
	writes *semaphore.Weighted // a node's transactions for groups that change something
	reads  *semaphore.Weighted
	writer *groupWriter
	kick   chan struct{}
	wg     sync.WaitGroup
	// metrics is set before anything runs.
	metrics *groupMetrics

	mu struct {
		sync.Mutex
		shards   map[int32]*shard
		released map[int32]metadata.Revision // terms that this node ended: an image may still show them
	}
}

func newCoordinators(s *Server) *coordinators {
	c := &coordinators{s: s, writes: semaphore.NewWeighted(maxGroupWrites), reads: semaphore.NewWeighted(maxGroupReads), kick: make(chan struct{}, 1)}
	c.mu.shards = map[int32]*shard{}
	c.mu.released = map[int32]metadata.Revision{}
	c.writer = newGroupWriter(s.meta, c.writes)
	c.metrics = newGroupMetrics(c)
	c.writer.flushed = c.metrics.flushTime
	return c
}

func (c *coordinators) config() *config.Broker { return c.s.broker.Config() }

func (c *coordinators) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// topicsGone tells the shards that topics were deleted: their offsets go with them.
func (c *coordinators) topicsGone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sh := range c.mu.shards {
		select {
		case sh.topicsGone <- struct{}{}:
		default:
		}
	}
}

// run keeps the shards until ctx ends; then it gives them up, with what waits written, while the connections are still served.
func (c *coordinators) run(ctx context.Context) {
	defer c.s.meta.Subscribe(func(_, _ *metadata.Image) { c.wake() })()
	shards, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	for {
		c.pass(ctx, shards)
		if !pause(ctx, shardPause) {
			break
		}
		t := time.NewTimer(shardCheck)
		select {
		case <-c.kick:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
	c.mu.Lock()
	for _, sh := range c.mu.shards {
		sh.giveUp()
	}
	c.mu.Unlock()
	c.wg.Wait()
	c.writer.close()
}

// pause waits, and tells whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pass brings what this node owns in line with the newest image.
func (c *coordinators) pass(ctx, shards context.Context) {
	img, session := c.s.meta.Image(), c.s.meta.Session()
	if !img.Loaded() || session == nil || session.Err() != nil || !session.Alive() || ctx.Err() != nil {
		return
	}
	if img.Shards() == 0 {
		if _, err := c.s.meta.FixShards(ctx, c.config().OffsetsTopicNumPartitions); err != nil && ctx.Err() == nil {
			c.s.log.Warn("group coordinator: the number of shards is not known", "error", err)
		}
		return // the image will have it
	}
	var takes errgroup.Group
	takes.SetLimit(maxShardTakes)
	for i := range img.Shards() {
		owner, held := img.Coordinator(i)
		preferred := img.PreferredCoordinator(i)
		c.mu.Lock()
		sh, released := c.mu.shards[i], c.mu.released[i]
		c.mu.Unlock()
		mine := held && owner.Node == session.Node() && owner.Incarnation == session.Incarnation()
		switch {
		case sh != nil && img.Revision >= sh.co.Epoch && (!held || owner.Epoch != sh.co.Epoch):
			sh.end() // its key is gone or another's: the term is over
		case sh != nil && preferred != session.Node():
			sh.giveUp()
		case sh == nil && mine && owner.Epoch > released && preferred != session.Node():
			// Its term ended before it could be given up.
			takes.Go(func() error {
				if err := c.s.meta.ReleaseShard(ctx, metadata.Coordination{Shard: i, Epoch: owner.Epoch}); err != nil && ctx.Err() == nil {
					c.s.log.Warn("group coordinator: giving a shard up failed", "shard", i, "error", err)
				}
				return nil
			})
		case sh == nil && mine && owner.Epoch > released:
			// A take whose answer was lost, or a term that ended by an error: it is loaded anew.
			c.start(shards, session, metadata.Coordination{Shard: i, Epoch: owner.Epoch})
		case sh == nil && held && !mine && preferred == session.Node() && !registered(img, owner):
			takes.Go(func() error {
				if err := c.s.meta.EvictShard(ctx, i, owner); err != nil && !errors.Is(err, metadata.ErrShardTaken) && ctx.Err() == nil {
					c.s.log.Warn("group coordinator: freeing a shard failed", "shard", i, "error", err)
				}
				return nil // the image will show it free
			})
		case sh == nil && !held && preferred == session.Node():
			takes.Go(func() error {
				co, err := c.s.meta.TakeShard(ctx, session, i)
				switch {
				case err == nil:
					c.start(shards, session, co)
				case !errors.Is(err, metadata.ErrShardTaken) && ctx.Err() == nil:
					c.s.log.Warn("group coordinator: taking a shard failed", "shard", i, "error", err)
				}
				return nil
			})
		}
	}
	_ = takes.Wait()
}

// registered tells whether a shard's owner still is the run of its node that took it.
func registered(img *metadata.Image, owner metadata.Coordinator) bool {
	b := img.Broker(owner.Node)
	return b != nil && b.Incarnation == owner.Incarnation
}

// start begins a term.
func (c *coordinators) start(ctx context.Context, session *metadata.Session, co metadata.Coordination) {
	sh := newShard(c, session, co)
	c.mu.Lock()
	if c.mu.shards[co.Shard] != nil {
		c.mu.Unlock()
		return
	}
	c.mu.shards[co.Shard] = sh
	c.mu.Unlock()
	c.wg.Go(func() {
		released, err := sh.run(ctx)
		if err != nil && !errors.Is(err, metadata.ErrFenced) && !errors.Is(err, metadata.ErrSessionLost) {
			c.s.log.Warn("group coordinator: a shard ended", "shard", co.Shard, "error", err)
			_ = pause(ctx, groupRetry) // it is taken up again, but not in a tight loop
		}
		c.mu.Lock()
		if released {
			c.mu.released[co.Shard] = co.Epoch
		}
		delete(c.mu.shards, co.Shard)
		c.mu.Unlock()
		c.wake()
	})
}

// find is the shard that coordinates a group, if this node does.
func (c *coordinators) find(id string) (*shard, error) {
	if len(id) > maxGroupID {
		return nil, fmt.Errorf("group id of %d bytes, at most %d: %w", len(id), maxGroupID, errInvalidGroupID)
	}
	shards := c.s.meta.Image().Shards()
	if shards == 0 {
		return nil, errNotCoordinator
	}
	c.mu.Lock()
	sh := c.mu.shards[metadata.ShardOf(id, shards)]
	c.mu.Unlock()
	return sh, sh.serves()
}

// serving are the shards that this node owns and has loaded.
func (c *coordinators) serving() (list []*shard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sh := range c.mu.shards {
		if sh.serves() == nil {
			list = append(list, sh)
		}
	}
	return list
}

// all are the shards that this node owns; errGroupLoading when one of them is not loaded.
func (c *coordinators) all() ([]*shard, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*shard, 0, len(c.mu.shards))
	for _, sh := range c.mu.shards {
		err := sh.serves()
		if errors.Is(err, errGroupLoading) {
			return nil, err
		}
		if err == nil {
			list = append(list, sh)
		}
	}
	return list, nil
}
