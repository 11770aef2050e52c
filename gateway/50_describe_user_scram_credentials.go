// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeUserScramCredentials answers that nobody has any.
func (s *Server) describeUserScramCredentials(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeUserSCRAMCredentialsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
	seen := map[string]int{} // places in the answer
	for _, u := range req.Users {
		if at, twice := seen[u.Name]; twice {
			code, message := s.adminCode("describing credentials", refuse(codeDuplicateResource, "user %q is in the request twice", u.Name))
			resp.Results[at].ErrorCode, resp.Results[at].ErrorMessage = code.int16(), message
			continue
		}
		seen[u.Name] = len(resp.Results)
		out := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
		code, message := s.adminCode("describing credentials", refuse(codeResourceNotFound, "user %q has no SCRAM credentials", u.Name))
		out.User, out.ErrorCode, out.ErrorMessage = u.Name, code.int16(), message
		resp.Results = append(resp.Results, out)
	}
	return resp, nil
}
