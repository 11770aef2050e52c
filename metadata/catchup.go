// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// catchUp is what the callers of CatchUp share: one of them at a time reads the store for all that came before it did.
type catchUp struct {
	turn chan struct{} // holds a token while somebody reads; guards what follows but began
	last time.Time     // when the last read began
	rev  Revision      // what the last read that succeeded said
	of   int64         // its number
	// began counts the reads that were begun.
	began atomic.Int64
}

// CatchUp waits until the image holds whatever was committed before the call. However many wait, the store is read by one at a time,
// and not more often than every catchUpEvery.
func (s *Store) CatchUp(ctx context.Context) error {
	c := &s.catchUp
	before := c.began.Load()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the metadata: %w", context.Cause(ctx))
	}
	rev, err := c.rev, error(nil)
	if c.of <= before { // no read that began after the call has succeeded yet
		rev, err = s.readRevision(ctx)
	}
	<-c.turn
	if err != nil {
		return err
	}
	return s.WaitFor(ctx, rev)
}

// readRevision is one read of the store, in the caller's turn.
func (s *Store) readRevision(ctx context.Context) (Revision, error) {
	c := &s.catchUp
	if wait := time.Until(c.last.Add(catchUpEvery)); wait > 0 {
		if err := sleep(ctx, wait); err != nil {
			return 0, fmt.Errorf("waiting for the metadata: %w", err)
		}
	}
	c.last = time.Now()
	n := c.began.Add(1)
	res, err := s.read(ctx, RangeRequest{Key: s.keys.key(keyGen), KeysOnly: true})
	if err != nil {
		return 0, err
	}
	c.rev, c.of = res.Revision, n
	return c.rev, nil
}
