// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// isFenced tells that the transactional id has another epoch than the producer's. Brokers say the same for several causes.
func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// fenced finds out why this producer lost its transaction, by what has become of the transactional id.
func (l *load) fenced(adm *admin, took time.Duration, committing bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.flags.deliveryTimeout)
	defer cancel()
	x, err := describeTxn(ctx, adm, l.flags.transactionalID)
	if err != nil {
		x = kadm.DescribedTransaction{}
	}
	return fencedError(l.flags.transactionalID, &x, took, committing)
}

// fencedError says what is known and what to do. A commit that is refused may have been sent before, with its answer lost.
func fencedError(id string, x *kadm.DescribedTransaction, took time.Duration, committing bool) error {
	nothing := "nothing of the transaction is committed: "
	if committing {
		nothing = "the commit was refused, and unless an attempt before it came through nothing is committed: "
	}
	switch x.State {
	case "PrepareAbort", "CompleteAbort":
		if took >= transactionTimeout {
			return fmt.Errorf("writing in transaction %s: %sit was open for longer than %s; write less at a time", id, nothing, transactionTimeout)
		}
		return fmt.Errorf("writing in transaction %s: %sits coordinator ended it; run the command again", id, nothing)
	case "Empty":
		return fmt.Errorf("writing in transaction %s: %s`varve txn abort` was run for it, or another producer with this transactional id has started; stop that one, or run the command again", id, nothing)
	case "Ongoing", "PrepareCommit", "CompleteCommit":
		return fmt.Errorf("writing in transaction %s: %sanother producer uses the transactional id (now %d/%d, %s); give each its own", id, nothing, x.ProducerID, x.ProducerEpoch, x.State)
	}
	return fmt.Errorf("writing in transaction %s: %sanother producer, `varve txn abort` or a timeout took the transactional id; see `varve txn describe %s`", id, nothing, id)
}
