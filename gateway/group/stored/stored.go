// SPDX-License-Identifier: Apache-2.0

package stored

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"
)

// The formats of a group's state; the first byte of what is stored. docs/formats has what follows it.
const (
	Classic            = 1
	ClassicCompressed  = 2
	Consumer           = 3
	ConsumerCompressed = 4
	newest             = ConsumerCompressed
)

const (
	// maxBytes bounds what a stored group is decompressed to.
	maxBytes = 64 << 20
	// compressFrom is the least size of a state that is stored compressed.
	compressFrom = 1 << 10
)

// ErrCorrupt: a stored group cannot be read.
var ErrCorrupt = errors.New("corrupt group state")

var (
	encoder    = newEncoder()
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBytes))
)

// newEncoder uses the encoder once: what it makes at its first use would belong to the synctest bubble of the test that has it.
func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic(err) // the options are constants
	}
	e.EncodeAll([]byte{0}, nil)
	return e
}

// Seal compresses a state that is large. Its first byte is the plain format; the next number is that of the compressed one. One that Open
// would refuse stays as it is: no such size is stored, so whoever checks that sees it.
func Seal(b []byte) []byte {
	if len(b) < compressFrom || len(b)-1 > maxBytes {
		return b
	}
	return encoder.EncodeAll(b[1:], []byte{b[0] + 1})
}

// Open begins to read a state and tells its plain format.
func Open(value []byte) (format byte, r *Reader, err error) {
	r = &Reader{b: value}
	format = r.Byte()
	switch {
	case r.err != nil:
		return 0, nil, r.err
	case format < Classic || format > newest:
		return 0, nil, fmt.Errorf("%w: format %d, this binary reads up to %d: upgrade varve", ErrCorrupt, format, newest)
	case format == ClassicCompressed || format == ConsumerCompressed:
		if r.b, err = decoder.DecodeAll(r.b, nil); err != nil {
			return 0, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		format--
	}
	return format, r, nil
}

// AppendInt appends a varint.
func AppendInt[I ~int | ~int16 | ~int32 | ~int64](b []byte, v I) []byte {
	return binary.AppendVarint(b, int64(v))
}

// AppendString appends a string or bytes with their length.
func AppendString[S ~string | ~[]byte](b []byte, s S) []byte {
	b = binary.AppendVarint(b, int64(len(s)))
	return append(b, s...)
}

// AppendOptional appends a string that may be absent.
func AppendOptional(b []byte, s *string) []byte {
	if s == nil {
		return append(b, 0)
	}
	return AppendString(append(b, 1), *s)
}

// Reader reads a stored group; the first fault sticks.
type Reader struct {
	b   []byte
	err error
}

// Err is the first fault.
func (r *Reader) Err() error { return r.err }

// Done tells that everything was read and nothing was wrong.
func (r *Reader) Done() bool { return r.err == nil && len(r.b) == 0 }

// Fail says that what was read makes no sense.
func (r *Reader) Fail() { r.b, r.err = nil, ErrCorrupt }

// Byte reads one byte.
func (r *Reader) Byte() (c byte) {
	if len(r.b) == 0 {
		r.Fail()
		return 0
	}
	c, r.b = r.b[0], r.b[1:]
	return c
}

// Int reads a varint.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Int32 reads a varint that fits 32 bits.
func (r *Reader) Int32() int32 {
	v := r.Int()
	if v != int64(int32(v)) {
		r.Fail()
		return 0
	}
	return int32(v)
}

// Count reads a number of things that take at least a byte each.
func (r *Reader) Count() int {
	n := r.Int()
	if n < 0 || n > int64(len(r.b)) {
		r.Fail()
		return 0
	}
	return int(n)
}

// Bytes reads n bytes.
func (r *Reader) Bytes(n int) []byte {
	if n > len(r.b) {
		r.Fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// String reads a string.
func (r *Reader) String() string { return string(r.Bytes(r.Count())) }

// Optional reads a string that may be absent.
func (r *Reader) Optional() *string {
	if r.Byte() == 0 {
		return nil
	}
	s := r.String()
	return &s
}

// Duration reads milliseconds.
func (r *Reader) Duration() time.Duration {
	ms := r.Int()
	if ms < 0 || ms > int64(1)<<32 {
		r.Fail()
	}
	return time.Duration(ms) * time.Millisecond
}

// Time reads a time.
func (r *Reader) Time() time.Time { return time.UnixMilli(r.Int()) }
