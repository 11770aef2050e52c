// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestMemberEnds: a node whose etcd member ends by itself ends too, and says so.
func TestMemberEnds(t *testing.T) {
	var o nodeOptions
	o.register(pflag.NewFlagSet("test", pflag.PanicOnError))
	o.nodeID, o.bucket, o.data, o.http, o.etcd = 1, "file://"+t.TempDir(), []string{t.TempDir()}, "", []string{etcdEmbed}
	o.listeners.listen = "PLAINTEXT://127.0.0.1:0"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := prepareNode(ctx, &o, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	kv, stop, err := n.connectEtcd(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	defer kv.Close()
	if err := n.open(ctx, kv); err != nil {
		t.Fatal(err)
	}
	err = n.run(ctx, func(n *node) { go n.member.Close() })
	if err == nil || !strings.Contains(err.Error(), "the etcd member ended") {
		t.Errorf("the node ended with %v", err)
	}
}
