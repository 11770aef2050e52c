// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/gateway"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/metadata/etcd/embed"
	"github.com/varve/varve/ops"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/dir"
)

// node is everything that one `varve serve` process runs, wired. Fields are in the order of the start; stop goes backwards.
type node struct {
	options  *nodeOptions
	static   map[string]string // broker configs it was started with
	config   *config.Broker
	log      *slog.Logger
	registry *prometheus.Registry

	diskBytes    int64 // of the data directories
	memory       memoryPlan
	location     objstore.Location
	store        objstore.Store
	logs         []*hotlog.DB
	kv           metadata.KV
	meta         *metadata.Store
	endpoints    []endpoint
	peerTLS      *peerTLS // nil: nodes talk in the clear
	reader       *tiering.Reader
	archiver     *tiering.Archiver
	broker       *broker.Broker
	controller   *controller.Controller
	gateway      *gateway.Server
	jobs         *tiering.Jobs // of the whole cluster; any node may run them
	ops          *ops.Server
	httpListener net.Listener

	etcd   []string      // its endpoints
	member *embed.Server // nil: etcd is elsewhere
	made   made          // until others may count on it

	closers []func() error // in the order of the start
}

// prepareNode looks at everything that a start may be refused for before it puts anything on a disk: configs, ports, the bucket. What is wrong
// is one line that says what to do. On an error everything opened is closed again.
func prepareNode(ctx context.Context, o *nodeOptions, log *slog.Logger) (*node, error) {
	n := &node{options: o, log: log, registry: prometheus.NewRegistry()}
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return n, n.steps(ctx, n.readConfig, n.tryPorts, n.openBucket) // n also with an error: it knows what was made
}

// open opens and wires everything, and binds the listeners; run starts it. On an error everything opened is closed again.
func (n *node) open(ctx context.Context, kv metadata.KV) error {
	n.kv = kv
	return n.steps(ctx, n.examine, n.openLogs, n.openMetadata, n.wire, n.bind)
}

func (n *node) steps(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			n.close()
			return err
		}
	}
	return nil
}

// newNode is prepareNode and open, for a store that is there.
func newNode(ctx context.Context, o *nodeOptions, kv metadata.KV, log *slog.Logger) (*node, error) {
	n, err := prepareNode(ctx, o, log)
	if err == nil {
		err = n.open(ctx, kv)
	}
	return n, err
}

// readConfig resolves the broker configs of the command line and the listeners.
func (n *node) readConfig(context.Context) (err error) {
	if n.static, err = n.options.brokerConfigs(); err != nil {
		return err
	}
	if n.config, err = config.ResolveBroker(n.static, nil, nil); err != nil {
		return usagef("--set: %s", err)
	}
	if n.peerTLS, err = openPeerTLS(n.options.peerTLS); err != nil {
		return err
	}
	n.endpoints, err = parseListeners(n.options.listeners)
	return err
}

// tryPorts takes the ports and gives them back: until the node serves, who connects should be refused rather than wait.
func (n *node) tryPorts(context.Context) error {
	addresses := map[string]string{}
	var names []string
	add := func(name, address string) {
		if address != "" {
			names, addresses[name] = append(names, name), address
		}
	}
	for _, e := range n.endpoints {
		add("--listeners, "+e.name, e.bind)
	}
	add("--http", n.options.http)
	if n.options.embedsEtcd() {
		if u, err := url.Parse(n.options.etcdListen); err == nil {
			add("--etcd-listen", u.Host)
		}
		if o, err := n.options.memberOptions(); err == nil {
			add("--etcd-peers", o.PeerAddress())
		}
	}
	for _, name := range names {
		l, err := listenTCP(addresses[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer l.Close() // nobody was accepted
	}
	return nil
}

// examine has a new data directory not made for a cluster that the node does not fit into.
func (n *node) examine(ctx context.Context) error {
	for _, data := range n.options.data {
		if _, err := os.Stat(filepath.Join(data, "hot")); !errors.Is(err, os.ErrNotExist) {
			return nil // opening it tells
		}
	}
	for again := false; ; again = true {
		inBucket, err := n.bucketClusterID(ctx)
		if err != nil {
			return err
		}
		o := n.metadataOptions()
		o.BucketClusterID = inBucket
		// Another first node may have named the cluster between our two looks: into the bucket first, then into etcd.
		if err = metadata.Examine(ctx, n.kv, o); again || !errors.Is(err, metadata.ErrBucketEmpty) {
			return err
		}
	}
}

// mayMakeEtcd refuses a new etcd where the bucket holds a cluster, before anything of it is made.
func (n *node) mayMakeEtcd(ctx context.Context) error {
	inBucket, err := n.bucketClusterID(ctx)
	if err != nil {
		return err
	}
	o := n.metadataOptions()
	o.BucketClusterID = inBucket
	return metadata.MayBegin(o)
}

func (n *node) metadataOptions() metadata.Options {
	return metadata.Options{
		ClusterName: n.options.cluster, NodeID: record.NodeID(n.options.nodeID), Logger: n.log.With("component", "metadata"),
		StaticConfig: n.static, LeaseTTL: n.config.Varve.BrokerLease,
	}
}

// openBucket opens the bucket behind its decorators and asks it whether it can be used.
func (n *node) openBucket(ctx context.Context) error {
	if bucket := n.options.makeBucket; bucket != "" {
		if err := n.made.dir(bucket, 0o750); err != nil {
			return fmt.Errorf("--data: %w", err)
		}
	}
	location, err := objstore.ParseURL(n.options.bucket)
	if err != nil {
		return usagef("--bucket: %s", err)
	}
	n.location = location
	if n.options.makeBucket != "" { // other nodes may be about to use any other one
		n.made.maybe(filepath.Join(location.Dir, dir.TempDir))
	}
	driver, err := openDriver(ctx, location, objstore.Credentials{File: n.options.credentials})
	if err != nil {
		return fmt.Errorf("--bucket: %w", err)
	}
	n.closers = append(n.closers, driver.Close)
	if err := objstore.Check(ctx, driver, location); err != nil {
		return err
	}
	measured, err := objstore.Metrics(driver, n.registry)
	if err != nil {
		return err
	}
	n.store = objstore.Retry(objstore.Limit(measured, objstore.LimitOptions{}), objstore.RetryOptions{})
	return nil
}

// openLogs opens the hot log of each data directory. Memory that Pebble takes lies outside the Go heap, so it is cut down where
// the machine, or its cgroup, is small.
func (n *node) openLogs(context.Context) (err error) {
	if n.memory, err = planMemory(n.config, os.DirFS("/")); err != nil {
		return err
	}
	n.memory.apply(n.log)
	for i, data := range n.options.data {
		hot := filepath.Join(data, "hot")
		if err := n.made.dir(hot, 0o750); err != nil {
			return fmt.Errorf("--data: %w", err)
		}
		options := hotlog.Options{
			CacheBytes: n.memory.pebbleCache, MemTableBytes: n.memory.memTable, Logger: n.log.With("component", "hotlog", "dir", data),
		}
		if n.options.small {
			options.ReserveBytes = smallReserve
		}
		if options.WALFailoverDir, err = n.options.failoverDir(i); err != nil {
			return err
		}
		if options.WALFailoverDir != "" { // the log makes it, unless it has to be there
			n.made.maybe(options.WALFailoverDir)
		}
		db, err := hotlog.Open(hot, options)
		switch {
		case errors.Is(err, hotlog.ErrLocked):
			return fmt.Errorf("--data %s is in use by another process: stop it, or give this node another directory (%w)", data, err)
		case errors.Is(err, hotlog.ErrCorrupt):
			return fmt.Errorf("--data %s: %w; move the directory aside and start again: the node comes back with an empty one", data, err)
		case errors.Is(err, hotlog.ErrFailoverDir):
			return fmt.Errorf("--data %s: %w: --wal-failover names the directory above it", data, err)
		case err != nil:
			return fmt.Errorf("--data %s: %w", data, err)
		}
		n.logs = append(n.logs, db)
		n.closers = append(n.closers, func() error {
			if n.made.kept {
				return db.Close()
			}
			return db.Discard()
		})
	}
	return nil
}

// clusterKey is the object that says which cluster id the name has in this bucket. It only names the id.
func (n *node) clusterKey() string { return "clusters/" + metadata.EscapeID(n.options.cluster) }

// bucketClusterID reads the cluster id that the bucket knows for this cluster's name, "" for none.
func (n *node) bucketClusterID(ctx context.Context) (string, error) {
	const idLength = 22
	raw, err := n.store.Get(ctx, n.clusterKey(), 0, idLength, nil)
	if errors.Is(err, objstore.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading %s of bucket %s: %w", n.clusterKey(), n.location, err)
	}
	return string(raw), nil
}

// openMetadata compares what etcd, the bucket and the data directories say about the cluster (interface: --cluster), and names
// the cluster in the bucket when both were empty.
func (n *node) openMetadata(ctx context.Context) error {
	inBucket, err := n.bucketClusterID(ctx)
	if err != nil {
		return err
	}
	identity := n.logs[0].Identity()
	if err := sameAge(n.options.data, n.logs); err != nil {
		return err
	}
	for i, db := range n.logs {
		if id := db.Identity(); id.ClusterID != "" && (id.ClusterID != identity.ClusterID || id.Node != identity.Node) {
			if identity.ClusterID != "" {
				return fmt.Errorf("--data %s belongs to node %d of cluster %s, --data %s to node %d of cluster %s: give each node its own directories",
					n.options.data[0], identity.Node, identity.ClusterID, n.options.data[i], id.Node, id.ClusterID)
			}
			identity = id
		}
	}
	open := func() error {
		o := n.metadataOptions()
		o.BucketClusterID, o.DataClusterID, o.DataNode = inBucket, identity.ClusterID, record.NodeID(identity.Node)
		o.Witness, o.StoreID, o.Registerer = n.logs[0], broker.StoreID(n.logs), n.registry
		n.meta, err = metadata.Open(ctx, n.kv, o)
		return err
	}
	if err := open(); errors.Is(err, metadata.ErrBucketEmpty) {
		// Another first node may have named the cluster between our two looks: into the bucket first, then into etcd.
		if inBucket, err = n.bucketClusterID(ctx); err != nil {
			return err
		}
		if err := open(); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	n.made.keep() // the bucket may name the cluster from here on
	if n.meta.BucketUnconfirmed() {
		if err := n.nameCluster(ctx); err != nil {
			return err
		}
	}
	for _, db := range n.logs {
		if err := db.SetIdentity(n.meta.ClusterID(), n.options.nodeID); err != nil {
			return err
		}
	}
	suspect, err := n.meta.RegisterNode(ctx, n.stores())
	if err != nil {
		return err
	}
	for i, old := range suspect {
		if old {
			return fmt.Errorf("--data %s is an older copy of this node's directory: etcd knows of a newer state of it; "+
				"move it aside and start again, with the newest directory or an empty one", n.options.data[i])
		}
	}
	return n.stamp(ctx)
}

// sameAge refuses a fresh directory beside used ones: the directories together are one store, and with another set of them the node
// would not be taken for a holder of what it has.
func sameAge(dirs []string, logs []*hotlog.DB) error {
	used, fresh := "", ""
	for i, db := range logs {
		if db.Identity().ClusterID == "" {
			fresh = dirs[i]
		} else {
			used = dirs[i]
		}
	}
	if used != "" && fresh != "" {
		return fmt.Errorf("--data %s is new, --data %s is in use: the directories of a node cannot be added to; start it with those that it had", fresh, used)
	}
	return nil
}

// nameCluster writes the cluster's id under its name into the bucket. Another cluster that came first is refused.
func (n *node) nameCluster(ctx context.Context) error {
	id := n.meta.ClusterID()
	err := objstore.CreateResolved(ctx, n.store, n.clusterKey(), objstore.Bytes([]byte(id)), objstore.PutOptions{
		Metadata: map[string]string{"attempt": id},
	})
	if errors.Is(err, objstore.ErrExists) {
		there, readErr := n.bucketClusterID(ctx)
		if readErr != nil {
			return readErr
		}
		if there != id {
			return fmt.Errorf("bucket %s already holds cluster %q with id %s, etcd has id %s: use another --cluster name, prefix or etcd",
				n.location, n.options.cluster, there, id)
		}
		err = nil
	}
	if err != nil {
		return fmt.Errorf("naming cluster %q in bucket %s: %w", n.options.cluster, n.location, err)
	}
	return n.meta.ConfirmBucket(ctx)
}

// run works until ctx ends, then hands over and finishes within the drain timeout.
func (n *node) run(ctx context.Context, ready func(*node)) error {
	// What serves clients ends last: while leadership is given up they still get answers and learn about it.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	serve, stopServing := context.WithCancel(work)
	defer stopServing()
	g, gctx := errgroup.WithContext(work)
	g.Go(func() error { return n.meta.Run(gctx) })
	g.Go(func() error { return n.broker.Run(gctx) })
	g.Go(func() error { return n.archiver.Run(gctx) })
	g.Go(func() error { return n.jobs.Run(gctx) })
	g.Go(func() error { return n.controller.Run(gctx) })
	g.Go(func() error { return n.memory.followGC(gctx) })
	g.Go(func() error { return n.keepStamping(gctx, stampEvery) })
	if n.member != nil {
		g.Go(func() error { return n.watchMember(gctx) })
	}
	g.Go(func() error {
		defer stopWork() // the last that has to be answered is
		// Before the metadata is loaded, every topic would be answered as unknown. Who connects meanwhile waits.
		if !waitUntil(serve, func() bool { return n.meta.Image().Loaded() }) {
			return nil
		}
		return n.gateway.Run(serve)
	})
	if n.httpListener != nil {
		g.Go(func() error { return n.ops.Run(gctx, n.httpListener) })
	}
	g.Go(func() error {
		if n.waitReady(gctx) {
			ready(n)
		}
		return nil
	})
	g.Go(func() error {
		select {
		case <-ctx.Done():
		case <-gctx.Done():
			stopServing() // a part has failed: whoever runs this process starts it again, or reads why it ended
			return nil
		}
		n.log.Info("draining", "timeout", n.options.drain)
		drain, cancel := context.WithTimeout(work, n.options.drain)
		defer cancel()
		// Give up leadership while still answering, then stop accepting and finish requests, then stop the rest.
		if err := n.broker.Leave(drain); err != nil {
			n.log.Warn("leaving", "error", err)
		}
		stopServing()
		return nil
	})
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// waitReady returns true once every partition assigned here is served.
func (n *node) waitReady(ctx context.Context) bool {
	return waitUntil(ctx, func() bool { return n.broker.Ready() == nil })
}

// waitUntil returns true once the condition holds, false when ctx ends first.
func waitUntil(ctx context.Context, holds func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// close releases what newNode opened, last first.
func (n *node) close() {
	for i := len(n.closers) - 1; i >= 0; i-- {
		if err := n.closers[i](); err != nil {
			n.log.Warn("closing", "error", err)
		}
	}
	n.closers = nil
}

// bootstrap is the address that clients of the first listener are told.
func (n *node) bootstrap() string {
	e := n.endpoints[0]
	return net.JoinHostPort(e.host, fmt.Sprint(e.port))
}

// httpAddr is where the HTTP port is bound, "-" without one.
func (n *node) httpAddr() string {
	if n.httpListener == nil {
		return "-"
	}
	return n.httpListener.Addr().String()
}
