// SPDX-License-Identifier: Apache-2.0

package objstore

import "context"

type triesKey struct{}

// OnFailedTry has fn told of every try that failed of the requests made under the returned context and that is made again: with the store away a
// request may go on for a minute before it returns anything. fn must not block. What an outer context has registered is told too.
func OnFailedTry(ctx context.Context, fn func(error)) context.Context {
	if outer, ok := ctx.Value(triesKey{}).(func(error)); ok {
		inner := fn
		fn = func(err error) { inner(err); outer(err) }
	}
	return context.WithValue(ctx, triesKey{}, fn)
}

// tryFailed tells whoever asked to hear of it. What fails since ctx has ended says nothing about the store.
func tryFailed(ctx context.Context, err error) {
	if fn, ok := ctx.Value(triesKey{}).(func(error)); ok && ctx.Err() == nil {
		fn(err)
	}
}
