// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"hash/crc32"
	"math/bits"
)

// A CRC-32C is the remainder of a polynomial over GF(2) modulo a fixed one, written with its lowest power in the highest bit. Bytes
// behind a part multiply its remainder by x to the power of their bits, so the checksum of two parts joined follows from those of the
// parts and the length of the second; nobody has to read them again.

// powersOfX holds x^(2^k) for each k.
var powersOfX = func() (t [31]uint32) {
	p := uint32(1) << 30 // x^1
	for k := range t {
		t[k] = p
		p = timesMod(p, p)
	}
	return t
}()

// timesMod multiplies two remainders.
func timesMod(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return product
}

// joinCRC is the CRC-32C of two runs of bytes, one behind the other, given those of each and how many bytes the second has.
func joinCRC(first, second uint32, secondLen int64) uint32 {
	// This polynomial is x+1 times a primitive one, so x^(2^31-1) is 1: the powers repeat after 31 squarings.
	for n := uint64(secondLen) * 8; n != 0; n &= n - 1 {
		first = timesMod(powersOfX[bits.TrailingZeros64(n)%len(powersOfX)], first)
	}
	return first ^ second
}
