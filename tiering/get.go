// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/objstore"
	"github.com/varve/varve/tiering/segment"
)

// get is one ranged GET, counted by kind.
func (r *Reader) get(ctx context.Context, kind, object string, off, n int64, dst []byte) ([]byte, error) {
	began := time.Now()
	r.metrics.gets.WithLabelValues(kind).Inc()
	b, err := r.store.Get(objstore.OnFailedTry(ctx, func(err error) { r.outage.failed(err, "object", object) }), object, off, n, dst)
	if errors.Is(err, objstore.ErrRange) || errors.Is(err, objstore.ErrCorrupt) {
		return nil, r.corrupt(object, off, n, err) // shorter than the manifest says
	}
	if err != nil {
		if errors.Is(err, objstore.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) { // any other error is an answer
			r.outage.failed(err, "object", object)
		} else if !errors.Is(err, context.Canceled) {
			r.outage.answered()
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, lateError(fmt.Sprintf("get %s, bytes %d+%d", object, off, n), err)
		}
		return nil, storeError(fmt.Errorf("get %s, bytes %d+%d: %w", object, off, n, err))
	}
	r.outage.answered()
	if int64(len(b)-len(dst)) != n {
		return nil, fmt.Errorf("%w: get %s, bytes %d+%d: %d came", ErrUnavailable, object, off, n, len(b)-len(dst))
	}
	r.metrics.bytes.WithLabelValues(kind).Add(float64(n))
	r.metrics.seconds.Observe(time.Since(began).Seconds())
	return b, nil
}

// checked gets a small object part and has it checked. Bytes that fail are got once more: what was wrong may have been the way, not the object.
func (r *Reader) checked(ctx context.Context, kind, object string, off, n int64, check func([]byte) error) error {
	ctx, cancel := context.WithTimeout(ctx, objstore.Deadline(r.cfg.GetDeadline, 0, n))
	defer cancel()
	var err error
	for range getTries {
		var b []byte
		if b, err = r.get(ctx, kind, object, off, n, nil); err != nil {
			return err
		}
		if err = check(b); err == nil {
			return nil
		}
	}
	if errors.Is(err, segment.ErrNewerFormat) || errors.Is(err, manifest.ErrNewerFormat) {
		return fmt.Errorf("%w: object %s: %w", ErrUnavailable, object, err) // not before this binary is a newer one
	}
	return r.corrupt(object, off, n, err)
}

// corrupt reports bytes that failed their checks: a metric, one log line, and the error for the reader.
func (r *Reader) corrupt(object string, off, n int64, err error) error {
	r.metrics.corrupt.Inc()
	r.cfg.Logger.Error("corrupt object", "object", object, "from", off, "bytes", n, "err", err)
	return &CorruptError{Object: object, Off: off, Len: n, Err: err}
}
