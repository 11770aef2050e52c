// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/memory"
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			code, _, errs := runCLI(t, "", strings.Fields(tc.args)...)
			if code == exitDone || !strings.Contains(errs, tc.says) {
				t.Errorf("%d: %s", code, errs)
			}
			left, err := os.ReadDir(".")
			if err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
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
