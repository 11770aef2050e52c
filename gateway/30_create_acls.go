// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// createACLs refuses each one: nothing would keep it.
func (s *Server) createACLs(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.CreateACLsRequest)
	resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
	code, message := s.adminCode("creating ACLs", errNoAuthorizer)
	for range req.Creations {
		out := kmsg.NewCreateACLsResponseResult()
		out.ErrorCode, out.ErrorMessage = code.int16(), message
		resp.Results = append(resp.Results, out)
	}
	return resp, nil
}
