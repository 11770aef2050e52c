// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/varve/varve/metadata"
)

// notProposed are answers that a member gives before it proposes a request to the others, or instead of executing it.
var notProposed = []error{
	rpctypes.ErrNoLeader,         // asked for by WithRequireLeader, found before the request is looked at
	rpctypes.ErrTooManyRequests,  // too much waits to be applied
	rpctypes.ErrNoSpace,          // quota: before proposing, and the alarm's applier puts nothing
	rpctypes.ErrInvalidAuthToken, // the next request has a new token
	rpctypes.ErrAuthOldRevision,
}

// translate gives an error of the seam for one of etcd's. mutation: the request may have changed something.
func translate(ctx context.Context, err error, mutation bool) error {
	if err == nil {
		return nil
	}
	typed := rpctypes.Error(err)
	is := func(target error) bool { return errors.Is(typed, target) || typed.Error() == target.Error() }
	switch {
	case is(rpctypes.ErrCompacted):
		return fmt.Errorf("%w: %w", metadata.ErrCompacted, err)
	case is(rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("%w: %w", metadata.ErrLeaseNotFound, err)
	case is(rpctypes.ErrTooManyOps), is(rpctypes.ErrRequestTooLarge),
		// The member refuses to read such a request; answers have no such limit (client library's default).
		code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max"):
		return fmt.Errorf("%w: %w", metadata.ErrTooLarge, err)
	}
	for _, target := range notProposed {
		if is(target) {
			return fmt.Errorf("%w: %w", metadata.ErrUnavailable, err)
		}
	}
	switch code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.FailedPrecondition, codes.OutOfRange, codes.Unauthenticated, codes.Unimplemented:
		return fmt.Errorf("%w: %w", metadata.ErrRefused, err)
	}
	if !mutation || neverSent(err) {
		return fmt.Errorf("%w: %w", metadata.ErrUnavailable, withCause(ctx, err))
	}
	return fmt.Errorf("%w: %w", metadata.ErrUnknown, withCause(ctx, err))
}

func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &e) {
		return e.Code()
	}
	return status.Code(err)
}

// neverSent: there was no connection to send it over. Once a request may have left, a broken connection looks different.
func neverSent(err error) bool {
	st, ok := status.FromError(err)
	return ok && st.Code() == codes.Unavailable &&
		(strings.Contains(st.Message(), "Error while dialing") || strings.Contains(st.Message(), "no children to pick from") ||
			strings.Contains(st.Message(), "produced zero addresses"))
}

func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
