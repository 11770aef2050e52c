// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
)

// listConfigResources lists what has configs: topics and nodes all, groups and client-metrics subscriptions those that have some.
func (s *Server) listConfigResources(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ListConfigResourcesRequest)
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	types := []kmsg.ConfigResourceType{kmsg.ConfigResourceTypeClientMetrics} // all that version 0 knows
	if r.Version >= 1 {
		types = types[:0]
		for _, t := range req.ResourceTypes {
			types = append(types, kmsg.ConfigResourceType(t))
		}
		if len(types) == 0 {
			types = []kmsg.ConfigResourceType{
				kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger,
				kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig,
			}
		}
	}
	img := s.meta.Image()
	seen := map[kmsg.ConfigResourceType]bool{}
	for _, t := range types {
		if !knownConfigType(t) {
			resp.ErrorCode, resp.ConfigResources = codeUnsupportedVersion.int16(), nil
			return resp, nil
		}
		if seen[t] {
			continue
		}
		seen[t] = true
		for _, name := range configured(img, t) {
			out := kmsg.NewListConfigResourcesResponseConfigResource()
			out.Name, out.Type = name, int8(t)
			resp.ConfigResources = append(resp.ConfigResources, out)
		}
	}
	return resp, nil
}

func configured(img *metadata.Image, t kmsg.ConfigResourceType) (names []string) {
	switch t {
	case kmsg.ConfigResourceTypeTopic:
		for topic := range img.Topics() {
			if !topic.Deleting {
				names = append(names, topic.Name)
			}
		}
	case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger:
		for _, b := range img.Brokers() {
			names = append(names, strconv.Itoa(int(b.Node)))
		}
	case kmsg.ConfigResourceTypeClientMetrics:
		return img.ConfigEntities(metadata.ConfigClient)
	case kmsg.ConfigResourceTypeGroupConfig:
		return img.ConfigEntities(metadata.ConfigGroup)
	}
	return names
}
