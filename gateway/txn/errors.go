// SPDX-License-Identifier: Apache-2.0

package txn

import "errors"

// What a step refuses.
var (
	// ErrMapping: the transactional id has another producer id, or there is none of that name.
	ErrMapping = errors.New("the producer id is not the transactional id's")
	// ErrFenced: a newer producer has the transactional id, or the coordinator has ended the transaction.
	ErrFenced = errors.New("the producer epoch is not the newest")
	// ErrConcurrent: the transaction before is still being completed; the same request works later.
	ErrConcurrent = errors.New("the previous transaction is not complete yet")
	// ErrInvalidState: the request does not fit what the transaction has come to.
	ErrInvalidState = errors.New("the transaction is in a state that does not allow it")
	// ErrNotAdded: the partition or group is not part of the transaction.
	ErrNotAdded = errors.New("not part of the transaction")
	// ErrCorrupt: a stored transaction that cannot be read.
	ErrCorrupt = errors.New("the stored transaction is damaged")
)
