// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata/config"
)

// incrementalAlterConfigs changes single overrides. A resource's operations happen all or not at all; one resource's failure
// does not touch the others.
func (s *Server) incrementalAlterConfigs(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	ctx, cancel := adminDeadline(ctx, int32(s.broker.Config().RequestTimeout.Milliseconds()))
	defer cancel()
	twice := duplicates(req.Resources, func(q *kmsg.IncrementalAlterConfigsRequestResource) string {
		return resourceKey(q.ResourceType, q.ResourceName)
	})
	for i := range req.Resources {
		q := &req.Resources[i]
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = q.ResourceType, q.ResourceName
		err := errTwice
		switch {
		case twice[resourceKey(q.ResourceType, q.ResourceName)]:
		case q.ResourceType == kmsg.ConfigResourceTypeBrokerLogger:
			err = s.alterLogger(q.ResourceName, q.Configs, req.ValidateOnly)
		default:
			err = s.alterResource(ctx, configResource{q.ResourceType, q.ResourceName}, req.ValidateOnly,
				func(scope config.Scope, current map[string]string) (map[string]string, error) {
					return config.ApplyIncremental(scope, current, configOps(q.Configs))
				})
		}
		code, message := s.adminCode("altering configs of "+q.ResourceName, err)
		out.ErrorCode, out.ErrorMessage = code.int16(), message
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

func configOps(configs []kmsg.IncrementalAlterConfigsRequestResourceConfig) []config.Op {
	ops := make([]config.Op, len(configs))
	for i, c := range configs {
		ops[i] = config.Op{Name: c.Name, Kind: config.OpKind(c.Op), Value: c.Value}
	}
	return ops
}
