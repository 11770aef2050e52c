// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/record"
)

// unregisterBroker has nothing to do: a registration lives as long as its node. One that runs is not put out by this.
func (s *Server) unregisterBroker(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.UnregisterBrokerRequest)
	resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	err := refuse(codeBrokerIDNotRegistered, "broker %d is not registered: registrations end with their node", req.BrokerID)
	if s.meta.Image().Broker(record.NodeID(req.BrokerID)) != nil {
		err = refuse(codeInvalidRequest, "broker %d runs: its registration ends when it is stopped", req.BrokerID)
	}
	code, message := s.adminCode("unregistering a broker", err)
	resp.ErrorCode, resp.ErrorMessage = code.int16(), message
	return resp, nil
}
