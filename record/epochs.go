// SPDX-License-Identifier: Apache-2.0

package record

import "slices"

// EpochAt is the leader epoch in force at o: the last one of the chain that starts at or below it, NoEpoch when the chain does not
// reach back.
func EpochAt(chain []EpochStart, o Offset) Epoch {
	for _, e := range slices.Backward(chain) {
		if e.Start <= o {
			return e.Epoch
		}
	}
	return NoEpoch
}

// MergeEpochs is a chain gone on with by what another one has beyond its last epoch.
func MergeEpochs(chain, more []EpochStart) []EpochStart {
	out := slices.Clone(chain)
	for _, e := range more {
		if n := len(out); n == 0 || e.Epoch > out[n-1].Epoch {
			out = append(out, e)
		}
	}
	return out
}
