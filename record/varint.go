// SPDX-License-Identifier: Apache-2.0

package record

import "encoding/binary"

// Both readers return the value and the index behind it. A malformed or missing varint gives index -1, and reading at -1 gives
// -1 again, so that a caller may read several in a row and check once. Lengths mostly take one or two bytes: those come first.

// varint reads a zigzag varint of at most 32 bits at i.
func varint(b []byte, i int) (v int32, next int) {
	if uint(i) < uint(len(b)) {
		u := uint32(b[i])
		if u < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
		if i++; i < len(b) && b[i] < 0x80 {
			u = u&0x7f | uint32(b[i])<<7
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
		i--
	}
	return varintLong(b, i)
}

// varintLong also takes encodings longer than the value needs, up to five bytes, as Kafka does.
func varintLong(b []byte, i int) (v int32, next int) {
	if i < 0 {
		return 0, -1
	}
	var u uint64
	for n := range 5 {
		if i+n >= len(b) {
			return 0, -1
		}
		c := b[i+n]
		u |= uint64(c&0x7f) << (7 * n)
		if c < 0x80 {
			if u > 1<<32-1 {
				return 0, -1
			}
			return int32(uint32(u)>>1) ^ -int32(u&1), i + n + 1
		}
	}
	return 0, -1
}

// varlong reads a zigzag varint of at most 64 bits at i.
func varlong(b []byte, i int) (v int64, next int) {
	if i < 0 || i > len(b) {
		return 0, -1
	}
	v, n := binary.Varint(b[i:])
	if n <= 0 {
		return 0, -1
	}
	return v, i + n
}

// varintLen is the encoded size of v.
func varintLen(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for ; u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
