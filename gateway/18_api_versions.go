// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"regexp"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const apiVersionsKey = 18

// features are what Kafka calls so, at the levels of the release whose surface we serve. metadata.version (33 = 4.4) is for display: user
// interfaces derive what they offer from it. group.version 1 says that groups of the consumer protocol are served, transaction.version 2 that
// each transaction may have an epoch of its own and leaders add their partitions (KIP-890).
var features = []feature{
	{"group.version", 0, 1, 1},
	{"metadata.version", 7, 33, 33},
	{"transaction.version", 0, 2, 2},
}

type feature struct {
	name            string
	min, max, level int16
}

var softwarePattern = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// apiVersions answers what is served (G2). It works before authentication. A version above ours never gets here: the connection
// answers it with unsupportedApiVersions, because its body cannot be decoded.
func (s *Server) apiVersions(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if r.Version >= 3 && (!softwarePattern.MatchString(req.ClientSoftwareName) || !softwarePattern.MatchString(req.ClientSoftwareVersion)) {
		resp.ErrorCode = codeInvalidRequest.int16()
		return resp, nil
	}
	if r.Version >= 5 {
		if code := s.sameNode(req); code != codeNone {
			resp.ErrorCode = code.int16()
			return resp, nil
		}
	}
	for i := range s.table.rows {
		a := &s.table.rows[i]
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	if r.Version >= 3 {
		for _, f := range features {
			sup := kmsg.NewApiVersionsResponseSupportedFeature()
			sup.Name, sup.MinVersion, sup.MaxVersion = f.name, f.min, f.max
			if f.min > 0 || r.Version >= 4 { // older clients fail on a least level of 0
				resp.SupportedFeatures = append(resp.SupportedFeatures, sup)
			}
			fin := kmsg.NewApiVersionsResponseFinalizedFeature()
			fin.Name, fin.MinVersionLevel, fin.MaxVersionLevel = f.name, f.level, f.level
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, fin)
		}
		resp.FinalizedFeaturesEpoch = 0
	}
	return resp, nil
}

// sameNode checks whom a client believes to talk to (KIP-1242): another cluster or node behind the address makes it start over.
func (s *Server) sameNode(req *kmsg.ApiVersionsRequest) Code {
	switch {
	case (req.ClusterID == nil) != (req.NodeID == -1):
		return codeInvalidRequest
	case req.ClusterID != nil && (*req.ClusterID != s.meta.ClusterID() || req.NodeID != int32(s.cfg.NodeID)):
		return codeRebootstrapRequired
	}
	return codeNone
}

// unsupportedAPIVersions is the answer to an ApiVersions request of a version above ours: version 0, error 35, and this key's
// own range, with which the client asks again.
func (s *Server) unsupportedAPIVersions() *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 0
	resp.ErrorCode = codeUnsupportedVersion.int16()
	if a := s.table.byKey[apiVersionsKey]; a != nil {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}
