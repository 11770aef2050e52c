// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Endpoint types of DescribeCluster.
const (
	brokerEndpoints     = 1
	controllerEndpoints = 2
)

// describeCluster answers which nodes there are.
func (s *Server) describeCluster(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.EndpointType, resp.ControllerID = brokerEndpoints, -1
	resp.ClusterAuthorizedOperations = operationsNotAsked
	if r.Version >= 1 && req.EndpointType != brokerEndpoints {
		code := codeUnsupportedEndpointType
		if req.EndpointType == controllerEndpoints {
			code = codeMismatchedEndpointType
		}
		resp.ErrorCode, resp.ErrorMessage = code.int16(), kmsg.StringPtr("this endpoint is a broker's")
		return resp, nil
	}
	img := s.meta.Image()
	resp.ClusterID = s.meta.ClusterID()
	resp.ControllerID = int32(controllerOf(img, r.Listener))
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	for _, b := range img.Brokers() {
		if e, ok := endpointOf(img, b.Node, r.Listener); ok {
			n := kmsg.NewDescribeClusterResponseBroker()
			n.NodeID, n.Host, n.Port, n.Rack = int32(e.node), e.host, e.port, rackOf(e.rack)
			resp.Brokers = append(resp.Brokers, n)
		}
	}
	return resp, nil
}
