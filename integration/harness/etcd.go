// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// memberName and memberPeer are how etcdmember names its member by default: together with the cluster's token they make the etcd
// cluster's id.
const (
	memberName = "m1"
	memberPeer = "http://127.0.0.1:0"
)

// Etcd is one etcd member that can be killed and started again on the same data and port.
type Etcd struct {
	*Process
	t       testing.TB
	dir     string
	port    int
	name    string
	cluster string // name=peer URL of every member; empty: a member of its own
}

// StartEtcd starts a new member on an empty directory.
func StartEtcd(t testing.TB) *Etcd {
	t.Helper()
	return StartEtcds(t, 1)[0]
}

// StartEtcds starts an etcd of that many members, each on an empty directory.
func StartEtcds(t testing.TB, members int) (all []*Etcd) {
	t.Helper()
	var peers []string
	for i := range members {
		e := &Etcd{t: t, dir: filepath.Join(TempDir(t, "etcd"), "data"), port: Port(t), name: fmt.Sprint("m", i+1)}
		all, peers = append(all, e), append(peers, fmt.Sprintf("%s=http://%s", e.name, Loopback(Port(t))))
	}
	for _, e := range all {
		if members > 1 {
			e.cluster = strings.Join(peers, ",")
		}
		e.Launch() // one alone does not get ready
	}
	for _, e := range all {
		e.AwaitReady()
	}
	return all
}

// URL is the client endpoint.
func (e *Etcd) URL() string { return "http://" + Loopback(e.port) }

// Start starts the member again, on whatever its directory holds, and waits until it serves.
func (e *Etcd) Start() {
	e.t.Helper()
	e.Launch()
	e.AwaitReady()
}

// Launch starts the member and does not wait.
func (e *Etcd) Launch() {
	e.t.Helper()
	args := []string{"-data", e.dir, "-client", e.URL(), "-name", e.name}
	if e.cluster != "" {
		args = append(args, "-cluster", e.cluster)
	}
	e.Process = spawn(e.t, "etcd "+e.name, filepath.Join(filepath.Dir(e.dir), "log"), exec.Command(etcdMember(e.t), args...))
}

// AwaitReady waits until the member serves.
func (e *Etcd) AwaitReady() {
	e.t.Helper()
	e.await(func() error { return get(e.URL()+"/health", nil) })
}

// Metrics reads the member's /metrics as Node.Metrics does.
func (e *Etcd) Metrics() map[string]float64 {
	e.t.Helper()
	return metricsOf(e.t, Loopback(e.port))
}

// Snapshot takes a snapshot of the running member, as `etcdctl snapshot save` does, and returns its file.
func (e *Etcd) Snapshot() (file string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.URL()}, Logger: zap.NewNop()})
	if err != nil {
		e.t.Fatal(err)
	}
	defer c.Close()
	snap, err := c.SnapshotWithVersion(ctx)
	if err != nil {
		e.t.Fatalf("take a snapshot of etcd: %v", err)
	}
	defer snap.Snapshot.Close()
	file = filepath.Join(TempDir(e.t, "etcd-snapshot"), "snapshot.db")
	f, err := os.Create(file)
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err = io.Copy(f, snap.Snapshot); err == nil {
		err = f.Close()
	}
	if err != nil {
		e.t.Fatalf("save a snapshot of etcd: %v", err)
	}
	return file
}

// Restore puts a snapshot in the place of the data of the member, which must not run, with etcd's own etcdutl and its further
// flags. Without any the restored etcd has the identity that it had; --initial-cluster-token gives it another one.
func (e *Etcd) Restore(etcdutl, file string, flags ...string) {
	e.t.Helper()
	if err := os.RemoveAll(e.dir); err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	args := append([]string{
		"snapshot", "restore", file, "--data-dir", e.dir, "--name", memberName,
		"--initial-advertise-peer-urls", memberPeer, "--initial-cluster", memberName + "=" + memberPeer,
	}, flags...)
	if text, err := exec.CommandContext(ctx, etcdutl, args...).CombinedOutput(); err != nil {
		e.t.Fatalf("etcdutl %s: %v\n%s", strings.Join(args, " "), err, text)
	}
}

// CopyDir copies a directory tree to a path that does not exist.
func CopyDir(t testing.TB, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatalf("copy %s to %s: %v", from, to, err)
	}
}

// TempDir is a directory that is removed after the processes that use it have ended. (t.TempDir would fail the test when a
// process that was just killed still shows in it.)
func TempDir(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "varve-"+name+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// get asks for a URL and hands the body of a 200 to read, which may be nil.
func get(url string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // the status is the error, the text explains it
		return fmt.Errorf("GET %s: %s: %s", url, resp.Status, text)
	}
	if read == nil {
		return nil
	}
	return read(resp.Body)
}
