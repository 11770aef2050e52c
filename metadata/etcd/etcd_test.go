// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/etcd"
	"github.com/varve/varve/metadata/etcd/embed"
	"github.com/varve/varve/metadata/metadatatest"
)

// member is an embedded etcd that can be stopped and started again on the same port.
type member struct {
	dir     string
	listen  string
	mu      sync.Mutex
	server  *embed.Server
	options embed.Options
}

func startMember(t *testing.T, dir string, o embed.Options) *member {
	t.Helper()
	m := &member{dir: dir, options: o}
	m.start(t)
	t.Cleanup(m.stop)
	return m
}

func (m *member) start(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.options
	o.Listen = m.listen
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	begin := time.Now()
	s, err := embed.Start(ctx, m.dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("embedded etcd ready after %s", time.Since(begin).Round(time.Millisecond))
	m.server, m.listen = s, s.Endpoints()[0]
}

func (m *member) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.server != nil {
		m.server.Close()
		m.server = nil
	}
}

func (m *member) client(t *testing.T) metadata.KV { return m.clientOf(t, nil) }

// clientInside is a client in the member's process.
func (m *member) clientInside(t *testing.T) metadata.KV { return m.clientOf(t, insideOf{m}) }

// insideOf is a member that is started again, which one in production never is without its clients.
type insideOf struct{ m *member }

func (i insideOf) kv() etcd.KVServer {
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	if i.m.server == nil {
		return stopped{}
	}
	return i.m.server.Inside()
}

func (i insideOf) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return i.kv().Range(ctx, r)
}

func (i insideOf) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return i.kv().Txn(ctx, r)
}

func (i insideOf) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return i.kv().Compact(ctx, r)
}

// stopped is what a member says that is going down.
type stopped struct{}

func (stopped) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return nil, rpctypes.ErrGRPCStopped
}

func (stopped) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	return nil, rpctypes.ErrGRPCStopped
}

func (stopped) Compact(context.Context, *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return nil, rpctypes.ErrGRPCStopped
}

func (m *member) clientOf(t *testing.T, inside etcd.KVServer) metadata.KV {
	t.Helper()
	c, err := etcd.New(etcd.Config{Endpoints: []string{m.listen}, Inside: inside})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (m *member) harness(client func(*testing.T) metadata.KV) metadatatest.Harness {
	return metadatatest.Harness{
		Client: client,
		Outage: func(t *testing.T) func() {
			m.stop()
			return func() { m.start(t) }
		},
	}
}

func TestKV(t *testing.T) {
	m := startMember(t, t.TempDir(), embed.Options{})
	t.Run("connected", func(t *testing.T) { metadatatest.KV(t, m.harness(m.client)) })
	t.Run("inside", func(t *testing.T) { metadatatest.KV(t, m.harness(m.clientInside)) })
}

// TestCloseInside: a closed client asks nothing of a member in its process, which may be stopped then, and what was under way has ended.
func TestCloseInside(t *testing.T) {
	m := startMember(t, t.TempDir(), embed.Options{UnsafeNoFsync: true})
	c := m.clientInside(t)
	put := metadata.Txn{Then: []metadata.Op{{Kind: metadata.OpPut, Key: "k", Value: []byte("v")}}}
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			for {
				_, err := c.Txn(context.Background(), put)
				if errors.Is(err, metadata.ErrUnknown) {
					return nil
				}
				if err != nil {
					return err
				}
			}
		})
	}
	if _, err := c.Txn(t.Context(), put); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	m.stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := c.Range(t.Context(), metadata.RangeRequest{Key: "k"}); !errors.Is(err, metadata.ErrUnavailable) {
		t.Errorf("a read after the end: %v", err)
	}
}

// TestThreeMembers: a store whose members lie in three processes passes the same suite.
func TestThreeMembers(t *testing.T) {
	peers := map[string]string{}
	for _, name := range []string{"1", "2", "3"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		peers[name] = "http://" + l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	members := make([]*embed.Server, 0, len(peers))
	var mu sync.Mutex
	var g errgroup.Group
	dir := t.TempDir()
	for name := range peers {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			s, err := embed.Start(ctx, filepath.Join(dir, name), embed.Options{Peers: peers, Name: name, UnsafeNoFsync: true})
			if err == nil {
				mu.Lock()
				members = append(members, s)
				mu.Unlock()
			}
			return err
		})
	}
	err := g.Wait()
	t.Cleanup(func() {
		for _, s := range members {
			s.Close()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	metadatatest.Store(t, metadatatest.Harness{Client: func(t *testing.T) metadata.KV {
		next++ // every client has a member of its own, as every node does
		c, err := etcd.New(etcd.Config{Endpoints: members[next%len(members)].Endpoints()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}})
}

func TestStore(t *testing.T) {
	for name, client := range map[string]func(*member) func(*testing.T) metadata.KV{
		"connected": func(m *member) func(*testing.T) metadata.KV { return m.client },
		"inside":    func(m *member) func(*testing.T) metadata.KV { return m.clientInside },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // much of the time is waiting
			m := startMember(t, t.TempDir(), embed.Options{})
			metadatatest.Store(t, m.harness(client(m)))
		})
	}
}
