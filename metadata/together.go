// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"fmt"
)

// commitTogether is commit for changes of which none depends on another: one transaction for all. When it is refused, those that
// stood in its way are out, and the rest goes into another one; so one that was fenced does not fail others.
func (s *Store) commitTogether(ctx context.Context, parts []*change) []ShardResult {
	results := make([]ShardResult, len(parts))
	left := make([]int, len(parts))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		left = s.commitRest(ctx, parts, left, results)
	}
	return results
}

// commitRest decides at least one of the changes that are left, and gives those that have to be sent again.
func (s *Store) commitRest(ctx context.Context, parts []*change, left []int, results []ShardResult) (again []int) {
	sent := make([]*change, len(left), len(left)+1)
	for i, at := range left {
		sent[i] = parts[at]
	}
	generation := &change{}
	if s.genRev != 0 {
		generation.unchanged(s.keys.key(keyGen), s.genRev, ErrGeneration)
		sent = append(sent, generation)
	}
	t := txnOf(sent...)
	rev, err := Revision(0), checkSize(&t)
	if err != nil && len(left) > 1 {
		return append(s.commitRest(ctx, parts, left[:1:1], results), left[1:]...)
	}
	if err == nil {
		rev, err = s.decide(ctx, t, func() []Op { return reasons(sent...) }, func(res *TxnResult, unknown bool) (Revision, error) {
			found := res.found()
			if err := generation.refusal(found); err != nil {
				return 0, err
			}
			for _, at := range left {
				r, err := parts[at].judge(res, found, unknown)
				if errors.Is(err, errOthers) {
					again = append(again, at)
					continue
				}
				if err != nil {
					err = s.refused(parts[at], err)
				}
				results[at] = ShardResult{r, err}
			}
			return 0, errJudged
		})
	}
	switch {
	case errors.Is(err, errJudged):
		if len(again) == len(left) { // refused for no reason that can be seen
			return s.giveUp(parts, left, results, ErrConflict)
		}
		return again
	case err != nil:
		return s.giveUp(parts, left, results, err)
	}
	for _, at := range left {
		results[at] = ShardResult{Revision: rev}
	}
	return nil
}

// errJudged: each change has an outcome of its own.
var errJudged = fmt.Errorf("%w: judged one by one", ErrConflict)

func (s *Store) giveUp(parts []*change, left []int, results []ShardResult, err error) []int {
	for _, at := range left {
		results[at] = ShardResult{Err: s.refused(parts[at], err)}
	}
	return nil
}
