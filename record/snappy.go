// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/s2"
)

// Snappy has two shapes in Kafka: a bare block (librdkafka and others), or the framing of Java's xerial library:
//
//	magic 8 bytes | version i32 | oldest compatible version i32 | (length i32 | block)…
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	xerialHeaderBytes = 16
	xerialVersion     = 1
)

func decompressSnappy(dst, src []byte, limit int) ([]byte, error) {
	dst = dst[:0]
	if len(src) < xerialHeaderBytes || !bytes.Equal(src[:len(xerialMagic)], xerialMagic) {
		return appendSnappyBlock(dst, src, limit)
	}
	if v := int32(binary.BigEndian.Uint32(src[8:])); v < xerialVersion {
		return dst, fmt.Errorf("%w: xerial framing of version %d", ErrUndecodable, v)
	}
	src = src[xerialHeaderBytes:]
	for len(src) > 0 {
		if len(src) < 4 {
			return dst, fmt.Errorf("%w: xerial framing cut in a block length", ErrUndecodable)
		}
		n := int(int32(binary.BigEndian.Uint32(src)))
		src = src[4:]
		if n < 0 || n > len(src) {
			return dst, fmt.Errorf("%w: xerial block of %d bytes, %d there", ErrUndecodable, n, len(src))
		}
		var err error
		if dst, err = appendSnappyBlock(dst, src[:n], limit); err != nil {
			return dst, err
		}
		src = src[n:]
	}
	return dst, nil
}

func appendSnappyBlock(dst, block []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return dst, fmt.Errorf("%w: snappy block: %w", ErrUndecodable, err)
	}
	if n > limit-len(dst) {
		return dst, ErrTooLarge
	}
	// A snappy element of three bytes gives at most 64. Without this bound a lying length costs a large buffer.
	if n > 32*len(block) {
		return dst, fmt.Errorf("%w: snappy block of %d bytes claims to hold %d", ErrUndecodable, len(block), n)
	}
	if !plainSnappy(block) {
		return dst, fmt.Errorf("%w: not a snappy block", ErrUndecodable)
	}
	dst = grow(dst, n)
	out, err := s2.Decode(dst[len(dst):len(dst):len(dst)+n], block)
	if err != nil {
		return dst, fmt.Errorf("%w: snappy block: %w", ErrUndecodable, err)
	}
	return dst[:len(dst)+len(out)], nil
}

// plainSnappy tells whether the block keeps to Snappy. The library also decodes its own extension, where a copy of offset zero
// repeats the last offset; consumers in other languages do not, so such a batch must not enter the log.
func plainSnappy(block []byte) bool {
	_, i := binary.Uvarint(block)
	if i <= 0 {
		return false
	}
	for i < len(block) {
		tag := block[i]
		switch tag & 3 {
		case 0:
			n := int(tag >> 2)
			i++
			if extra := n - 59; extra > 0 {
				if i+extra > len(block) {
					return false
				}
				n = 0
				for k := range extra {
					n |= int(block[i+k]) << (8 * k)
				}
				i += extra
			}
			i += n + 1
		case 1:
			if i+2 > len(block) || tag>>5 == 0 && block[i+1] == 0 {
				return false
			}
			i += 2
		case 2:
			if i+3 > len(block) || block[i+1]|block[i+2] == 0 {
				return false
			}
			i += 3
		default:
			if i+5 > len(block) || binary.LittleEndian.Uint32(block[i+1:]) == 0 {
				return false
			}
			i += 5
		}
	}
	return i == len(block)
}

// compressSnappy appends the xerial framing in blocks of 32 KiB, as a Kafka broker does: every client reads it.
func compressSnappy(dst, src []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = binary.BigEndian.AppendUint32(dst, xerialVersion)
	dst = binary.BigEndian.AppendUint32(dst, xerialVersion)
	for len(src) > 0 {
		block := src[:min(len(src), xerialBlockBytes)]
		src = src[len(block):]
		at := len(dst)
		room := s2.MaxEncodedLen(len(block))
		dst = grow(dst, 4+room)
		out := s2.EncodeSnappy(dst[at+4:at+4+room], block)
		dst = dst[:at+4+len(out)]
		binary.BigEndian.PutUint32(dst[at:], uint32(len(out)))
	}
	return dst
}
