// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/etcd/embed"
	"github.com/varve/varve/record"
)

// witness is what a data directory remembers.
type witness struct {
	mu       sync.Mutex
	id       uint64
	rev, gen int64
}

func (w *witness) Witness() (uint64, int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.id, w.rev
}

func (w *witness) SetWitness(id uint64, rev int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.id, w.rev = id, rev
	return nil
}

func (w *witness) Generation() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gen
}

func (w *witness) SetGeneration(gen int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gen = gen
	return nil
}

func options(w metadata.Witness) metadata.Options {
	return metadata.Options{
		NodeID: 1, Prefix: "/varve/test/", Witness: w, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Silence: 100 * time.Millisecond, WentBackGrace: 300 * time.Millisecond, CompactEvery: -1,
	}
}

func openStore(t *testing.T, m *member, w metadata.Witness) (*metadata.Store, error) {
	t.Helper()
	kv := m.client(t)
	t.Cleanup(func() { _ = kv.Close() }) // its server may be gone already
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return metadata.Open(ctx, kv, options(w))
}

func create(t *testing.T, s *metadata.Store, name string) metadata.Revision {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	topic, err := s.CreateTopic(ctx, metadata.TopicSpec{Name: name, Partitions: [][]record.NodeID{{1}}})
	if err != nil {
		t.Fatal(err)
	}
	return topic.Rev
}

// TestRestoredBackup puts a real etcd back to an earlier copy of its data while a node runs, and starts another node on it.
func TestRestoredBackup(t *testing.T) {
	dir := t.TempDir()
	m := startMember(t, filepath.Join(dir, "etcd"), embed.Options{})
	w := &witness{}
	s, err := openStore(t, m, w)
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, "before")
	m.stop()
	backup := filepath.Join(dir, "backup")
	if err := os.CopyFS(backup, os.DirFS(m.dir)); err != nil {
		t.Fatal(err)
	}
	m.start(t)
	ran := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { ran <- s.Run(ctx) }()
	var last metadata.Revision
	for i := range 20 {
		last = create(t, s, fmt.Sprint("after", i))
	}
	time.Sleep(400 * time.Millisecond) // several checks of an etcd that has not gone back
	if s.Err() != nil {
		t.Fatalf("stopped without a reason: %v", s.Err())
	}
	m.stop()
	m.dir = backup
	m.start(t)
	select {
	case err = <-ran:
	case <-time.After(30 * time.Second):
		t.Fatal("the node did not notice")
	}
	wantWentBack(t, "running node", err, last)
	if _, err := s.CreateTopic(context.Background(), metadata.TopicSpec{Name: "x", Partitions: [][]record.NodeID{{1}}}); !errors.Is(err, metadata.ErrWentBack) {
		t.Errorf("a change after that: %v", err)
	}
	if id, rev := w.Witness(); rev != int64(last) || id == 0 {
		t.Errorf("beside the data: %d of %x, want %d", rev, id, last)
	}
	_, err = openStore(t, m, w)
	wantWentBack(t, "starting node", err, last)
	if _, err := openStore(t, m, &witness{}); err != nil {
		t.Errorf("a node that has seen nothing: %v", err)
	}
}

func wantWentBack(t *testing.T, who string, err error, last metadata.Revision) {
	t.Helper()
	want := fmt.Sprintf("etcd went back from revision %d to ", last)
	if !errors.Is(err, metadata.ErrWentBack) || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), `(restored backup?): stop all nodes and run "varve restore --reconcile"`) {
		t.Errorf("%s: %v, want %q…", who, err, want)
	}
}

// TestOtherEtcd gives a node another etcd that holds a copy of the cluster's keys and is further on.
func TestOtherEtcd(t *testing.T) {
	w := &witness{}
	m := startMember(t, t.TempDir(), embed.Options{})
	if _, err := openStore(t, m, w); err != nil {
		t.Fatal(err)
	}
	other := startMember(t, t.TempDir(), embed.Options{ClusterToken: "other"})
	from, to := m.client(t), other.client(t)
	defer from.Close()
	defer to.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	all, err := from.Range(ctx, metadata.RangeRequest{Key: "/", End: "0"})
	if err != nil || len(all.KVs) == 0 {
		t.Fatal(err)
	}
	for range 20 {
		for _, kv := range all.KVs {
			if _, err := to.Txn(ctx, metadata.Txn{Then: []metadata.Op{{Kind: metadata.OpPut, Key: kv.Key, Value: kv.Value}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err = openStore(t, other, w); !errors.Is(err, metadata.ErrWentBack) || !strings.Contains(err.Error(), fmt.Sprintf("was %x", all.ClusterID)) {
		t.Errorf("another etcd: %v", err)
	}
}
