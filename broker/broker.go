// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/record"
)

// Config holds plain values; zero means the default.
type Config struct {
	Node metadata.BrokerInfo // what this node registers; StoreID and Boots come from the hot log
	// InterBroker is the listener that followers use, and Dial how this node connects to another's. A node without peers needs neither.
	InterBroker string
	Dial        DialFunc
	Initial     *config.Broker // configuration until the metadata is loaded; nil: the defaults
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
}

// Broker holds the partitions of this node. Run owns every goroutine.
type Broker struct {
	cfg     Config
	meta    *metadata.Store
	dbs     []*hotlog.DB
	tier    Tier
	log     *slog.Logger
	metrics *metrics

	verifier  TxnVerifier // nil: transactional batches are refused
	session   atomic.Pointer[metadata.Session]
	producers atomic.Int64        // idempotent producers remembered, all partitions together
	leaving   atomic.Bool         // no new leadership, and none kept
	closing   atomic.Bool         // nothing is appended any more
	running   atomic.Bool         // Run is
	wake      chan struct{}       // roles are to be looked at
	repairs   *semaphore.Weighted // replicas that read the bucket in order to follow
	shrinks   atomic.Uint64       // replicas taken out of in-sync sets here
	expands   atomic.Uint64
	isrWork   *workSet      // in-sync sets to be changed
	evictWork *workSet      // hot logs of followers to be trimmed
	moveWork  *workSet      // leaderships to be handed over
	moveTurn  chan struct{} // a token while some are
	heard     bell          // rung when a follower has heard of a new leader
	leavers   leavers
	peers     peerPool

	// keepRoles' own.
	swept    bool // hot logs of deleted topics were removed
	fetchers map[record.NodeID]*fetcher
	sources  map[record.PartitionID]*fetcher // who fetches each followed partition
	vacant   map[record.PartitionID]vacancy
	again    map[record.PartitionID]struct{}       // to be looked at again in a moment
	start    func(run func(context.Context) error) // starts a goroutine of Run

	mu struct {
		sync.RWMutex
		partitions map[record.PartitionID]*Partition
	}
	dirty  dirtySet
	tables timeTables
	roles  bell // rung when a request that waits for a role should look again
	late   lateRoles
}

// New wires a broker; it does nothing yet. The hot logs stay the caller's to close, after Run has returned.
func New(cfg Config, meta *metadata.Store, dbs []*hotlog.DB, tier Tier) (*Broker, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	if cfg.Initial == nil {
		cfg.Initial = config.Default()
	}
	if len(dbs) == 0 {
		return nil, errors.New("broker: at least one hot log is needed")
	}
	b := &Broker{
		cfg: cfg, meta: meta, dbs: dbs, tier: tier, log: cfg.Logger, wake: make(chan struct{}, 1), isrWork: newWorkSet(), evictWork: newWorkSet(), moveWork: newWorkSet(), moveTurn: make(chan struct{}, 1), repairs: semaphore.NewWeighted(maxRepairs),
		fetchers: map[record.NodeID]*fetcher{}, sources: map[record.PartitionID]*fetcher{}, vacant: map[record.PartitionID]vacancy{}, again: map[record.PartitionID]struct{}{},
	}
	b.mu.partitions = make(map[record.PartitionID]*Partition)
	b.cfg.Node.StoreID, b.cfg.Node.Boots = StoreID(dbs), dbs[0].Identity().Boots
	var err error
	if b.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return nil, err
	}
	return b, nil
}

// Config is this node's configuration in force.
func (b *Broker) Config() *config.Broker {
	if c := b.meta.Image().NodeConfig; c != nil {
		return c
	}
	return b.cfg.Initial
}

// StoreID identifies the content of all data directories together: a node that lost one of its disks is another store, so that
// it is not taken for a holder of what was there.
func StoreID(dbs []*hotlog.DB) (id metadata.UUID) {
	if len(dbs) == 1 {
		return dbs[0].Identity().StoreID
	}
	h := sha256.New()
	var all [][16]byte
	for _, db := range dbs {
		all = append(all, db.Identity().StoreID)
	}
	slices.SortFunc(all, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	for _, one := range all {
		h.Write(one[:])
	}
	copy(id[:], h.Sum(nil))
	return id
}

// Run registers this node, takes the roles that the metadata gives it and keeps both until ctx ends or the metadata store
// refuses for good. All leadership ends before it returns.
func (b *Broker) Run(ctx context.Context) error {
	cancel := b.meta.Subscribe(b.imageChanged)
	defer cancel()
	b.running.Store(true)
	defer b.running.Store(false)
	b.markAll()
	g, ctx := errgroup.WithContext(ctx)
	b.start = func(run func(context.Context) error) { g.Go(func() error { return run(ctx) }) }
	g.Go(func() error { return b.keepRegistered(ctx) })
	g.Go(func() error { return b.keepRoles(ctx) })
	g.Go(func() error { return b.keepISR(ctx) })
	g.Go(func() error { return b.keepEvicted(ctx) })
	g.Go(func() error { return b.keepMoving(ctx) })
	g.Go(func() error { return b.sweepProducers(ctx) })
	g.Go(func() error {
		select {
		case <-b.meta.Failed():
			return b.meta.Err()
		case <-ctx.Done():
			return nil
		}
	})
	err := g.Wait()
	b.peers.close()
	b.endAll()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Partition finds this node's replica.
func (b *Broker) Partition(id record.PartitionID) (*Partition, error) {
	b.mu.RLock()
	p := b.mu.partitions[id]
	b.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	if _, ok := b.meta.Image().Partition(id); ok {
		return nil, ErrNotLeader
	}
	return nil, ErrUnknownPartition
}

// Partitions are all replicas of this node, in no order.
func (b *Broker) Partitions() []*Partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Collect(maps.Values(b.mu.partitions))
}

// Producers is how many idempotent producers the led partitions remember.
func (b *Broker) Producers() int { return int(b.producers.Load()) }

// MayServe tells whether this node's registration lets it act as a leader now.
func (b *Broker) MayServe() bool {
	s := b.session.Load()
	return s != nil && s.Alive()
}

// mayServeUnder is MayServe for what was taken under one registration: after it ended, the next one does not bring it back.
func (b *Broker) mayServeUnder(s *metadata.Session) bool { return s == b.session.Load() && s.Alive() }

// keepRegistered registers this node, and again whenever the registration is lost.
func (b *Broker) keepRegistered(ctx context.Context) error {
	for !b.leaving.Load() {
		s, err := b.meta.Register(ctx, b.cfg.Node)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, metadata.ErrUnavailable), errors.Is(err, metadata.ErrUnknown), errors.Is(err, metadata.ErrNodeIDTaken):
			b.log.Warn("cannot register yet", "node", b.cfg.Node.Node, "error", err)
			if pause(ctx, retryPause) != nil {
				return nil
			}
			continue
		case err != nil:
			return fmt.Errorf("registering node %d: %w", b.cfg.Node.Node, err)
		}
		b.session.Store(s)
		b.roles.ring()
		b.log.Info("registered", "node", s.Node(), "incarnation", s.Incarnation())
		b.markAll()
		select {
		case <-s.Lost():
			if !b.leaving.Load() {
				b.log.Warn("registration lost, giving up all leadership", "error", s.Err())
			}
			b.session.CompareAndSwap(s, nil)
			b.roles.ring()
			b.endAll()
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// Leave gives up all leadership and the registration, while requests are still being answered: clients learn that this node
// does not lead any more. It goes out of the in-sync sets, so that no leader waits for it, and leads on until others do. What nobody takes
// while it is registered it leads to the last, and acknowledges what was appended before it ends. Run goes on until its context ends.
func (b *Broker) Leave(ctx context.Context) error {
	b.leaving.Store(true)
	b.roles.ring()
	b.nudgeAll()
	b.handOverAll(ctx)
	b.awaitOut(ctx)
	b.closing.Store(true)
	for _, p := range b.Partitions() {
		if ctx.Err() != nil {
			break
		}
		p.mu.Lock()
		end, leads := p.mu.end, p.mu.lead != nil
		p.mu.Unlock()
		if leads {
			_ = p.waitDurable(ctx, end) // not leading, or fenced: nothing to wait for
		}
	}
	b.endAll()
	s := b.session.Swap(nil)
	if s == nil {
		return nil
	}
	return s.Close(ctx)
}

// endAll ends every leadership of this process (B5).
func (b *Broker) endAll() {
	for _, p := range b.Partitions() {
		p.endLeading(ErrNotLeader)
	}
}

// imageChanged notes what to look at. It runs in the metadata store's goroutine and must not block.
func (b *Broker) imageChanged(old, img *metadata.Image) {
	metadata.Diff(old, img, func(c metadata.TopicChange) {
		b.dirty.add(c)
		if c.New == nil {
			b.late.forgetTopic(c.ID)
		}
	})
	if !slices.Equal(old.Brokers(), img.Brokers()) || old.NodeConfig != img.NodeConfig || !maps.Equal(old.Drains(), img.Drains()) {
		b.dirty.addAll()
	}
	b.roles.ring()
	b.kick()
}

func (b *Broker) markAll() {
	b.dirty.addAll()
	b.kick()
}

func (b *Broker) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Ready returns why this node should not get traffic yet: it is not registered, or a partition that is assigned to it is not
// served with this node in its in-sync set.
func (b *Broker) Ready() error {
	img := b.meta.Image()
	switch {
	case !img.Loaded():
		return errors.New("the metadata is not loaded yet")
	case !b.MayServe():
		return errors.New("the node is not registered, or its lease is about to end")
	}
	waiting, first := 0, ""
	for t := range img.Topics() {
		for i := range t.Partitions {
			if !b.assigned(t, int32(i)) {
				continue
			}
			id := record.PartitionID{Topic: t.ID, Index: int32(i)}
			b.mu.RLock()
			p := b.mu.partitions[id]
			b.mu.RUnlock()
			if p == nil || !p.inSync() {
				waiting++
				first = fmt.Sprintf("%s-%d", t.Name, i)
			}
		}
	}
	if waiting > 0 {
		return fmt.Errorf("%d assigned partitions are not served yet, %s among them", waiting, first)
	}
	return nil
}

// inSync tells whether this replica is served, and in the partition's in-sync set.
func (p *Partition) inSync() bool {
	p.mu.Lock()
	lead, follow := p.mu.lead, p.mu.follow
	p.mu.Unlock()
	if lead != nil {
		return true
	}
	session := p.broker.session.Load()
	state, ok := p.broker.meta.Image().Partition(p.id)
	if follow == nil || session == nil || !ok {
		return false
	}
	m, ok := state.ISR.Member(p.broker.cfg.Node.Node)
	return ok && m.StoreID == p.broker.cfg.Node.StoreID && m.Incarnation == session.Incarnation()
}

// ISRChanges are how many replicas this node took out of in-sync sets and into them.
func (b *Broker) ISRChanges() (shrinks, expands uint64) { return b.shrinks.Load(), b.expands.Load() }

// SetEndpoints says where this node's listeners are reached; before Run.
func (b *Broker) SetEndpoints(endpoints []metadata.Endpoint) { b.cfg.Node.Endpoints = endpoints }
