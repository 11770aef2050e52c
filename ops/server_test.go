// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fakeNode answers from fields and records what was asked of it.
type fakeNode struct {
	notReady error
	err      error
	query    SegmentQuery
	ticked   string
	upgraded int
	drained  string
}

func (f *fakeNode) Ready() error { return f.notReady }
func (f *fakeNode) Cluster(context.Context) (Cluster, error) {
	return Cluster{ClusterID: "abc", Node: 3}, f.err
}
func (f *fakeNode) Config() []ConfigValue { return []ConfigValue{{"node.id", "3", "static"}} }
func (f *fakeNode) Topic(_ context.Context, name string) (Topic, error) {
	return Topic{Name: name, Partitions: 2}, f.err
}
func (f *fakeNode) Segments(_ context.Context, q SegmentQuery) (Segments, error) {
	f.query = q
	return Segments{Topic: q.Topic, Partition: q.Partition}, f.err
}
func (f *fakeNode) Tick(_ context.Context, job string) error { f.ticked = job; return f.err }
func (f *fakeNode) Why(_ context.Context, topic string, partition int32) (Why, error) {
	if topic != "logs" {
		return Why{}, fmt.Errorf("%w: no topic %q", ErrNotFound, topic)
	}
	return Why{Topic: topic, Node: 1, Partitions: []WhyPartition{{Partition: max(partition, 0), Leader: 1, Reasons: []string{"node 1 leads"}}}}, nil
}

func (f *fakeNode) Nodes(context.Context) (Nodes, error) {
	return Nodes{Nodes: []NodeState{{ID: 3, Registered: true}}}, f.err
}

func (f *fakeNode) DrainNode(_ context.Context, node int32, on bool) (Nodes, error) {
	f.drained = fmt.Sprint(node, on)
	return Nodes{Nodes: []NodeState{{ID: node, Draining: on}}}, f.err
}

func (f *fakeNode) UpgradeCluster(_ context.Context, to int) (Cluster, error) {
	f.upgraded = to
	return Cluster{Version: to}, f.err
}

var quiet = slog.New(slog.DiscardHandler)

func newServer(t *testing.T, cfg Config, node Node) http.Handler {
	t.Helper()
	s, err := New(cfg, node, prometheus.NewRegistry(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

func ask(h http.Handler, method, target, token, body string) (int, string) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadEndpointsNeedNoToken(t *testing.T) {
	node := &fakeNode{}
	h := newServer(t, Config{}, node)
	for target, want := range map[string]string{
		"/healthz": "ok", "/readyz": "ok", "/metrics": "", "/v1/cluster": `"clusterId":"abc"`, "/v1/config": `"node.id"`,
		"/v1/topics/logs": `"partitions":2`, "/v1/why/logs?partition=1": `"reasons":["node 1 leads"]`, "/v1/topics/logs/partitions/1/segments?from=7&limit=5": `"segments":[]`,
	} {
		if code, body := ask(h, "GET", target, "", ""); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", target, code, body)
		}
	}
	if want := (SegmentQuery{"logs", 1, 7, 5}); node.query != want {
		t.Errorf("asked for %+v, want %+v", node.query, want)
	}
}

func TestReadyzSaysWhyNot(t *testing.T) {
	h := newServer(t, Config{}, &fakeNode{notReady: errors.New("3 partitions are not in their ISR")})
	if code, body := ask(h, "GET", "/readyz", "", ""); code != 503 || !strings.Contains(body, "3 partitions are not in their ISR") {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := ask(h, "GET", "/healthz", "", ""); code != 200 {
		t.Errorf("not ready must not mean not alive: %d", code)
	}
}

// guardedRequests is everything that O1 covers.
var guardedRequests = [][2]string{
	{"POST", "/v1/tick/retention"}, {"POST", "/v1/cluster/upgrade"}, {"POST", "/v1/nodes/3/drain"}, {"POST", "/v1/nodes/3/undrain"},
	{"GET", "/debug/pprof/"}, {"GET", "/debug/pprof/heap"}, {"GET", "/debug/pprof/cmdline"}, {"GET", "/debug/pprof/symbol"},
	{"GET", "/debug/pprof/profile?seconds=1"}, {"GET", "/debug/pprof/trace?seconds=1"},
}

func TestGuardedWithoutTokenFile(t *testing.T) {
	node := &fakeNode{}
	h := newServer(t, Config{}, node)
	for _, r := range guardedRequests {
		code, body := ask(h, r[0], r[1], "anything", `{"to":2}`)
		if code != http.StatusForbidden || !strings.Contains(body, "--http-token-file") {
			t.Errorf("%v: %d %s", r, code, body)
		}
	}
	if node.ticked != "" || node.upgraded != 0 || node.drained != "" {
		t.Errorf("a refused request reached the node: %+v", node)
	}
}

func TestGuardedWithWrongOrNoToken(t *testing.T) {
	node := &fakeNode{}
	h := newServer(t, Config{TokenFile: tokenFile(t, "secret\n")}, node)
	for _, r := range guardedRequests {
		for _, token := range []string{"", "Secret", "secret2", "secre"} {
			if code, body := ask(h, r[0], r[1], token, `{"to":2}`); code != http.StatusUnauthorized || strings.Contains(body, "secret\n") {
				t.Errorf("%v with %q: %d %s", r, token, code, body)
			}
		}
	}
	if node.ticked != "" || node.upgraded != 0 || node.drained != "" {
		t.Errorf("a refused request reached the node: %+v", node)
	}
	// All wrong tokens get the same answer, which is not that of none.
	_, none := ask(h, "POST", "/v1/tick/retention", "", "")
	answers := map[string]bool{none: true}
	for _, token := range []string{"x", "secre", "secret2", "Secret"} {
		_, body := ask(h, "POST", "/v1/tick/retention", token, "")
		answers[body] = true
	}
	if len(answers) != 2 {
		t.Errorf("answers to none and to wrong ones: %v", answers)
	}
}

func TestGuardedWithToken(t *testing.T) {
	node := &fakeNode{}
	path := tokenFile(t, "secret\n")
	h := newServer(t, Config{TokenFile: path}, node)
	if code, body := ask(h, "POST", "/v1/tick/seal", "secret", ""); code != 200 || node.ticked != "seal" {
		t.Errorf("%d %s, ticked %q", code, body, node.ticked)
	}
	if code, body := ask(h, "POST", "/v1/cluster/upgrade", "secret", `{"to":2}`); code != 200 || node.upgraded != 2 || !strings.Contains(body, `"version":2`) {
		t.Errorf("%d %s", code, body)
	}
	for path, want := range map[string]string{"/v1/nodes/7/drain": "7 true", "/v1/nodes/7/undrain": "7 false"} {
		if code, body := ask(h, "POST", path, "secret", ""); code != 200 || node.drained != want || !strings.Contains(body, `"id":7`) {
			t.Errorf("%s: %d %s, asked for %q", path, code, body, node.drained)
		}
	}
	if code, body := ask(h, "GET", "/v1/nodes", "", ""); code != 200 || !strings.Contains(body, `"registered":true`) {
		t.Errorf("nodes: %d %s", code, body)
	}
	if code, _ := ask(h, "GET", "/debug/pprof/cmdline", "secret", ""); code != 200 {
		t.Errorf("pprof with the token: %d", code)
	}
	if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := ask(h, "POST", "/v1/tick/seal", "secret", ""); code != http.StatusUnauthorized {
		t.Errorf("the old token still works after the file changed: %d", code)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if code, _ := ask(h, "POST", "/v1/tick/seal", "other", ""); code != http.StatusForbidden {
		t.Errorf("without its file: %d", code)
	}
}

func TestBadRequests(t *testing.T) {
	h := newServer(t, Config{TokenFile: tokenFile(t, "secret")}, &fakeNode{})
	for _, r := range [][3]string{
		{"GET", "/v1/topics/logs/partitions/x/segments", ""}, {"GET", "/v1/topics/logs/partitions/-1/segments", ""},
		{"GET", "/v1/topics/logs/partitions/0/segments?from=-1", ""}, {"GET", "/v1/topics/logs/partitions/0/segments?limit=0", ""},
		{"GET", fmt.Sprintf("/v1/topics/logs/partitions/0/segments?limit=%d", maxSegmentPage+1), ""},
		{"POST", "/v1/cluster/upgrade", ""}, {"POST", "/v1/cluster/upgrade", `{"to":0}`}, {"POST", "/v1/cluster/upgrade", `{"too":1}`},
		{"POST", "/v1/nodes/x/drain", ""}, {"POST", "/v1/nodes/-1/undrain", ""},
	} {
		if code, body := ask(h, r[0], r[1], "secret", r[2]); code != 400 || !strings.Contains(body, `"error"`) {
			t.Errorf("%v: %d %s", r, code, body)
		}
	}
	if code, _ := ask(h, "GET", "/v1/tick/seal", "secret", ""); code != http.StatusMethodNotAllowed {
		t.Errorf("GET on a POST endpoint: %d", code)
	}
}

func TestStatusOfErrors(t *testing.T) {
	for err, want := range map[error]int{
		fmt.Errorf("topic x: %w", ErrNotFound): 404, fmt.Errorf("x: %w", ErrRefused): 409, fmt.Errorf("x: %w", ErrUnavailable): 503,
		context.DeadlineExceeded: 503, errors.New("boom"): 500,
	} {
		h := newServer(t, Config{}, &fakeNode{err: err})
		code, body := ask(h, "GET", "/v1/topics/x", "", "")
		var e struct{ Error string }
		if json.Unmarshal([]byte(body), &e) != nil || code != want || e.Error != err.Error() {
			t.Errorf("%v: %d %s, want %d", err, code, body, want)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	if _, err := New(Config{TokenFile: "/no/such/file"}, &fakeNode{}, prometheus.NewRegistry(), quiet); err == nil || !strings.Contains(err.Error(), "--http-token-file") {
		t.Errorf("a missing file is accepted: %v", err)
	}
	for _, content := range []string{"", " \n", strings.Repeat("x", maxTokenBytes+1)} {
		if err := (Config{TokenFile: tokenFile(t, content)}).Validate(); err == nil {
			t.Errorf("a token file of %d bytes is accepted", len(content))
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	s, err := New(Config{}, &fakeNode{}, prometheus.NewRegistry(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, ln) }()
	resp, err := http.Get("http://" + ln.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != "ok\n" {
		t.Fatalf("%q, %v", body, err)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(shutdownGrace + 10*time.Second):
		t.Fatal("Run goes on after its context ended")
	}
}

func TestRunReturnsWhatEndsIt(t *testing.T) {
	s, err := New(Config{}, &fakeNode{}, prometheus.NewRegistry(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := s.Run(context.Background(), ln); err == nil || !strings.Contains(err.Error(), "serving HTTP") {
		t.Errorf("a dead listener: %v", err)
	}
}
