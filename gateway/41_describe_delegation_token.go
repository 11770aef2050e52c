// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeDelegationToken refuses, as createDelegationToken does.
func (s *Server) describeDelegationToken(_ context.Context, r *Request) (kmsg.Response, error) {
	resp := r.Body.(*kmsg.DescribeDelegationTokenRequest).ResponseKind().(*kmsg.DescribeDelegationTokenResponse)
	resp.ErrorCode = codeDelegationTokenRequest.int16()
	return resp, nil
}
