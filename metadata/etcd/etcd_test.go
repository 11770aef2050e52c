// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

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

func (m *member) client(t *testing.T) metadata.KV {
	t.Helper()
	c, err := etcd.New(etcd.Config{Endpoints: []string{m.listen}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (m *member) harness() metadatatest.Harness {
	return metadatatest.Harness{
		Client: m.client,
		Outage: func(t *testing.T) func() {
			m.stop()
			return func() { m.start(t) }
		},
	}
}

func TestKV(t *testing.T) {
	metadatatest.KV(t, startMember(t, t.TempDir(), embed.Options{}).harness())
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
	metadatatest.Store(t, startMember(t, t.TempDir(), embed.Options{}).harness())
}
