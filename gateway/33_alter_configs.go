// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata/config"
)

// alterConfigs replaces all overrides of each resource. One resource's failure does not touch the others.
func (s *Server) alterConfigs(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	ctx, cancel := adminDeadline(ctx, int32(s.broker.Config().RequestTimeout.Milliseconds()))
	defer cancel()
	twice := duplicates(req.Resources, func(q *kmsg.AlterConfigsRequestResource) string { return resourceKey(q.ResourceType, q.ResourceName) })
	for i := range req.Resources {
		q := &req.Resources[i]
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = q.ResourceType, q.ResourceName
		err := errTwice
		if !twice[resourceKey(q.ResourceType, q.ResourceName)] {
			err = s.replaceConfigs(ctx, q, req.ValidateOnly)
		}
		code, message := s.adminCode("altering configs of "+q.ResourceName, err)
		out.ErrorCode, out.ErrorMessage = code.int16(), message
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

var errTwice = refuse(codeInvalidRequest, "a resource is in the request twice")

func resourceKey(t kmsg.ConfigResourceType, name string) string { return string(rune(t)) + name }

func (s *Server) replaceConfigs(ctx context.Context, q *kmsg.AlterConfigsRequestResource, validateOnly bool) error {
	values := make(map[string]*string, len(q.Configs))
	for _, c := range q.Configs {
		if _, ok := values[c.Name]; ok {
			return refuse(codeInvalidRequest, "config %s is in the request twice", c.Name)
		}
		if c.Value == nil {
			return refuse(codeInvalidRequest, "config %s: null is no value; leave the config out to go back to its default", c.Name)
		}
		values[c.Name] = c.Value
	}
	return s.alterResource(ctx, configResource{q.ResourceType, q.ResourceName}, validateOnly,
		func(scope config.Scope, _ map[string]string) (map[string]string, error) {
			return config.Replace(scope, values)
		})
}
