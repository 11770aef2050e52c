// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
)

// Kinds of coordinators.
const (
	groupCoordinator       = 0
	transactionCoordinator = 1
	shareCoordinator       = 2
)

// findCoordinator tells which node coordinates a group or transactional id, as far as this node's image knows. Where none does it waits a
// moment for one: some clients take the first answer that there is none as the last. There are no share groups yet: clients that ask for
// their coordinators keep asking.
func (s *Server) findCoordinator(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	keys := req.CoordinatorKeys
	if r.Version < 4 {
		keys = []string{req.CoordinatorKey}
	}
	if kind := req.CoordinatorType; kind == groupCoordinator || kind == transactionCoordinator && r.Version >= 1 {
		s.awaitCoordinators(ctx, keys)
	}
	if r.Version < 4 {
		c := s.coordinatorOf(r, req.CoordinatorType, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = c.ErrorCode, c.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = c.NodeID, c.Host, c.Port
		return resp, nil
	}
	for _, key := range keys {
		resp.Coordinators = append(resp.Coordinators, s.coordinatorOf(r, req.CoordinatorType, key))
	}
	return resp, nil
}

func (s *Server) coordinatorOf(r *Request, kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port = key, -1, -1
	code, message := codeCoordinatorNotAvailable, ""
	switch {
	case kind == groupCoordinator && len(key) > maxGroupID:
		code, message = codeInvalidGroupID, "the group id is too long"
	case kind == transactionCoordinator && len(key) > maxTxnID:
		code, message = codeInvalidRequest, "the transactional id is too long"
	case kind == groupCoordinator, kind == transactionCoordinator && r.Version >= 1:
		img := s.meta.Image()
		message = "no node coordinates it at the moment"
		owner, held := coordinating(img, key)
		if at, ok := endpointOf(img, owner.Node, r.Listener); held && ok {
			c.NodeID, c.Host, c.Port = int32(at.node), at.host, at.port
			c.ErrorCode = codeNone.int16()
			return c
		}
	case kind == shareCoordinator && r.Version >= 6:
		message = "share groups are not served yet"
	default:
		code, message = codeInvalidRequest, "no such kind of coordinator"
	}
	c.ErrorCode, c.ErrorMessage = code.int16(), &message
	return c
}

// coordinating is the registered node that coordinates an id, if there is one.
func coordinating(img *metadata.Image, key string) (owner metadata.Coordinator, ok bool) {
	if img.Shards() == 0 {
		return owner, false
	}
	owner, held := img.Coordinator(metadata.ShardOf(key, img.Shards()))
	return owner, held && registered(img, owner)
}

// awaitCoordinators waits until a node coordinates each of the ids, for findWait at most.
func (s *Server) awaitCoordinators(ctx context.Context, keys []string) {
	found := func(img *metadata.Image) bool {
		return !slices.ContainsFunc(keys, func(key string) bool { _, ok := coordinating(img, key); return !ok })
	}
	if found(s.meta.Image()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, findWait)
	defer cancel()
	_ = s.awaitImage(ctx, found) // in vain or not, the answer says what there is
}
