// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"testing"
)

func TestEpochs(t *testing.T) {
	chain := []EpochStart{{1, 10}, {3, 20}, {4, 20}}
	for o, want := range map[Offset]Epoch{9: NoEpoch, 10: 1, 19: 1, 20: 4, 1000: 4} {
		if got := EpochAt(chain, o); got != want {
			t.Errorf("at %d: %d, want %d", o, got, want)
		}
	}
	if got, want := MergeEpochs(chain[:2], []EpochStart{{1, 5}, {3, 20}, {5, 40}, {5, 50}, {7, 60}}), []EpochStart{{1, 10}, {3, 20}, {5, 40}, {7, 60}}; !slices.Equal(got, want) {
		t.Errorf("merged: %v, want %v", got, want)
	}
	if len(chain) != 3 || chain[2] != (EpochStart{4, 20}) {
		t.Errorf("the chain was changed: %v", chain)
	}
}
