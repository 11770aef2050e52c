// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/gateway/txn"
)

// addOffsetsToTxn makes a group's offsets part of a transaction. Later clients leave it to the group's coordinator, which says so in a tag.
func (s *Server) addOffsetsToTxn(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AddOffsetsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	version := txn.Classic
	if s.fromPeer(r) {
		req.UnknownTags.Each(func(tag uint32, value []byte) {
			if tag == versionTag && len(value) == 1 {
				version = int8(value[0])
			}
		})
	}
	if len(req.Group) > maxGroupID {
		resp.ErrorCode = codeInvalidGroupID.int16()
		return resp, nil
	}
	who := txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	outcome, err := s.stepTxn(ctx, req.TransactionalID, existing(func(now time.Time, cur *txn.Txn) (*txn.Txn, error) {
		return cur.Add(now, who, version, nil, req.Group)
	}))
	if err == nil {
		err = outcome.reason
	}
	resp.ErrorCode = txnCode(err).fencedBefore(r.Version, 2).int16()
	return resp, nil
}

// addGroupToTxn asks a transaction's coordinator to make a group's offsets part of it, for a client that leaves that to the group's.
func (s *Server) addGroupToTxn(ctx context.Context, id string, who txn.Producer, group string) Code {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.SetVersion(4)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = id, who.ID, who.Epoch, group
	req.UnknownTags.Set(versionTag, []byte{byte(txn.Bumping)})
	_, code := s.askCoordinator(ctx, id, req, func(resp kmsg.Response) Code {
		if r, ok := resp.(*kmsg.AddOffsetsToTxnResponse); ok {
			return Code(r.ErrorCode)
		}
		return codeCoordinatorNotAvailable
	})
	return code
}
