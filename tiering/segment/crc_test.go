// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"hash/crc32"
	"testing"

	"pgregory.net/rapid"
)

func TestJoinCRC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(t, "bytes")
		at := rapid.IntRange(0, len(whole)).Draw(t, "at")
		first, second := crc32.Checksum(whole[:at], castagnoli), crc32.Checksum(whole[at:], castagnoli)
		if got, want := joinCRC(first, second, int64(len(whole)-at)), crc32.Checksum(whole, castagnoli); got != want {
			t.Fatalf("%08x, want %08x", got, want)
		}
	})
}

// TestJoinCRCOfLongRuns: lengths whose bits need more than 31 squarings.
func TestJoinCRCOfLongRuns(t *testing.T) {
	zeros := crc32.Checksum(make([]byte, 1<<20), castagnoli)
	long, n := zeros, int64(1<<20)
	for n < 1<<33 { // 8 GiB of zeros, by doubling
		long, n = joinCRC(long, long, n), 2*n
	}
	piecewise := uint32(0)
	for range 1 << 13 {
		piecewise = joinCRC(piecewise, zeros, 1<<20)
	}
	if long != piecewise {
		t.Errorf("%08x by doubling, %08x piece by piece", long, piecewise)
	}
}

func BenchmarkJoinCRC(b *testing.B) {
	sum := uint32(12345)
	for b.Loop() {
		sum = joinCRC(sum, sum, 16<<10-61)
	}
}
