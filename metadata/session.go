// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varve/varve/record"
)

// Session is a node's registration: a key that lives as long as the lease is kept. It is lost for good when the lease has
// ended; who wants another one registers again, with a new incarnation and without any leadership of the old one.
type Session struct {
	s           *Store
	node        record.NodeID
	incarnation Incarnation
	lease       LeaseID
	key         string
	ttl         time.Duration
	margin      time.Duration

	base time.Time    // monotonic
	sent atomic.Int64 // when the last successful keepalive was sent, since base

	cancel context.CancelFunc
	ended  chan struct{} // the keepalive loop is gone

	once sync.Once
	lost chan struct{}
	err  error // before lost is closed
}

// Node is the node that is registered.
func (x *Session) Node() record.NodeID { return x.node }

// Incarnation is what tells this registration from all others of the node.
func (x *Session) Incarnation() Incarnation { return x.incarnation }

// Revision is the revision at which the node registered.
func (x *Session) Revision() Revision { return Revision(x.incarnation) }

// Alive tells whether nobody can have taken the node's partitions over yet, by this machine's monotonic clock: the last keepalive
// that succeeded was sent less than the lease's time minus a margin ago. It comes back when the store was away and the lease
// is still there afterwards. It is a hint for liveness and for reads; no acknowledgement rests on it.
func (x *Session) Alive() bool {
	select {
	case <-x.lost:
		return false
	default:
		return x.Age() < x.ttl-x.margin
	}
}

// Age is the time since the last successful keepalive was sent.
func (x *Session) Age() time.Duration { return time.Since(x.base) - time.Duration(x.sent.Load()) }

// Lost is closed when the registration has ended.
func (x *Session) Lost() <-chan struct{} { return x.lost }

// Err is why it was lost; nil while it is not.
func (x *Session) Err() error {
	select {
	case <-x.lost:
		return x.err
	default:
		return nil
	}
}

func (x *Session) lose(err error) {
	x.once.Do(func() {
		x.err = err
		close(x.lost)
	})
	x.cancel()
}

// seen compares an image with the registration: somebody may have deleted or replaced it.
func (x *Session) seen(img *Image) {
	if img.Revision < x.Revision() {
		return
	}
	if b := img.Broker(x.node); b == nil || b.Incarnation != x.incarnation {
		x.lose(fmt.Errorf("node %d: %w: its key is gone or another one's", x.node, ErrSessionLost))
	}
}

// Close ends the registration. The node's partitions may be taken over at once.
func (x *Session) Close(ctx context.Context) error {
	x.lose(fmt.Errorf("node %d: %w", x.node, ErrClosed))
	<-x.ended
	x.s.mu.Lock()
	if x.s.mu.session == x {
		x.s.mu.session = nil
	}
	x.s.mu.Unlock()
	actx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if err := x.s.kv.Revoke(actx, x.lease); err != nil && !errors.Is(err, ErrLeaseNotFound) {
		return fmt.Errorf("ending the registration of node %d: %w", x.node, err)
	}
	return nil
}

// keep sends a keepalive every sixth of the lease, each bounded by that time, so that several may fail before the margin.
func (x *Session) keep(ctx context.Context) {
	defer close(x.ended)
	every := x.ttl / 6
	for sleep(ctx, every) == nil {
		began := time.Since(x.base)
		actx, cancel := context.WithTimeout(ctx, every)
		err := x.s.kv.KeepAlive(actx, x.lease)
		cancel()
		switch {
		case err == nil:
			x.sent.Store(int64(began))
		case errors.Is(err, ErrLeaseNotFound):
			x.lose(fmt.Errorf("node %d: %w: its lease has ended", x.node, ErrSessionLost))
		case ctx.Err() == nil:
			x.s.log.Warn("metadata: keepalive failed", "node", x.node, "age", x.Age(), "error", err)
		}
		x.s.metrics.leaseAge.Set(x.Age().Seconds())
	}
}

// Register makes this node known. A registration that an earlier run of the same data directory left behind is removed at once;
// one of another directory under the same node id is waited out as long as its lease can last, then it is ErrNodeIDTaken.
func (s *Store) Register(ctx context.Context, info BrokerInfo) (*Session, error) {
	info.Node = s.opts.NodeID
	if info.Versions == (VersionRange{}) {
		info.Versions = s.opts.Versions
	}
	if info.Started.IsZero() {
		info.Started = time.Now()
	}
	key := s.keys.broker(info.Node)
	waitUntil := time.Now().Add(s.opts.LeaseTTL + 3*time.Second)
	for {
		x, err := s.tryRegister(ctx, info)
		if err == nil {
			return x, nil
		}
		if !errors.Is(err, errRegistered) && !errors.Is(err, ErrConflict) {
			return nil, err
		}
		found, _, err := s.readKeys(ctx, key)
		if err != nil {
			return nil, err
		}
		kv, there := found[key]
		if !there {
			continue
		}
		old, err := decodeBroker(info.Node, &kv)
		if err != nil {
			return nil, err
		}
		if old.StoreID == info.StoreID && old.Boots <= info.Boots {
			if err := s.unregister(ctx, &kv); err != nil {
				return nil, err
			}
			continue
		}
		if time.Now().After(waitUntil) {
			return nil, fmt.Errorf("%w: node %d is registered by another process%s: stop it, or use another --node-id", ErrNodeIDTaken, info.Node, where(old))
		}
		if err := sleep(ctx, retryMax); err != nil {
			return nil, fmt.Errorf("registering node %d: %w: waiting for an earlier registration to end", info.Node, err)
		}
	}
}

func where(b *Broker) string {
	if len(b.Endpoints) == 0 {
		return ""
	}
	return fmt.Sprintf(" at %s:%d", b.Endpoints[0].Host, b.Endpoints[0].Port)
}

var errRegistered = errors.New("registered already")

func (s *Store) tryRegister(ctx context.Context, info BrokerInfo) (*Session, error) {
	versionKey := s.keys.key(keyVersion)
	found, _, err := s.readKeys(ctx, versionKey)
	if err != nil {
		return nil, err
	}
	version := found[versionKey]
	if _, err := s.checkVersion(&version); err != nil {
		return nil, err
	}
	base := time.Now()
	lease, ttl, err := s.grant(ctx)
	if err != nil {
		return nil, err
	}
	key := s.keys.broker(info.Node)
	c := newChange("registering node %d", info.Node)
	c.unchanged(versionKey, version.ModRevision, ErrConflict)
	c.created(key, Equal, 0, errRegistered)
	c.ops = append(c.ops, Op{Kind: OpPut, Key: key, Value: encodeBroker(&info, c.op), Lease: lease})
	c.mark = key
	rev, err := s.commit(ctx, c)
	if err != nil {
		if !errors.Is(err, ErrUnknown) {
			actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryMax)
			_ = s.kv.Revoke(actx, lease) // it would end by itself
			cancel()
		}
		return nil, err
	}
	kctx, cancel := context.WithCancel(context.Background())
	x := &Session{
		s: s, node: info.Node, incarnation: Incarnation(rev), lease: lease, key: key, ttl: ttl, margin: min(maxLeaseMargin, ttl/3),
		base: base, cancel: cancel, ended: make(chan struct{}), lost: make(chan struct{}),
	}
	s.mu.Lock()
	before := s.mu.session
	s.mu.session = x
	s.mu.Unlock()
	if before != nil {
		before.lose(fmt.Errorf("node %d: %w: registered anew", x.node, ErrSessionLost))
	}
	go x.keep(kctx)
	return x, nil
}

func (s *Store) grant(ctx context.Context) (LeaseID, time.Duration, error) {
	began := time.Now()
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		actx, cancel := context.WithTimeout(ctx, attemptTimeout)
		id, ttl, err := s.kv.Grant(actx, s.opts.LeaseTTL)
		cancel()
		if err == nil {
			// Never count on more than was asked for, nor on more than was given.
			return id, min(ttl, s.opts.LeaseTTL), nil
		}
		// A grant whose answer was lost ends by itself.
		if !isRetriable(err) || time.Since(began) > unavailableWait {
			return 0, 0, fmt.Errorf("granting a lease: %w", err)
		}
		if serr := sleep(ctx, jitter(pause)); serr != nil {
			return 0, 0, fmt.Errorf("granting a lease: %w: %w", err, serr)
		}
	}
}

// unregister removes a registration that an earlier run left behind.
func (s *Store) unregister(ctx context.Context, kv *KeyValue) error {
	c := newChange("removing the earlier registration %s", kv.Key)
	c.unchanged(kv.Key, kv.ModRevision, ErrConflict)
	c.delete(kv.Key)
	if _, err := s.commit(ctx, c); err != nil && !errors.Is(err, ErrConflict) {
		return err
	}
	return nil
}

// RegisterNode records how often each of this node's data directories was opened, and its stamp. suspect[i] tells that directory i is an older
// image of itself: etcd has heard of a higher stamp, or has seen it opened at least as often. What is known of it stays as it was, so that it is
// suspect however often it is opened. The owner moves its content aside and takes a new store id.
func (s *Store) RegisterNode(ctx context.Context, stores []StoreBoots) (suspect []bool, err error) {
	key := s.keys.node(s.opts.NodeID)
	for range maxConflicts {
		found, _, err := s.readKeys(ctx, key)
		if err != nil {
			return nil, err
		}
		var known nodeJSON
		kv, there := found[key]
		if there {
			if err := decodeJSON("node", kv.Value, &known); err != nil {
				return nil, err
			}
		}
		next, suspect, changed := s.mergeStores(known, stores)
		if !changed {
			return suspect, nil
		}
		c := newChange("recording the data directories of node %d", s.opts.NodeID)
		c.unchanged(key, kv.ModRevision, ErrConflict)
		c.put(key, encodeJSON(next, c.op))
		c.mark = key
		if _, err = s.commit(ctx, c); err == nil {
			s.mu.Lock()
			for i, st := range stores {
				if !suspect[i] {
					s.mu.recorded[StoreBoots{StoreID: st.StoreID, Boots: st.Boots}] = true
				}
			}
			s.mu.Unlock()
			return suspect, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("recording the data directories of node %d: %w", s.opts.NodeID, ErrConflict)
}

// mergeStores puts the directories first, then those that are remembered so that an old one which comes back is known.
func (s *Store) mergeStores(known nodeJSON, stores []StoreBoots) (next nodeJSON, suspect []bool, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	suspect = make([]bool, len(stores))
	mine := map[string]bool{}
	for i, st := range stores {
		id := st.StoreID.String()
		mine[id] = true
		now := nodeStoreJSON{StoreID: id, Boots: st.Boots, Stamp: st.Stamp}
		for _, k := range known.Stores {
			if k.StoreID != id {
				continue
			}
			// The same number of boots is fine when this very process recorded it.
			if k.Stamp > st.Stamp || k.Boots > st.Boots || k.Boots == st.Boots && !s.mu.recorded[StoreBoots{StoreID: st.StoreID, Boots: st.Boots}] {
				suspect[i], now = true, k
			}
		}
		changed = changed || !slices.Contains(known.Stores, now)
		next.Stores = append(next.Stores, now)
	}
	for _, k := range known.Stores {
		if !mine[k.StoreID] && len(next.Stores) < maxStoresPerNode {
			next.Stores = append(next.Stores, k)
		}
	}
	return next, suspect, changed
}

// Elect takes, or finds held, a role for this node; a role ends with the session of its holder. Its key goes with the holder's lease, which
// may outlive the session: a holder that registered anew, or whose registration is gone, holds it no more.
func (s *Store) Elect(ctx context.Context, x *Session, role string) (mine bool, err error) {
	key := s.keys.role(role)
	r, at, err := s.readRole(ctx, key)
	if err != nil {
		return false, err
	}
	c := newChange("taking the role %s", role)
	if at != 0 {
		if r.Node == x.node && r.Incarnation == x.incarnation {
			return true, nil
		}
		c.unchanged(key, at, errTaken)
		c.created(s.keys.broker(r.Node), NotEqual, int64(r.Incarnation), errTaken)
	} else {
		c.created(key, Equal, 0, errTaken)
	}
	c.created(x.key, Equal, int64(x.incarnation), ErrSessionLost)
	c.ops = append(c.ops, Op{Kind: OpPut, Key: key, Value: encodeJSON(roleJSON{Node: x.node, Incarnation: x.incarnation}, c.op), Lease: x.lease})
	c.mark = key
	if _, err = s.commit(ctx, c); errors.Is(err, errTaken) {
		return false, nil
	}
	return err == nil, err
}

// Holder is the node that holds a role, NoNode when nobody does.
func (s *Store) Holder(ctx context.Context, role string) (record.NodeID, error) {
	r, at, err := s.readRole(ctx, s.keys.role(role))
	if err != nil || at == 0 {
		return record.NoNode, err
	}
	// The key may outlive the registration it was taken under, as in Elect.
	if b := s.Image().Broker(r.Node); b == nil || b.Incarnation != r.Incarnation {
		return record.NoNode, nil
	}
	return r.Node, nil
}

// readRole reads who took a role, and as of which revision: 0, nobody did.
func (s *Store) readRole(ctx context.Context, key string) (r roleJSON, at Revision, err error) {
	found, _, err := s.readKeys(ctx, key)
	kv, there := found[key]
	if err != nil || !there {
		return r, 0, err
	}
	return r, kv.ModRevision, decodeJSON("role", kv.Value, &r)
}

var errTaken = errors.New("taken")
