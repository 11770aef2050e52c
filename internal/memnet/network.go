// SPDX-License-Identifier: Apache-2.0

package memnet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxBuffered is how many bytes a direction of a connection holds before a writer waits, like a socket's buffers.
const maxBuffered = 256 << 10

// backlog is how many dialled connections a listener holds that were not accepted.
const backlog = 1024

// Faults are drawn for every write, from the network's seed. The zero value is a perfect network.
type Faults struct {
	// Cut is the probability that a write resets its connection instead of being delivered.
	Cut float64
	// LoseReply is the probability that a write of the accepting side vanishes and the connection is reset: the request took
	// effect, the requester does not know.
	LoseReply float64
	// DelayMin and DelayMax bound how long a write is under way.
	DelayMin, DelayMax time.Duration
}

// Network is a set of hosts. An address is "host:port".
type Network struct {
	mu struct {
		sync.Mutex
		rng       *rand.Rand
		faults    Faults
		listeners map[string]*listener
		conns     map[*Conn]struct{} // the dialling ends
		apart     map[pair]bool
		changed   chan struct{} // closed when a partition begins or heals
		nextPort  int
	}
}

// pair is two hosts in alphabetical order.
type pair struct{ a, b string }

func pairOf(a, b string) pair {
	if a > b {
		a, b = b, a
	}
	return pair{a, b}
}

// New makes a network whose faults are drawn from seed. Inside a bubble it must be made in the bubble.
func New(seed uint64) *Network {
	n := &Network{}
	n.mu.rng = rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))
	n.mu.listeners = make(map[string]*listener)
	n.mu.conns = make(map[*Conn]struct{})
	n.mu.apart = make(map[pair]bool)
	n.mu.changed = make(chan struct{})
	n.mu.nextPort = 40000
	return n
}

// SetFaults changes what is drawn from now on.
func (n *Network) SetFaults(f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.faults = f
}

// Partition keeps a and b from hearing each other until Heal.
func (n *Network) Partition(a, b string) { n.setApart(a, b, true) }

// Heal ends a partition: what was written meanwhile arrives.
func (n *Network) Heal(a, b string) { n.setApart(a, b, false) }

func (n *Network) setApart(a, b string, apart bool) {
	n.mu.Lock()
	if apart {
		n.mu.apart[pairOf(a, b)] = true
	} else {
		delete(n.mu.apart, pairOf(a, b))
	}
	close(n.mu.changed)
	n.mu.changed = make(chan struct{})
	conns := n.connsLocked(func(c *Conn) bool { return pairOf(c.local.host(), c.remote.host()) == pairOf(a, b) })
	n.mu.Unlock()
	for _, c := range conns {
		c.in.hold(apart)
		c.out.hold(apart)
	}
}

// Cut resets every connection of a host, as when its process dies.
func (n *Network) Cut(host string) {
	n.mu.Lock()
	conns := n.connsLocked(func(c *Conn) bool { return c.local.host() == host || c.remote.host() == host })
	n.mu.Unlock()
	for _, c := range conns {
		c.reset()
	}
}

func (n *Network) connsLocked(match func(*Conn) bool) (out []*Conn) {
	for c := range n.mu.conns {
		if match(c) {
			out = append(out, c)
		}
	}
	return out
}

// ListenFunc is Listen with its address filled in, the form that servers take.
func (n *Network) ListenFunc(address string) func() (net.Listener, error) {
	return func() (net.Listener, error) { return n.Listen(address) }
}

// Listen binds an address.
func (n *Network) Listen(address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.listeners[address] != nil {
		return nil, fmt.Errorf("listen %s: %w", address, syscall.EADDRINUSE)
	}
	l := &listener{n: n, addr: addr(address), queue: make(chan *Conn, backlog), done: make(chan struct{})}
	n.mu.listeners[address] = l
	return l, nil
}

// DialFunc is Dial from a host, the form that clients take.
func (n *Network) DialFunc(from string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) { return n.Dial(ctx, from, address) }
}

// Dial connects a host to an address. A partition makes it wait, as a lost SYN does.
func (n *Network) Dial(ctx context.Context, from, address string) (net.Conn, error) {
	for {
		n.mu.Lock()
		l, changed := n.mu.listeners[address], n.mu.changed
		if !n.mu.apart[pairOf(from, addr(address).host())] {
			if l == nil {
				n.mu.Unlock()
				return nil, &net.OpError{Op: "dial", Net: "mem", Addr: addr(address), Err: errRefused}
			}
			c := n.connectLocked(from, l)
			n.mu.Unlock()
			select {
			case l.queue <- c.peer:
				return c, nil
			default:
				c.reset()
				return nil, &net.OpError{Op: "dial", Net: "mem", Addr: addr(address), Err: fmt.Errorf("backlog full: %w", errRefused)}
			}
		}
		n.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("dial %s: %w", address, context.Cause(ctx))
		}
	}
}

func (n *Network) connectLocked(from string, l *listener) *Conn {
	n.mu.nextPort++
	local := addr(from + ":" + strconv.Itoa(n.mu.nextPort))
	there, back := newHalf(), newHalf()
	c := &Conn{n: n, local: local, remote: l.addr, in: back, out: there}
	s := &Conn{n: n, local: l.addr, remote: local, in: there, out: back, accepted: true}
	c.init(s)
	s.init(c)
	n.mu.conns[c] = struct{}{}
	return c
}

func (n *Network) forget(c *Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.accepted {
		c = c.peer
	}
	delete(n.mu.conns, c)
}

// fate is what happens to one write.
type fate struct {
	cut, lost bool
	delay     time.Duration
}

func (n *Network) draw(accepted bool) fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.mu.faults
	if f == (Faults{}) {
		return fate{}
	}
	out := fate{cut: n.mu.rng.Float64() < f.Cut, lost: accepted && n.mu.rng.Float64() < f.LoseReply, delay: f.DelayMin}
	if f.DelayMax > f.DelayMin {
		out.delay += time.Duration(n.mu.rng.Int64N(int64(f.DelayMax - f.DelayMin)))
	}
	return out
}

type listener struct {
	n     *Network
	addr  addr
	queue chan *Conn
	done  chan struct{}
	once  sync.Once
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: what was dialled but not accepted is reset.
func (l *listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		err = nil
		close(l.done)
		l.n.mu.Lock()
		delete(l.n.mu.listeners, string(l.addr))
		l.n.mu.Unlock()
		for {
			select {
			case c := <-l.queue:
				c.reset()
				continue
			default:
			}
			return
		}
	})
	return err
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }

type addr string

func (addr) Network() string  { return "mem" }
func (a addr) String() string { return string(a) }

func (a addr) host() string {
	if i := strings.LastIndexByte(string(a), ':'); i >= 0 {
		return string(a[:i])
	}
	return string(a)
}

// errRefused is why a dial found nobody, as the system calls it.
var errRefused = os.NewSyscallError("connect", syscall.ECONNREFUSED)

// errReset is what both ends of a cut connection see. It has all the types that real connections give, the error of the system call
// within that of the operation: clients tell by them what may be asked again.
var errReset error = &net.OpError{Op: "read", Net: "mem", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
