// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// SCRAM-SHA-256 and SCRAM-SHA-512, the mechanisms that Kafka knows, and the least iterations that it takes.
const (
	scramSHA256   = 1
	scramSHA512   = 2
	minIterations = 4096
	maxIterations = 16384
)

// alterUserScramCredentials refuses to keep credentials that nobody would ask for: the listeners have no SASL.
func (s *Server) alterUserScramCredentials(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AlterUserSCRAMCredentialsRequest)
	resp := req.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	answered := map[string]bool{}
	answer := func(user string, err error) {
		if answered[user] {
			return
		}
		answered[user] = true
		out := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		code, message := s.adminCode("altering credentials", err)
		out.User, out.ErrorCode, out.ErrorMessage = user, code.int16(), message
		resp.Results = append(resp.Results, out)
	}
	for _, d := range req.Deletions {
		err := checkScramUser(d.Name, d.Mechanism)
		if err == nil {
			err = refuse(codeResourceNotFound, "user %q has no SCRAM credentials", d.Name)
		}
		answer(d.Name, err)
	}
	for _, u := range req.Upsertions {
		err := checkScramUser(u.Name, u.Mechanism)
		switch {
		case err != nil:
		case u.Iterations < minIterations || u.Iterations > maxIterations:
			err = refuse(codeUnacceptableCredential, "%d iterations: they must be from %d to %d", u.Iterations, minIterations, maxIterations)
		default:
			err = refuse(codeUnsupportedSASLMechanism, "no listener has SASL: credentials would be of no use")
		}
		answer(u.Name, err)
	}
	return resp, nil
}

func checkScramUser(name string, mechanism int8) error {
	switch {
	case name == "":
		return refuse(codeUnacceptableCredential, "the user's name is empty")
	case mechanism != scramSHA256 && mechanism != scramSHA512:
		return refuse(codeUnsupportedSASLMechanism, "SCRAM mechanism %d is none of 1 (SHA-256), 2 (SHA-512)", mechanism)
	}
	return nil
}
