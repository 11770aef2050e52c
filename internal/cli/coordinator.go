// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kinds of coordinators that a client asks for.
const (
	groupCoordinator       int8 = 0
	transactionCoordinator int8 = 1
)

// awaitCoordinator makes sure that somebody coordinates a group or transactional id. The client library asks for ever and in
// silence; a command says what the broker answers.
func (c *connection) awaitCoordinator(ctx context.Context, adm *admin, kind int8, id string) error {
	doing := map[int8]string{groupCoordinator: "finding the coordinator of group ", transactionCoordinator: "finding the coordinator of transactional id "}[kind] + id
	ctx, cancel := c.within(ctx)
	defer cancel()
	for deadline := time.Now().Add(coordinatorWait); ; {
		message, err := findCoordinator(ctx, adm, kind, id)
		if err == nil || !errors.Is(err, kerr.CoordinatorNotAvailable) || time.Now().After(deadline) {
			return answered(doing, err, message)
		}
		select {
		case <-ctx.Done():
			return explain(doing, ctx.Err())
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func findCoordinator(ctx context.Context, adm *admin, kind int8, id string) (message string, err error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, id, []string{id}
	resp, err := adm.kafka.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return "", err
	}
	answer := resp.(*kmsg.FindCoordinatorResponse)
	code, text := answer.ErrorCode, answer.ErrorMessage
	for _, c := range answer.Coordinators { // version 4 and above
		code, text = c.ErrorCode, c.ErrorMessage
	}
	if text != nil {
		message = *text
	}
	return message, kerr.ErrorForCode(code)
}
