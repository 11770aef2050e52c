// SPDX-License-Identifier: Apache-2.0

package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	server "go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// Release is the etcd that members are.
var Release = version.Version

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
	// Anew is asked before a cluster is made that was not there, and may refuse.
	Anew func(context.Context) error
	// Logger tells of members that are lost and replaced; default none.
	Logger *slog.Logger
	// WALSegmentBytes is how much of the disk etcd sets aside at a time for its write-ahead log, of which it has two such parts; 0: 64 MB.
	// etcd has one number for all members of a process.
	WALSegmentBytes int64
}

// Server is a running member.
type Server struct {
	etcd     *server.Etcd
	options  Options
	lock     io.Closer
	endpoint string
	once     sync.Once
	stop     func() // ends what runs beside etcd
	made     func() // removes the member, if this start made it and nobody else can know of it
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

// lockFile is held while a member is in its directory.
const lockFile = "LOCK"

var (
	// ErrLocked: another process has a member in the directory.
	ErrLocked = errors.New("embedded etcd: directory in use")
	// ErrReplaced: the directory is an earlier one, of a member that was replaced meanwhile.
	ErrReplaced = errors.New("embedded etcd: the member was replaced")
)

// Start starts a member with its data in dir and waits until it serves: one of several needs a majority of them.
func Start(ctx context.Context, dir string, o Options) (_ *Server, err error) {
	lock, err := lockDir(dir, os.O_WRONLY)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && lock != nil {
			_ = lock.Close()
		}
	}()
	private := o.Listen == "" && len(o.Peers) < 2 // nobody outside of this process can hear of it
	c, err := o.config(dir)
	if err != nil {
		return nil, err
	}
	held := hasMember(dir)
	if !held {
		if err := o.first(ctx, c); err != nil {
			return nil, fmt.Errorf("embedded etcd in %s: %w", dir, err)
		}
	}
	if lock == nil {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("embedded etcd: %w", err)
		}
		if lock, err = lockDir(dir, os.O_WRONLY|os.O_CREATE); err != nil {
			return nil, err
		}
	}
	if hasMember(dir) != held {
		return nil, fmt.Errorf("%w: %s: another process has just made a member there", ErrLocked, dir)
	}
	if o.WALSegmentBytes > 0 && wal.SegmentSizeBytes != o.WALSegmentBytes {
		wal.SegmentSizeBytes = o.WALSegmentBytes
	}
	made := func() {}
	if private && !held {
		made = func() {
			_ = os.RemoveAll(filepath.Join(dir, "member")) // what stays is a member of nothing
			_ = os.Remove(filepath.Join(dir, lockFile))
		}
	}
	e, err := server.StartEtcd(c)
	if err != nil {
		made()
		return nil, fmt.Errorf("embedded etcd in %s: %w", dir, err)
	}
	s := &Server{etcd: e, options: o, lock: lock, stop: func() {}, made: made}
	if held {
		if err := o.compare(dir, e.Server.MemberID(), e.Server.Cluster().Members()); err != nil {
			e.Close()
			return nil, err
		}
	}
	if err := s.await(ctx); err != nil {
		e.Close()
		made()
		return nil, fmt.Errorf("embedded etcd in %s: %w", dir, err)
	}
	s.endpoint = c.ListenClientUrls[0].Scheme + "://" + e.Clients[0].Addr().String()
	if len(o.Peers) > 1 {
		s.background()
	}
	return s, nil
}

// lockDir locks a directory; nil where there is none to lock. etcd itself would wait for another process, without an end and without a word.
func lockDir(dir string, flags int) (io.Closer, error) {
	lock, err := fileutil.TryLockFile(filepath.Join(dir, lockFile), flags, 0o600)
	switch {
	case errors.Is(err, fileutil.ErrLocked):
		return nil, fmt.Errorf("%w: %s: another process holds its LOCK file", ErrLocked, dir)
	case errors.Is(err, os.ErrNotExist) && flags&os.O_CREATE == 0:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	return lock, nil
}

// hasMember tells whether a member has been in a directory. One whose making was cut short is none: it has said nothing to anybody.
func hasMember(dir string) bool { return wal.Exist(filepath.Join(dir, "member", "wal")) }

// first settles how a member starts whose directory is empty.
func (o *Options) first(ctx context.Context, c *server.Config) error {
	if len(o.Peers) < 2 {
		return o.mayMakeAnew(ctx)
	}
	list, err := o.arrive(ctx, c.ListenPeerUrls[0].Host)
	if err != nil || list == nil {
		return err
	}
	names := map[string]string{}
	for name, url := range o.Peers {
		names[url] = name
	}
	var all []string
	for _, m := range list {
		for _, url := range m.PeerURLs {
			name := names[url]
			if name == "" {
				name = m.ID.String() // of nobody that we know; etcd compares the URLs
			}
			all = append(all, name+"="+url)
		}
	}
	c.InitialCluster, c.ClusterState = strings.Join(all, ","), server.ClusterStateFlagExisting
	return nil
}

// await waits until the member serves.
func (s *Server) await(ctx context.Context) error {
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case err := <-s.etcd.Err():
		return cmp.Or(s.replaced(ctx), err)
	case <-s.etcd.Server.StopNotify():
		return cmp.Or(s.replaced(ctx), errors.New("stopped while starting"))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// replaced asks the others about a member that ended by itself, as one does that was removed.
func (s *Server) replaced(ctx context.Context) error {
	for _, a := range s.options.askPeers(ctx) {
		if m := memberAt(a.members, s.options.Peers[s.options.Name]); len(a.members) > 0 && (m == nil || m.ID != s.etcd.Server.MemberID()) {
			return fmt.Errorf("%w: it was started without this directory meanwhile, which is of no use any more: move it aside and start again", ErrReplaced)
		}
	}
	return nil
}

// background replaces lost members until stop.
func (s *Server) background() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.replaceLost(ctx)
	}()
	s.stop = func() {
		cancel()
		<-done
	}
}

func (o *Options) token() string { return cmp.Or(o.ClusterToken, "varve") }

func (o *Options) log() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
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
	c.InitialClusterToken = o.token()
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
	bind.Host = bindAddress(mine)
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{bind}, []url.URL{*mine}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(o.Peers)) {
		all = append(all, name+"="+o.Peers[name])
	}
	c.InitialCluster = strings.Join(all, ",")
	c.TickMs, c.ElectionMs = peerTickMillis, peerElectionMillis
	return nil
}

// bindAddress is where a member listens that others reach at a URL: etcd binds addresses only, and a name may be a service's.
func bindAddress(u *url.URL) string {
	if _, port, err := net.SplitHostPort(u.Host); err == nil && net.ParseIP(u.Hostname()) == nil {
		return net.JoinHostPort("0.0.0.0", port)
	}
	return u.Host
}

// PeerAddress is where the member will listen for others, "" for a single one.
func (o Options) PeerAddress() string {
	u, err := url.Parse(o.Peers[o.Name])
	if err != nil || u.Host == "" {
		return ""
	}
	return bindAddress(u)
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

// Stopped is closed when the member has ended, by itself too: as one does that was removed.
func (s *Server) Stopped() <-chan struct{} { return s.etcd.Server.StopNotify() }

// Close stops the member. Close its clients first: it waits for their streams otherwise.
func (s *Server) Close() { s.close(func() {}) }

// Discard is Close, and removes a member that this start made and that nobody else can know of, before another process can have the directory. Any
// other stays.
func (s *Server) Discard() { s.close(s.made) }

func (s *Server) close(last func()) {
	s.once.Do(func() {
		s.stop() // it uses the member
		s.etcd.Close()
		last()
		_ = s.lock.Close() // nothing was written to it
	})
}
