// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestFencedProducerSaysWhy: brokers give one code for several causes; what is said, and to be done, differs.
func TestFencedProducerSaysWhy(t *testing.T) {
	for _, tc := range []struct {
		state string
		took  time.Duration
		want  string
	}{
		{"CompleteAbort", transactionTimeout, "longer than 5m0s; write less"},
		{"PrepareAbort", time.Second, "run the command again"},
		{"Empty", time.Second, "varve txn abort"},
		{"Ongoing", time.Second, "another producer uses the transactional id (now 7/3, Ongoing)"},
		{"CompleteCommit", transactionTimeout, "give each its own"},
		{"", time.Second, "varve txn describe x"},
	} {
		err := fencedError("x", &kadm.DescribedTransaction{State: tc.state, ProducerID: 7, ProducerEpoch: 3}, tc.took, false)
		if got := err.Error(); !strings.Contains(got, tc.want) || !strings.Contains(got, "nothing of the transaction is committed") {
			t.Errorf("%s after %v: %s", tc.state, tc.took, got)
		}
	}
	if got := fencedError("x", &kadm.DescribedTransaction{State: "Ongoing"}, time.Second, true).Error(); !strings.Contains(got, "unless an attempt before it came through") {
		t.Errorf("while committing: %s", got)
	}
}
