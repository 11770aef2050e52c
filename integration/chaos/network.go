// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// place is an end of a link: a node by its id, or what all nodes use.
type place int

const (
	store place = 100
	etcd  place = 200 // and the members after the first
)

func (p place) String() string {
	switch {
	case p >= etcd:
		return fmt.Sprintf("etcd %d", p-etcd+1)
	case p == store:
		return "store"
	}
	return fmt.Sprintf("node %d", int(p))
}

// direction is one way between two places.
type direction struct{ from, to place }

// network carries every connection between nodes, and from nodes to etcd and to the store, through TCP proxies of this process, and
// disturbs single directions. What is held is not lost: it arrives later, as TCP sends again, unless the connection is reset.
type network struct {
	mu      sync.Mutex
	rules   map[direction]rule
	changed chan struct{} // closed and replaced when the rules change
	wires   map[*wire]struct{}
	// unknown counts connections to an inter-broker listener whose caller did not say who it is: no fault would reach them.
	unknown   int
	listeners []net.Listener
	running   sync.WaitGroup
	closed    bool
}

// rule is what happens to one direction.
type rule struct {
	held  bool
	delay time.Duration
}

// wire is one connection through a proxy.
type wire struct {
	from, to    place // who dialled whom
	down, up    net.Conn
	closed      chan struct{}
	closingOnce sync.Once
}

func newNetwork() *network {
	return &network{rules: map[direction]rule{}, changed: make(chan struct{}), wires: map[*wire]struct{}{}}
}

// proxy listens for connections to a target. from is who calls, 0: whoever says so in the client id of its first request.
func (n *network) proxy(from, to place, target string) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	n.listeners = append(n.listeners, l)
	n.mu.Unlock()
	n.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			n.running.Go(func() { n.carry(&wire{from: from, to: to, down: c, closed: make(chan struct{})}, target) })
		}
	})
	return l.Addr().String(), nil
}

// carry carries one connection until it ends.
func (n *network) carry(w *wire, target string) {
	defer w.close()
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	n.wires[w] = struct{}{}
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.wires, w)
		n.mu.Unlock()
	}()
	var first []byte
	if w.from == 0 {
		var from place
		var err error
		if from, first, err = caller(w.down); err != nil {
			if len(first) > 0 {
				n.mu.Lock()
				n.unknown++
				n.mu.Unlock()
			}
			return
		}
		n.mu.Lock()
		w.from = from
		n.mu.Unlock()
	}
	there, back := direction{w.from, w.to}, direction{w.to, w.from}
	if !n.pass(w, there) {
		return
	}
	up, err := net.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		n.pass(w, back) // the refusal is held as well
		return
	}
	n.mu.Lock()
	w.up = up
	n.mu.Unlock()
	defer up.Close()
	if _, err := up.Write(first); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { n.pump(w, up, w.down, there) })
	both.Go(func() { n.pump(w, w.down, up, back) })
	both.Wait()
}

// pump carries one direction of a connection. Its end is held and delayed like the rest.
func (n *network) pump(w *wire, to, from net.Conn, d direction) {
	buf := make([]byte, 64<<10)
	for {
		size, err := from.Read(buf)
		if !n.pass(w, d) {
			return
		}
		if size > 0 {
			if _, err := to.Write(buf[:size]); err != nil {
				w.close()
				return
			}
		}
		if err != nil {
			w.close()
			return
		}
	}
}

// pass waits as long as the direction is held, and its delay. It returns false when the connection was closed.
func (n *network) pass(w *wire, d direction) bool {
	for waited := false; ; {
		n.mu.Lock()
		r, changed := n.rules[d], n.changed
		n.mu.Unlock()
		switch {
		case r.held:
			select {
			case <-changed:
			case <-w.closed:
				return false
			}
		case r.delay > 0 && !waited:
			waited = true
			t := time.NewTimer(r.delay)
			select {
			case <-t.C:
			case <-w.closed:
				t.Stop()
				return false
			}
		default:
			select {
			case <-w.closed:
				return false
			default:
				return true
			}
		}
	}
}

// close ends both connections of a wire.
func (w *wire) close() {
	w.closingOnce.Do(func() {
		close(w.closed)
		w.down.Close()
		if w.up != nil {
			w.up.Close()
		}
	})
}

// set disturbs directions, or, with the zero rule, lets them work again.
func (n *network) set(r rule, ds ...direction) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range ds {
		n.rules[d] = r
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// reset breaks the connections over these directions with a RST.
func (n *network) reset(ds ...direction) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.wires {
		for _, d := range ds {
			if d == (direction{w.from, w.to}) || d == (direction{w.to, w.from}) {
				for _, c := range []net.Conn{w.down, w.up} {
					if tcp, ok := c.(*net.TCPConn); ok {
						_ = tcp.SetLinger(0)
					}
				}
				w.close()
				break
			}
		}
	}
}

// strangers is how many connections to inter-broker listeners did not say who they were.
func (n *network) strangers() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unknown
}

// close ends all.
func (n *network) close() {
	n.mu.Lock()
	n.closed = true
	for _, l := range n.listeners {
		l.Close()
	}
	for w := range n.wires {
		w.close()
	}
	n.mu.Unlock()
	n.running.Wait()
}

// both are the two directions of a link.
func both(a, b place) []direction { return []direction{{a, b}, {b, a}} }

var errStranger = errors.New("the caller does not say which node it is")

// caller reads who calls from the client id of a connection's first request; first is what was read.
func caller(c net.Conn) (from place, first []byte, err error) {
	const fixed = 14 // size, key, version, correlation id, length of the client id
	first = make([]byte, fixed)
	if n, err := io.ReadFull(c, first); err != nil {
		return 0, first[:n], err
	}
	size := int(int16(binary.BigEndian.Uint16(first[fixed-2:])))
	if size <= 0 || size > 200 {
		return 0, first, errStranger
	}
	id := make([]byte, size)
	if _, err := io.ReadFull(c, id); err != nil {
		return 0, first, err
	}
	first = append(first, id...)
	number, ok := strings.CutPrefix(string(id), "varve-node-")
	var node int
	if _, err := fmt.Sscan(number, &node); !ok || err != nil {
		return 0, first, fmt.Errorf("%w: %q", errStranger, id)
	}
	return place(node), first, nil
}
