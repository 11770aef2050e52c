// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
)

// answer is a response under construction: framing and fields in one pooled buffer, record batches as they were read or as spans of files,
// between the parts of it. Nothing of the records is copied.
type answer struct {
	c      *conn
	head   *buffer
	from   int           // start of the part of head that is not in parts yet
	parts  net.Buffers   // finished parts, in order
	size   int           // bytes in parts
	none   bool          // acks=0: no answer at all
	failed bool          // carries an error code, for the metrics
	held   []*buffer     // record buffers, returned after the write
	spans  []broker.Span // of files of the hot log, as well
	sends  []placedSpan
	budget int64 // of the node's fetch memory
}

// placedSpan is a span of a file behind that many parts.
type placedSpan struct {
	behind int
	span   broker.Span
}

// newAnswer begins an answer with its length, to be known later, and the response header. ApiVersions keeps header version 0,
// so that a client that guessed the version wrong can still read it.
func newAnswer(c *conn, cl *call) *answer {
	a := &answer{c: c, head: getBuffer(minPooled)}
	b := append(a.head.b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(cl.correlation))
	if cl.flexible() && cl.Key != apiVersionsKey {
		b = append(b, 0)
	}
	a.head.b = b
	return a
}

func (a *answer) encode(resp kmsg.Response) { a.head.b = resp.AppendTo(a.head.b) }

// grow makes room for n bytes of fields before they are written, so that the buffer stays one of the pool's.
func (a *answer) grow(n int) {
	if cap(a.head.b) >= n {
		return
	}
	b := getBuffer(n)
	b.b = append(b.b, a.head.b...)
	a.head.put()
	a.head = b
}

// records puts a run of batches into the answer behind what head has so far. head may move when it grows: parts cut from it
// before keep the old array, whose bytes are final.
func (a *answer) records(b []byte) {
	a.cut()
	if len(b) > 0 {
		a.parts = append(a.parts, b)
		a.size += len(b)
	}
}

// chunk puts what a read found into the answer.
func (a *answer) chunk(c *broker.Chunk) {
	n := c.Span.Len()
	if n == 0 {
		a.records(c.Data)
		return
	}
	a.cut()
	a.sends = append(a.sends, placedSpan{len(a.parts), c.Span})
	a.size += n
}

func (a *answer) cut() {
	if part := a.head.b[a.from:]; len(part) > 0 {
		a.parts = append(a.parts, part)
		a.size += len(part)
		a.from = len(a.head.b)
	}
}

// frame completes the answer: its parts, with spans of files between them, are what goes over the wire.
func (a *answer) frame() error {
	a.cut()
	if a.size-4 > math.MaxInt32 {
		return fmt.Errorf("answer of %d bytes does not fit a frame", a.size)
	}
	binary.BigEndian.PutUint32(a.parts[0], uint32(a.size-4))
	return nil
}

// write sends the answer: in one writev where the connection can, but for spans of files.
func (a *answer) write(nc net.Conn) error {
	if a.none {
		return nil
	}
	if err := a.frame(); err != nil {
		return err
	}
	if err := nc.SetWriteDeadline(writeDeadline(a.size)); err != nil {
		return err
	}
	rest := a.parts
	for i := range a.sends {
		s := &a.sends[i]
		n := len(rest) - (len(a.parts) - s.behind)
		if err := writeParts(nc, rest[:n]); err != nil {
			return err
		}
		if err := a.c.sender.send(&s.span); err != nil {
			return err
		}
		a.c.s.metrics.fromFiles.Add(float64(s.span.Len()))
		rest = rest[n:]
	}
	return writeParts(nc, rest)
}

func writeParts(nc net.Conn, parts net.Buffers) (err error) {
	switch len(parts) {
	case 0:
	case 1:
		_, err = nc.Write(parts[0])
	default:
		_, err = parts.WriteTo(nc)
	}
	return err
}

// returnSpans gives back what is held of files.
func (a *answer) returnSpans() {
	for i := range a.spans {
		a.spans[i].Release()
	}
	a.spans = nil
}

// writeDeadline is when a peer has to have taken n bytes.
func writeDeadline(n int) time.Time {
	return time.Now().Add(writeStall + time.Duration(n)*time.Second/writeMinRate)
}

// release returns the buffers: the write is over, so nothing reads them any more (G5).
func (a *answer) release() {
	a.head.put()
	a.returnSpans()
	for _, b := range a.held {
		b.put()
	}
	if a.budget > 0 {
		a.c.s.fetchMemory.release(a.budget)
	}
}
