// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteACLs refuses each filter.
func (s *Server) deleteACLs(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DeleteACLsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteACLsResponse)
	code, message := s.adminCode("deleting ACLs", errNoAuthorizer)
	for range req.Filters {
		out := kmsg.NewDeleteACLsResponseResult()
		out.ErrorCode, out.ErrorMessage = code.int16(), message
		resp.Results = append(resp.Results, out)
	}
	return resp, nil
}
