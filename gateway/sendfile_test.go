// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// filesNode is a node on a disk and TCP with a topic of two partitions, most of which lies in files that can be sent from.
type filesNode struct {
	*node
	dir   string
	topic *metadata.Topic
	want  [2][]byte
}

func newFilesNode(t *testing.T) *filesNode {
	f := &filesNode{dir: t.TempDir()}
	f.node = startNode(t, nodeOptions{disk: f.dir, memory: 1 << 20})
	f.topic = f.node.topic("t", 2, nil)
	t.Cleanup(func() { // whatever a test did: every span was given back
		f.stop()
		fds, err := os.ReadDir("/proc/self/fd")
		check(t, err)
		for _, fd := range fds {
			if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(name, f.dir) {
				t.Errorf("%s is still open", name)
			}
		}
	})
	c := f.dialTCP()
	for i := range 80 {
		value := bytes.Repeat([]byte{byte(i)}, 100<<10)
		resp := c.do(9, produceRequest("t", f.topic.ID, -1, values(t, string(value)), values(t, "x", string(value)))).(*kmsg.ProduceResponse)
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 0 {
				t.Fatalf("produce: error %d", p.ErrorCode)
			}
		}
	}
	for p := range f.want {
		for end := int64(0); end < []int64{80, 160}[p]; {
			req := broker.ReadRequest{Offset: record.Offset(end), MaxBytes: 1 << 20, FirstWhole: true, CurrentEpoch: record.NoEpoch, LastFetchedEpoch: record.NoEpoch}
			var res broker.ReadResult
			check(t, f.partition(f.topic, p).Read(&req, &res))
			f.want[p] = append(f.want[p], res.Data...)
			end = int64(res.Next)
		}
	}
	f.await("files to be old enough", func() bool {
		spans := f.spansOf(0)
		defer releaseAll(spans)
		return len(spans) > 0
	})
	return f
}

func (f *filesNode) dialTCP() *client {
	f.t.Helper()
	nc, err := net.Dial("tcp", f.server.Addr(testListener).String())
	check(f.t, err)
	f.t.Cleanup(func() { _ = nc.Close() })
	return &client{t: f.t, nc: nc, n: f.node, id: kmsg.StringPtr("test")}
}

func (f *filesNode) spansOf(p int) (chunks []broker.Chunk) {
	f.t.Helper()
	req := broker.ReadRequest{MaxBytes: 1 << 20, FirstWhole: true, CurrentEpoch: record.NoEpoch, LastFetchedEpoch: record.NoEpoch, Chunks: &chunks}
	var res broker.ReadResult
	check(f.t, f.partition(f.topic, p).Read(&req, &res))
	for i := range chunks {
		if chunks[i].Span.Len() > 0 {
			return chunks
		}
	}
	return nil
}

func releaseAll(chunks []broker.Chunk) {
	for i := range chunks {
		if s := &chunks[i].Span; s.Len() > 0 {
			s.Release()
		}
	}
}

// sentFromFiles is the counter's value.
func (f *filesNode) sentFromFiles() float64 {
	f.t.Helper()
	return f.metric("varve_fetch_sent_from_files_bytes_total")
}

// fetchBoth asks for both partitions.
func (f *filesNode) fetchBoth(offsets [2]int64) *kmsg.FetchRequest {
	req := fetchFor("t", f.topic.ID, 0, offsets[0], 50*time.Millisecond)
	other := req.Topics[0].Partitions[0]
	other.Partition, other.FetchOffset = 1, offsets[1]
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, other)
	return req
}

// readAll fetches both partitions to their ends.
func (f *filesNode) readAll(version int16, change func(*kmsg.FetchRequest)) (got [2][]byte) {
	f.t.Helper()
	c := f.dialTCP()
	var next [2]int64
	for next[0] < 80 || next[1] < 160 {
		req := f.fetchBoth(next)
		change(req)
		for _, p := range c.do(version, req).(*kmsg.FetchResponse).Topics[0].Partitions {
			if p.ErrorCode != 0 {
				f.t.Fatalf("partition %d at %d: error %d", p.Partition, next[p.Partition], p.ErrorCode)
			}
			got[p.Partition] = append(got[p.Partition], p.RecordBatches...)
			for rest := p.RecordBatches; len(rest) > 0; {
				b, more, err := record.Split(rest)
				check(f.t, err)
				next[p.Partition], rest = int64(b.NextOffset()), more
			}
		}
	}
	return got
}

// TestSendFromFiles: a consumer gets the bytes that lie in the log, most of them from files, whatever it asks for.
func TestSendFromFiles(t *testing.T) {
	f := newFilesNode(t)
	for name, tc := range map[string]struct {
		version int16
		copies  bool
		change  func(*kmsg.FetchRequest)
	}{
		"plain":          {version: 12, change: func(*kmsg.FetchRequest) {}},
		"old":            {version: 4, change: func(*kmsg.FetchRequest) {}},
		"read committed": {version: 11, change: func(r *kmsg.FetchRequest) { r.IsolationLevel = 1 }},
		"little":         {version: 12, change: func(r *kmsg.FetchRequest) { r.MaxBytes = 250 << 10 }},
		"more than there is": {version: 12, copies: true, change: func(r *kmsg.FetchRequest) {
			r.MinBytes, r.MaxWaitMillis = 40<<20, 50
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := f.sentFromFiles()
			got := f.readAll(tc.version, tc.change)
			for p := range got {
				if !bytes.Equal(got[p], f.want[p]) {
					t.Errorf("partition %d: %d bytes, want %d", p, len(got[p]), len(f.want[p]))
				}
			}
			if sent := f.sentFromFiles() - before; sent < 1<<20 && !tc.copies {
				t.Errorf("%.0f bytes were sent from files", sent)
			}
		})
	}
}

// pair is a connection of the server's with the test at its other end.
func (f *filesNode) pair() (*conn, net.Conn) {
	f.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(f.t, err)
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	check(f.t, err)
	nc, err := l.Accept()
	check(f.t, err)
	f.t.Cleanup(func() { _, _ = peer.Close(), nc.Close() })
	return newConn(context.Background(), f.server, nc, testListener), peer
}

// begun serves a fetch of both partitions up to where the answer would be written.
func (f *filesNode) begun(ctx context.Context, c *conn, change func(*kmsg.FetchRequest)) (*answer, error) {
	f.t.Helper()
	req := f.fetchBoth([2]int64{})
	change(req)
	req.Version = 12
	l := local{n: f.node, c: c}
	cl := l.call(f.t, 1, 12, req.AppendTo(nil))
	a := newAnswer(c, cl)
	return a, finishFetch(f.server, ctx, cl, a)
}

// TestParkedFetchHoldsNoFile: a fetch that waits for more than there is, as long as its client likes, holds no file meanwhile.
func TestParkedFetchHoldsNoFile(t *testing.T) {
	f := newFilesNode(t)
	c, _ := f.pair()
	a, err := f.begun(t.Context(), c, func(*kmsg.FetchRequest) {})
	if check(t, err); len(a.spans) == 0 {
		t.Error("a fetch that has enough holds no file either")
	}
	a.release()
	gone, cancel := context.WithCancel(t.Context())
	cancel() // the client is gone, which ends the wait once it has begun
	a, err = f.begun(gone, c, func(r *kmsg.FetchRequest) { r.MinBytes, r.MaxWaitMillis = 40<<20, 1<<30 })
	if err == nil || len(a.spans) > 0 {
		t.Errorf("%d spans are held in the wait, which ended with %v", len(a.spans), err)
	}
	a.release()
}

// TestShortFile: when a file does not have what an answer refers to, the connection ends instead of going on with other bytes, and the next
// fetch tells the client.
func TestShortFile(t *testing.T) {
	f := newFilesNode(t)
	c, peer := f.pair()
	go func() { _, _ = bytes.NewBuffer(nil).ReadFrom(peer) }()
	a, err := f.begun(t.Context(), c, func(*kmsg.FetchRequest) {})
	check(t, err)
	files, err := filepath.Glob(filepath.Join(f.dir, "*.batches"))
	check(t, err)
	check(t, os.Truncate(files[0], 50<<10))
	if err := a.write(c.nc); err == nil {
		t.Error("an answer was written that its file does not hold")
	}
	a.release()
	req := fetchFor("t", f.topic.ID, 0, 0, 0)
	req.Topics[0].Partitions[0].PartitionMaxBytes = 1 // a batch whose header is still there
	p := f.dialTCP().do(12, req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if code := Code(p.ErrorCode); code != codeKafkaStorageError {
		t.Errorf("the next fetch answers %d, %d bytes", code, len(p.RecordBatches))
	}
}
