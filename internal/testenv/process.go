// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

const (
	// readyTimeout bounds the start of a server, stopTimeout its polite end.
	readyTimeout = 60 * time.Second
	stopTimeout  = 5 * time.Second
	// probeTimeout bounds one probe.
	probeTimeout = 2 * time.Second
	// startTries: a free port may be taken between its choice and the server's bind.
	startTries = 3
	// logLimit is how much of a server's output is kept for a failure's report.
	logLimit = 64 << 10
)

// Tool returns the path of an installed server, or skips the test (fails it under VARVE_REQUIRE_TOOLS).
func Tool(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("VARVE_TOOLS")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatalf("no home directory to look for %s in: %v", name, err)
		}
		dir = filepath.Join(home, ".cache", "varve-tools")
	}
	path := filepath.Join(dir, "bin", name)
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("VARVE_REQUIRE_TOOLS") != "" {
			t.Fatalf("%s is not installed and VARVE_REQUIRE_TOOLS is set: run scripts/tools.sh (%v)", name, err)
		}
		t.Skipf("skipped: %s is not installed; run scripts/tools.sh (%v)", name, err)
	}
	return path
}

// FreePort returns a loopback port that was free just now.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// tailLog keeps the last bytes written to it.
type tailLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *tailLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	if over := l.buf.Len() - logLimit; over > 0 {
		l.buf.Next(over)
	}
	return len(p), nil
}

func (l *tailLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Process is a running server.
type Process struct {
	cmd    *exec.Cmd
	log    *tailLog
	exited chan struct{}
}

// start runs the command and waits until ready returns nil. The process ends with the test.
func start(t testing.TB, cmd *exec.Cmd, ready func() error) (*Process, error) {
	t.Helper()
	p := &Process{cmd: cmd, log: &tailLog{}, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.Stop)
	deadline := time.Now().Add(readyTimeout)
	for {
		err := ready()
		if err == nil {
			return p, nil
		}
		select {
		case <-p.exited:
			return nil, fmt.Errorf("%s ended at start: %s", cmd.Path, p.log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.Stop()
			return nil, fmt.Errorf("%s is not ready after %v: %w; its output: %s", cmd.Path, readyTimeout, err, p.log)
		}
	}
}

// Kill ends the process at once, as a crash does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Stop asks the process to end, and kills it when it does not. It may be called twice.
func (p *Process) Stop() {
	select {
	case <-p.exited:
		return
	default:
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err == nil {
		select {
		case <-p.exited:
			return
		case <-time.After(stopTimeout):
		}
	}
	p.Kill()
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Log returns the end of the output.
func (p *Process) Log() string { return p.log.String() }
