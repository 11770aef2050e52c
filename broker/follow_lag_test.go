// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"

	"github.com/varve/varve/record"
)

// TestLag: a follower lacks what lies between its end and the high watermark that it was told, and nothing when it is ahead of that.
func TestLag(t *testing.T) {
	f := &following{told: 10}
	for end, want := range map[record.Offset]int64{4: 6, 10: 0, 12: 0} {
		if got := f.lag(end); got != want {
			t.Errorf("at %d: %d, want %d", end, got, want)
		}
	}
}
