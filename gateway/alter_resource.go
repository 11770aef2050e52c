// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"maps"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
)

// configChange computes a resource's overrides from those it has.
type configChange func(scope config.Scope, current map[string]string) (map[string]string, error)

// configResource names what is to be altered.
type configResource struct {
	kind kmsg.ConfigResourceType
	name string
}

// alterResource changes the overrides of one resource, or only finds out whether it could.
func (s *Server) alterResource(ctx context.Context, r configResource, validateOnly bool, change configChange) error {
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		return s.alterTopicConfigs(ctx, r.name, validateOnly, change)
	case kmsg.ConfigResourceTypeBroker:
		return s.alterBrokerConfigs(ctx, r.name, validateOnly, change)
	case kmsg.ConfigResourceTypeGroupConfig:
		if r.name == "" {
			return refuse(codeInvalidRequest, "a group needs a name")
		}
		return s.alterOther(ctx, metadata.ConfigGroup, r.name, validateOnly, func(current map[string]string) (map[string]string, error) {
			next, err := change(config.GroupScope, current)
			if err != nil {
				return nil, err
			}
			return next, config.CheckGroup(next, s.broker.Config())
		})
	case kmsg.ConfigResourceTypeClientMetrics:
		if r.name == "" {
			return refuse(codeInvalidRequest, "a client-metrics subscription needs a name")
		}
		return s.alterOther(ctx, metadata.ConfigClient, r.name, validateOnly, func(current map[string]string) (map[string]string, error) {
			next, err := change(config.ClientMetricsScope, current)
			if errors.Is(err, config.ErrUnknown) { // of these Kafka says it with another code
				return nil, refuse(codeInvalidRequest, "%v", err)
			}
			return next, err
		})
	case kmsg.ConfigResourceTypeBrokerLogger:
		return refuse(codeInvalidRequest, "levels of loggers are altered by IncrementalAlterConfigs only")
	}
	return refuse(codeInvalidRequest, "resource type %d is not known", r.kind)
}

func (s *Server) alterTopicConfigs(ctx context.Context, name string, validateOnly bool, change configChange) error {
	if name == "" {
		return refuse(codeInvalidRequest, "a topic needs a name")
	}
	if err := checkTopicName(name); err != nil {
		return err
	}
	topic, err := s.findTopic(ctx, name)
	if err != nil {
		return err
	}
	compute := func(current map[string]string) (map[string]string, error) {
		next, err := change(config.TopicScope, current)
		if err != nil {
			return nil, err
		}
		_, err = config.ResolveTopic(next, s.broker.Config())
		return next, err
	}
	if validateOnly {
		_, err := compute(topic.Overrides)
		return err
	}
	topic, err = s.meta.AlterTopicConfig(ctx, topic.ID, inPlace(compute))
	if err == nil {
		s.settle(ctx, topic.Rev)
	}
	return err
}

func (s *Server) alterBrokerConfigs(ctx context.Context, name string, validateOnly bool, change configChange) error {
	scope := config.BrokerDefaultScope
	if name != "" {
		if err := s.mustBeThisNode(name); err != nil {
			return err
		}
		scope = config.BrokerScope
	}
	return s.alterOther(ctx, metadata.ConfigBroker, name, validateOnly, func(current map[string]string) (map[string]string, error) {
		next, err := change(scope, current)
		if err != nil {
			return nil, err
		}
		img := s.meta.Image()
		cluster, node := img.BrokerConfig(""), next
		if name == "" {
			cluster, node = next, img.BrokerConfig(nodeEntity(s.cfg.NodeID))
		}
		_, err = s.broker.Config().With(cluster, node)
		return next, err
	})
}

// alterOther changes the overrides of anything that is not a topic.
func (s *Server) alterOther(ctx context.Context, kind metadata.ConfigKind, entity string, validateOnly bool, compute func(map[string]string) (map[string]string, error)) error {
	if validateOnly {
		_, err := compute(s.meta.Image().Config(kind, entity))
		return err
	}
	rev, err := s.meta.AlterConfig(ctx, kind, entity, inPlace(compute))
	if err == nil {
		s.settle(ctx, rev)
	}
	return err
}

// inPlace turns a computation into the change of a map, as the metadata store wants it.
func inPlace(compute func(map[string]string) (map[string]string, error)) func(map[string]string) error {
	return func(current map[string]string) error {
		next, err := compute(current)
		if err != nil {
			return err
		}
		clear(current)
		maps.Copy(current, next)
		return nil
	}
}
