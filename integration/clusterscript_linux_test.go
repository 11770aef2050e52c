// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/varve/varve/integration/harness"
	"github.com/varve/varve/internal/testenv"
)

// TestClusterScript: what `make cluster` prints works as it stands, and stop and wipe say what they did. What stays on a node that drains is
// told, by the drain and by `varve why`.
func TestClusterScript(t *testing.T) {
	harness.Need(t, "bash", "run the scripts")
	testenv.Tool(t, "minio")
	checkout := scriptCheckout(t)
	bases := steppedPorts(t, 4)
	settings := []string{"VARVE_CLUSTER_DIR=", "VARVE_CLUSTER_NODES=3", fmt.Sprint("VARVE_CLUSTER_S3=", harness.Port(t))}
	for i, name := range []string{"PORT", "HTTP", "INTERNAL", "ETCD"} {
		settings = append(settings, fmt.Sprintf("VARVE_CLUSTER_%s=%d", name, bases[i]))
	}
	in := func(dir, command string) string {
		t.Helper()
		cmd := exec.CommandContext(within(t, patience), "bash", "-c", command)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), settings...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	script := filepath.Join(checkout, "scripts", "cluster.sh")
	t.Cleanup(func() { // whatever is left, and in this checkout only
		cmd := exec.Command("bash", script, "wipe")
		cmd.Env = append(os.Environ(), settings...)
		_ = cmd.Run()
	})

	shown := printed(in(checkout, "scripts/cluster.sh start"))
	if out := in(checkout, shown["look"]); strings.Count(out, "up ") != 3 {
		t.Errorf("%s:\n%s", shown["look"], out)
	}
	in(checkout, "bin/varve topic create full --replication-factor 3 --partitions 2 --bootstrap "+shown["bootstrap"])
	if out := in(checkout, shown["drain"]); !strings.Contains(out, "draining") || !strings.Contains(out, "2 replicas stay on node 2 (topic full)") {
		t.Errorf("%s:\n%s", shown["drain"], out)
	}
	_, nodes, _ := strings.Cut(shown["look"], "--http ")
	if out := in(checkout, "bin/varve why full:1 --http "+nodes); !strings.Contains(out, "node 2 is being drained: its replica stays") {
		t.Errorf("why:\n%s", out)
	}
	if out := in(checkout, shown["restart"]); !strings.Contains(out, "node 2 stopped\n") || strings.Contains(out, "node 1 stopped") || !strings.Contains(out, "node 2 started\n") {
		t.Errorf("%s:\n%s", shown["restart"], out)
	}

	// From elsewhere, about another directory: a cluster that does not run there is none of this one.
	elsewhere, other := t.TempDir(), "VARVE_CLUSTER_DIR="+filepath.Join(t.TempDir(), "other one")
	if out := in(elsewhere, strings.Replace(other, "=", "='", 1)+"' "+script+" stop"); strings.Count(out, "did not run\n") != 4 {
		t.Errorf("of a cluster that does not run:\n%s", out)
	}
	shown = printed(in(elsewhere, script+" start"))
	if out := in(elsewhere, shown["look"]); strings.Count(out, "up ")+strings.Count(out, "draining ") != 3 {
		t.Errorf("%s:\n%s", shown["look"], out)
	}
	stop := in(elsewhere, shown["stop"])
	for _, line := range []string{"node 1 stopped\n", "node 2 stopped\n", "S3 server stopped\n", "the data is kept in " + filepath.Join(checkout, "varve-data", "cluster")} {
		if !strings.Contains(stop, line) {
			t.Errorf("%s does not say %q:\n%s", shown["stop"], line, stop)
		}
	}
	if out := in(checkout, "scripts/cluster.sh wipe"); !strings.Contains(out, "node 1 did not run\n") || !strings.Contains(out, filepath.Join("varve-data", "cluster")+" removed") {
		t.Errorf("wipe:\n%s", out)
	}
	if left, _ := os.ReadDir(filepath.Join(checkout, "varve-data")); len(left) > 0 {
		t.Errorf("wipe left %v", left)
	}
}

// TestServes: the scripts take a server that only listens yet, or answers that it does not serve, for one to be waited for.
func TestServes(t *testing.T) {
	harness.Need(t, "bash", "run the scripts")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(strings.Trim(r.URL.Path, "/"))
		w.WriteHeader(status)
		fmt.Fprint(w, "two\n\nlines")
	}))
	defer srv.Close()
	local := func(command string) (string, error) {
		cmd := exec.CommandContext(within(t, patience), "bash", "-c", "set -euo pipefail; . scripts/local.sh; "+command)
		cmd.Dir = harness.Root(t)
		out, err := cmd.Output()
		return string(out), err
	}
	at := strings.TrimPrefix(srv.URL, "http://")
	for status, want := range map[int]bool{200: true, 403: true, 404: true, 500: false, 503: false} {
		if _, err := local(fmt.Sprintf("serves %s /%d", at, status)); (err == nil) != want {
			t.Errorf("serves with status %d: %v", status, err)
		}
		if out, err := local(fmt.Sprintf("fetch %s /%d", at, status)); (err == nil) != (status == 200) || err == nil && out != "two\n\nlines\n" {
			t.Errorf("fetch with status %d: %v %q", status, err, out)
		}
	}
	if _, err := local("serves " + harness.Loopback(harness.Port(t)) + " /200"); err == nil {
		t.Error("serves where nothing listens")
	}
}

// printed are the commands that a start prints, by what they are for, without the words in brackets behind them.
func printed(out string) map[string]string {
	commands := map[string]string{}
	for line := range strings.Lines(out) {
		name, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		command, _, _ = strings.Cut(command, " (")
		commands[name] = strings.TrimSpace(command)
	}
	return commands
}

// scriptCheckout is a directory with the scripts and the binary where they expect it.
func scriptCheckout(t *testing.T) string {
	t.Helper()
	dir := harness.TempDir(t, "checkout")
	for _, sub := range []string{"scripts", "bin"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"cluster.sh", "local.sh"} {
		text, err := os.ReadFile(filepath.Join(harness.Root(t), "scripts", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "scripts", name), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(harness.Varve(t), filepath.Join(dir, "bin", "varve")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// steppedPorts are free ports of which those ten above are free as well.
func steppedPorts(t *testing.T, n int) (bases []int) {
	t.Helper()
	for len(bases) < n {
		base := harness.Port(t)
		if l, err := net.Listen("tcp", harness.Loopback(base+10)); err == nil {
			l.Close()
			bases = append(bases, base)
		}
	}
	return bases
}
