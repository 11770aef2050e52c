// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varve/varve/internal/testenv"
	"github.com/varve/varve/ops"
)

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// devNode is a `varve dev` in this process.
type devNode struct{ kafka, http string }

// startDev runs `varve dev` in a directory of its own, ready when it says so, until the test ends.
func startDev(t *testing.T, flags ...string) devNode {
	t.Helper()
	n := devNode{kafka: freeAddress(t), http: freeAddress(t)}
	t.Chdir(t.TempDir())
	args := append([]string{"dev", "--listeners", "PLAINTEXT://" + n.kafka, "--http", n.http}, flags...)
	var out, errs testenv.Log
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() { ended <- Run(ctx, args, streams{in: strings.NewReader(""), out: &out, err: &errs}) }()
	t.Cleanup(func() {
		cancel()
		select {
		case code := <-ended:
			if code != exitDone {
				t.Errorf("varve dev ended with %d: %s", code, errs.String())
			}
		case <-time.After(time.Minute):
			t.Errorf("varve dev does not end: %s", errs.String())
		}
	})
	for deadline := time.Now().Add(time.Minute); !strings.Contains(out.String(), n.kafka); time.Sleep(10 * time.Millisecond) {
		select {
		case code := <-ended:
			t.Fatalf("varve dev ended with %d: %s", code, errs.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("varve dev is not ready: %s%s", out.String(), errs.String())
		}
	}
	t.Setenv(envBootstrap, n.kafka)
	return n
}

// scrapeNode is a node's /metrics.
func scrapeNode(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// must runs a command line that has to succeed and returns its standard output.
func must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	code, out, errs := runCLI(t, stdin, args...)
	if code != exitDone {
		t.Fatalf("varve %s: %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// TestAgainstDev walks through every client command against a running node. The subtests build on each other.
func TestAgainstDev(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a node with an etcd: not with -short")
	}
	n := startDev(t, "--set", "varve.segment.max.ms=200")
	var input strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&input, "%d line %d\r\n", 1_700_000_000+(i*7919)%3000, i) // event times out of order, each once
	}
	lines := strings.SplitAfter(input.String(), "\n")
	lines = lines[:len(lines)-1]

	t.Run("topic and config", func(t *testing.T) { devTopics(t) })
	t.Run("produce and consume", func(t *testing.T) {
		out := must(t, input.String(), "produce", "logs", "--batch-bytes", "2000", "--time-regex", `^\d+`, "--time-layout", "unix", "-o", "json")
		var p produced
		if err := json.Unmarshal([]byte(out), &p); err != nil || p.Acknowledged != 3000 {
			t.Fatalf("%v: %s", err, out)
		}
		readBack(t, lines)
	})
	t.Run("settle", func(t *testing.T) {
		for deadline := time.Now().Add(time.Minute); !allTiered(t); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the log does not settle: " + must(t, "", "offsets", "logs"))
			}
		}
		readBack(t, lines)
	})
	t.Run("lookup", func(t *testing.T) { devLookups(t) })
	t.Run("segment", func(t *testing.T) {
		var manifests []ops.Segments
		if err := json.Unmarshal([]byte(must(t, "", "segment", "list", "logs", "--http", n.http, "-o", "json")), &manifests); err != nil {
			t.Fatal(err)
		}
		records := int64(0)
		for _, m := range manifests {
			for _, seg := range m.Segments {
				records += seg.Records
			}
		}
		if records != 3000 {
			t.Errorf("the segments hold %d records", records)
		}
		// What the list shows can be dumped: the URL, and the key below the bucket's directory.
		seg := manifests[0].Segments[0]
		if table := must(t, "", "segment", "list", "logs:0", "--http", n.http); !strings.Contains(table, seg.URL) || seg.URL == "" {
			t.Errorf("no %q in\n%s", seg.URL, table)
		}
		for _, place := range []string{seg.URL, filepath.Join("varve-data", "bucket", seg.Object)} {
			if out := must(t, "", "segment", "dump", place, "--summary"); !strings.Contains(out, "segment of logs-0") {
				t.Errorf("dump %s: %s", place, out)
			}
		}
	})
	t.Run("from, to and count", func(t *testing.T) {
		if out := must(t, "", "consume", "logs", "--from", "@1700000100000", "--count", "7"); strings.Count(out, "\n") != 7 {
			t.Errorf("--count 7: %q", out)
		}
		if out := must(t, "", "consume", "logs", "--from", "1", "--to", "3", "--partition", "0", "--format", "%o "); out != "1 2 " {
			t.Errorf("--from 1 --to 3: %q", out)
		}
		if out := must(t, "", "consume", "logs", "--from", "latest"); out != "" {
			t.Errorf("--from latest: %q", out)
		}
	})
	t.Run("group", func(t *testing.T) { devGroups(t) })
	t.Run("zone of a reset", func(t *testing.T) {
		if out := must(t, "", "group", "reset", "zoned", "--topic", "logs", "--to", "2024-05-01 14:00"); !strings.Contains(out, "read in the local zone") {
			t.Errorf("%s", out)
		}
	})
	t.Run("txn", func(t *testing.T) { devTxns(t) })
	t.Run("cluster", func(t *testing.T) {
		if out := must(t, "", "cluster", "describe", "--http", n.http); !strings.Contains(out, "partitions 3") || !strings.Contains(out, "controller 1 ") {
			t.Error(out)
		}
		if out := must(t, "", "cluster", "describe", "--http", freeAddress(t)); !strings.Contains(out, "controller - ") {
			t.Errorf("nobody tells the controller: %s", out)
		}
		// What the node says of itself, as scraped: the collector over the real wiring.
		if text := scrapeNode(t, n.http); !strings.Contains(text, "\nkafka_controller_kafkacontroller_activecontrollercount 1\n") || !strings.Contains(text, "\nvarve_controller_active 1\n") {
			t.Error("the only node is not the active controller")
		}
	})
	t.Run("bench", func(t *testing.T) {
		nothing := func(r measured) bool { return r.Records == 0 }
		var results []measured
		for _, d := range []string{"300ms", "3s", "30s"} { // a busy machine measures nothing in a short one
			out := must(t, "", "bench", "--duration", d, "--warmup", "100ms", "--rate", "200", "-o", "json")
			if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 3 {
				t.Fatalf("%v: %s", err, out)
			}
			if !slices.ContainsFunc(results, nothing) {
				break
			}
		}
		if slices.ContainsFunc(results, nothing) {
			t.Errorf("measured nothing: %+v", results)
		}
		if out := must(t, "", "topic", "list"); strings.Contains(out, "varve-bench") {
			t.Errorf("bench leaves its topic behind: %s", out)
		}
	})
	t.Run("delete", func(t *testing.T) {
		must(t, "", "topic", "delete", "logs")
		if code, _, errs := runCLI(t, "", "topic", "describe", "logs"); code != exitFailed || !strings.Contains(errs, "UNKNOWN_TOPIC_OR_PARTITION") {
			t.Errorf("%d %s", code, errs)
		}
	})
}

func devTopics(t *testing.T) {
	must(t, "", "topic", "create", "logs", "--partitions", "2", "--config", "retention.ms=-1", "--config", "local.retention.ms=0")
	must(t, "", "topic", "alter", "logs", "--partitions", "3", "--config", "segment.ms=60000")
	must(t, "", "config", "set", "--topic", "logs", "max.message.bytes=2000000")
	must(t, "", "config", "unset", "--topic", "logs", "segment.ms")
	out := must(t, "", "topic", "describe", "logs", "-o", "json")
	var d []describedTopic
	if err := json.Unmarshal([]byte(out), &d); err != nil || len(d) != 1 || len(d[0].Partitions) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	if got := fmt.Sprint(d[0].Configs); got != "map[local.retention.ms:0 max.message.bytes:2000000 retention.ms:-1]" {
		t.Errorf("configs of the topic: %s", got)
	}
	if out := must(t, "", "config", "describe", "--topic", "logs", "--all"); !strings.Contains(out, "cleanup.policy") {
		t.Error(out)
	}
	for _, wrong := range []string{"nonsense=1", "retention.ms=soon"} {
		if code, _, errs := runCLI(t, "", "config", "set", "--topic", "logs", wrong); code != exitFailed || !strings.Contains(errs, "INVALID_CONFIG") {
			t.Errorf("%s: %d %s", wrong, code, errs)
		}
	}
	if code, _, errs := runCLI(t, "", "topic", "alter", "logs", "--partitions", "4", "--config", "retention.ms=soon"); code != exitFailed || !strings.Contains(errs, "INVALID_CONFIG") {
		t.Errorf("partitions beside a config that is refused: %d %s", code, errs)
	}
	if out := must(t, "", "topic", "describe", "logs", "-o", "json"); strings.Count(out, `"leader"`) != 3 {
		t.Errorf("they were added all the same: %s", out)
	}
	for _, row := range []string{"config unset --topic logs retention.mss", "topic alter logs --delete-config retention.mss"} {
		if code, _, errs := runCLI(t, "", strings.Fields(row)...); code != exitFailed || !strings.Contains(errs, "did you mean retention.ms?") {
			t.Errorf("varve %s: %d %s", row, code, errs)
		}
	}
	for _, whose := range []string{"--broker 1", "--brokers", "--group g"} {
		if code, _, errs := runCLI(t, "", strings.Fields("config unset nonsense "+whose)...); code != exitFailed || !strings.Contains(errs, "there is no ") {
			t.Errorf("unset of nonsense, %s: %d %s", whose, code, errs)
		}
	}
	if code, _, errs := runCLI(t, "", "config", "set", "--topic", "logs", "retention.ms"); code != exitUsage || strings.Contains(errs, "--config") {
		t.Errorf("an argument without a value: %d %s", code, errs)
	}
	if out := must(t, "", "config", "set", "--topic", "logs", "retention.ms=-1", "--dry-run", "-o", "json"); !strings.Contains(out, `"changed"`) || !strings.Contains(out, `"retention.ms"`) {
		t.Errorf("as JSON: %s", out)
	}
	if code, out, errs := runCLI(t, "", "topic", "create", "many", "--replication-factor", "3", "--dry-run"); code != exitDone || !strings.Contains(errs, "has 1 replica, not 3") {
		t.Errorf("a factor that is cut down: %d %s%s", code, out, errs)
	}
	if out := must(t, "", "topic", "create", "logs", "--if-not-exists"); strings.Contains(out, "-1") || !strings.Contains(out, "exists already") {
		t.Errorf("a topic that is there: %s", out)
	}
	if code, _, errs := runCLI(t, "", "produce", "nope", "--partition", "7"); code != exitFailed || !strings.Contains(errs, "would be created with 1 partition") {
		t.Errorf("a partition that a new topic would not have: %d %s", code, errs)
	}
	if out := must(t, "", "topic", "list"); strings.Contains(out, "nope") {
		t.Errorf("it was created all the same: %s", out)
	}
	if _, _, errs := runCLI(t, "", "consume", "logs", "--from", "2024-05-01 14:00"); !strings.Contains(errs, "--from 2024-05-01T14:00:00.000") || !strings.Contains(errs, "read in the local zone") {
		t.Errorf("the zone of --from is not told: %s", errs)
	}
	devCompaction(t)
	if out := must(t, "", "config", "set", "--topic", "logs", "max.message.bytes=2000000", "retention.ms=-1"); out != "changed 2 configs of topic logs\n" {
		t.Errorf("config set: %q", out)
	}
	if code, _, errs := runCLI(t, "", "topic", "create", "logs"); code != exitFailed || !strings.Contains(errs, "TOPIC_ALREADY_EXISTS") {
		t.Errorf("%d %s", code, errs)
	}
}

// devCompaction: each way to ask for compaction works and says that nothing compacts yet; nothing else says so.
func devCompaction(t *testing.T) {
	const policy = "cleanup.policy=delete,compact"
	for _, row := range []struct {
		args string
		warn bool
	}{
		{"topic create state --config " + policy, true},
		{"topic create state --if-not-exists --config " + policy, false}, // which changes nothing
		{"topic alter state --config " + policy, true},
		{"config set --topic state " + policy, true},
		{"config set --topic state cleanup.policy=delete", false},
		{"topic alter state --delete-config cleanup.policy", false},
		{"topic delete state", false},
	} {
		code, out, errs := runCLI(t, "", strings.Fields(row.args)...)
		if code != exitDone || row.warn != strings.Contains(errs, "compaction is not done yet") || strings.Count(errs, "\n") > 1 || strings.Contains(out, "1 configs") {
			t.Errorf("varve %s: %d %q %q", row.args, code, out, errs)
		}
	}
}

// readBack demands that the topic holds exactly the lines, byte for byte.
func readBack(t *testing.T, lines []string) {
	t.Helper()
	got := strings.SplitAfter(must(t, "", "consume", "logs"), "\n")
	got = got[:len(got)-1]
	want := slices.Clone(lines)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("%d lines read, %d written, or they differ", len(got), len(want))
	}
}

func allTiered(t *testing.T) bool {
	t.Helper()
	var answer struct{ Partitions []boundary }
	if err := json.Unmarshal([]byte(must(t, "", "offsets", "logs", "-o", "json")), &answer); err != nil {
		t.Fatal(err)
	}
	for _, b := range answer.Partitions {
		if *b.Latest > 0 && (b.LatestTiered == nil || *b.LatestTiered != *b.Latest-1 || *b.EarliestLocal != *b.Latest) {
			return false
		}
	}
	return true
}

// devLookups compares time lookups with a search of all records.
func devLookups(t *testing.T) {
	type at struct {
		offset, millis int64
	}
	logs := map[int32][]at{}
	dec := json.NewDecoder(strings.NewReader(must(t, "", "consume", "logs", "-o", "json")))
	for {
		var j jsonRecord
		if err := dec.Decode(&j); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var millis int64
		if err := json.Unmarshal(j.Timestamp, &millis); err != nil {
			t.Fatal(err)
		}
		logs[*j.Partition] = append(logs[*j.Partition], at{*j.Offset, millis})
	}
	for _, millis := range []int64{0, 1_700_000_000_000, 1_700_000_000_001, 1_700_001_234_000, 1_700_001_233_999, 1_700_002_999_000, 1_700_002_999_001} {
		var answer timeLookup
		if err := json.Unmarshal([]byte(must(t, "", "offsets", "logs", "--at", fmt.Sprintf("@%d", millis), "-o", "json")), &answer); err != nil {
			t.Fatal(err)
		}
		for _, p := range answer.Partitions {
			want := at{-1, -1}
			if i := slices.IndexFunc(logs[p.Partition], func(a at) bool { return a.millis >= millis }); i >= 0 {
				want = logs[p.Partition][i]
			}
			if (at{p.Offset, p.Timestamp}) != want {
				t.Errorf("partition %d at %d: %+v, want %+v", p.Partition, millis, p, want)
			}
		}
	}
}
