// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// checkKey is asked for by Check. Nothing is ever stored there.
const checkKey = "varve-check"

// Check is the probe at start: it reads an object that is not there and begins a listing. nil: the store answers, takes our
// credentials and has the bucket. Otherwise the error is one line that says what is wrong and what to do about it, and
// wraps the sentinel. It writes nothing.
func Check(ctx context.Context, s Store, l Location) error {
	ctx, cancel := context.WithTimeout(ctx, checkDeadline)
	defer cancel()
	// A GET, not a HEAD: only an answer with a body tells a missing bucket from a missing object.
	_, err := s.Get(ctx, checkKey, 0, 1, nil)
	if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrRange) {
		err = s.List(ctx, "", "", func(Info) error { return ErrStop })
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("bucket %s: %s (%w)", l, remedy(err, l), oneLine{err})
}

func remedy(err error, l Location) string {
	switch OutcomeOf(err) {
	case OutcomeNoBucket:
		if l.Scheme == SchemeFile {
			return fmt.Sprintf("directory %s is not there or is no directory: create it", l.Dir)
		}
		text := fmt.Sprintf("the store has no bucket %q: create it, or correct the name", l.Bucket)
		if l.Endpoint != "" {
			text += fmt.Sprintf("; something else than an S3 server at %s answers so too", l.Endpoint)
		}
		return text
	case OutcomeDenied:
		switch l.Scheme {
		case SchemeFile:
			return "no permission: give this user read and write access to the directory"
		case SchemeMinio:
			return "the store refuses the credentials: check MINIO_ACCESS_KEY and MINIO_SECRET_KEY, or --bucket-credentials, and that they may get, put, delete and list"
		}
		return "the store refuses the credentials: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile or role, and that they allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket"
	case OutcomeUnavailable, OutcomeCanceled:
		switch {
		case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
			return "the store speaks http, not https: use tls=false or an http:// endpoint"
		case l.Endpoint != "":
			return fmt.Sprintf("cannot reach the store at %s: check host and port, and that it runs", l.Endpoint)
		}
		return "cannot reach the store: check network, region and endpoint"
	case OutcomeRejected:
		return "the store rejects the request: check region, endpoint and path-style"
	}
	return "the store does not work"
}

// oneLine keeps a foreign error from breaking the line.
type oneLine struct{ err error }

func (o oneLine) Error() string { return strings.Join(strings.Fields(o.err.Error()), " ") }
func (o oneLine) Unwrap() error { return o.err }
