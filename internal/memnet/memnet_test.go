// SPDX-License-Identifier: Apache-2.0

package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// connect gives both ends of a connection from host a to host b.
func connect(t *testing.T, n *Network) (client, server net.Conn) {
	t.Helper()
	l, err := n.Listen("b:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if client, err = n.Dial(t.Context(), "a", "b:1"); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func TestBytesArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		n.SetFaults(Faults{DelayMin: time.Millisecond, DelayMax: 50 * time.Millisecond})
		c, s := connect(t, n)
		var want bytes.Buffer
		for i := range 200 {
			want.Write(bytes.Repeat([]byte{byte(i)}, 7000))
		}
		sent := bytes.Clone(want.Bytes())
		go func() {
			for len(sent) > 0 {
				m := min(len(sent), 33_000)
				if _, err := c.Write(sent[:m]); err != nil {
					t.Error(err)
				}
				sent = sent[m:]
			}
			_ = c.Close()
		}()
		got, err := io.ReadAll(s)
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("N1: %d bytes of %d arrived, %v", len(got), want.Len(), err)
		}
	})
}

func TestWriterWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := connect(t, New(1))
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		m, err := c.Write(make([]byte, 10*maxBuffered))
		if !errors.Is(err, os.ErrDeadlineExceeded) || m > 2*maxBuffered {
			t.Errorf("N3: wrote %d bytes, %v", m, err)
		}
		_, _ = s.Read(make([]byte, maxBuffered))
		_ = c.SetWriteDeadline(time.Time{})
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("after room was made: %v", err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := connect(t, New(1))
		began := time.Now()
		_ = c.SetReadDeadline(began.Add(time.Second))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("read ended after %s with %v", time.Since(began), err)
		}
		go func() { time.Sleep(time.Second); _ = c.SetReadDeadline(time.Unix(1, 0)) }()
		_ = c.SetReadDeadline(time.Time{})
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a deadline set during a read: %v", err)
		}
		_ = c.SetReadDeadline(time.Time{})
		_, _ = s.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Errorf("after the deadline was taken away: %v", err)
		}
	})
}

func TestPartitionHoldsAndHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		c, s := connect(t, n)
		n.Partition("b", "a")
		if _, err := c.Write([]byte("held")); err != nil {
			t.Fatal(err)
		}
		_ = s.SetReadDeadline(time.Now().Add(time.Second))
		if m, err := s.Read(make([]byte, 4)); m != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("N2: read %d bytes through a partition, %v", m, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, "a", "b:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dialled through a partition: %v", err)
		}
		n.Heal("a", "b")
		_ = s.SetReadDeadline(time.Time{})
		b := make([]byte, 4)
		if _, err := io.ReadFull(s, b); err != nil || string(b) != "held" {
			t.Errorf("N2: after the heal %q, %v", b, err)
		}
	})
}

func TestCutAndLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		c, s := connect(t, n)
		n.Cut("a")
		for _, end := range []net.Conn{c, s} {
			if _, err := end.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a cut connection reads %v", err)
			} else if !errors.As(err, new(*net.OpError)) || !errors.As(err, new(*os.SyscallError)) {
				t.Errorf("a cut connection reads %#v, which clients do not take for an error of the network", err)
			}
		}
		if len(n.mu.conns) != 0 {
			t.Error("the network remembers a dead connection")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		c, s := connect(t, n)
		n.SetFaults(Faults{LoseReply: 1})
		if _, err := c.Write([]byte("ask")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(s, make([]byte, 3)); err != nil {
			t.Errorf("the request must arrive: %v", err)
		}
		if _, err := s.Write([]byte("answer")); err != nil {
			t.Errorf("the sender of a lost reply learns of it: %v", err)
		}
		if m, err := c.Read(make([]byte, 6)); m != 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read %d bytes of a lost reply, %v", m, err)
		}
	})
}

func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		if _, err := n.Dial(t.Context(), "a", "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody listens: %v", err)
		}
		l, _ := n.Listen("b:1")
		if _, err := n.Listen("b:1"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("the address is taken: %v", err)
		}
		c, err := n.Dial(t.Context(), "a", "b:1")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("dialled but never accepted: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept on a closed listener: %v", err)
		}
	})
}
