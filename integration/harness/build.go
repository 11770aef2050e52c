// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// binaries holds what was built in this run, in a directory that Main removes.
var binaries struct {
	mu   sync.Mutex
	dir  string
	path map[string]string
}

// Main runs the tests of a package and removes what was built.
func Main(m *testing.M) {
	code := m.Run()
	if binaries.dir != "" {
		_ = os.RemoveAll(binaries.dir)
	}
	os.Exit(code)
}

// Root is the repository's root directory.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the working directory")
		}
	}
}

// Varve is the product's binary: VARVE_BIN, or built from this tree as `make build` does.
func Varve(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("VARVE_BIN"); bin != "" {
		return bin
	}
	return built(t, "./cmd/varve")
}

// NextVarve is this tree built as a release that can run a newer cluster version too.
func NextVarve(t testing.TB) string {
	t.Helper()
	return built(t, "./cmd/varve", "-tags", "varve_next_version")
}

// etcdMember is the binary of an etcd member: beside VARVE_BIN if it is there, or built.
func etcdMember(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("VARVE_BIN"); bin != "" {
		beside := filepath.Join(filepath.Dir(bin), "etcdmember")
		if _, err := os.Stat(beside); err == nil {
			return beside
		}
	}
	return built(t, "./integration/etcdmember")
}

func built(t testing.TB, pkg string, flags ...string) string {
	t.Helper()
	binaries.mu.Lock()
	defer binaries.mu.Unlock()
	name := strings.Join(append(flags, pkg), " ")
	if p := binaries.path[name]; p != "" {
		return p
	}
	if binaries.dir == "" {
		dir, err := os.MkdirTemp("", "varve-integration-")
		if err != nil {
			t.Fatal(err)
		}
		binaries.dir, binaries.path = dir, map[string]string{}
	}
	out := filepath.Join(binaries.dir, fmt.Sprint(filepath.Base(pkg), len(binaries.path)))
	if runtime.GOOS == "windows" {
		out += ".exe"
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", out}, append(flags, pkg)...)...)
	cmd.Dir = Root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, text)
	}
	binaries.path[name] = out
	return out
}

// Need returns the path of a program of the machine, or skips the test (fails it under VARVE_REQUIRE_TOOLS).
func Need(t testing.TB, name, why string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	reason := fmt.Sprintf("%s is not installed, and is needed to %s", name, why)
	if os.Getenv("VARVE_REQUIRE_TOOLS") != "" {
		t.Fatalf("%s; VARVE_REQUIRE_TOOLS is set", reason)
	}
	t.Skipf("skipped: %s", reason)
	return ""
}

// Long tells whether the long forms are asked for.
func Long() bool { return os.Getenv("VARVE_LONG") == "1" }
