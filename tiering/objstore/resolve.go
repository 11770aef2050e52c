// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// CreateResolved stores body under key and returns only when the outcome is known or ctx ends (rule 1 of the protocols):
//
//   - nil: the object is there and is ours (same attempt, size and checksum).
//   - an error that wraps ErrUnknownOutcome: ctx ended first; the object may be there or may yet appear.
//   - an error that wraps ErrExists: another attempt's object has the name, ours was not stored.
//   - any other error: the object was not stored by this call.
//
// An unknown outcome is settled by Stat, and "not there" settles nothing, as the lost request may still be under way: the same
// attempt is sent again until the object is seen. o.Metadata must hold MetaAttempt. Without a deadline in ctx the call takes
// one, scaled by the size of the body.
func CreateResolved(ctx context.Context, s Store, key string, body Body, o PutOptions) error {
	if o.Metadata[MetaAttempt] == "" {
		return fmt.Errorf("create %s: %w: no attempt in the metadata", key, ErrRejected)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 4*Deadline(0, 0, body.Size()))
		defer cancel()
	}
	meta, crc, err := StoredMetadata(body, o)
	if err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	o.CRC32C = crc
	r := resolver{store: s, key: key, body: body, options: o, want: meta}
	r.options.OnMultipart = func(id string) error {
		r.uploads = append(r.uploads, id)
		if o.OnMultipart != nil {
			return o.OnMultipart(id)
		}
		return nil
	}
	err = r.run(ctx)
	if err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	r.abortLeftovers(ctx)
	return nil
}

type resolver struct {
	store   Store
	key     string
	body    Body
	options PutOptions
	want    map[string]string
	// uploads are the multipart uploads begun and not known to be complete.
	uploads []string
	// doubt: some try may have been applied or may yet be.
	doubt bool
}

func (r *resolver) run(ctx context.Context) error {
	for try := 0; ; try++ {
		err := r.once(ctx)
		if err == nil {
			return nil
		}
		if settled(err) {
			return r.giveUp(err)
		}
		tryFailed(ctx, err)
		if perr := pause(ctx, backoff(DefaultBackoffBase, DefaultBackoffMax, try, nil)); perr != nil {
			return r.giveUp(fmt.Errorf("%w: %w", perr, err))
		}
	}
}

// once sends the attempt and, when the answer leaves a doubt, asks what is there. A retriable error means: once more.
func (r *resolver) once(ctx context.Context) error {
	err := r.store.Create(ctx, r.key, r.body, r.options)
	switch {
	case err == nil:
		r.uploads = nil
		return nil
	case errors.Is(err, ErrUnknownOutcome):
		r.doubt = true
	case errors.Is(err, ErrExists):
	default:
		return err
	}
	info, serr := r.store.Stat(ctx, r.key)
	switch {
	case serr == nil:
		return r.compare(info)
	case errors.Is(serr, ErrNotFound):
		// Either the lost request has not landed yet, or never will; or a store answers 412 and 404 at once (faults D4, D11).
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return serr
}

// compare decides whose object it is (faults D3).
func (r *resolver) compare(info Info) error {
	if got := info.Metadata[MetaAttempt]; got != r.want[MetaAttempt] {
		r.doubt = false // the name is taken and never overwritten: ours can no longer land
		return fmt.Errorf("%w: written by attempt %q, not by %q", ErrExists, got, r.want[MetaAttempt])
	}
	if info.Size != r.body.Size() || info.Metadata[MetaCRC32C] != r.want[MetaCRC32C] {
		r.doubt = false
		return fmt.Errorf("%w: attempt %s has %d bytes with checksum %s in the store, %d with %s here", ErrCorrupt, r.want[MetaAttempt],
			info.Size, info.Metadata[MetaCRC32C], r.body.Size(), r.want[MetaCRC32C])
	}
	return nil
}

// giveUp returns err, marked unknown while a try of ours may still land.
func (r *resolver) giveUp(err error) error {
	if r.doubt && !errors.Is(err, ErrUnknownOutcome) {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}

// abortLeftovers frees the parts of uploads that an earlier try began. Best effort: their ids are in the caller's intent too.
func (r *resolver) abortLeftovers(ctx context.Context) {
	if len(r.uploads) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortDeadline)
	defer cancel()
	for _, id := range slices.Compact(r.uploads) {
		_ = r.store.AbortUpload(ctx, r.key, id)
	}
}

// settled tells the errors that another try does not change.
func settled(err error) bool {
	return !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome)
}

// pause waits or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return ctx.Err()
	}
}
