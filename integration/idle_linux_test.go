// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/integration/harness"
)

const (
	idlePartitions = 1000
	// idleMemory is what so many idle partitions may cost, idleProcessor how much more processor time in idleFor than the same node
	// without them: a microsecond of work per partition and second would be 20 ms, a timer that wakes a goroutine for each ten times that.
	idleMemory    = 40 << 20
	idleFor       = 20 * time.Second
	idleProcessor = 300 * time.Millisecond
	// idleSettle is for what a start or a creation leaves behind.
	idleSettle = 10 * time.Second
)

// TestIdlePartitions: 1,000 partitions that nobody uses cost little memory and no periodic work, neither in the node in which they were
// created nor in one that starts with them.
func TestIdlePartitions(t *testing.T) {
	t.Parallel() // nearly all of it is waiting
	node := harness.StartNode(t, harness.NodeConfig{})
	time.Sleep(idleSettle)
	memory, processor := restingCost(t, node)
	t.Logf("without partitions: %.1f MiB resident, %s of processor time in %s", mebi(memory), processor, idleFor)

	createTopic(t, client(t, node.Bootstrap()), "idle", idlePartitions, nil)
	time.Sleep(idleSettle)
	m, p := restingCost(t, node)
	node.Terminate()
	node.Start()
	time.Sleep(idleSettle)
	started := statusBytes(t, node.Pid(), "VmRSS")
	t.Logf("with %d: %.1f MiB (%+.1f), %s (%+d ms); after another start: %.1f MiB (%+.1f)", idlePartitions,
		mebi(m), mebi(m-memory), p, (p - processor).Milliseconds(), mebi(started), mebi(started-memory))
	if more := max(m, started) - memory; more > idleMemory {
		t.Errorf("%d idle partitions cost %.1f MiB, at most %.0f are allowed", idlePartitions, mebi(more), mebi(idleMemory))
	}
	if p-processor > idleProcessor {
		t.Errorf("%d idle partitions cost %s of processor time in %s: something works for each of them", idlePartitions, p-processor, idleFor)
	}
}

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// restingCost watches a node at rest: its resident memory at the end and the processor time it took.
func restingCost(t *testing.T, node *harness.Node) (resident int64, processor time.Duration) {
	t.Helper()
	before := processorTime(t, node.Pid())
	time.Sleep(idleFor)
	return statusBytes(t, node.Pid(), "VmRSS"), processorTime(t, node.Pid()) - before
}

// statusBytes is a size in /proc/PID/status.
func statusBytes(t *testing.T, pid int, name string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, name+": %d kB", &kib); n == 1 { // the error is that of every other line
			return kib << 10
		}
	}
	t.Fatalf("no %s of process %d", name, pid)
	return 0
}

// processorTime is what a process has used, in user and system mode. Linux tells it in hundredths of a second on every platform.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])) // the name before may hold spaces
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		t.Fatalf("processor time in %q: %v", stat, err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
