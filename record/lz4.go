// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame is read and written here, over the library's blocks, for two reasons: Kafka does not verify the content
// checksum while the library's reader insists on it, and a frame that lies in memory needs no reader, goroutine or copy.
//
//	magic u32 | FLG u8 | BD u8 | [content size u64] | header checksum u8 | (size u32 | block | [checksum u32])… | 0 u32 | [checksum u32]
const (
	lz4Magic        = 0x184D2204
	lz4Version      = 0x40 // FLG bits 7-6
	lz4VersionMask  = 0xc0
	lz4Independent  = 0x20
	lz4BlockSums    = 0x10
	lz4HasSize      = 0x08
	lz4HasSum       = 0x04
	lz4FlagReserved = 0x03 // bit 1 is reserved, bit 0 announces a dictionary, which nobody has
	lz4BlockReserve = 0x8f
	lz4Uncompressed = 1 << 31
	lz4MinHeader    = 7
)

// lz4Header is what a frame's header says about the blocks behind it.
type lz4Header struct {
	flags    byte
	maxBlock int
}

func parseLz4Header(src []byte) (h lz4Header, rest []byte, err error) {
	if len(src) < lz4MinHeader || binary.LittleEndian.Uint32(src) != lz4Magic {
		return h, nil, fmt.Errorf("%w: no lz4 frame header", ErrUndecodable)
	}
	h.flags = src[4]
	blockID := src[5] >> 4 & 7
	switch {
	case h.flags&lz4VersionMask != lz4Version || h.flags&lz4FlagReserved != 0 || src[5]&lz4BlockReserve != 0 || blockID < 4:
		return h, nil, fmt.Errorf("%w: lz4 frame flags %#02x %#02x", ErrUndecodable, h.flags, src[5])
	case h.flags&lz4Independent == 0:
		// Kafka's consumers refuse linked blocks, so the broker must not take them in.
		return h, nil, fmt.Errorf("%w: lz4 frame of linked blocks", ErrUndecodable)
	}
	h.maxBlock = 1 << (8 + 2*blockID)
	sum := 6
	if h.flags&lz4HasSize != 0 {
		sum += 8
	}
	if len(src) <= sum || byte(xxh32(src[4:sum])>>8) != src[sum] {
		return h, nil, fmt.Errorf("%w: lz4 frame header checksum", ErrUndecodable)
	}
	return h, src[sum+1:], nil
}

// decompressLz4 decodes one frame into dst[:0]. The content size and checksum are not looked at: the batch has a CRC.
func decompressLz4(dst, src []byte, limit int) ([]byte, error) {
	h, src, err := parseLz4Header(src)
	if err != nil {
		return dst, err
	}
	dst = dst[:0]
	trailer := 0
	if h.flags&lz4HasSum != 0 {
		trailer = 4
	}
	for {
		if len(src) < 4 {
			return dst, fmt.Errorf("%w: lz4 frame ends without its end mark", ErrUndecodable)
		}
		word := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if word == 0 {
			if len(src) != trailer {
				return dst, fmt.Errorf("%w: %d bytes behind the lz4 end mark, %d expected", ErrUndecodable, len(src), trailer)
			}
			return dst, nil
		}
		n := int(word &^ lz4Uncompressed)
		sums := 0
		if h.flags&lz4BlockSums != 0 {
			sums = 4
		}
		if n > h.maxBlock || n+sums > len(src) {
			return dst, fmt.Errorf("%w: lz4 block of %d bytes", ErrUndecodable, n)
		}
		block := src[:n]
		if sums > 0 && binary.LittleEndian.Uint32(src[n:]) != xxh32(block) {
			return dst, fmt.Errorf("%w: lz4 block checksum", ErrUndecodable)
		}
		src = src[n+sums:]
		if dst, err = appendLz4Block(dst, block, h.maxBlock, word&lz4Uncompressed != 0); err != nil {
			return dst, err
		}
		if len(dst) > limit {
			return dst, ErrTooLarge
		}
	}
}

func appendLz4Block(dst, block []byte, maxBlock int, stored bool) ([]byte, error) {
	if stored {
		return append(dst, block...), nil
	}
	// A block cannot decode to more than 255 times its size, so a small batch does not cost a 4 MiB buffer.
	dst = grow(dst, min(maxBlock, 255*len(block)))
	n, err := lz4.UncompressBlock(block, dst[len(dst):min(len(dst)+maxBlock, cap(dst))])
	if err != nil {
		return dst, fmt.Errorf("%w: lz4 block: %w", ErrUndecodable, err)
	}
	return dst[:len(dst)+n], nil
}

type lz4Encoder struct {
	fast lz4.Compressor
	deep lz4.CompressorHC
}

var lz4Encoders = sync.Pool{New: func() any { return new(lz4Encoder) }}

// lz4DefaultLevel stands for the fast compressor in Kafka, levels beside it for the slow one of that depth.
const lz4DefaultLevel = 9

func (e *lz4Encoder) block(src, dst []byte, level int) (int, error) {
	if level == 0 || level == lz4DefaultLevel {
		return e.fast.CompressBlock(src, dst)
	}
	e.deep.Level = lz4.Level1 << (min(max(level, 1), 9) - 1)
	return e.deep.CompressBlock(src, dst)
}

// compressLz4 appends one frame of independent 64 KiB blocks without checksums, as Kafka's own writers do.
func compressLz4(dst []byte, level int, src []byte) ([]byte, error) {
	e := lz4Encoders.Get().(*lz4Encoder)
	defer lz4Encoders.Put(e)
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	descriptor := [2]byte{lz4Version | lz4Independent, 4 << 4}
	dst = append(dst, descriptor[0], descriptor[1], byte(xxh32(descriptor[:])>>8))
	for len(src) > 0 {
		block := src[:min(len(src), lz4BlockBytes)]
		src = src[len(block):]
		at := len(dst)
		dst = grow(dst, 4+lz4.CompressBlockBound(len(block)))
		n, err := e.block(block, dst[at+4:at+4+lz4.CompressBlockBound(len(block))], level)
		if err != nil {
			return dst, fmt.Errorf("compressing an lz4 block of %d bytes: %w", len(block), err)
		}
		word := uint32(n)
		if n == 0 || n >= len(block) {
			n = copy(dst[at+4:cap(dst)], block)
			word = uint32(n) | lz4Uncompressed
		}
		dst = dst[:at+4+n]
		binary.LittleEndian.PutUint32(dst[at:], word)
	}
	return binary.LittleEndian.AppendUint32(dst, 0), nil
}
