// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// createDelegationToken refuses: no connection of ours is one on which Kafka takes requests about tokens, those with SASL or
// a client's certificate.
func (s *Server) createDelegationToken(_ context.Context, r *Request) (kmsg.Response, error) {
	resp := r.Body.(*kmsg.CreateDelegationTokenRequest).ResponseKind().(*kmsg.CreateDelegationTokenResponse)
	// Kafka names whom it takes the caller for; here as there, everybody is anonymous.
	resp.ErrorCode, resp.PrincipalType, resp.PrincipalName = codeDelegationTokenRequest.int16(), "User", "ANONYMOUS"
	resp.TokenRequesterPrincipalType, resp.TokenRequesterPrincipalName = resp.PrincipalType, resp.PrincipalName
	resp.IssueTimestamp, resp.ExpiryTimestamp, resp.MaxTimestamp = -1, -1, -1
	return resp, nil
}
