// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"context"
	"errors"
)

// The sentinels of the seam. Every error of a Store wraps exactly one of them, except an error of the caller's own body,
// callback or context, which is passed through as it is.
var (
	// ErrNotFound: the store answered that there is no such object.
	ErrNotFound = errors.New("object not found")
	// ErrExists: the store answered that there is an object of that name already (it may be our own: see CreateResolved).
	ErrExists = errors.New("object exists already")
	// ErrUnavailable: no answer, or an answer that says "later". Retriable; a mutation was surely not applied.
	ErrUnavailable = errors.New("object store unavailable")
	// ErrUnknownOutcome: a mutation was sent and its answer was lost. It may have been applied, or may yet be.
	ErrUnknownOutcome = errors.New("outcome of the object store request is unknown")
	// ErrDenied: the store does not accept our credentials, or not for this.
	ErrDenied = errors.New("object store denies access")
	// ErrNoBucket: the bucket (or the directory) is not there.
	ErrNoBucket = errors.New("no such bucket")
	// ErrCorrupt: the bytes are not those that were to be stored: a checksum or a stored structure does not hold.
	ErrCorrupt = errors.New("object corrupt")
	// ErrRange: the range reaches beyond the end of the object.
	ErrRange = errors.New("range beyond the end of the object")
	// ErrUploadLost: the store has dropped the multipart upload (faults C16). The attempt is over; begin another.
	ErrUploadLost = errors.New("multipart upload was dropped by the store")
	// ErrRejected: the store refuses the request for a reason that a retry does not change.
	ErrRejected = errors.New("object store rejects the request")
	// ErrStop ends a List early when its callback returns it; List then returns nil.
	ErrStop = errors.New("stop listing")
)

// Outcome names the class of an error in metrics and logs.
type Outcome string

const (
	OutcomeOK          Outcome = "ok"
	OutcomeNotFound    Outcome = "not_found"
	OutcomeExists      Outcome = "exists"
	OutcomeUnavailable Outcome = "unavailable"
	OutcomeUnknown     Outcome = "unknown"
	OutcomeDenied      Outcome = "denied"
	OutcomeNoBucket    Outcome = "no_bucket"
	OutcomeCorrupt     Outcome = "corrupt"
	OutcomeRange       Outcome = "range"
	OutcomeUploadLost  Outcome = "upload_lost"
	OutcomeRejected    Outcome = "rejected"
	OutcomeCanceled    Outcome = "canceled"
	OutcomeOther       Outcome = "other"
)

// outcomeOf is ordered: an unknown outcome stays one, whatever else the error wraps.
var outcomeOf = []struct {
	err     error
	outcome Outcome
}{
	{ErrUnknownOutcome, OutcomeUnknown},
	{ErrNotFound, OutcomeNotFound},
	{ErrExists, OutcomeExists},
	{ErrDenied, OutcomeDenied},
	{ErrNoBucket, OutcomeNoBucket},
	{ErrCorrupt, OutcomeCorrupt},
	{ErrRange, OutcomeRange},
	{ErrUploadLost, OutcomeUploadLost},
	{ErrRejected, OutcomeRejected},
	{ErrUnavailable, OutcomeUnavailable},
	{context.Canceled, OutcomeCanceled},
}

// OutcomeOf classifies an error of a Store.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return OutcomeOK
	}
	for _, o := range outcomeOf {
		if errors.Is(err, o.err) {
			return o.outcome
		}
	}
	return OutcomeOther
}

// Outcomes lists every outcome, so that metric series exist from the start.
func Outcomes() []Outcome {
	all := []Outcome{OutcomeOK, OutcomeOther}
	for _, o := range outcomeOf {
		all = append(all, o.outcome)
	}
	return all
}
