// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Reasons for which a connection is closed with a log line.
var (
	errMalformed   = errors.New("malformed request")
	errOversize    = errors.New("request too large")
	errUnsupported = errors.New("unsupported API key or version")
	errStalled     = errors.New("peer too slow")
	// errRefused closes without a line: the answer would have been an error that this request's form cannot carry (acks=0).
	errRefused = errors.New("request without an answer failed")
)

// preamble is the part of a request header that every version begins with.
type preamble struct {
	size        int32
	key         int16
	version     int16
	correlation int32
}

func parsePreamble(b []byte) preamble {
	return preamble{
		size:        int32(binary.BigEndian.Uint32(b)),
		key:         int16(binary.BigEndian.Uint16(b[4:])),
		version:     int16(binary.BigEndian.Uint16(b[6:])),
		correlation: int32(binary.BigEndian.Uint32(b[8:])),
	}
}

// minFrame is key, version and correlation id.
const minFrame = 8

// clientID splits the nullable client id off what follows the correlation id, and the header's tagged fields where the request
// is flexible. The client id itself is never compact.
func splitHeader(b []byte, flexible bool) (clientID string, body []byte, err error) {
	r := reader{b: b}
	n := r.i16()
	if n >= 0 {
		clientID = string(r.span(int(n)))
	}
	if flexible {
		r.skipTags()
	}
	if r.bad {
		return "", nil, fmt.Errorf("%w: header ends early", errMalformed)
	}
	return clientID, r.b, nil
}

// decodeBody fills body. Extra bytes behind a whole body are ignored, as in Kafka. A decoder that panics has met input nobody
// foresaw: the connection is closed, the broker lives.
func decodeBody(body kmsg.Request, version int16, src []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: decoder failed: %v", errMalformed, p)
		}
	}()
	body.SetVersion(version)
	if err := body.ReadFrom(src); err != nil {
		return fmt.Errorf("%w: %v", errMalformed, err)
	}
	return nil
}

// reader takes Kafka's primitives off a slice. After the first failure it is bad and yields zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() { r.bad, r.b = true, nil }

func (r *reader) span(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail()
		return nil
	}
	s := r.b[:n:n]
	r.b = r.b[n:]
	return s
}

func (r *reader) i8() int8 {
	if s := r.span(1); s != nil {
		return int8(s[0])
	}
	return 0
}

func (r *reader) i16() int16 {
	if s := r.span(2); s != nil {
		return int16(binary.BigEndian.Uint16(s))
	}
	return 0
}

func (r *reader) i32() int32 {
	if s := r.span(4); s != nil {
		return int32(binary.BigEndian.Uint32(s))
	}
	return 0
}

func (r *reader) i64() int64 {
	if s := r.span(8); s != nil {
		return int64(binary.BigEndian.Uint64(s))
	}
	return 0
}

func (r *reader) uuid() (u [16]byte) {
	copy(u[:], r.span(16))
	return u
}

func (r *reader) uvarint() uint32 {
	v, n := binary.Uvarint(r.b[:min(len(r.b), 5)])
	if n <= 0 || v > 1<<32-1 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return uint32(v)
}

// bytes returns the bytes of a string or byte field and whether it is null. wide: the plain form's length has 32 bits.
func (r *reader) bytes(compact, wide bool) (s []byte, null bool) {
	var n int
	switch {
	case compact:
		n = int(r.uvarint()) - 1
	case wide:
		n = int(r.i32())
	default:
		n = int(r.i16())
	}
	if n < 0 || r.bad {
		return nil, true
	}
	return r.span(n), false
}

// arrayLen returns an array's length, 0 for null. each is the least size of an element: a length that cannot fit is refused
// before anything is allocated for it.
func (r *reader) arrayLen(compact bool, each int) int {
	var n int64
	if compact {
		n = int64(r.uvarint()) - 1
	} else {
		n = int64(r.i32())
	}
	if n < 0 || r.bad {
		return 0
	}
	if n*int64(each) > int64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

// maxTags is Kafka's own guard.
const maxTags = 10000

func (r *reader) skipTags() {
	n := r.uvarint()
	if n > maxTags {
		r.fail()
	}
	for ; n > 0 && !r.bad; n-- {
		r.uvarint()
		r.span(int(r.uvarint()))
	}
}
