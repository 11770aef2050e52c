// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestGCPace(t *testing.T) {
	var g gcPace
	cycles := uint64(0)
	for i, step := range []struct {
		collections, live uint64
		want              int
	}{
		{0, 40 << 20, gcPercent},
		{1, 40 << 20, gcPercent},
		{busyCycles, 40 << 20, 320},
		{1, 40 << 20, 320},            // fewer, as there is more room now
		{5, 64 << 20, 200},            // the same garbage beside more that lives
		{5, 1 << 20, maxGCPercent},    // at most
		{5, 1 << 30, gcPercent},       // at least
		{0, 64 << 20, 200},            // quiet for a while,
		{0, 64 << 20, 200},            //
		{0, 64 << 20, 200},            //
		{1, 64 << 20, 200},            // not for long enough,
		{0, 64 << 20, 200},            //
		{0, 64 << 20, 200},            //
		{0, 64 << 20, 200},            //
		{0, 64 << 20, 200},            //
		{0, 64 << 20, gcPercent},      // but now
		{1, 0, gcPercent},             //
		{busyCycles, 0, maxGCPercent}, // nothing known to be alive
	} {
		cycles += step.collections
		if got := g.next(cycles, step.live); got != step.want {
			t.Errorf("step %d: %d percent, want %d", i, got, step.want)
		}
	}
}
