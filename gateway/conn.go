// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"github.com/varve/varve/gateway/quota"
)

// conn is one client connection: its reader decodes and starts requests, its writer finishes and answers them in order (G1).
type conn struct {
	s        *Server
	nc       net.Conn
	br       *bufio.Reader
	sender   *fileSender // nil: the connection takes bytes only
	listener string
	peer     string
	memory   *semaphore.Weighted // of this connection's requests in flight (G4)
	queue    chan *call          // started, not answered; closed by the reader
	open     atomic.Int32        // calls in queue or being answered
	// turns are those of them that were not started, in order: the first is served in its turn, the others stand behind it.
	turns struct {
		sync.Mutex
		calls []*call
	}
	// mutedUntil, in nanoseconds since the server's start: until then nothing is read or answered. The writer sets it.
	mutedUntil atomic.Int64
	behind     chan struct{} // a token: a request has come since a fetch of a follower last looked
	answered   chan struct{} // told by the writer when no call is open any more, if the reader asked
	asked      atomic.Bool
	alone      bool // of the reader only: nothing more is taken up until the last call is answered

	// ctx ends when the connection is dead; reading ends earlier when the server drains.
	ctx        context.Context
	cancel     context.CancelFunc
	readCtx    context.Context
	cancelRead context.CancelFunc

	// Of the writer goroutine only:
	timer      *time.Timer
	unsent     *buffer   // whole answers that go out with the next one
	unsentFor  int32     // calls that are over, but for the sending of their answers
	fetchBytes int       // of the last fetch answer: the first guess for the next one's buffer
	plain      *fetchSet // subscriptions of sessionless fetches, kept between them
	cold       sync.WaitGroup
}

// alarm is the connection's timer: at most one wait of a connection is on at a time.
func (c *conn) alarm(d time.Duration) *time.Timer {
	if c.timer == nil {
		c.timer = time.NewTimer(d)
	} else {
		c.timer.Reset(d)
	}
	return c.timer
}

// call is a request between its arrival and its answer.
type call struct {
	Request
	api         *api
	correlation int32
	frame       *buffer
	cost        int64
	arrived     time.Time
	// What the request quota charges: busy is the reader's part, waited what the writer's part has to leave out. Only measured when
	// somebody has such a quota.
	turn         time.Time // when the writer began
	busy, waited time.Duration
	metered      bool
	// keepFrame: something below may read the frame after the answer, so it must not be reused (G5).
	keepFrame bool
	produce   *produceCall
	fetch     *kmsg.FetchRequest
	// answer is of a call that was begun; inTurn: it is not started, and among the connection's turns.
	answer *begun
	inTurn bool
	// unsupported: an ApiVersions request above our version.
	unsupported bool
}

func (c *call) flexible() bool { return c.Version >= c.api.flexibleFrom }

func newConn(ctx context.Context, s *Server, nc net.Conn, listener string) *conn {
	c := &conn{
		s:        s,
		nc:       nc,
		br:       bufio.NewReaderSize(nc, readerBytes),
		listener: listener,
		peer:     nc.RemoteAddr().String(),
		memory:   semaphore.NewWeighted(s.cfg.ConnectionMemory),
		queue:    make(chan *call, maxPipelined),
		behind:   make(chan struct{}, 1),
		answered: make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.readCtx, c.cancelRead = context.WithCancel(c.ctx)
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetNoDelay(true)
		c.sender = newFileSender(t)
	}
	return c
}

// stopReading makes the reader return at its next step; what it has started is still answered.
func (c *conn) stopReading() {
	c.cancelRead()
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
}

// abort ends the connection now.
func (c *conn) abort() {
	c.cancel()
	_ = c.nc.Close()
}

// run serves the connection until it ends and returns when both goroutines are gone.
func (c *conn) run() {
	written := make(chan error, 1)
	go func() { written <- c.write() }()
	rerr := c.read()
	close(c.queue)
	if !errors.Is(rerr, errDraining) {
		// The peer is gone or broke the protocol: nobody reads further answers, and a parked fetch must not wait for its time.
		c.abort()
	}
	werr := <-written
	c.abort()
	if c.plain != nil {
		c.plain.close()
	}
	c.s.sessions.leave(c)
	c.cold.Wait()
	c.logEnd(rerr, werr)
}

// logEnd writes the one line that a connection closed for a reason gets.
func (c *conn) logEnd(rerr, werr error) {
	switch {
	case errors.Is(rerr, errMalformed), errors.Is(rerr, errOversize), errors.Is(rerr, errUnsupported), errors.Is(rerr, errStalled):
		c.s.log.Warn("connection closed", "peer", c.peer, "listener", c.listener, "reason", rerr)
	case werr != nil && !errors.Is(werr, context.Canceled) && !errors.Is(werr, net.ErrClosed) && !errors.Is(werr, errRefused):
		c.s.log.Warn("connection closed", "peer", c.peer, "listener", c.listener, "reason", werr)
	default:
		c.s.log.Debug("connection ended", "peer", c.peer, "listener", c.listener, "reason", rerr)
	}
}

var (
	errDraining = errors.New("server is stopping")
	errIdle     = errors.New("connection idle")
)

// read decodes requests and starts them in order.
func (c *conn) read() error {
	for {
		cl, err := c.next()
		if err != nil {
			return err
		}
		c.start(cl)
		c.open.Add(1)
		c.alone = c.s.quotas.alone(cl)
		select {
		case c.queue <- cl:
			select {
			case c.behind <- struct{}{}:
			default:
			}
		case <-c.ctx.Done():
			cl.keepFrame = true
			c.finished(cl)
			return c.ctx.Err()
		}
	}
}

// start starts a call as far as its turn need not be awaited. What is begun early may overtake nothing but what was started as well: a commit
// behind a request to leave the group must not come before it.
func (c *conn) start(cl *call) {
	began := cl.clock()
	switch {
	case cl.api.start != nil && !cl.unsupported:
		cl.api.start(c.s, c.ctx, cl)
	case c.queueUp(cl):
		return
	default:
		c.begin(cl)
	}
	cl.busy += cl.since(began)
}

func (c *conn) begin(cl *call) { cl.answer = cl.api.begin(c.s, c.ctx, &cl.Request) }

// queueUp puts a call among the turns, unless it can be begun and nothing stands before it. Only the reader adds to them.
func (c *conn) queueUp(cl *call) bool {
	c.turns.Lock()
	defer c.turns.Unlock()
	if cl.api.begin != nil && len(c.turns.calls) == 0 {
		return false
	}
	cl.inTurn = true
	c.turns.calls = append(c.turns.calls, cl)
	return true
}

// nextTurns takes the call off the turns that the writer has answered, and begins what stood behind it, up to the next one that has to be
// served in its turn. What is being begun stays there, so that the reader begins nothing before it.
func (c *conn) nextTurns() {
	c.turns.Lock()
	defer c.turns.Unlock()
	for {
		c.turns.calls = slices.Delete(c.turns.calls, 0, 1)
		if len(c.turns.calls) == 0 || c.turns.calls[0].api.begin == nil {
			return
		}
		cl := c.turns.calls[0]
		c.turns.Unlock()
		began := cl.clock()
		c.begin(cl)
		cl.inTurn = false
		cl.busy += cl.since(began)
		c.turns.Lock()
	}
}

// next reads one request, whose memory is admitted before its body is read (G4).
func (c *conn) next() (*call, error) {
	p, a, err := c.preamble()
	if err != nil {
		return nil, err
	}
	cl := &call{api: a, correlation: p.correlation, cost: int64(p.size), metered: c.s.quotas.table().Has(quota.Request)}
	if !a.records {
		cl.cost *= controlCost
	}
	// More than the whole budget is clamped to it: such a request passes alone.
	cl.cost = min(cl.cost, c.s.cfg.NodeMemory, c.s.cfg.ConnectionMemory)
	if err := c.admit(cl); err != nil {
		return nil, err
	}
	if err := c.body(cl, p); err != nil {
		cl.keepFrame = true
		c.finished(cl)
		return nil, err
	}
	cl.arrived = time.Now()
	return cl, nil
}

// preamble waits for the next request and checks that it is one that will be served.
func (c *conn) preamble() (preamble, *api, error) {
	var p preamble
	if err := c.await(); err != nil {
		return p, nil, err
	}
	if err := c.deadline(time.Now().Add(frameStall), 4+minFrame); err != nil {
		return p, nil, err
	}
	head, err := c.br.Peek(4 + minFrame)
	if err != nil {
		return p, nil, c.cut(err)
	}
	p = parsePreamble(head)
	if p.size < minFrame {
		return p, nil, fmt.Errorf("%w: frame of %d bytes", errMalformed, p.size)
	}
	a := c.s.table.byKey[p.key]
	if a == nil {
		return p, nil, fmt.Errorf("%w: key %d", errUnsupported, p.key)
	}
	if c.s.table.serves(p.key, p.version) == nil && (p.key != apiVersionsKey || p.version < 0) {
		return p, nil, fmt.Errorf("%w: %s version %d", errUnsupported, a.name, p.version)
	}
	limit := c.s.broker.Config().SocketRequestMaxBytes
	if !a.records {
		limit = min(limit, maxControlFrame)
	}
	if int(p.size) > limit {
		return p, nil, fmt.Errorf("%w: %s of %d bytes, at most %d allowed", errOversize, a.name, p.size, limit)
	}
	_, err = c.br.Discard(4)
	return p, a, err
}

// await blocks until a request begins. A connection on which answers are due is not idle.
func (c *conn) await() error {
	for {
		var until time.Time // zero: for ever
		if idle := c.s.broker.Config().ConnectionsMaxIdle; idle >= 0 {
			until = time.Now().Add(idle)
		}
		if err := c.deadline(until, 4); err != nil {
			return err
		}
		_, err := c.br.Peek(4)
		switch {
		case err == nil:
			if err := c.awaitAnswered(); err != nil {
				return err
			}
			return c.awaitUnmuted()
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return c.cut(err)
		case c.readCtx.Err() != nil:
			return errDraining
		case c.open.Load() == 0 && c.muted() <= 0:
			return errIdle
		}
	}
}

// deadline sets the read deadline for n bytes unless they are there already, or reading was stopped, which stopReading says after it
// cancelled readCtx.
func (c *conn) deadline(t time.Time, n int) error {
	if c.br.Buffered() < n {
		if err := c.nc.SetReadDeadline(t); err != nil {
			return err
		}
	}
	if c.readCtx.Err() != nil {
		return c.stopped()
	}
	return nil
}

func (c *conn) stopped() error {
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	return errDraining
}

// cut names why reading a request failed half-way.
func (c *conn) cut(err error) error {
	switch {
	case c.readCtx.Err() != nil:
		return c.stopped()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: request not sent in time", errStalled)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return io.EOF
	}
	return err
}

// admit takes the call's cost from the connection's budget, then from the node's. The order is the same everywhere, and what
// holds either is answered without taking more, so nothing waits in a circle.
func (c *conn) admit(cl *call) error {
	if err := c.memory.Acquire(c.readCtx, cl.cost); err != nil {
		return c.stopped()
	}
	if err := c.s.memory.Acquire(c.readCtx, cl.cost); err != nil {
		c.memory.Release(cl.cost)
		return c.stopped()
	}
	c.s.metrics.inFlight.Add(float64(cl.cost))
	return nil
}

// body reads and decodes what the preamble announced.
func (c *conn) body(cl *call, p preamble) error {
	n := int(p.size)
	cl.frame = getBuffer(n)
	b := cl.frame.b[:n]
	if c.br.Buffered() < n {
		allowed := frameStall + time.Duration(n)*time.Second/frameMinRate
		if err := c.deadline(time.Now().Add(allowed), n); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(c.br, b); err != nil {
		return c.cut(err)
	}
	cl.frame.b = b
	cl.Key, cl.Version = p.key, p.version
	cl.Listener, cl.Peer, cl.Principal = c.listener, c.peer, anonymous
	if p.version > cl.api.max {
		cl.unsupported = true // ApiVersions only: preamble let nothing else pass
		return nil
	}
	id, body, err := splitHeader(b[minFrame:], cl.flexible())
	if err != nil {
		return fmt.Errorf("%s version %d: %w", cl.api.name, p.version, err)
	}
	cl.ClientID = id
	began := cl.clock()
	if cl.api.decode != nil {
		err = cl.api.decode(cl, body)
	} else {
		cl.Body = cl.api.body()
		err = decodeBody(cl.Body, p.version, body)
	}
	cl.busy += cl.since(began)
	if err != nil {
		return fmt.Errorf("%s version %d: %w", cl.api.name, p.version, err)
	}
	return nil
}

// finished gives back what a call held.
func (c *conn) finished(cl *call) {
	if !cl.keepFrame {
		cl.frame.put()
	}
	cl.frame = nil
	c.s.memory.Release(cl.cost)
	c.memory.Release(cl.cost)
	c.s.metrics.inFlight.Sub(float64(cl.cost))
}

// write answers the queued calls in order until the reader closes the queue or an answer cannot be given.
func (c *conn) write() (err error) {
	for cl := c.nextCall(&err); cl != nil; cl = c.nextCall(&err) {
		if err == nil {
			c.holdBack()
			err = c.answer(cl)
			if err != nil {
				c.abort() // the reader must stop; what it still hands over is dropped
			}
		} else {
			cl.keepFrame = true
		}
		c.finished(cl)
		if cl.inTurn && err == nil {
			c.nextTurns()
		}
		if c.unsentFor++; c.unsent == nil {
			c.sent()
		}
	}
	return err
}

// nextCall gives the call whose turn has come; nil: the reader has ended. Answers are held back only as long as the next one is there too:
// those of commits become known by the dozen, when a transaction is through.
func (c *conn) nextCall(err *error) (cl *call) {
	if c.unsent == nil {
		return <-c.queue
	}
	select {
	case cl = <-c.queue:
		if !cl.ready() {
			runtime.Gosched() // what has just become known may not have been told yet
		}
		if cl.ready() {
			return cl
		}
		c.flush(err)
		return cl
	default:
		c.flush(err)
		return <-c.queue
	}
}

// ready tells that the call is answered without waiting for anything.
func (c *call) ready() bool { return c != nil && c.answer != nil && c.answer.ready() }

// send sends an answer, or holds it back for the next ones.
func (c *conn) send(cl *call, a *answer) (err error) {
	if cl.answer != nil && cl.throttle == 0 {
		return c.hold(a)
	}
	if c.unsent != nil {
		if c.flush(&err); err != nil {
			return err
		}
	}
	return a.write(c.nc)
}

// hold keeps an answer back for the next ones, unless there are many already.
func (c *conn) hold(a *answer) (err error) {
	if err := a.frame(); err != nil {
		return err
	}
	if c.unsent == nil {
		c.unsent = getBuffer(minPooled)
	}
	c.unsent.b = append(c.unsent.b, a.parts[0]...)
	if len(c.unsent.b) >= maxUnsent {
		c.flush(&err)
	}
	return err
}

// flush sends the answers that were held back. With an error nothing is sent any more.
func (c *conn) flush(err *error) {
	if *err == nil {
		if *err = c.nc.SetWriteDeadline(writeDeadline(len(c.unsent.b))); *err == nil {
			_, *err = c.nc.Write(c.unsent.b)
		}
		if *err != nil {
			c.abort()
		}
	}
	c.unsent.put()
	c.unsent = nil
	c.sent()
}

// sent tells the reader that nothing is left to be done for the calls that were answered.
func (c *conn) sent() {
	if c.open.Add(-c.unsentFor) == 0 && c.asked.Load() {
		select {
		case c.answered <- struct{}{}:
		default:
		}
	}
	c.unsentFor = 0
}

// answer serves one call and writes what came out.
func (c *conn) answer(cl *call) error {
	if err := c.ctx.Err(); err != nil {
		cl.keepFrame = true // a produce may still be on its way to the disk
		return err
	}
	began := time.Now()
	cl.turn = began
	a := newAnswer(c, cl)
	defer a.release()
	if err := c.serve(cl, a); err != nil {
		return err
	}
	served := time.Now()
	if cl.throttle > 0 {
		c.mute(served, cl.throttle) // before the peer can know the answer
	}
	if err := c.send(cl, a); err != nil {
		return err
	}
	c.s.metrics.request(cl, a, began, served)
	return nil
}

func (c *conn) serve(cl *call, a *answer) error {
	switch {
	case cl.unsupported:
		a.encode(c.s.unsupportedAPIVersions())
		return nil
	case cl.api.finish != nil:
		return cl.api.finish(c.s, c.ctx, cl, a)
	}
	resp, err := c.outcome(cl)
	if err != nil {
		return fmt.Errorf("%s version %d: %w", cl.api.name, cl.Version, err)
	}
	c.s.quotas.chargeControl(cl)
	if r, ok := resp.(kmsg.SetThrottleResponse); ok {
		r.SetThrottle(throttleMillis(cl.throttle))
	}
	resp.SetVersion(cl.Version)
	a.encode(resp)
	return nil
}

// outcome serves a call whose turn has come, as far as that is not done already.
func (c *conn) outcome(cl *call) (kmsg.Response, error) {
	if cl.answer != nil {
		return cl.answer.finish()
	}
	return cl.api.serve(c.s, c.ctx, &cl.Request)
}
