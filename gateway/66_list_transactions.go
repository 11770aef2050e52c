// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/txn"
)

// listTransactions lists the transactional ids that this node coordinates; clients ask every node.
func (s *Server) listTransactions(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ListTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	f := txnFilter{producers: req.ProducerIDFilters, anyState: len(req.StateFilters) == 0, now: time.Now(), lasting: -1}
	if r.Version >= 1 {
		f.lasting = time.Duration(req.DurationFilterMillis) * time.Millisecond
	}
	if r.Version >= 2 && req.TransactionalIDPattern != nil && *req.TransactionalIDPattern != "" {
		var err error
		if f.pattern, err = regexp.Compile("^(?:" + *req.TransactionalIDPattern + ")$"); err != nil {
			resp.ErrorCode = codeInvalidRegularExpression.int16()
			return resp, nil
		}
	}
	for _, name := range req.StateFilters {
		if st, known := txn.ParseState(name); known {
			f.states = append(f.states, st)
		} else {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	shards, err := s.groups.all()
	if err != nil {
		resp.ErrorCode = txnCode(err).int16()
		return resp, nil
	}
	for _, sh := range shards {
		for _, e := range sh.txns.entries() {
			is := e.shown.Load()
			if is == nil || !f.passes(e.id, is) {
				continue
			}
			t := kmsg.NewListTransactionsResponseTransactionState()
			t.TransactionalID, t.ProducerID, t.TransactionState = e.id, is.ID, is.State.String()
			resp.TransactionStates = append(resp.TransactionStates, t)
		}
	}
	slices.SortFunc(resp.TransactionStates, func(a, b kmsg.ListTransactionsResponseTransactionState) int {
		return cmp.Compare(a.TransactionalID, b.TransactionalID)
	})
	return resp, nil
}

// txnFilter is what a list is asked for.
type txnFilter struct {
	states    []txn.State
	anyState  bool
	producers []int64
	lasting   time.Duration // longer than that; negative: any
	pattern   *regexp.Regexp
	now       time.Time
}

func (f *txnFilter) passes(id string, is *txn.Txn) bool {
	switch {
	case !f.anyState && !slices.Contains(f.states, is.State),
		len(f.producers) > 0 && !slices.Contains(f.producers, is.ID),
		f.lasting >= 0 && (is.Started.IsZero() || f.now.Sub(is.Started) <= f.lasting),
		f.pattern != nil && !f.pattern.MatchString(id):
		return false
	}
	return true
}
