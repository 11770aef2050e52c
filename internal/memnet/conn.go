// SPDX-License-Identifier: Apache-2.0

package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Conn is one end of a connection.
type Conn struct {
	n             *Network
	local, remote addr
	accepted      bool
	peer          *Conn
	in, out       *half
	writing       chan struct{} // one token: a write at a time, so that it stays in one piece
	readBy        deadline
	writeBy       deadline
}

func (c *Conn) init(peer *Conn) {
	c.peer = peer
	c.writing = make(chan struct{}, 1)
	c.readBy.init()
	c.writeBy.init()
}

// half is one direction: segments in order, each with the time from which it can be read.
type half struct {
	mu       sync.Mutex
	segs     []segment
	bytes    int
	held     bool  // partitioned
	closed   error // the writer is gone: io.EOF once drained, or errReset at once
	readable chan struct{}
	writable chan struct{}
}

type segment struct {
	b   []byte
	due time.Time
}

func newHalf() *half {
	return &half{readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (h *half) hold(held bool) {
	h.mu.Lock()
	h.held = held
	h.mu.Unlock()
	poke(h.readable)
}

// close ends the direction; a reset throws away what is under way.
func (h *half) close(err error) {
	h.mu.Lock()
	if h.closed == nil || h.closed == io.EOF {
		h.closed = err
	}
	if err != io.EOF {
		h.segs, h.bytes = nil, 0
	}
	h.mu.Unlock()
	poke(h.readable)
	poke(h.writable)
}

// take copies what can be read now. wait is how long until the next segment is due, negative for "until somebody pokes".
func (h *half) take(b []byte) (n int, wait time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != nil && h.closed != io.EOF {
		return 0, 0, h.closed
	}
	if h.held {
		return 0, -1, nil
	}
	now := time.Now()
	for n < len(b) && len(h.segs) > 0 {
		s := &h.segs[0]
		if d := s.due.Sub(now); d > 0 {
			if n == 0 {
				return 0, d, nil
			}
			break
		}
		m := copy(b[n:], s.b)
		n += m
		h.bytes -= m
		if s.b = s.b[m:]; len(s.b) == 0 {
			h.segs = h.segs[1:]
		}
	}
	if n > 0 {
		poke(h.writable)
		return n, 0, nil
	}
	return 0, -1, h.closed
}

// put adds a segment if there is room.
func (h *half) put(b []byte, due time.Time) (done bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed == io.EOF: // closed on this side
		return false, net.ErrClosed
	case h.closed == net.ErrClosed: // on the other side
		return false, errReset
	case h.closed != nil:
		return false, h.closed
	case h.bytes >= maxBuffered:
		return false, nil
	}
	if k := len(h.segs); k > 0 && due.Before(h.segs[k-1].due) {
		due = h.segs[k-1].due // a stream keeps its order
	}
	h.segs = append(h.segs, segment{append([]byte(nil), b...), due})
	h.bytes += len(b)
	poke(h.readable)
	return true, nil
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	for {
		expired := c.readBy.wait()
		select {
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		default:
		}
		n, wait, err := c.in.take(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		var due <-chan time.Time
		var t *time.Timer
		if wait >= 0 {
			t = time.NewTimer(wait)
			due = t.C
		}
		select {
		case <-c.in.readable:
		case <-due:
		case <-expired:
		}
		if t != nil {
			t.Stop()
		}
	}
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	expired := c.writeBy.wait()
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-expired:
		return 0, os.ErrDeadlineExceeded
	}
	f := c.n.draw(c.accepted)
	if f.cut || f.lost {
		c.reset()
		if f.lost {
			return len(b), nil
		}
		return 0, errReset
	}
	due := time.Now().Add(f.delay)
	sent := 0
	for sent < len(b) || len(b) == 0 {
		select {
		case <-expired:
			return sent, os.ErrDeadlineExceeded
		default:
		}
		part := b[sent:min(len(b), sent+maxBuffered)]
		done, err := c.out.put(part, due)
		if err != nil {
			return sent, err
		}
		if len(b) == 0 {
			return 0, nil
		}
		if done {
			sent += len(part)
			continue
		}
		select {
		case <-c.out.writable:
		case <-expired:
		}
	}
	return sent, nil
}

// Close implements net.Conn: the peer reads what was sent and then the end; what it still sends is refused.
func (c *Conn) Close() error {
	c.out.close(io.EOF)
	c.in.close(net.ErrClosed)
	c.n.forget(c)
	return nil
}

// reset ends both directions for both ends, now.
func (c *Conn) reset() {
	c.out.close(errReset)
	c.in.close(errReset)
	c.n.forget(c)
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	c.readBy.set(t)
	c.writeBy.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.readBy.set(t)
	poke(c.in.readable) // a reader that waits must look at the new deadline
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeBy.set(t)
	poke(c.out.writable)
	return nil
}

// deadline is a channel that closes when its time comes.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	expired chan struct{}
}

func (d *deadline) init() { d.expired = make(chan struct{}) }

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	// A new channel each time: a timer that fired before Stop closes the one it was made for, never a later one.
	d.expired = make(chan struct{})
	if t.IsZero() {
		return
	}
	c := d.expired
	if left := time.Until(t); left > 0 {
		d.timer = time.AfterFunc(left, func() { close(c) })
	} else {
		close(c)
	}
}
