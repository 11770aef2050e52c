// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// S3Answer is what a driver of the S3 protocol knows of a request that failed.
type S3Answer struct {
	Op  Op
	Key string
	// Status is the HTTP status, 0 when there was no answer; Code is the S3 error code, "" when the answer had none.
	Status int
	Code   string
	// Cause is the SDK's error.
	Cause error
	// Harmless: the request changes nothing that counts (a part of an upload, the begin of one), so that a lost answer
	// leaves no doubt.
	Harmless bool
}

// Error maps the answer onto the sentinels: one table for both S3 drivers.
func (a S3Answer) Error() error {
	if known := sentinel(a.Cause); known != nil {
		return fmt.Errorf("%s %s: %w", a.Op, a.Key, a.Cause)
	}
	return fmt.Errorf("%s %s: %w: %w", a.Op, a.Key, a.classify(), a.Cause)
}

// sentinel returns the sentinel an error wraps already, as one of our own body or credentials does.
func sentinel(err error) error {
	for _, o := range outcomeOf {
		if o.err != context.Canceled && errors.Is(err, o.err) {
			return o.err
		}
	}
	return nil
}

// codes that decide whatever the status.
var s3Codes = map[string]error{
	"NoSuchKey":                    ErrNotFound,
	"NoSuchBucket":                 ErrNoBucket,
	"NoSuchUpload":                 ErrUploadLost,
	"PreconditionFailed":           ErrExists,
	"ConditionalRequestConflict":   ErrUnavailable,
	"OperationAborted":             ErrUnavailable,
	"InvalidRange":                 ErrRange,
	"AccessDenied":                 ErrDenied,
	"InvalidAccessKeyId":           ErrDenied,
	"SignatureDoesNotMatch":        ErrDenied,
	"ExpiredToken":                 ErrDenied,
	"InvalidToken":                 ErrDenied,
	"TokenRefreshRequired":         ErrDenied,
	"RequestTimeTooSkewed":         ErrDenied,
	"AuthorizationHeaderMalformed": ErrRejected,
	// The bytes changed on the way, as what we sent was verified: not stored, to be sent again.
	"BadDigest":                  ErrUnavailable,
	"XAmzContentSHA256Mismatch":  ErrUnavailable,
	"SlowDown":                   ErrUnavailable,
	"SlowDownRead":               ErrUnavailable,
	"SlowDownWrite":              ErrUnavailable,
	"RequestTimeout":             ErrUnavailable,
	"RequestLimitExceeded":       ErrUnavailable,
	"Throttling":                 ErrUnavailable,
	"ThrottlingException":        ErrUnavailable,
	"TooManyRequests":            ErrUnavailable,
	"XMinioServerNotInitialized": ErrUnavailable,
}

func (a S3Answer) classify() error {
	if a.Status == 0 {
		return a.noAnswer()
	}
	if err := s3Codes[a.Code]; err != nil {
		return err
	}
	switch s := a.Status; {
	case s == http.StatusNotFound:
		return ErrNotFound
	case s == http.StatusPreconditionFailed:
		return ErrExists
	case s == http.StatusConflict, s == http.StatusTooManyRequests, s == http.StatusRequestTimeout, s == http.StatusTooEarly:
		return ErrUnavailable
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return ErrDenied
	case s == http.StatusRequestedRangeNotSatisfiable:
		return ErrRange
	case s == http.StatusNotImplemented:
		return ErrRejected
	case s >= 500:
		// A 500, or a 502 or 503 of a proxy, says nothing about what happened behind it. ServiceUnavailable is among them:
		// an SDK makes that code up from the status when the answer has none.
		return a.doubtful()
	case s >= 300:
		return ErrRejected
	}
	// A success whose body could not be read or understood.
	return a.doubtful()
}

func (a S3Answer) noAnswer() error {
	if neverSent(a.Cause) {
		return ErrUnavailable
	}
	return a.doubtful()
}

// doubtful is the error of a request that may have been applied.
func (a S3Answer) doubtful() error {
	if a.Harmless || a.Op == OpGet || a.Op == OpStat || a.Op == OpList {
		return ErrUnavailable
	}
	return ErrUnknownOutcome
}

// neverSent: the connection was never made, so the store cannot have seen the request.
func neverSent(err error) bool {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
