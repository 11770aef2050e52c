// SPDX-License-Identifier: Apache-2.0

package consumer

import "errors"

// Why a group refuses a request, beside the errors of package group.
var (
	// ErrFencedEpoch: not the member's epoch; it gives everything up and joins anew.
	ErrFencedEpoch = errors.New("not the member's epoch")
	// ErrStaleEpoch: offsets with an epoch that the member no longer has.
	ErrStaleEpoch = errors.New("the member's epoch is stale")
	// ErrUnreleasedInstance: the static member that is there has not left.
	ErrUnreleasedInstance = errors.New("the group instance id is still in use by another member")
	// ErrUnsupportedAssignor: no such assignor here.
	ErrUnsupportedAssignor = errors.New("unsupported assignor")
	// ErrInvalidRegex: the subscription is no regular expression.
	ErrInvalidRegex = errors.New("invalid regular expression of topics")
	// ErrInvalidRequest: the request contradicts itself.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrOldVersion: the request's version knows no member epochs.
	ErrOldVersion = errors.New("the request's version knows no member epochs")
)
