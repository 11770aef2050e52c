// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// errNoAuthorizer is what every request about ACLs is answered: tools know the code and say so.
var errNoAuthorizer = refuse(codeSecurityDisabled, "there is no authorizer: everybody may do everything")

// describeACLs answers that there are none to tell of.
func (s *Server) describeACLs(_ context.Context, r *Request) (kmsg.Response, error) {
	resp := r.Body.(*kmsg.DescribeACLsRequest).ResponseKind().(*kmsg.DescribeACLsResponse)
	code, message := s.adminCode("describing ACLs", errNoAuthorizer)
	resp.ErrorCode, resp.ErrorMessage = code.int16(), message
	return resp, nil
}
