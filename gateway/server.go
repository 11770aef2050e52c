// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/record"
)

// Config holds plain values; zero means the default.
type Config struct {
	NodeID           record.NodeID
	InterBroker      string // the listener on which other nodes may act as replicas
	NodeMemory       int64  // bytes of requests in flight on the node; default varve.request.memory.bytes
	ConnectionMemory int64  // and per connection; default varve.connection.memory.bytes
	FetchMemory      int64  // bytes of fetch answers under construction on the node
	DrainTimeout     time.Duration
	// ClampReplicationFactor takes a replication factor above the number of nodes for that number (varve dev).
	ClampReplicationFactor bool
	Logger                 *slog.Logger
	LogLevel               *slog.LevelVar // of Logger, to be altered as the broker logger "root"; nil: it cannot be
	Registerer             prometheus.Registerer
}

// withDefaults fills what is zero from the broker's configs and the limits.
func (c Config) withDefaults(b *config.Broker) Config {
	first := func(v *int64, defaults ...int64) {
		for _, d := range defaults {
			if *v <= 0 {
				*v = d
			}
		}
	}
	first(&c.NodeMemory, b.Varve.RequestMemoryBytes, defaultNodeMemory)
	first(&c.ConnectionMemory, b.Varve.ConnectionMemoryBytes, defaultConnMemory)
	first(&c.FetchMemory, defaultFetchMemory)
	if c.DrainTimeout <= 0 {
		c.DrainTimeout = defaultDrain
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

// Listener is one of the node's listeners. Listen is a function, so that a memory network can stand in for TCP.
type Listener struct {
	Name   string
	Listen func() (net.Listener, error)
}

// Server accepts connections and serves them. Run owns every goroutine.
type Server struct {
	cfg       Config
	log       *slog.Logger
	table     *table
	metrics   *metrics
	broker    *broker.Broker
	meta      *metadata.Store
	listeners []Listener
	memory    *semaphore.Weighted // of requests in flight, node-wide (G4)
	draining  chan struct{}
	// fetchMemory bounds fetch answers under construction, node-wide (G4).
	fetchMemory byteBudget
	topics      topicCache
	sessions    sessionCache
	coldSlots   *semaphore.Weighted // of reads from the bucket, node-wide
	producerIDs producerIDs
	quotas      *quotas
	groups      *coordinators
	markers     *markerSender
	txnMetrics  *txnMetrics
	complained  atomic.Int64 // when the data path last wrote a line, in nanoseconds

	mu struct {
		sync.Mutex
		bound  []net.Listener // one per listener, in order
		conns  map[*conn]struct{}
		closed bool
		// perAddress counts conns by where they come from.
		perAddress map[string]int
		// refused are connections that came too fast, with what will close them.
		refused map[net.Conn]*time.Timer
	}
}

// New wires a server; it binds nothing yet.
func New(cfg Config, b *broker.Broker, meta *metadata.Store, listeners []Listener) (*Server, error) {
	cfg = cfg.withDefaults(b.Config())
	t, err := newTable(slices.Concat(coreAPIs(), adminAPIs(), groupAPIs(), txnAPIs(), txnLeaderAPIs()))
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:         cfg,
		log:         cfg.Logger,
		table:       t,
		broker:      b,
		meta:        meta,
		listeners:   listeners,
		memory:      semaphore.NewWeighted(cfg.NodeMemory),
		coldSlots:   semaphore.NewWeighted(maxColdReads),
		producerIDs: newProducerIDs(),
		draining:    make(chan struct{}),
	}
	s.groups = newCoordinators(s)
	s.markers = newMarkerSender(s)
	b.SetTxnVerifier(txnVerifier{s})
	s.quotas = newQuotas(b.Config())
	s.fetchMemory.limit = cfg.FetchMemory
	s.topics.refs = make(map[record.TopicID]*topicRef)
	s.mu.conns = make(map[*conn]struct{})
	s.mu.perAddress, s.mu.refused = make(map[string]int), make(map[net.Conn]*time.Timer)
	if s.metrics, err = newMetrics(cfg.Registerer, t); err != nil {
		return nil, err
	}
	if s.txnMetrics, err = newTxnMetrics(cfg.Registerer, s.groups); err != nil {
		return nil, err
	}
	if err := cfg.Registerer.Register(newQuotaMetrics(s.quotas)); err != nil {
		return nil, err
	}
	if err := cfg.Registerer.Register(s.groups.metrics); err != nil {
		return nil, err
	}
	s.sessions.init(s.metrics.sessions)
	return s, nil
}

// Listen binds every listener, so that a port in use stops the start before anything else runs. Run does it when not done.
func (s *Server) Listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.bound != nil {
		return nil
	}
	var bound []net.Listener
	for _, l := range s.listeners {
		nl, err := l.Listen()
		if err != nil {
			for _, b := range bound {
				_ = b.Close()
			}
			return fmt.Errorf("listener %s: %w", l.Name, err)
		}
		bound = append(bound, nl)
	}
	s.mu.bound = bound
	return nil
}

// Addr is where the named listener is bound, nil before Listen.
func (s *Server) Addr(name string) net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.listeners {
		if l.Name == name && i < len(s.mu.bound) {
			return s.mu.bound[i].Addr()
		}
	}
	return nil
}

// Run serves until ctx ends, then drains: it stops accepting, lets requests in progress finish within the drain timeout, closes
// every connection, and returns when its goroutines are gone.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(); err != nil {
		return err
	}
	defer s.meta.Subscribe(s.imageChanged)()
	s.quotas.follow(s.meta.Image())
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var accepts, conns sync.WaitGroup
	failed := make(chan error, len(s.listeners))
	for i := range s.listeners {
		accepts.Go(func() {
			if err := s.accept(hard, i, &conns); err != nil {
				failed <- err
			}
		})
	}
	coordinating, giveUp := context.WithCancel(ctx)
	var coordinators sync.WaitGroup
	coordinators.Go(func() { s.groups.run(coordinating) })
	coordinators.Go(func() { s.groups.sweepTxns(coordinating) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	// The groups first, while their members can still be told: they look for the next coordinator at once.
	giveUp()
	coordinators.Wait()
	close(s.draining)
	s.stopAccepting()
	accepts.Wait()
	s.drain(&conns, cancel)
	return err
}

func (s *Server) stopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	for _, l := range s.mu.bound {
		_ = l.Close()
	}
	for nc, t := range s.mu.refused {
		t.Stop()
		_ = nc.Close()
	}
	clear(s.mu.refused)
}

// drain ends reading on every connection and waits for what was read to be answered, at most the drain timeout.
func (s *Server) drain(conns *sync.WaitGroup, cancel context.CancelFunc) {
	s.mu.Lock()
	for c := range s.mu.conns {
		c.stopReading()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		conns.Wait()
		close(done)
	}()
	t := time.NewTimer(s.cfg.DrainTimeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		s.log.Warn("drain timed out; closing connections with requests in progress")
	}
	cancel()
	s.mu.Lock()
	for c := range s.mu.conns {
		c.abort()
	}
	s.mu.Unlock()
	<-done
}

// accept takes connections of one listener until it is closed.
func (s *Server) accept(ctx context.Context, i int, conns *sync.WaitGroup) error {
	s.mu.Lock()
	l := s.mu.bound[i]
	s.mu.Unlock()
	backoff := acceptBackoffMin
	for {
		nc, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			// Out of file descriptors, or the peer gone before we looked: neither ends the listener.
			s.log.Warn("accept failed", "listener", s.listeners[i].Name, "error", err)
			select {
			case <-s.draining:
				return nil
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, acceptBackoffMax)
			continue
		}
		backoff = acceptBackoffMin
		if !s.admit(ctx, nc, s.listeners[i].Name, conns) {
			_ = nc.Close()
		}
	}
}

// admit starts serving a connection unless the server drains or has too many.
func (s *Server) admit(ctx context.Context, nc net.Conn, listener string, conns *sync.WaitGroup) bool {
	address := addressOf(nc)
	if s.tooManyFrom(nc, address, listener) {
		return true // it is closed a little later
	}
	s.mu.Lock()
	b := s.broker.Config()
	n, from := len(s.mu.conns), s.mu.perAddress[address]
	if s.mu.closed || n >= b.MaxConnections || from >= b.MaxConnectionsPerIP {
		closed := s.mu.closed
		s.mu.Unlock()
		if !closed {
			s.log.Warn("connection refused", "peer", nc.RemoteAddr(), "connections", n, "limit", b.MaxConnections, "from there", from, "limit there", b.MaxConnectionsPerIP)
		}
		return false
	}
	c := newConn(ctx, s, nc, listener)
	s.mu.conns[c] = struct{}{}
	s.mu.perAddress[address]++
	s.mu.Unlock()
	s.metrics.connections.Inc()
	conns.Go(func() {
		c.run()
		s.mu.Lock()
		delete(s.mu.conns, c)
		if s.mu.perAddress[address]--; s.mu.perAddress[address] == 0 {
			delete(s.mu.perAddress, address)
		}
		s.mu.Unlock()
		s.metrics.connections.Dec()
	})
	return true
}

// complain writes a line about failing requests, but not one per request.
func (s *Server) complain(msg string, args ...any) {
	now := time.Now().UnixNano()
	last := s.complained.Load()
	if now-last < int64(complainEvery) || !s.complained.CompareAndSwap(last, now) {
		return
	}
	s.log.Error(msg, args...)
}
