// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/gateway"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/tiering"
	"github.com/varve/varve/tiering/objstore"
)

// Every node has both listeners.
const (
	listenerName = "PLAINTEXT"
	peerListener = "INTERNAL"
	listenerPort = 9092
	peerPort     = 9094
)

// node is one life of the broker process: wired as `varve serve` wires it, on what survives a process.
type node struct {
	w            *World
	m            *machine
	store        metadata.UUID // of its disk
	uploads      atomic.Int32  // under way
	dead         atomic.Bool   // crashed: nothing it still does may be seen by anybody
	gone         chan struct{} // closed with it
	releasesLate atomic.Bool   // what it gives up as a coordinator is free only after lateRelease
	held         atomic.Pointer[held]
	kv           *memory.Client
	db           *hotlog.DB
	meta         *metadata.Store
	reader       *tiering.Reader
	broker       *broker.Broker
	gateway      *gateway.Server
	closers      []func() error
	abort        context.CancelFunc // ends a start that is under way
	cancel       context.CancelFunc
	running      sync.WaitGroup
	ports        struct {
		sync.Mutex
		listeners []net.Listener
	}
}

// newNode opens and wires a node on the machine's disk. It fails when a fault is in the way, as a process would that then starts anew.
func newNode(ctx context.Context, w *World, m *machine, disk *hotlog.MemFS) (n *node, err error) {
	n = &node{w: w, m: m, kv: w.etcd.Client(), gone: make(chan struct{})}
	ctx, n.abort = context.WithCancel(ctx)
	defer n.abort()
	n.closers = append(n.closers, n.kv.Close)
	n.kv.SetFaults(memory.Faults{Txn: n.txnFault})
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	logger := slog.New(&ear{w.log.Handler(), n}).With("node", m.id, "boot", w.boots.Add(1))
	n.db, err = hotlog.Open("data", hotlog.Options{
		FS: disk.StallingFS(n.beforeSync, func() { w.stall(n, false) }, func() { w.stall(n, true) }), CacheBytes: 1 << 20, MemTableBytes: 256 << 10, Logger: logger,
		Fatal: func(err error) {
			if !n.dead.Load() {
				w.failf("the hot log ended the process: %v", err)
			}
		},
	})
	if err != nil {
		if !n.dead.Load() { // no crash in between: the disk must open
			w.failf("opening the hot log: %v", err)
		}
		return n, err
	}
	n.closers = append(n.closers, n.db.Close)
	if err := n.openMetadata(ctx, logger); err != nil {
		return n, err
	}
	return n, n.wire(logger)
}

func (n *node) openMetadata(ctx context.Context, logger *slog.Logger) (err error) {
	id := n.db.Identity()
	n.store = id.StoreID
	n.meta, err = metadata.Open(ctx, n.kv, metadata.Options{
		NodeID: n.m.id, DataClusterID: id.ClusterID, DataNode: n.m.id, Witness: n.db, Logger: logger, LeaseTTL: n.w.knobs.Lease,
		StaticConfig: n.w.static,
	})
	if err != nil {
		return err
	}
	if err := n.db.SetIdentity(n.meta.ClusterID(), int32(n.m.id)); err != nil {
		return err
	}
	suspect, err := n.meta.RegisterNode(ctx, []metadata.StoreBoots{{StoreID: id.StoreID, Boots: id.Boots}})
	if err == nil && suspect[0] {
		n.w.failf("the metadata takes the data directory for an older copy")
	}
	return err
}

func (n *node) wire(logger *slog.Logger) (err error) {
	k := &n.w.knobs
	store := objstore.Retry(objstore.Limit(&gate{n.w.bucket, n}, objstore.LimitOptions{}), objstore.RetryOptions{Tries: 2})
	registry := prometheus.NewRegistry()
	n.reader = tiering.NewReader(tiering.ReaderConfig{CacheBytes: k.CacheBytes, IndexCacheBytes: k.CacheBytes, Logger: logger, Registerer: registry}, store)
	n.closers = append(n.closers, n.reader.Close)
	archiver := tiering.NewArchiver(tiering.Config{
		Workers: 2, PageEntries: k.PageEntries, MinFold: k.PageEntries, ManifestEntries: k.PageEntries, Pages: n.reader, UploadDeadline: 30 * time.Second,
		Logger: logger, Registerer: registry,
	}, store, n.meta)
	jobs := tiering.NewJobs(logger, registry)
	jobs.Add(tiering.DeletionJob(n.meta, n.reader, time.Second, time.Hour))
	initial, err := config.ResolveBroker(n.w.static, nil, nil)
	if err != nil {
		return err
	}
	n.broker, err = broker.New(broker.Config{
		Node: metadata.BrokerInfo{Node: n.m.id, Rack: fmt.Sprintf("rack%d", n.m.id), Endpoints: []metadata.Endpoint{
			{Listener: listenerName, Host: n.m.host, Port: listenerPort, Protocol: "PLAINTEXT"}, {Listener: peerListener, Host: n.m.host, Port: peerPort, Protocol: "PLAINTEXT"},
		}},
		InterBroker: peerListener, Dial: n.dial, Initial: initial, Logger: logger, Registerer: registry,
	}, n.meta, []*hotlog.DB{n.db}, broker.Tier{Archiver: archiver, Reader: n.reader, Meta: n.meta})
	if err != nil {
		return err
	}
	n.gateway, err = gateway.New(gateway.Config{NodeID: n.m.id, InterBroker: peerListener, Logger: logger, Registerer: registry, DrainTimeout: 5 * time.Second},
		n.broker, n.meta, []gateway.Listener{{Name: listenerName, Listen: n.listen(listenerPort)}, {Name: peerListener, Listen: n.listen(peerPort)}})
	if err != nil {
		return err
	}
	if err := n.gateway.Listen(); err != nil {
		return err
	}
	parts := []func(context.Context) error{n.meta.Run, n.broker.Run, archiver.Run, jobs.Run}
	if k.several() {
		n.meta.Subscribe(func(old, img *metadata.Image) { n.w.imageChanged(n, old, img) })
		parts = append(parts, controller.New(controller.Config{BytesIn: load(n), Logger: logger, Registerer: registry}, n.meta).Run)
	}
	n.run(parts...)
	return nil
}

// run starts the parts; the gateway ends before the others, which its requests still need.
func (n *node) run(parts ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	serve, stopServing := context.WithCancel(ctx)
	n.cancel = stopServing
	g, gctx := errgroup.WithContext(ctx)
	context.AfterFunc(gctx, stopServing) // a part that ends by itself ends the process
	for _, part := range parts {
		g.Go(func() error { return part(gctx) })
	}
	g.Go(func() error {
		defer cancel()
		// Before the metadata is loaded every topic would be answered as unknown. Who connects meanwhile waits.
		for !n.meta.Image().Loaded() && serve.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		return n.gateway.Run(serve)
	})
	n.running.Go(func() {
		defer cancel()
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) && !n.dead.Load() {
			n.w.failf("the node ended by itself: %v", err)
		}
	})
}

// listen keeps the listeners, so that a crash can take the ports away.
func (n *node) listen(at int) func() (net.Listener, error) {
	return func() (net.Listener, error) {
		l, err := n.w.net.Listen(fmt.Sprintf("%s:%d", n.m.host, at))
		if err != nil {
			return nil, err
		}
		n.ports.Lock()
		defer n.ports.Unlock()
		n.ports.listeners = append(n.ports.listeners, l)
		if n.dead.Load() {
			_ = l.Close()
		}
		return &port{l, n}, nil
	}
}

// dial connects to another node. What a dead one still asks must not arrive: a fetch of it would acknowledge what its disk has lost.
func (n *node) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := n.w.net.Dial(ctx, n.m.host, address)
	if err != nil {
		return nil, err
	}
	return &line{c, n}, nil
}

// cutMetadata takes the way to the metadata away from this life, or its watches only, and gives it back.
func (n *node) cutMetadata(f memory.Faults) {
	n.ports.Lock()
	defer n.ports.Unlock()
	if n.dead.Load() {
		return // kill has taken it away for good, or is about to
	}
	f.Txn = n.txnFault
	n.kv.SetFaults(f)
}

// port is a life's listener: what its connections were given before the end is still delivered, nothing is afterwards.
type port struct {
	net.Listener
	n *node
}

func (p *port) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &line{c, p.n}, nil
}

type line struct {
	net.Conn
	n *node
}

func (l *line) Write(b []byte) (int, error) {
	if l.n.dead.Load() {
		return 0, net.ErrClosed
	}
	return l.Conn.Write(b)
}

// kill cuts this life off from everything that others can see, in the order that makes it one instant: what was answered before is
// answered, nothing is afterwards.
func (n *node) kill() (first bool) {
	if n.dead.Swap(true) {
		return false
	}
	n.ports.Lock()
	for _, l := range n.ports.listeners {
		_ = l.Close()
	}
	n.ports.Unlock()
	n.kv.SetFaults(memory.Faults{Outage: true})
	n.abort()
	return true
}

// close ends the goroutines of a life, crashed or not.
func (n *node) close() {
	if n.cancel != nil {
		n.cancel()
		n.running.Wait()
	}
	if n.broker != nil {
		_ = n.broker.Leave(context.Background()) // a dead one cannot give its lease back
	}
	for i := len(n.closers) - 1; i >= 0; i-- {
		if err := n.closers[i](); err != nil && !n.dead.Load() {
			n.w.failf("closing: %v", err)
		}
	}
}

// stop is a clean end.
func (n *node) stop() {
	if n.broker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_ = n.broker.Leave(ctx)
		cancel()
	}
	n.close()
}

var errDead = fmt.Errorf("%w: the process is dead", objstore.ErrUnavailable)

// gate is a life's access to the bucket: none once it is dead. What was under way then may still arrive, but nobody hears of it.
type gate struct {
	objstore.Store
	n *node
}

func (g *gate) do(call func() error) error {
	if g.n.dead.Load() {
		return errDead
	}
	err := call()
	if g.n.dead.Load() {
		return errDead
	}
	return err
}

func (g *gate) Create(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) error {
	g.n.uploads.Add(1)
	defer g.n.uploads.Add(-1)
	after := g.n.m.trap.spring(CrashAtUpload, g.n)
	err := g.do(func() error { return g.Store.Create(ctx, key, body, o) })
	if after != nil {
		after()
		return errDead
	}
	return err
}

func (g *gate) Get(ctx context.Context, key string, off, length int64, dst []byte) (out []byte, err error) {
	err = g.do(func() (err error) { out, err = g.Store.Get(ctx, key, off, length, dst); return err })
	if err != nil {
		return dst, err
	}
	return out, nil
}

func (g *gate) Stat(ctx context.Context, key string) (info objstore.Info, err error) {
	err = g.do(func() (err error) { info, err = g.Store.Stat(ctx, key); return err })
	return info, err
}

func (g *gate) List(ctx context.Context, prefix, after string, fn func(objstore.Info) error) error {
	return g.do(func() error { return g.Store.List(ctx, prefix, after, fn) })
}

func (g *gate) Delete(ctx context.Context, keys []string) (errs []error) {
	if g.n.dead.Load() {
		errs = make([]error, len(keys))
		for i := range errs {
			errs[i] = errDead
		}
		return errs
	}
	return g.Store.Delete(ctx, keys)
}

func (g *gate) AbortUpload(ctx context.Context, key, id string) error {
	return g.do(func() error { return g.Store.AbortUpload(ctx, key, id) })
}

// Close leaves the world's bucket open.
func (g *gate) Close() error { return nil }
