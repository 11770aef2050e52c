// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	server "go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// Options of a member. Zero values are the defaults.
type Options struct {
	// Listen is the client URL; default http://127.0.0.1:0.
	Listen string
	// QuotaBytes of the database; default 2 GiB.
	QuotaBytes int64
	// ClusterToken makes the cluster id of a new member differ from that of another one. Default "varve".
	ClusterToken string
	// UnsafeNoFsync is for tests that do not crash.
	UnsafeNoFsync bool
	// Peers are the members of a cluster by name, with the URL at which the others reach each, and Name is this one's. The same on
	// every member, at every start. Empty: this is the only member.
	Peers map[string]string
	Name  string
	// WALSegmentBytes is how much of the disk etcd sets aside at a time for its write-ahead log, of which it has two such parts; 0: 64 MB.
	// etcd has one number for all members of a process.
	WALSegmentBytes int64
}

// Server is a running member.
type Server struct {
	etcd     *server.Etcd
	lock     io.Closer
	endpoint string
}

const (
	// A single member elects itself; between machines a heartbeat may be late.
	tickMillis         = 20
	electionMillis     = 200
	peerTickMillis     = 100
	peerElectionMillis = 1000
	quotaBytes         = 2 << 30
	// A single member has nobody to catch up: keep few raft entries in memory.
	snapshotCount   = 5000
	snapshotCatchUp = 100
)

// peerURL is this member's name among its peers; nobody dials it. It must not change between starts.
var peerURL = url.URL{Scheme: "http", Host: "127.0.0.1:0"}

// ErrLocked: another process has a member in the directory.
var ErrLocked = errors.New("embedded etcd: directory in use")

// Start starts a member with its data in dir and waits until it serves: one of several needs a majority of them.
func Start(ctx context.Context, dir string, o Options) (_ *Server, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	// etcd itself would wait for the other process, without an end and without a word.
	lock, err := fileutil.TryLockFile(filepath.Join(dir, "LOCK"), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("%w: %s: another process holds its LOCK file", ErrLocked, dir)
	} else if err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	c, err := o.config(dir)
	if err != nil {
		return nil, err
	}
	if o.WALSegmentBytes > 0 && wal.SegmentSizeBytes != o.WALSegmentBytes {
		wal.SegmentSizeBytes = o.WALSegmentBytes
	}
	e, err := server.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd in %s: %w", dir, err)
	}
	s := &Server{etcd: e, lock: lock}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		s.Close()
		return nil, fmt.Errorf("embedded etcd in %s: %w", dir, err)
	case <-e.Server.StopNotify():
		s.Close()
		return nil, fmt.Errorf("embedded etcd in %s stopped while starting", dir)
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("embedded etcd in %s: %w", dir, context.Cause(ctx))
	}
	s.endpoint = c.ListenClientUrls[0].Scheme + "://" + e.Clients[0].Addr().String()
	return s, nil
}

// config is etcd's own, of a member that has its data in dir.
func (o *Options) config(dir string) (*server.Config, error) {
	if o.Listen == "" {
		o.Listen = "http://127.0.0.1:0"
	}
	listen, err := url.Parse(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: listen address: %w", err)
	}
	c := server.NewConfig()
	c.Name = "varve"
	c.Dir = filepath.Clean(dir)
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*listen}, []url.URL{*listen}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peerURL}, []url.URL{peerURL}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.TickMs, c.ElectionMs = tickMillis, electionMillis
	if len(o.Peers) > 0 {
		if err := o.join(c); err != nil {
			return nil, err
		}
	}
	c.InitialClusterToken = "varve"
	if o.ClusterToken != "" {
		c.InitialClusterToken = o.ClusterToken
	}
	c.QuotaBackendBytes = quotaBytes
	if o.QuotaBytes != 0 {
		c.QuotaBackendBytes = o.QuotaBytes
	}
	c.SnapshotCount, c.SnapshotCatchUpEntries = snapshotCount, snapshotCatchUp
	c.EnableGRPCGateway = false
	c.UnsafeNoFsync = o.UnsafeNoFsync
	c.ZapLoggerBuilder = server.NewZapLoggerBuilder(zap.NewNop())
	c.LogLevel = "error"
	return c, nil
}

// join makes a configuration one of a member among others.
func (o *Options) join(c *server.Config) error {
	mine, err := url.Parse(o.Peers[o.Name])
	if err != nil || mine.Host == "" {
		return fmt.Errorf("embedded etcd: member %q has no URL among the peers", o.Name)
	}
	c.Name = o.Name
	bind := *mine
	if _, port, err := net.SplitHostPort(mine.Host); err == nil && net.ParseIP(mine.Hostname()) == nil {
		bind.Host = net.JoinHostPort("0.0.0.0", port) // etcd binds addresses only, and a name may be a service's
	}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{bind}, []url.URL{*mine}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(o.Peers)) {
		all = append(all, name+"="+o.Peers[name])
	}
	c.InitialCluster = strings.Join(all, ",")
	c.TickMs, c.ElectionMs = peerTickMillis, peerElectionMillis
	return nil
}

// Endpoints are the client URLs.
func (s *Server) Endpoints() []string { return []string{s.endpoint} }

// Inside serves reads and transactions of this process without a connection: over one, most of the time of a small transaction is spent on
// the way. There are no users there, so a member with etcd's authentication on refuses everything.
func (s *Server) Inside() *Inside {
	return &Inside{s.etcd.Server, v3rpc.NewQuotaKVServer(s.etcd.Server)}
}

// Inside is etcd.KVServer. It answers as the member's own listener does, with its checks of requests and its errors.
type Inside struct {
	server *etcdserver.EtcdServer
	kv     pb.KVServer
}

// led refuses what a member without a leader would only keep waiting, as it does for clients that ask for that.
func (i *Inside) led() error {
	if i.server.Leader() == 0 {
		return rpctypes.ErrGRPCNoLeader
	}
	return nil
}

// Range implements etcd.KVServer.
func (i *Inside) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := i.led(); err != nil {
		return nil, err
	}
	return i.kv.Range(ctx, r)
}

// Txn implements etcd.KVServer.
func (i *Inside) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := i.led(); err != nil {
		return nil, err
	}
	return i.kv.Txn(ctx, r)
}

// Compact implements etcd.KVServer.
func (i *Inside) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	if err := i.led(); err != nil {
		return nil, err
	}
	return i.kv.Compact(ctx, r)
}

// Err gives what ended the member while it ran.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Close stops the member. Close its clients first: it waits for their streams otherwise.
func (s *Server) Close() {
	s.etcd.Close()
	_ = s.lock.Close() // nothing was written to it
}
