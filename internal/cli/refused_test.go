// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
	"github.com/varve/varve/tiering/objstore"
)

// TestRefusedStartLeavesNothing: whoever mistypes a flag, or whose port is in use, finds no directory that a start has filled.
func TestRefusedStartLeavesNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken, free := l.Addr().String(), freeAddress(t)
	for name, tc := range map[string]struct{ args, says string }{
		"dev, port":           {"dev --listeners PLAINTEXT://" + taken, "is in use by another process"},
		"dev, port twice":     {"dev --listeners A://" + free + ",B://" + free + " --listener-security-protocol-map A:PLAINTEXT,B:PLAINTEXT", "is in use"},
		"dev, http port":      {"dev --listeners PLAINTEXT://" + free + " --http " + taken, "--http"},
		"dev, config":         {"dev --listeners PLAINTEXT://" + free + " --set num.partitions=x", "num.partitions"},
		"dev, bucket":         {"dev --listeners PLAINTEXT://" + free + " --http 127.0.0.1:0 --bucket file:///dev/null/bucket", "/dev/null/bucket"},
		"serve, port":         {"serve --node-id 1 --etcd embed --data data --bucket mem:// --listeners PLAINTEXT://" + taken, "is in use by another process"},
		"serve, port of etcd": {"serve --node-id 1 --etcd embed --etcd-listen http://" + taken + " --data data --bucket mem:// --http 127.0.0.1:0 --listeners PLAINTEXT://" + free, "--etcd-listen"},
		"serve, bucket":       {"serve --node-id 1 --etcd embed --data data --bucket file:///dev/null/bucket --http 127.0.0.1:0 --listeners PLAINTEXT://" + free, "/dev/null/bucket"},
		"dev, token":          {"dev --listeners PLAINTEXT://" + free + " --http 127.0.0.1:0 --http-token-file /nope", "/nope"},
		"dev, http":           {"dev --listeners PLAINTEXT://" + free + " --http foo", "HOST:PORT"},
		"dev, several http":   {"dev --listeners PLAINTEXT://" + free + " --http 127.0.0.1:1,127.0.0.1:2", "VARVE_HTTP"},
		"serve, peer port": {"serve --node-id 1 --etcd embed --etcd-peers 1=http://" + taken + ",2=http://127.0.0.1:1 --data data --bucket mem:// --http 127.0.0.1:0 --listeners PLAINTEXT://" + free,
			"--etcd-peers"},
		"serve, etcd": {"serve --node-id 1 --etcd foo --data data --bucket mem:// --http 127.0.0.1:0 --listeners PLAINTEXT://" + free, "etcd endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			code, _, errs := runCLI(t, "", strings.Fields(tc.args)...)
			if code == exitDone || !strings.Contains(errs, tc.says) {
				t.Errorf("%d: %s", code, errs)
			}
			if usage := strings.HasSuffix(name, " http"); usage && code != exitUsage {
				t.Errorf("exit code %d", code)
			}
			left, err := os.ReadDir(".")
			if err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}

// TestRefusedAfterOpening: what a start has made until it is refused goes with it, and nothing else does.
func TestRefusedAfterOpening(t *testing.T) {
	t.Chdir(t.TempDir())
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	serve := func(within time.Duration, more ...string) (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		var out, errs bytes.Buffer
		args := append([]string{"serve", "--node-id", "1", "--http", "", "--listeners", "PLAINTEXT://" + freeAddress(t)}, more...)
		code := Run(ctx, args, streams{in: strings.NewReader(""), out: &out, err: &errs})
		return code, errs.String()
	}
	left := func() string {
		var all []string
		err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
			all = append(all, path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(all[1:], " ")
	}

	// The bucket holds a cluster, the embedded etcd would be a new one.
	if err := os.Mkdir("named", 0o750); err != nil {
		t.Fatal(err)
	}
	store, err := openDriver(t.Context(), objstore.Location{Scheme: objstore.SchemeFile, Dir: filepath.Join(wd, "named")}, objstore.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("x", 22)
	if err := store.Create(t.Context(), "clusters/varve", objstore.Bytes([]byte(id)), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	before := left()
	code, errs := serve(time.Minute, "--etcd", "embed", "--data", "new/data", "--bucket", "file://"+wd+"/named")
	if code == exitDone || !strings.Contains(errs, "restore --reconcile") {
		t.Errorf("an etcd without the bucket's cluster: %d, %s", code, errs)
	}
	if now := left(); now != before {
		t.Errorf("left %s", now)
	}

	// Directories that cannot be added to: found when both are open. The one in use is not touched, the mount point of the new one stays.
	db, err := hotlog.Open("old/hot", hotlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.SetIdentity(id, 1), db.Close(), os.MkdirAll("disk", 0o750)); err != nil {
		t.Fatal(err)
	}
	code, errs = serve(time.Minute, "--etcd", "embed", "--data", "old,disk", "--etcd-data", "member", "--bucket", "file://"+wd+"/bucket")
	if code == exitDone || !strings.Contains(errs, "disk is new") {
		t.Errorf("a directory too many: %d, %s", code, errs)
	}
	now := left()
	for _, gone := range []string{"disk/", "member"} {
		if strings.Contains(now, gone) {
			t.Errorf("%s is there: %s", gone, now)
		}
	}
	if !strings.Contains(now, "old/hot/STORE") || !strings.Contains(now, "disk") || !strings.Contains(now, "bucket") { // other nodes may be about to use the bucket
		t.Errorf("%s", now)
	}

	// Interrupted while it waits for an etcd: nothing of its own is there yet, and the bucket is as it was.
	before = left()
	code, errs = serve(time.Second, "--etcd", "http://127.0.0.1:1", "--data", "other", "--bucket", "file://"+wd+"/bucket")
	if code == exitDone {
		t.Errorf("a start without an etcd: %s", errs)
	}
	if now := left(); now != before {
		t.Errorf("left %s", now)
	}
}

// TestStrangersLeaveNothing: a node that does not fit the cluster is refused before it makes a data directory.
func TestStrangersLeaveNothing(t *testing.T) {
	server := memory.New()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	there, err := metadata.Open(t.Context(), server.Client(), metadata.Options{ClusterName: "varve", NodeID: 7, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := there.ConfirmBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	var o nodeOptions
	o.register(pflag.NewFlagSet("serve", pflag.PanicOnError))
	data := filepath.Join(t.TempDir(), "data")
	o.nodeID, o.bucket, o.data, o.http = 1, "mem://", []string{data}, ""
	o.listeners.listen = "PLAINTEXT://127.0.0.1:0"
	if _, err := newNode(t.Context(), &o, server.Client(), quiet); !errors.Is(err, metadata.ErrBucketEmpty) {
		t.Errorf("a bucket that does not know the cluster: %v", err)
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory is there: %v", err)
	}
}
