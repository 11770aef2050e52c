// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
)

// describeConfigs answers configs with where each value comes from.
func (s *Server) describeConfigs(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	img := s.meta.Image()
	// Kafka fails the whole request for one type it does not know.
	unknown := slices.ContainsFunc(req.Resources, func(q kmsg.DescribeConfigsRequestResource) bool { return !knownConfigType(q.ResourceType) })
	for i := range req.Resources {
		q := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = q.ResourceType, q.ResourceName
		var entries []config.Entry
		err := refuse(codeInvalidRequest, "a resource of the request has a type that is not known")
		if !unknown {
			entries, err = s.describeResource(img, q.ResourceType, q.ResourceName)
		}
		code, message := s.adminCode("describing configs of "+q.ResourceName, err)
		out.ErrorCode, out.ErrorMessage = code.int16(), message
		out.Configs = []kmsg.DescribeConfigsResponseResourceConfig{}
		for j := range entries {
			if len(q.ConfigNames) == 0 || slices.Contains(q.ConfigNames, entries[j].Name) {
				out.Configs = append(out.Configs, configEntry(&entries[j], req, r.Version))
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

func knownConfigType(t kmsg.ConfigResourceType) bool {
	switch t {
	case kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger,
		kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
		return true
	}
	return false
}

// describeResource lists the configs of one resource.
func (s *Server) describeResource(img *metadata.Image, t kmsg.ConfigResourceType, name string) ([]config.Entry, error) {
	switch t {
	case kmsg.ConfigResourceTypeTopic:
		if err := checkTopicName(name); err != nil {
			return nil, err
		}
		topic := img.Topic(name)
		if topic == nil || topic.Deleting {
			return nil, refuse(codeUnknownTopicOrPartition, "no topic %q", name)
		}
		return config.DescribeTopic(topic.Overrides, s.brokerConfig(img)), nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return config.DescribeBrokerDefaults(img.BrokerConfig("")), nil
		}
		if err := s.mustBeThisNode(name); err != nil {
			return nil, err
		}
		return config.DescribeBroker(s.brokerConfig(img), s.inForce(img)), nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		return s.describeLogger(), s.mustBeThisNode(name)
	case kmsg.ConfigResourceTypeClientMetrics:
		if name == "" {
			return nil, refuse(codeInvalidRequest, "a client-metrics subscription needs a name")
		}
		return config.DescribeClientMetrics(img.Config(metadata.ConfigClient, name)), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if name == "" {
			return nil, refuse(codeInvalidRequest, "a group needs a name")
		}
		return config.DescribeGroup(img.Config(metadata.ConfigGroup, name), s.brokerConfig(img)), nil
	}
	return nil, refuse(codeInvalidRequest, "resource type %d is not known", t)
}

// mustBeThisNode refuses configs of another node: only that one knows what it was started with, and clients ask it.
func (s *Server) mustBeThisNode(name string) error {
	n, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return refuse(codeInvalidRequest, "broker id %q is no number", name)
	}
	if n != int64(s.cfg.NodeID) {
		return refuse(codeInvalidRequest, "configs of broker %d must be asked there; this is broker %d", n, s.cfg.NodeID)
	}
	return nil
}

func configEntry(e *config.Entry, req *kmsg.DescribeConfigsRequest, version int16) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.ReadOnly, c.IsSensitive = e.Name, e.Value, e.ReadOnly, e.Sensitive
	c.Source, c.ConfigType = kmsg.ConfigSource(e.Source), kmsg.ConfigType(e.Type)
	c.IsDefault = e.Source == config.SourceDefault
	c.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{}
	if req.IncludeSynonyms {
		for _, syn := range e.Synonyms {
			v := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			v.Name, v.Value, v.Source = syn.Name, syn.Value, kmsg.ConfigSource(syn.Source)
			c.ConfigSynonyms = append(c.ConfigSynonyms, v)
		}
	}
	if req.IncludeDocumentation && version >= 3 {
		c.Documentation = &e.Doc
	}
	return c
}
