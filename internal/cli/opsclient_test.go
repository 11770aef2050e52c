// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/varve/varve/ops"
)

// manifestNode is a node with one topic of two partitions and a manifest that is answered in pages of three.
type manifestNode struct {
	version  int
	upgrades []int
	looks    int // at the nodes
	drained  string
	unsure   string
	why      ops.Why
}

// Nodes has a node that drains lead one partition less at each look, and keep one replica that nobody else can hold. The others stand still
// for a while, as when a move has to end first.
func (n *manifestNode) Nodes(context.Context) (ops.Nodes, error) {
	n.looks++
	three := ops.NodeState{ID: 3, Registered: true, Rack: "r", Incarnation: 44, Leaders: 2, Replicas: 4}
	if n.drained != "" {
		three.Draining = true
		three.Leaders, three.Replicas, three.Staying = max(0, 2-n.looks), 4, 1
		if n.looks > 12 {
			three.Leaving, three.Replicas = max(0, 15-n.looks), max(1, 16-n.looks)
		}
	}
	return ops.Nodes{Nodes: []ops.NodeState{{ID: 1, Registered: true, Leaders: 5, Replicas: 9}, three, {ID: 4, Draining: true, Replicas: 2}}, Unsure: n.unsure}, nil
}

func (n *manifestNode) DrainNode(ctx context.Context, node int32, on bool) (ops.Nodes, error) {
	if node == 9 {
		return ops.Nodes{}, fmt.Errorf("%w: no node 9", ops.ErrNotFound)
	}
	n.drained, n.looks = fmt.Sprint(node, on), 0
	return n.Nodes(ctx)
}

func (n *manifestNode) Ready() error              { return nil }
func (n *manifestNode) Config() []ops.ConfigValue { return nil }
func (n *manifestNode) Tick(context.Context, string) error {
	return nil
}
func (n *manifestNode) Cluster(context.Context) (ops.Cluster, error) {
	return ops.Cluster{ClusterID: "abc", Version: n.version, Upgradable: 3}, nil
}
func (n *manifestNode) Why(context.Context, string, int32) (ops.Why, error) { return n.why, nil }

func (n *manifestNode) UpgradeCluster(_ context.Context, to int) (ops.Cluster, error) {
	n.version = to
	n.upgrades = append(n.upgrades, to)
	return n.Cluster(nil)
}
func (n *manifestNode) Topic(_ context.Context, name string) (ops.Topic, error) {
	if name != "logs/ü" { // a name that must be escaped
		return ops.Topic{}, fmt.Errorf("%w: no topic %q", ops.ErrNotFound, name)
	}
	return ops.Topic{Name: name, Partitions: 2}, nil
}
func (n *manifestNode) Segments(_ context.Context, q ops.SegmentQuery) (ops.Segments, error) {
	page := ops.Segments{Topic: q.Topic, Partition: q.Partition, TieredEnd: 70}
	for base := q.From; base < 70; base += 10 {
		if len(page.Segments) == 3 {
			page.Next = &base
			break
		}
		page.Segments = append(page.Segments, ops.Segment{Base: base, End: base + 10, Object: fmt.Sprintf("object-%d", base)})
	}
	return page, nil
}

func startOps(t *testing.T, node ops.Node, token string) (address, tokenFile string) {
	t.Helper()
	tokenFile = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := ops.New(ops.Config{TokenFile: tokenFile}, node, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://"), tokenFile
}

func TestSegmentListReadsAllPages(t *testing.T) {
	at, _ := startOps(t, &manifestNode{}, "x")
	code, out, errs := runCLI(t, "", "segment", "list", "logs/ü", "--http", at, "-o", "json")
	var got []ops.Segments
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || errs != "" {
		t.Fatalf("%d %v %q", code, err, errs)
	}
	if len(got) != 2 {
		t.Fatalf("%d partitions", len(got))
	}
	for p, m := range got {
		if int(m.Partition) != p || len(m.Segments) != 7 || m.Next != nil {
			t.Errorf("partition %d: %+v", p, m)
		}
		for i, seg := range m.Segments {
			if seg.Base != int64(i*10) {
				t.Errorf("segment %d of partition %d begins at %d", i, p, seg.Base)
			}
		}
	}
	if _, out, _ := runCLI(t, "", "segment", "list", "logs/ü", "--http", at, "-p", "1"); strings.Count(out, "object-") != 7 {
		t.Errorf("as a table:\n%s", out)
	}
	for _, args := range [][]string{{"nope"}, {"logs/ü", "-p", "2"}} {
		if code, out, errs := runCLI(t, "", append([]string{"segment", "list", "--http", at}, args...)...); code != exitFailed || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: %d %q %q", args, code, out, errs)
		}
	}
	if _, out, _ := runCLI(t, "", "segment", "list", "logs/ü:1", "--http", at); strings.Count(out, "object-") != 7 {
		t.Errorf("of one partition:\n%s", out)
	}
	if _, _, errs := runCLI(t, "", "segment", "list", "nope", "--http", at); errs != "varve segment list: no topic \"nope\"\n" {
		t.Errorf("a topic that is not there: %q", errs)
	}
}

func TestClusterUpgrade(t *testing.T) {
	node := &manifestNode{version: 1}
	at, tokenFile := startOps(t, node, "secret")
	run := func(args ...string) (int, string, string) {
		return runCLI(t, "", append([]string{"cluster", "upgrade", "--http", at}, args...)...)
	}
	if code, _, errs := run(); code != exitFailed || !strings.Contains(errs, "--http-token-file") || len(node.upgrades) != 0 {
		t.Errorf("without the token: %d %q %v", code, errs, node.upgrades)
	}
	if code, _, errs := run("--to", "4", "--http-token-file", tokenFile); code != exitFailed || !strings.Contains(errs, "at most 3") || len(node.upgrades) != 0 {
		t.Errorf("beyond what the nodes can run: %d %q %v", code, errs, node.upgrades)
	}
	if code, out, _ := run("--dry-run"); code != 0 || !strings.Contains(out, "would go from version 1 to 3") || len(node.upgrades) != 0 {
		t.Errorf("dry run: %d %q %v", code, out, node.upgrades)
	}
	if code, out, errs := run("--http-token-file", tokenFile); code != 0 || !strings.Contains(out, "from version 1 to 3") || node.version != 3 {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if code, out, _ := run("--http-token-file", tokenFile); code != 0 || !strings.Contains(out, "nothing to do") || len(node.upgrades) != 1 {
		t.Errorf("again: %d %q %v", code, out, node.upgrades)
	}
}

func TestNodes(t *testing.T) {
	node := &manifestNode{}
	at, tokenFile := startOps(t, node, "secret")
	code, out, errs := runCLI(t, "", "node", "list", "--http", at)
	rows := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || errs != "" || len(rows) != 4 || !strings.Contains(rows[3], "away, draining") || !strings.Contains(rows[2], "44") {
		t.Errorf("list: %d %q\n%s", code, errs, out)
	}
	node.unsure = "node 1 is not registered"
	if code, again, errs := runCLI(t, "", "node", "list", "--http", at); code != 0 || again != out || !strings.HasPrefix(errs, node.unsure+": this is what it knew last") {
		t.Errorf("list of a node that may know old things: %d %q\n%s", code, errs, again)
	}
	node.unsure = ""
	run := func(args ...string) (int, string, string) {
		return runCLI(t, "", append([]string{"node"}, append(args, "--http", at, "-o", "json")...)...)
	}
	if code, _, errs := run("drain", "3"); code != exitFailed || !strings.Contains(errs, "--http-token-file") || node.drained != "" {
		t.Errorf("drain without the token: %d %q", code, errs)
	}
	if code, _, errs := run("drain", "9", "--http-token-file", tokenFile); code != exitFailed || !strings.Contains(errs, "no node 9") {
		t.Errorf("drain of an unknown node: %d %q", code, errs)
	}
	if code, out, errs := run("drain", "3", "--http-token-file", tokenFile); code != 0 || node.drained != "3 true" || !strings.Contains(out, `"leaders": 1`) {
		t.Errorf("drain: %d %q %q", code, out, errs)
	}
	code, out, errs = run("drain", "3", "--http-token-file", tokenFile, "--wait", "1m")
	if code != 0 || !strings.Contains(out, `"leaders": 0`) || !strings.Contains(out, `"leaving": 0`) || !strings.Contains(out, `"replicas": 1`) {
		t.Errorf("drain and wait: %d %q %q", code, out, errs)
	}
	if code, _, errs := run("drain", "3", "--http-token-file", tokenFile, "--wait", "1ms"); code != exitFailed || !strings.Contains(errs, "still leads") {
		t.Errorf("drain and wait too short: %d %q", code, errs)
	}
	if code, _, errs := run("undrain", "3", "--http-token-file", tokenFile); code != 0 || node.drained != "3 false" {
		t.Errorf("undrain: %d %q %q", code, errs, node.drained)
	}
}

// TestNotAnOperationsAPI: some other HTTP server is recognised as such.
func TestNotAnOperationsAPI(t *testing.T) {
	srv := httptest.NewServer(nil)
	defer srv.Close()
	if code, _, errs := runCLI(t, "", "segment", "list", "logs", "--http", srv.URL); code != exitFailed || !strings.Contains(errs, "404") {
		t.Errorf("%d %q", code, errs)
	}
}

func TestHTTPAddresses(t *testing.T) {
	for _, row := range []struct{ http, bootstrap, want string }{
		{"", "10.0.0.7:9092, 10.0.0.8:9092,10.0.0.7:9192", "http://10.0.0.7:9644 http://10.0.0.8:9644"},
		{"", "[::1]:9092", "http://[::1]:9644"},
		{"", "broker", "http://broker:9644"},
		{"a:1, b:2", "broker", "http://a:1 http://b:2"},
		{"https://proxy/node1/,[::1]:7", "broker", "https://proxy/node1 http://[::1]:7"},
	} {
		o := &opsClient{conn: &connection{bootstrap: row.bootstrap}, addresses: row.http}
		if got, err := o.bases(); err != nil || strings.Join(got, " ") != row.want {
			t.Errorf("--http %q --bootstrap %s: %s %v, want %s", row.http, row.bootstrap, got, err, row.want)
		}
	}
}

// TestNextNodeIsAsked: a node that is away is passed over, by reads and by changes; with none left all are named.
func TestNextNodeIsAsked(t *testing.T) {
	node := &manifestNode{}
	at, tokenFile := startOps(t, node, "secret")
	gone, goneToo := nowhere(t), nowhere(t)
	t.Setenv(envHTTP, gone+","+at)
	if code, out, errs := runCLI(t, "", "node", "list"); code != 0 || errs != "" || !strings.Contains(out, "draining") {
		t.Errorf("list: %d %q %q", code, out, errs)
	}
	if code, _, errs := runCLI(t, "", "node", "drain", "3", "--http-token-file", tokenFile); code != 0 || node.drained != "3 true" {
		t.Errorf("drain: %d %q %q", code, errs, node.drained)
	}
	code, _, errs := runCLI(t, "", "node", "list", "--http", gone+","+goneToo)
	if code != exitFailed || !strings.Contains(errs, gone+": nothing listens there") || !strings.Contains(errs, goneToo+": nothing listens there") || strings.Count(errs, "--http") != 1 {
		t.Errorf("with none: %d %q", code, errs)
	}
}

// TestChangeIsSentOnce: a node that takes a change and does not answer may have done it, so no other is asked for it.
func TestChangeIsSentOnce(t *testing.T) {
	node := &manifestNode{}
	at, tokenFile := startOps(t, node, "secret")
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer mute.Close()
	list := strings.TrimPrefix(mute.URL, "http://") + "," + at
	if code, _, errs := runCLI(t, "", "node", "drain", "3", "--http", list, "--http-token-file", tokenFile); code != exitFailed || node.drained != "" || !strings.Contains(errs, "may have") {
		t.Errorf("drain: %d %q %q", code, errs, node.drained)
	}
	if code, _, errs := runCLI(t, "", "node", "list", "--http", list); code != 0 {
		t.Errorf("list: %d %q", code, errs)
	}
}

// TestWhyAsksTheLeaders: what others lead they are asked about. A leader that does not answer is told in one line that gives no
// advice to ask it, and the rest is shown all the same.
func TestWhyAsksTheLeaders(t *testing.T) {
	two, one := &manifestNode{}, &manifestNode{}
	at, _ := startOps(t, one, "x")
	atTwo, _ := startOps(t, two, "x")
	gone := nowhere(t)
	three := ops.WhyPartition{Partition: 2, Leader: 3, LeaderHTTP: gone, Reasons: []string{"node 3 leads"}}
	one.why = ops.Why{Topic: "t", Node: 1, Partitions: []ops.WhyPartition{
		{Partition: 0, Leader: 1, LeaderHTTP: at, Reasons: []string{"own"}}, {Partition: 1, Leader: 2, LeaderHTTP: atTwo, Reasons: []string{"hearsay"}}, three,
	}}
	two.why = ops.Why{Topic: "t", Node: 2, Partitions: []ops.WhyPartition{{}, {Partition: 1, Leader: 2, Reasons: []string{"first hand"}}, three}}
	code, out, errs := runCLI(t, "", "why", "t", "--http", nowhere(t)+","+at)
	if code != exitDone || out != "t:0\n  own\nt:1\n  first hand\nt:2\n  node 3 leads\n" {
		t.Errorf("%d %q", code, out)
	}
	want := "node 3 leads t:2 and does not answer at " + gone + " (nothing listens there): if it died, another takes over by itself; this is what node 1 knows\n"
	if errs != want {
		t.Errorf("%q, want %q", errs, want)
	}
	one.why.Partitions = append(one.why.Partitions, three)
	if _, _, errs := runCLI(t, "", "why", "t", "--http", at); !strings.HasPrefix(errs, "node 3 leads 2 partitions of t and") {
		t.Errorf("two partitions: %q", errs)
	}
}
