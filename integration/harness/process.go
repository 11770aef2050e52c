// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// givenPorts are those that Port has chosen: who asked for one may bind it later.
var givenPorts sync.Map

// Port chooses a loopback port that is free and stays so: it is above what the system serves and below what it gives to
// outgoing connections (N2). No port is given twice.
func Port(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		l, err := net.Listen("tcp", Loopback(port))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port found")
	return 0
}

// Loopback is the address of a port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Process is a running child. Its output goes to a file, which later starts append to.
type Process struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
	err    error // of Wait, once exited is closed
}

// shownLogs are the logs that a failure has shown: a process that was started often has one.
var shownLogs sync.Map

// spawn starts a child that ends with the test (N1).
func spawn(t testing.TB, name, log string, cmd *exec.Cmd) *Process {
	t.Helper()
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = f, f
	endWithParent(cmd)
	p := &Process{t: t, name: name, cmd: cmd, log: log, exited: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		if _, shown := shownLogs.LoadOrStore(log, true); t.Failed() && !shown {
			t.Logf("end of the log of %s:\n%s", name, p.Tail())
		}
		p.Kill()
	})
	return p
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Running tells whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process as a crash does (SIGKILL) and waits until it is gone. A process that has ended stays as it is.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %s to %s: %v", s, p.name, err)
	}
}

// Terminate sends SIGTERM and returns the exit code.
func (p *Process) Terminate() int {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Wait(stopTimeout)
}

// Wait waits for the end and returns the exit code; -1 when a signal ended it.
func (p *Process) Wait(atMost time.Duration) int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(atMost):
		p.t.Fatalf("%s has not ended after %s; end of its log:\n%s", p.name, atMost, p.Tail())
		return 0
	}
}

// await polls ready until it returns nil, and fails the test when the process ends or readyTimeout passes.
func (p *Process) await(ready func() error) {
	p.t.Helper()
	deadline := time.Now().Add(readyTimeout)
	for {
		err := ready()
		if err == nil {
			return
		}
		select {
		case <-p.exited:
			p.t.Fatalf("%s ended (%v) before it was ready; end of its log:\n%s", p.name, p.err, p.Tail())
		case <-time.After(pollInterval):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s is not ready after %s: %v; end of its log:\n%s", p.name, readyTimeout, err, p.Tail())
		}
	}
}

// Log is the whole output so far, of earlier starts as well.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	return string(b)
}

// Tail is the end of the output.
func (p *Process) Tail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, err = f.Seek(max(0, size-logTail), io.SeekStart)
		if err != nil {
			return err.Error()
		}
	}
	b, err := io.ReadAll(f)
	return string(b) + errText(err)
}

func errText(err error) string {
	if err == nil || errors.Is(err, io.EOF) {
		return ""
	}
	return err.Error()
}
