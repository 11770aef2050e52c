// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// renewDelegationToken refuses, as createDelegationToken does.
func (s *Server) renewDelegationToken(_ context.Context, r *Request) (kmsg.Response, error) {
	resp := r.Body.(*kmsg.RenewDelegationTokenRequest).ResponseKind().(*kmsg.RenewDelegationTokenResponse)
	resp.ErrorCode, resp.ExpiryTimestamp = codeDelegationTokenRequest.int16(), -1
	return resp, nil
}
