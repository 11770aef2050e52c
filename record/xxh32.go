// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"math/bits"
)

// The LZ4 frame format protects its header, and optionally each block, with XXH32 of seed 0.
const (
	xxhPrime1 uint32 = 2654435761
	xxhPrime2 uint32 = 2246822519
	xxhPrime3 uint32 = 3266489917
	xxhPrime4 uint32 = 668265263
	xxhPrime5 uint32 = 374761393
)

func xxhRound(acc, lane uint32) uint32 {
	return bits.RotateLeft32(acc+lane*xxhPrime2, 13) * xxhPrime1
}

func xxh32(b []byte) uint32 {
	h := xxhPrime5
	n := uint32(len(b))
	if len(b) >= 16 {
		// Variables, because the wrap-around is wanted and constants may not wrap.
		p1, p2 := xxhPrime1, xxhPrime2
		lanes := [4]uint32{p1 + p2, p2, 0, -p1}
		for ; len(b) >= 16; b = b[16:] {
			lanes[0] = xxhRound(lanes[0], binary.LittleEndian.Uint32(b))
			lanes[1] = xxhRound(lanes[1], binary.LittleEndian.Uint32(b[4:]))
			lanes[2] = xxhRound(lanes[2], binary.LittleEndian.Uint32(b[8:]))
			lanes[3] = xxhRound(lanes[3], binary.LittleEndian.Uint32(b[12:]))
		}
		h = bits.RotateLeft32(lanes[0], 1) + bits.RotateLeft32(lanes[1], 7) +
			bits.RotateLeft32(lanes[2], 12) + bits.RotateLeft32(lanes[3], 18)
	}
	h += n
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*xxhPrime3, 17) * xxhPrime4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*xxhPrime5, 11) * xxhPrime1
	}
	h = (h ^ h>>15) * xxhPrime2
	h = (h ^ h>>13) * xxhPrime3
	return h ^ h>>16
}
