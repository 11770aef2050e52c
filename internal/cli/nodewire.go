// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/gateway"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/ops"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/aws"
	"github.com/varve/varve/tiering/objstore/dir"
	"github.com/varve/varve/tiering/objstore/mem"
	"github.com/varve/varve/tiering/objstore/minio"
)

// leastHotBytes is the smallest hot budget that is chosen by itself; configured it may be less.
const leastHotBytes = 1 << 30

// deletionInterval is how often deleted topics are looked at, while there are any.
const deletionInterval = time.Second

// openDriver opens the driver that a bucket URL names.
func openDriver(ctx context.Context, l objstore.Location, c objstore.Credentials) (objstore.Store, error) {
	switch l.Scheme {
	case objstore.SchemeS3:
		return aws.New(ctx, l, c)
	case objstore.SchemeMinio:
		return minio.New(ctx, l, c)
	case objstore.SchemeFile:
		return dir.New(ctx, l, c)
	default:
		return mem.New(ctx, l, c)
	}
}

// wire builds what works on the opened stores.
func (n *node) wire(context.Context) (err error) {
	v := n.config.Varve
	n.reader = tiering.NewReader(tiering.ReaderConfig{
		CacheBytes: n.memory.tierCache, InFlightBytes: n.memory.inFlight, GetDeadline: min(tiering.DefaultGetDeadline, v.GCGrace/2),
		Logger: n.log.With("component", "tiering"), Registerer: n.registry,
	}, n.store)
	n.closers = append(n.closers, n.reader.Close)
	if n.diskBytes, err = diskBytes(n.options.data); err != nil {
		return err
	}
	l := n.limits(n.config)
	n.archiver = tiering.NewArchiver(tiering.Config{
		Workers: v.UploadParallelism, SegmentMaxBytes: l.SegmentMaxBytes, SegmentMaxAge: l.SegmentMaxAge,
		HotBytes: l.HotBytes, NodeHotBytes: n.hotBytes, AppendedBytes: n.appendedBytes, ManifestEntries: l.ManifestEntries, Partitions: n.clusterPartitions,
		GCGrace: l.GCGrace, UploadDeadline: l.UploadDeadline, Pages: n.reader,
		Logger: n.log.With("component", "tiering"), Registerer: n.registry,
	}, n.store, n.meta)
	n.meta.Subscribe(func(old, img *metadata.Image) {
		if img.NodeConfig != nil && img.NodeConfig != old.NodeConfig {
			n.archiver.SetLimits(n.limits(img.NodeConfig))
		}
	})
	n.jobs = tiering.NewJobs(n.log.With("component", "jobs"), n.registry)
	n.jobs.Add(tiering.DeletionJob(n.meta, n.reader, deletionInterval, v.GCGrace))
	n.broker, err = broker.New(broker.Config{
		Node:        metadata.BrokerInfo{Node: record.NodeID(n.options.nodeID), Rack: n.options.rack, Roles: n.options.roles, HTTP: n.options.http, Started: time.Now()},
		InterBroker: n.options.listeners.interBroker, Dial: n.peerTLS.dialer(),
		Initial: n.config, Logger: n.log.With("component", "broker"), Registerer: n.registry,
	}, n.meta, n.logs, broker.Tier{Archiver: n.archiver, Reader: n.reader, Meta: n.meta})
	if err != nil {
		return err
	}
	load := bytesIn{partitions: n.broker.Partitions}
	n.controller = controller.New(controller.Config{
		BytesIn: load.count, Logger: n.log.With("component", "controller"), Registerer: n.registry,
	}, n.meta)
	n.gateway, err = gateway.New(gateway.Config{
		NodeID: record.NodeID(n.options.nodeID), InterBroker: n.options.listeners.interBroker, NodeMemory: n.memory.request, ConnectionMemory: n.memory.connection, DrainTimeout: n.options.drain,
		ClampReplicationFactor: n.options.clampReplicas,
		Logger:                 n.log.With("component", "gateway"), LogLevel: n.options.level, Registerer: n.registry,
	}, n.broker, n.meta, n.gatewayListeners())
	if err != nil {
		return err
	}
	if err := n.registry.Register(ops.NewCollector(stateSource{n})); err != nil {
		return err
	}
	if err := n.registry.Register(newHotLogCollector(n.logs, n.options.data)); err != nil {
		return err
	}
	n.ops, err = ops.New(ops.Config{TokenFile: n.options.httpToken}, opsNode{n}, n.registry, n.log.With("component", "http"))
	return err
}

// limits are the archiver's, from a configuration that may change while the node runs. The hot budget is varve.hot.bytes, or a
// tenth of the disks.
func (n *node) limits(c *config.Broker) tiering.Limits {
	v := &c.Varve
	budget := v.HotBytes
	if budget <= 0 {
		budget = max(leastHotBytes, n.diskBytes/10)
	}
	return tiering.Limits{
		SegmentMaxBytes: v.SegmentMaxBytes, SegmentMaxAge: v.SegmentMaxAge, HotBytes: budget, ManifestEntries: v.ManifestEtcdEntries,
		GCGrace: v.GCGrace, UploadDeadline: v.UploadDeadline,
	}
}

// diskBytes is the size of the disks of the data directories together.
func diskBytes(dirs []string) (total int64, err error) {
	for _, dir := range dirs {
		size, err := hotlog.DiskSize(dir)
		if err != nil {
			return 0, err
		}
		total += size
	}
	return total, nil
}

func (n *node) hotBytes() int64 {
	total := int64(0)
	for _, db := range n.logs {
		total += db.LiveBytes()
	}
	return total
}

func (n *node) appendedBytes() int64 {
	total := int64(0)
	for _, db := range n.logs {
		total += db.AppendedBytes()
	}
	return total
}

func (n *node) clusterPartitions() int {
	total := 0
	for t := range n.meta.Image().Topics() {
		total += len(t.Partitions)
	}
	return total
}

func (n *node) gatewayListeners() []gateway.Listener {
	listeners := make([]gateway.Listener, len(n.endpoints))
	for i, e := range n.endpoints {
		listeners[i] = gateway.Listener{Name: e.name, Listen: func() (net.Listener, error) {
			l, err := listenTCP(e.bind)
			if err == nil && e.interBrokerUse && n.peerTLS != nil {
				l = n.peerTLS.server(l)
			}
			return l, err
		}}
	}
	return listeners
}

// peerHost is where other nodes reach an inter-broker listener that is bound to all addresses and advertises none: where clients do.
func (n *node) peerHost() string {
	for _, e := range n.endpoints {
		if !isWildcard(e.host) {
			return e.host
		}
	}
	return "127.0.0.1"
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// listenTCP binds an address; a port in use is told in words.
func listenTCP(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) || err != nil && runtime.GOOS == "windows" && errors.Is(err, syscall.Errno(10048)) {
		return nil, fmt.Errorf("%s is in use by another process: stop it or choose another port (%w)", addr, err)
	}
	return l, err
}

// bind takes the ports, so that one in use stops the start, and tells the broker what to register.
func (n *node) bind(context.Context) error {
	if err := n.gateway.Listen(); err != nil {
		return err
	}
	var registered []metadata.Endpoint
	for i := range n.endpoints {
		e := &n.endpoints[i]
		if bound, ok := n.gateway.Addr(e.name).(*net.TCPAddr); ok && e.port == 0 {
			e.port = int32(bound.Port)
		}
		host := e.host
		if isWildcard(host) {
			host = n.peerHost() // only the inter-broker listener may have one
		}
		protocol := "PLAINTEXT"
		if e.interBrokerUse && n.peerTLS != nil {
			protocol = "SSL"
		}
		registered = append(registered, metadata.Endpoint{Listener: e.name, Host: host, Port: e.port, Protocol: protocol})
	}
	n.broker.SetEndpoints(slices.Clip(registered))
	if n.options.http == "" {
		return nil
	}
	l, err := listenTCP(n.options.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	n.httpListener = l
	n.closers = append(n.closers, func() error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return nil
}
