// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve/varve/metadata/memory"
)

// TestStamp: a start raises the stamp of the data directory, and so does a node that something is appended to; what it says to the metadata makes an
// image from before suspect. An idle node does nothing.
func TestStamp(t *testing.T) {
	kv, data, bucket := memory.New(), t.TempDir(), "file://"+t.TempDir()
	start := func() (n *node, stop func()) {
		t.Helper()
		var o nodeOptions
		o.register(pflag.NewFlagSet("test", pflag.PanicOnError))
		o.nodeID, o.bucket, o.data, o.http = 1, bucket, []string{data}, ""
		o.listeners.listen = "PLAINTEXT://127.0.0.1:0"
		n, err := newNode(t.Context(), &o, kv.Client(), slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended, ready := make(chan error, 1), make(chan struct{})
		go func() { ended <- n.run(ctx, func(*node) { close(ready) }) }()
		select {
		case <-ready:
		case err := <-ended:
			t.Fatalf("the node ended before it was ready: %v", err)
		}
		return n, func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			n.close()
		}
	}
	n, stop := start()
	if s := n.logs[0].Stamp(); s != 1 {
		t.Errorf("stamp %d after the first start", s)
	}
	stop()
	n, stop = start()
	defer stop()
	if s := n.logs[0].Stamp(); s != 2 {
		t.Errorf("stamp %d after the second start", s)
	}
	image := n.stores()[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- n.keepStamping(ctx, 10*time.Millisecond) }()

	c, err := kgo.NewClient(kgo.SeedBrokers(n.bootstrap()), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); n.logs[0].Stamp() == image.Stamp; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no new stamp while something is appended")
		}
	}
	var still uint64
	for deadline := time.Now().Add(time.Minute); ; { // what the start appended may come late
		still = n.logs[0].Stamp()
		if time.Sleep(200 * time.Millisecond); n.logs[0].Stamp() == still {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("an idle node stamps on and on")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	image.Boots++ // by the start of the image
	if suspect, err := n.meta.RegisterNode(t.Context(), n.stores()); err != nil || suspect[0] {
		t.Errorf("its own directory: suspect %v, %v", suspect, err)
	}
	image.Stamp = still - 1
	if suspect, err := n.meta.RegisterNode(t.Context(), append(n.stores()[:0:0], image)); err != nil || !suspect[0] {
		t.Errorf("an image from before: suspect %v, %v", suspect, err)
	}
}
