// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/integration/harness"
)

const memoryLimit = 512 << 20

// memoryGroup makes a control group with a memory limit and returns its directory and the file of its peak, or skips the test.
func memoryGroup(t *testing.T) (dir, peak string) {
	t.Helper()
	name := fmt.Sprintf("varve-test-%d", os.Getpid())
	var why []string
	for _, v := range []struct{ root, limit, peak string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"},
		{"/sys/fs/cgroup", "memory.max", "memory.peak"},
	} {
		dir := filepath.Join(v.root, name)
		if _, err := os.Stat(v.root); err != nil {
			why = append(why, err.Error())
			continue
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			why = append(why, err.Error())
			continue
		}
		// Removed after the node: cleanups run last first, and the node is started later.
		t.Cleanup(func() {
			for range 50 {
				if os.Remove(dir) == nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
		if err := os.WriteFile(filepath.Join(dir, v.limit), []byte(strconv.Itoa(memoryLimit)), 0o644); err != nil {
			why = append(why, err.Error())
			continue
		}
		return dir, filepath.Join(dir, v.peak)
	}
	t.Skipf("skipped: no control group with a memory limit can be made here: %s", strings.Join(why, "; "))
	return "", ""
}

// TestSmallMemory runs a node in 512 MiB while the bucket is down and producers send as fast as they can: it survives, keeps what it
// acknowledged, and serves it. (A1, A6)
func TestSmallMemory(t *testing.T) {
	group, peak := memoryGroup(t)
	b := minioBucket(t, "small")
	etcd := harness.StartEtcd(t)
	node := harness.StartNode(t, harness.NodeConfig{
		Etcd: etcd.URL(), Bucket: b.url, Env: b.env, Set: []string{"varve.hot.bytes=67108864", "varve.broker.lease.ms=10000"},
		Wrap: []string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group},
	})
	const parts = 12
	createTopic(t, client(t, node.Bootstrap()), "small", parts, map[string]string{"internal.segment.bytes": "4000000", "segment.ms": "1000"})
	b.server.Kill()

	target := int64(400 << 20)
	if harness.Long() {
		target = 4 << 30
	}
	value := make([]byte, 16<<10)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(value) // never fails
	var sent, acked atomic.Int64
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for range 8 {
		c := client(t, node.Bootstrap(), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1<<20-1024),
			kgo.MaxBufferedRecords(500), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
		g.Go(func() error {
			for sent.Add(int64(len(value))) <= target && ctx.Err() == nil {
				c.Produce(ctx, &kgo.Record{Topic: "small", Value: value}, func(_ *kgo.Record, err error) {
					if err == nil {
						acked.Add(1)
					}
				})
			}
			return c.Flush(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("after %d acknowledged records: %v; is the node running: %v", acked.Load(), err, node.Running())
	}
	if !node.Running() {
		t.Fatalf("the node ended")
	}
	took := time.Since(begin)
	end := int64(0)
	for _, o := range boundary(t, client(t, node.Bootstrap()), "small", parts, latest) {
		end += o
	}
	if want := acked.Load(); end != want || want == 0 {
		t.Errorf("%d records acknowledged, %d in the log", want, end)
	}
	read := readAll(t, node.Bootstrap(), "small", end)
	if !node.Running() {
		t.Fatalf("the node ended while it was read from")
	}
	used, err := os.ReadFile(peak)
	t.Logf("%d records of %d KiB in %s, %d read; the control group's peak: %s bytes with page cache (%v); the process: %s",
		acked.Load(), len(value)>>10, took.Round(time.Millisecond), read, strings.TrimSpace(string(used)), err, peakRSS(node.Pid()))
}

// readAll counts the records of a topic up to a number.
func readAll(t *testing.T, bootstrap, topic string, want int64) (n int64) {
	t.Helper()
	c := client(t, bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx := within(t, patience)
	for n < want {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", n, want, err)
		}
		n += int64(fetches.NumRecords())
	}
	return n
}

func peakRSS(pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmHWM") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return "no VmHWM"
}
