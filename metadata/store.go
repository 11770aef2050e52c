// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve/varve/record"
)

// Witness remembers, beside the node's data, the newest revision it has seen and of which store. *hotlog.DB is one.
type Witness interface {
	Witness() (etcdClusterID uint64, revision int64)
	SetWitness(etcdClusterID uint64, revision int64) error
	// Generation is the cluster's generation that the witness is of, 0 before the first SetGeneration.
	Generation() int64
	SetGeneration(gen int64) error
}

// Options are what a Store needs to know. Zero values are the defaults.
type Options struct {
	ClusterName string // --cluster; default "varve"
	NodeID      record.NodeID
	// Prefix of all keys; default "/varve/<cluster name>/".
	Prefix string
	// Versions that this binary can run; default CurrentVersions.
	Versions VersionRange
	// BucketClusterID is what <prefix>/clusters/NAME in the bucket says, "" for nothing there.
	BucketClusterID string
	// DataClusterID and DataNode are what the data directory says, "" for a fresh one (DataNode does not matter then).
	DataClusterID string
	DataNode      record.NodeID
	// StoreID is that of the data directories, which a reconcile has seen or not; zero: unchecked.
	StoreID UUID
	// Witness keeps the highest revision seen; nil: only as long as the process lives.
	Witness Witness
	// Logger, default slog.Default(). Registerer may be nil.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// StaticConfig is this node's own broker configuration (file, flags), which topics' defaults are resolved against.
	StaticConfig map[string]string

	LeaseTTL       time.Duration // varve.broker.lease.ms
	Silence        time.Duration // how long the watch may be silent before it is checked
	WentBackGrace  time.Duration // how long a lower revision is asked again
	DeletingMinAge time.Duration // how long a deleted topic's keys stay at least
	CompactEvery   time.Duration // 0: default; negative: this node does not compact the store's history
}

func (o Options) withDefaults() Options {
	if o.ClusterName == "" {
		o.ClusterName = "varve"
	}
	if o.Prefix == "" {
		o.Prefix = "/varve/" + EscapeID(o.ClusterName) + "/"
	}
	if o.Versions == (VersionRange{}) {
		o.Versions = CurrentVersions
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = defaultLeaseTTL
	}
	if o.Silence == 0 {
		o.Silence = defaultSilence
	}
	if o.WentBackGrace == 0 {
		o.WentBackGrace = defaultWentBackGrace
	}
	if o.DeletingMinAge == 0 {
		o.DeletingMinAge = defaultDeletingMinAge
	}
	if o.CompactEvery == 0 {
		o.CompactEvery = defaultCompactEvery
	}
	return o
}

// Store is the cluster's truth as one node works with it. Its methods are safe for concurrent use.
type Store struct {
	kv      KV
	opts    Options
	keys    keyspace
	log     *slog.Logger
	metrics *metrics

	clusterID string
	gen       int64
	genRev    Revision // token of every change: a reconciled cluster is another one
	fresh     bool

	image   atomic.Pointer[Image]
	history *history
	locks   partitionLocks
	reload  chan struct{} // the check found that the image lacks something
	catchUp catchUp

	mu struct {
		sync.Mutex
		changed     chan struct{} // closed at the next image
		subscribers map[int]func(old, new *Image)
		nextSub     int
		failed      error
		watcher     Watcher
		session     *Session
		recorded    map[StoreBoots]bool // what this process told etcd about its data directories, without stamps
	}
	failure chan struct{} // closed when the Store stops serving
}

// ClusterID is the cluster's id, 22 characters, as Kafka shows it.
func (s *Store) ClusterID() string { return s.clusterID }

// Gen is the cluster's generation: it rises with every reconcile.
func (s *Store) Gen() int64 { return s.gen }

// BucketUnconfirmed tells that the bucket is not known to name this cluster: the caller writes <prefix>/clusters/NAME
// (create-if-absent) and then calls ConfirmBucket.
func (s *Store) BucketUnconfirmed() bool { return s.fresh }

// Image is the newest image, never nil; until Run has loaded one it is empty (Loaded tells).
func (s *Store) Image() *Image { return s.image.Load() }

// Subscribe calls fn for every new image, in order, from the goroutine of Run. fn must not block and not call Subscribe. The
// first call has the image of the time of the subscription as its old one.
func (s *Store) Subscribe(fn func(old, new *Image)) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.mu.nextSub
	s.mu.nextSub++
	s.mu.subscribers[id] = fn
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.subscribers, id)
	}
}

// Failed is closed when the Store stops serving for good; Err says why.
func (s *Store) Failed() <-chan struct{} { return s.failure }

// Err is why the Store stopped serving; nil while it serves.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.failed
}

// fail stops the Store for good. The first reason stays.
func (s *Store) fail(err error) {
	s.mu.Lock()
	session := s.mu.session
	first := s.mu.failed == nil
	if first {
		s.mu.failed = err
		close(s.failure)
	}
	s.mu.Unlock()
	if first {
		s.log.Error("metadata: stopped serving", "error", err)
		if session != nil {
			session.lose(err)
		}
	}
}

// WaitFor waits until the image is of that revision or a later one. Subscribers may not have been called for it yet.
func (s *Store) WaitFor(ctx context.Context, rev Revision) error {
	asked := false
	for {
		s.mu.Lock()
		changed, failed, w := s.mu.changed, s.mu.failed, s.mu.watcher
		s.mu.Unlock()
		if s.Image().Revision >= rev {
			return nil
		}
		if failed != nil {
			return failed
		}
		if w != nil && !asked {
			// A change outside of what the image holds moves no event: the watch has to be asked how far it is.
			asked = w.RequestProgress(ctx) == nil
		}
		timer := time.NewTimer(100 * time.Millisecond)
		select {
		case <-changed:
			asked = asked && s.Image().Revision < rev
		case <-timer.C:
			asked = false
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("waiting for metadata revision %d, have %d: %w", rev, s.Image().Revision, context.Cause(ctx))
		}
		timer.Stop()
	}
}

// publish makes img the image and tells everybody; quiet: only its revision differs, which subscribers need not hear of.
func (s *Store) publish(img *Image, quiet bool) {
	old := s.image.Load()
	s.image.Store(img)
	s.mu.Lock()
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
	var subs []func(old, new *Image)
	if !quiet {
		for _, id := range slices.Sorted(maps.Keys(s.mu.subscribers)) {
			subs = append(subs, s.mu.subscribers[id])
		}
	}
	session := s.mu.session
	s.mu.Unlock()
	if session != nil && !quiet {
		session.seen(img)
	}
	for _, fn := range subs {
		fn(old, img)
	}
	s.metrics.image(img)
}

func newUUID() (u UUID) {
	_, _ = rand.Read(u[:]) // never fails (crypto/rand)
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u
}

// NewUUID makes a random UUID, for attempts and store ids.
func NewUUID() UUID { return newUUID() }

// jitter spreads d over [d/2, d).
func jitter(d time.Duration) time.Duration {
	var b [8]byte
	_, _ = rand.Read(b[:])
	f := float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
	return time.Duration(math.Max(1, float64(d)*(0.5+f/2)))
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func isRetriable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown)
}
