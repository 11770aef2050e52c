// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Codec is how a batch's records are compressed: bits 0-2 of the attributes.
type Codec int8

// The codecs of record batches.
const (
	None Codec = iota
	Gzip
	Snappy
	Lz4
	Zstd
	codecs
)

// KeepCodec is the Rules.Compression of a topic that keeps what the producer chose.
const KeepCodec int8 = -1

var codecNames = [codecs]string{"none", "gzip", "snappy", "lz4", "zstd"}

func (c Codec) String() string {
	if c.Valid() {
		return codecNames[c]
	}
	return "codec " + strconv.Itoa(int(c))
}

// Valid tells whether c is a codec that Kafka defines.
func (c Codec) Valid() bool { return c >= None && c < codecs }

// Codec is the codec of the batch's records.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & CodecMask) }

// scratch holds one batch's decompressed records while somebody looks at them. Pools hold no channels: what is created in a
// synctest bubble may be used outside of it.
type scratch struct {
	buf []byte
	rec Record
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func getScratch() *scratch { return scratches.Get().(*scratch) }

func (s *scratch) release() {
	if cap(s.buf) > maxPooledScratch {
		s.buf = nil
	}
	s.rec = Record{}
	scratches.Put(s)
}

// records gives the batch's records uncompressed: a view of the batch if they are, else of the scratch.
func (s *scratch) records(b Batch, limit int) ([]byte, error) {
	if b.Codec() == None {
		return b[HeaderSize:], nil
	}
	var err error
	s.buf, err = decompress(s.buf, b.Codec(), b[HeaderSize:], limit)
	return s.buf, err
}

// grow makes room for n bytes behind dst.
func grow(dst []byte, n int) []byte { return slices.Grow(dst, n) }

// decompress decodes src into dst[:0], which grows to at most about twice limit. More than limit bytes are ErrTooLarge, all
// else that goes wrong is ErrUndecodable. The slice it returns replaces dst also after an error.
func decompress(dst []byte, c Codec, src []byte, limit int) ([]byte, error) {
	switch c {
	case Gzip:
		return decompressGzip(dst, src, limit)
	case Snappy:
		return decompressSnappy(dst, src, limit)
	case Lz4:
		return decompressLz4(dst, src, limit)
	case Zstd:
		return decompressZstd(dst, src, limit)
	default:
		return dst, fmt.Errorf("%w: %v", ErrUndecodable, c)
	}
}

// compress appends src to dst in the given codec. Level 0 is the codec's default.
func compress(dst []byte, c Codec, level int, src []byte) ([]byte, error) {
	switch c {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return compressGzip(dst, level, src)
	case Snappy:
		return compressSnappy(dst, src), nil
	case Lz4:
		return compressLz4(dst, level, src)
	case Zstd:
		return compressZstd(dst, level, src)
	default:
		return dst, fmt.Errorf("%w: %v", ErrUndecodable, c)
	}
}

type gzipDecoder struct {
	src bytes.Reader
	zr  gzip.Reader
}

var gzipDecoders = sync.Pool{New: func() any { return new(gzipDecoder) }}

func decompressGzip(dst, src []byte, limit int) ([]byte, error) {
	d := gzipDecoders.Get().(*gzipDecoder)
	defer func() {
		d.src.Reset(nil)
		gzipDecoders.Put(d)
	}()
	d.src.Reset(src)
	dst = dst[:0]
	if err := d.zr.Reset(&d.src); err != nil {
		return dst, fmt.Errorf("%w: gzip header: %w", ErrUndecodable, err)
	}
	for {
		if len(dst) == cap(dst) {
			dst = grow(dst, min(max(firstScratch, scratchGrowth*len(src), cap(dst)), limit+1-len(dst)))
		}
		n, err := d.zr.Read(dst[len(dst):min(cap(dst), limit+1)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > limit:
			return dst, ErrTooLarge
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, fmt.Errorf("%w: gzip: %w", ErrUndecodable, err)
		}
	}
}

// appender is the io.Writer of a pooled encoder.
type appender struct{ buf []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.buf = append(a.buf, p...)
	return len(p), nil
}

type gzipEncoder struct {
	out appender
	zw  *gzip.Writer
}

// gzipEncoders has one pool per level 1 to 9, with the default (level 0, or Kafka's -1) first.
var gzipEncoders [gzip.BestCompression + 1]sync.Pool

func compressGzip(dst []byte, level int, src []byte) ([]byte, error) {
	level = min(max(level, 0), gzip.BestCompression)
	e, _ := gzipEncoders[level].Get().(*gzipEncoder)
	if e == nil {
		e = new(gzipEncoder)
		library := level
		if level == 0 {
			library = gzip.DefaultCompression
		}
		var err error
		if e.zw, err = gzip.NewWriterLevel(&e.out, library); err != nil {
			return dst, fmt.Errorf("opening a gzip writer of level %d: %w", level, err)
		}
	}
	e.out.buf = dst
	e.zw.Reset(&e.out)
	_, err := e.zw.Write(src)
	err = errors.Join(err, e.zw.Close())
	dst, e.out.buf = e.out.buf, nil
	gzipEncoders[level].Put(e)
	return dst, err
}

// zstdDecoder is made at start because it holds a channel: one made in a synctest bubble could not be used outside of it. It
// decodes on as many cores as there are; further callers wait their turn.
var zstdDecoder = func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(zstdMaxWindow))
	if err != nil {
		panic(err) // The options are constants.
	}
	return d
}()

// decompressZstd decodes into what capacity there is and tries again with more when that does not do: frames of streaming
// producers do not tell their size. The library reports a full buffer in several ways, some of which also mean damage; what
// it could decode before tells them apart, because a block needs no more room than zstdSlack.
func decompressZstd(dst, src []byte, limit int) ([]byte, error) {
	need := max(firstScratch, scratchGrowth*len(src))
	var h zstd.Header
	if h.Decode(src) == nil && h.HasFCS && h.FrameContentSize <= uint64(min(limit, zstdMaxRatio*len(src))) {
		need = max(need, int(h.FrameContentSize))
	}
	for need += zstdSlack; ; need *= scratchGrowth {
		need = min(need, limit+zstdSlack)
		if cap(dst) < need {
			dst = make([]byte, 0, need)
		}
		room := min(cap(dst), limit+zstdSlack)
		out, err := zstdDecoder.DecodeAll(src, dst[:0:room])
		full := errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(out)+zstdSlack > room
		switch {
		case err == nil && len(out) <= limit:
			return out, nil
		case err == nil || full && room == limit+zstdSlack:
			return dst, ErrTooLarge
		case !full:
			return dst, fmt.Errorf("%w: zstd: %w", ErrUndecodable, err)
		}
		need = max(need, room)
	}
}

type zstdEncoder struct {
	out appender
	zw  *zstd.Encoder
}

// zstdEncoders has one pool per level of the library, which knows four. They stream, with one core each, because the library's
// one-call encoder holds a channel (see zstdDecoder).
var zstdEncoders [zstd.SpeedBestCompression + 1]sync.Pool

// zstdDefaultLevel is zstd's own default, and Kafka's.
const zstdDefaultLevel = 3

func compressZstd(dst []byte, level int, src []byte) ([]byte, error) {
	if level == 0 {
		level = zstdDefaultLevel
	}
	speed := zstd.EncoderLevelFromZstd(level)
	e, _ := zstdEncoders[speed].Get().(*zstdEncoder)
	if e == nil {
		e = new(zstdEncoder)
		var err error
		// No checksum: the batch has one.
		e.zw, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(speed), zstd.WithEncoderConcurrency(1),
			zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true))
		if err != nil {
			return dst, fmt.Errorf("opening a zstd writer of level %d: %w", level, err)
		}
	}
	e.out.buf = dst
	e.zw.ResetContentSize(&e.out, int64(len(src)))
	_, err := e.zw.Write(src)
	err = errors.Join(err, e.zw.Close())
	dst, e.out.buf = e.out.buf, nil
	zstdEncoders[speed].Put(e)
	return dst, err
}
