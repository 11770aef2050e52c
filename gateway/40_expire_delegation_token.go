// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// expireDelegationToken refuses, as createDelegationToken does.
func (s *Server) expireDelegationToken(_ context.Context, r *Request) (kmsg.Response, error) {
	resp := r.Body.(*kmsg.ExpireDelegationTokenRequest).ResponseKind().(*kmsg.ExpireDelegationTokenResponse)
	resp.ErrorCode, resp.ExpiryTimestamp = codeDelegationTokenRequest.int16(), -1
	return resp, nil
}
