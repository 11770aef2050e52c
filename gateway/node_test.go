// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/internal/memnet"
	"github.com/varve/varve/internal/testenv"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/objstore/mem"
)

func TestMain(m *testing.M) {
	poisonBuffers = true // every test sees a buffer that is used after it was given back
	m.Run()
}

const (
	testNodeID   = 1
	testListener = "PLAINTEXT"
	testAddress  = "node1:9092"
)

// node is one node in this process: the real broker on a file system in memory, metadata and bucket in memory, and the gateway
// on a memory network.
type node struct {
	t       testing.TB
	net     *memnet.Network
	meta    *metadata.Store
	kv      *memory.Client
	broker  *broker.Broker
	server  *Server
	store   *objstore.Faulty
	log     *testenv.Log
	metrics *prometheus.Registry
	stopGW  func() error
	stop    func() // the whole node, cleanly
	corr    int32
}

type nodeOptions struct {
	gateway Config
	static  map[string]string
	tier    tiering.Config
	memory  int64
	retries bool   // requests of the bucket are tried again, as by a real node
	disk    string // a directory on the disk; then clients come over TCP
	peers   *peers // of a cluster of several nodes
	id      record.NodeID
	rack    string
	opened  func(*metadata.Store) // before anybody else hears of images
}

// peers is what the nodes of a cluster share, and what of each survives its process.
type peers struct {
	net   *memnet.Network
	etcd  *memory.Server
	store *objstore.Faulty
	disks map[record.NodeID]*hotlog.MemFS
	lease time.Duration
	sync  func()       // what the syncs of every node's log wait for; nil: nothing
	full  atomic.Int32 // the node whose disk has no space left, 0 for none
	slow  atomic.Int64 // how long the first commit in a while takes, on every node

	closeStore func()
}

const interBrokerListener = "INTERNAL"

// startNode starts a node that ends with the test. It works inside a synctest bubble.
func startNode(t testing.TB, o nodeOptions) *node {
	t.Helper()
	if o.peers == nil {
		o.id = testNodeID
		o.peers = newPeers()
	}
	host := fmt.Sprintf("node%d", o.id)
	n := &node{t: t, net: o.peers.net, log: &testenv.Log{}, metrics: prometheus.NewRegistry(), store: o.peers.store}
	logger := slog.New(slog.NewTextHandler(n.log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	run := func(name string, f func(context.Context) error) {
		running.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	n.kv = o.peers.etcd.Client()
	if o.peers.disks[o.id] == nil {
		o.peers.disks[o.id] = hotlog.NewMemFS()
	}
	onDisk := hotlog.Options{FS: o.peers.disks[o.id].FillingFS(func() bool {
		if d := o.peers.slow.Load(); d > 0 {
			time.Sleep(time.Duration(d))
		}
		return o.peers.full.Load() == int32(o.id)
	}), MemTableBytes: o.memory, Logger: logger}
	listen := n.net.ListenFunc(host + ":9092")
	if o.peers.sync != nil {
		onDisk.FS = o.peers.disks[o.id].StallingFS(func() {}, nil, o.peers.sync)
	}
	if o.disk != "" {
		onDisk.FS = nil
		listen = func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
	}
	db, err := hotlog.Open(cmp.Or(o.disk, "data"), onDisk)
	check(t, err)
	meta, err := metadata.Open(ctx, n.kv, metadata.Options{
		NodeID: o.id, Logger: logger, StaticConfig: o.static, CompactEvery: -1, LeaseTTL: o.peers.lease, DataClusterID: db.Identity().ClusterID, DataNode: o.id,
	})
	check(t, err)
	n.meta = meta
	if o.opened != nil {
		o.opened(meta)
	}
	check(t, db.SetIdentity(meta.ClusterID(), int32(o.id)))
	bucket := objstore.Store(n.store)
	if o.retries {
		bucket = objstore.Retry(bucket, objstore.RetryOptions{})
	}
	reader := tiering.NewReader(tiering.ReaderConfig{Logger: logger}, bucket)
	archiver := tiering.NewArchiver(o.tier, bucket, meta)
	initial, err := config.ResolveBroker(o.static, nil, nil)
	check(t, err)
	info := metadata.BrokerInfo{Node: o.id, Rack: o.rack, Endpoints: []metadata.Endpoint{
		{Listener: testListener, Host: host, Port: 9092, Protocol: "PLAINTEXT"}, {Listener: interBrokerListener, Host: host, Port: 9094, Protocol: "PLAINTEXT"},
	}}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return n.net.DialFunc(host)(ctx, "tcp", address)
	}
	n.broker, err = broker.New(broker.Config{Node: info, InterBroker: interBrokerListener, Dial: dial, Initial: initial, Logger: logger, Registerer: n.metrics}, meta, []*hotlog.DB{db}, broker.Tier{Archiver: archiver, Reader: reader, Meta: meta})
	check(t, err)
	o.gateway.NodeID, o.gateway.InterBroker, o.gateway.Logger, o.gateway.Registerer = o.id, interBrokerListener, logger, n.metrics
	n.server, err = New(o.gateway, n.broker, meta, []Listener{
		{Name: testListener, Listen: listen}, {Name: interBrokerListener, Listen: n.net.ListenFunc(host + ":9094")},
	})
	check(t, err)
	run("metadata", meta.Run)
	run("archiver", archiver.Run)
	run("broker", n.broker.Run)
	n.runGateway(t)
	n.stop = sync.OnceFunc(func() {
		check(t, n.stopGW())
		cancel()
		running.Wait()
		_ = n.broker.Leave(context.Background()) // a node that was cut off from the metadata cannot give its lease back
		check(t, reader.Close())
		check(t, db.Close())
		check(t, n.kv.Close())
	})
	t.Cleanup(func() {
		n.stop()
		o.peers.closeStore()
	})
	n.await("the node to register", func() bool { return meta.Image().Broker(o.id) != nil })
	return n
}

func newPeers() *peers {
	p := &peers{net: memnet.New(1), etcd: memory.New(), store: objstore.Fault(mem.NewStore(), objstore.FaultOptions{}), disks: map[record.NodeID]*hotlog.MemFS{}}
	p.closeStore = sync.OnceFunc(func() { _ = p.store.Close() }) // nothing is kept in it
	return p
}

func (n *node) runGateway(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	check(t, n.server.Listen())
	ended := make(chan error, 1)
	go func() { ended <- n.server.Run(ctx) }()
	n.stopGW = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await polls; under synctest the clock is virtual.
func (n *node) await(what string, cond func() bool) {
	n.t.Helper()
	for range 2000 {
		if cond() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	n.t.Fatalf("waited in vain for %s; log:\n%s", what, n.log)
}

// topic creates a topic and waits until its partitions are led.
func (n *node) topic(name string, partitions int, overrides map[string]string) *metadata.Topic {
	n.t.Helper()
	spec := metadata.TopicSpec{Name: name, Overrides: overrides}
	for range partitions {
		spec.Partitions = append(spec.Partitions, []record.NodeID{testNodeID})
	}
	topic, err := n.meta.CreateTopic(context.Background(), spec)
	check(n.t, err)
	for i := range partitions {
		n.await(fmt.Sprintf("%s-%d to be led", name, i), func() bool {
			// The image follows what the broker did, and requests are judged by it.
			state, ok := n.meta.Image().Partition(record.PartitionID{Topic: topic.ID, Index: int32(i)})
			return ok && state.Leader.Node == testNodeID && n.partition(topic, i) != nil
		})
	}
	return topic
}

// partition is a partition that is led and can be read, else nil.
func (n *node) partition(topic *metadata.Topic, index int) *broker.Partition {
	p, err := n.broker.Partition(record.PartitionID{Topic: topic.ID, Index: int32(index)})
	if err != nil || !p.Marks().Leading {
		return nil
	}
	return p
}

// client is one raw connection.
type client struct {
	t  testing.TB
	nc net.Conn
	n  *node
	id *string
}

func (n *node) dial() *client {
	n.t.Helper()
	nc, err := n.net.Dial(context.Background(), "client", testAddress)
	check(n.t, err)
	c := &client{t: n.t, nc: nc, n: n, id: kmsg.StringPtr("test")}
	n.t.Cleanup(func() { _ = nc.Close() })
	return c
}

// frame encodes a request as it goes over the wire.
func (c *client) frame(version int16, req kmsg.Request) (frame []byte, correlation int32) {
	req.SetVersion(version)
	c.n.corr++
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID(*c.id)).AppendRequest(nil, req, c.n.corr), c.n.corr
}

// send writes a request and returns its correlation id.
func (c *client) send(version int16, req kmsg.Request) int32 {
	c.t.Helper()
	frame, correlation := c.frame(version, req)
	_, err := c.nc.Write(frame)
	check(c.t, err)
	return correlation
}

// receive reads the next answer, which must be the one to correlation.
func (c *client) receive(correlation int32, req kmsg.Request) kmsg.Response {
	c.t.Helper()
	resp, err := c.tryReceive(correlation, req)
	if err != nil {
		c.t.Fatalf("%s version %d: %v; log:\n%s", kmsg.NameForKey(req.Key()), req.GetVersion(), err, c.n.log)
	}
	return resp
}

func (c *client) tryReceive(correlation int32, req kmsg.Request) (kmsg.Response, error) {
	body, err := c.raw(correlation)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != apiVersionsKey {
		if body[0] != 0 {
			return nil, fmt.Errorf("tagged fields in the response header")
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, err
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
		return nil, fmt.Errorf("the answer is not what kmsg writes:\n got %x\nwant %x", body, again)
	}
	return resp, nil
}

// raw reads one answer and takes its correlation id off.
func (c *client) raw(correlation int32) ([]byte, error) {
	if err := c.nc.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	frame, err := readFrame(c.nc)
	if err != nil {
		return nil, err
	}
	r := reader{b: frame}
	if got := r.i32(); got != correlation {
		return nil, fmt.Errorf("G1: got the answer to %d, want %d", got, correlation)
	}
	return r.b, nil
}

func readFrame(nc net.Conn) ([]byte, error) {
	var size [4]byte
	if _, err := readFull(nc, size[:]); err != nil {
		return nil, err
	}
	r := reader{b: size[:]}
	frame := make([]byte, r.i32())
	_, err := readFull(nc, frame)
	return frame, err
}

func readFull(nc net.Conn, b []byte) (n int, err error) {
	for n < len(b) {
		m, err := nc.Read(b[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// do sends one request and reads its answer.
func (c *client) do(version int16, req kmsg.Request) kmsg.Response {
	c.t.Helper()
	return c.receive(c.send(version, req), req)
}

// batch builds one batch.
func batch(t testing.TB, f func(*record.Builder)) []byte {
	t.Helper()
	var b record.Builder
	f(&b)
	out, err := b.Build()
	check(t, err)
	return out
}
