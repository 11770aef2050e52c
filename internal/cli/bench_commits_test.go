// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkOffsetCommits: commits of 12 partitions over one connection, with an etcd inside the node that syncs its disk.
func BenchmarkOffsetCommits(b *testing.B) {
	n := startBenchNode(b)
	for _, c := range []struct{ groups, inFlight int }{{1, 1}, {500, 16}, {500, 100}} {
		w := newCommitBench(b, n, c.groups)
		b.Run(fmt.Sprintf("groups=%d/in-flight=%d", c.groups, c.inFlight), func(b *testing.B) {
			before := processTime(b)
			w.commit(b, b.N, c.inFlight)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			b.ReportMetric(float64((processTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

const (
	commitBenchPartitions = 12
	commitBenchVersion    = 8
)

// commitBench is a client with one connection to a whole node in this process.
type commitBench struct {
	conn     net.Conn
	in       *bufio.Reader
	requests [][]byte // one for each group
	next     int
}

func newCommitBench(b *testing.B, n *node, groups int) *commitBench {
	client, err := kgo.NewClient(kgo.SeedBrokers(n.bootstrap()))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: commitBenchPartitions, ReplicationFactor: 1}}
	if _, err := create.RequestWith(ctx, client); err != nil { // that it is there already is in the answer
		b.Fatal(err)
	}
	w := &commitBench{}
	for i := range groups {
		w.requests = append(w.requests, commitFrame(fmt.Sprintf("bench-0123-%d", i)))
	}
	if w.conn, err = net.Dial("tcp", n.bootstrap()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.conn.Close() })
	w.in = bufio.NewReader(w.conn)
	w.awaitCoordinators(b)
	return w
}

// startBenchNode runs a node with everything as in production, its etcd and bucket in a directory, until the benchmark ends.
func startBenchNode(b *testing.B) *node {
	var o nodeOptions
	o.register(pflag.NewFlagSet("bench", pflag.PanicOnError))
	o.nodeID, o.data, o.http, o.etcd = 1, []string{b.TempDir()}, "", []string{etcdEmbed}
	o.bucket = "file://" + b.TempDir()
	o.listeners.listen = "PLAINTEXT://127.0.0.1:0"
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	start, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	n, err := prepareNode(start, &o, log)
	if err != nil {
		b.Fatal(err)
	}
	kv, stop, err := n.startEtcd(start)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(stop)
	b.Cleanup(func() { _ = kv.Close() })
	if err := n.open(start, kv); err != nil {
		b.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() { ended <- n.run(ctx, func(*node) { close(ready) }) }()
	b.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		n.close()
	})
	select {
	case <-ready:
	case err := <-ended:
		b.Fatalf("the node ended: %v", err)
	}
	return n
}

// commitFrame is a whole request as it goes over the wire.
func commitFrame(group string) []byte {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group = commitBenchVersion, group
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = "t"
	for p := range int32(commitBenchPartitions) {
		part := kmsg.NewOffsetCommitRequestTopicPartition()
		part.Partition, part.Offset = p, 42
		t.Partitions = append(t.Partitions, part)
	}
	req.Topics = []kmsg.OffsetCommitRequestTopic{t}
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 1)
}

// awaitCoordinators waits until this node serves every group.
func (w *commitBench) awaitCoordinators(b *testing.B) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		served := true
		for sent, received := 0, 0; received < len(w.requests); received++ {
			for ; sent < len(w.requests) && sent-received < 16; sent++ {
				w.send(b)
			}
			served = w.receive(b) == 0 && served
		}
		if served {
			return
		}
		if time.Now().After(deadline) {
			b.Fatal("not every group is served")
		}
	}
}

// commit makes n commits, of one group after the other.
func (w *commitBench) commit(b *testing.B, n, inFlight int) {
	for sent, received := 0, 0; received < n; received++ {
		for ; sent < n && sent-received < inFlight; sent++ {
			w.send(b)
		}
		if code := w.receive(b); code != 0 {
			b.Fatalf("code %d", code)
		}
	}
}

func (w *commitBench) send(b *testing.B) {
	if _, err := w.conn.Write(w.requests[w.next]); err != nil {
		b.Fatal(err)
	}
	w.next = (w.next + 1) % len(w.requests)
}

// receive gives the first error code of the next answer.
func (w *commitBench) receive(b *testing.B) int16 {
	var size [4]byte
	if _, err := io.ReadFull(w.in, size[:]); err != nil {
		b.Fatal(err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(w.in, frame); err != nil {
		b.Fatal(err)
	}
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = commitBenchVersion
	if err := resp.ReadFrom(frame[5:]); err != nil { // behind the correlation id and no tags
		b.Fatal(err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return p.ErrorCode
			}
		}
	}
	return 0
}

// processTime is what this process has used of the processors, the client's part included.
func processTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
