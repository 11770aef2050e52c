// SPDX-License-Identifier: Apache-2.0

package invariant

// Poison overwrites memory that its owner has given back, so that a test sees a use after that.
func Poison(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = 0xdb
	for n := 1; n < len(b); n *= 2 { // by copies, as the race detector takes its time over each byte of a loop
		copy(b[n:], b[:n])
	}
}
