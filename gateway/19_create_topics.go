// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/record"
)

// strictCreateTopics is the first version whose clients know the refusal for a used-up quota.
const strictCreateTopics = 6

// topicPlan is a topic that may be created, and what the answer says about it.
type topicPlan struct {
	spec     metadata.TopicSpec
	replicas int16
}

// createTopics creates each topic in one transaction and answers when their leaders are visible here. One topic's failure does
// not touch the others.
func (s *Server) createTopics(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.CreateTopicsRequest)
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	ctx, cancel := adminDeadline(ctx, req.TimeoutMillis)
	defer cancel()
	twice := duplicates(req.Topics, func(t *kmsg.CreateTopicsRequestTopic) string { return t.Topic })
	plans, results := s.planTopics(ctx, req, twice)
	for i, plan := range plans {
		if plan != nil && results[i] == nil {
			results[i] = s.quotas.mutate(r, r.Version >= strictCreateTopics, len(plan.spec.Partitions))
		}
	}
	if !req.ValidateOnly {
		s.createPlanned(ctx, plans, results)
	}
	img := s.meta.Image()
	for i := range req.Topics {
		if !twice[req.Topics[i].Topic] {
			resp.Topics = append(resp.Topics, s.createdTopic(img, req.Topics[i].Topic, plans[i], results[i]))
		}
	}
	for i := range req.Topics {
		if name := req.Topics[i].Topic; twice[name] {
			delete(twice, name)
			resp.Topics = append(resp.Topics, s.createdTopic(img, name, nil, refuse(codeInvalidRequest, "topic %q is in the request twice", name)))
		}
	}
	return resp, nil
}

// planTopics checks every topic of the request against the image, and against those before it.
func (s *Server) planTopics(ctx context.Context, req *kmsg.CreateTopicsRequest, twice map[string]bool) ([]*topicPlan, []error) {
	plans, results := make([]*topicPlan, len(req.Topics)), make([]error, len(req.Topics))
	img := s.meta.Image()
	var taken map[string]string
	var placed *controller.Counts // of all topics and those planned so far; counted when first needed
	total := 0
	for i := range req.Topics {
		t := &req.Topics[i]
		if twice[t.Topic] {
			continue
		}
		if plans[i], results[i] = s.planTopic(img, t, &placed); results[i] != nil {
			continue
		}
		if canCollide(t.Topic) {
			if taken == nil {
				taken = collisions(img)
			}
			if other, ok := taken[collisionKey(t.Topic)]; ok && other != t.Topic {
				results[i] = refuse(codeInvalidTopic, "topic name %q differs from that of topic %q in . and _ only", t.Topic, other)
				continue
			}
			taken[collisionKey(t.Topic)] = t.Topic
		}
		if total += len(plans[i].spec.Partitions); total > maxNewPartitions {
			results[i] = refuse(codePolicyViolation, "more than %d new partitions in one request", maxNewPartitions)
			continue
		}
		results[i] = s.mustNotExist(ctx, t.Topic, req.ValidateOnly)
	}
	return plans, results
}

// mustNotExist refuses a name that is taken. Whether it is free the transaction decides; only a request that will not make one
// has to ask.
func (s *Server) mustNotExist(ctx context.Context, name string, ask bool) error {
	t := s.meta.Image().Topic(name)
	if ask && t == nil {
		var err error
		if t, err = s.meta.ReadTopicByName(ctx, name); errors.Is(err, metadata.ErrUnknownTopic) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if t != nil && !t.Deleting {
		return refuse(codeTopicAlreadyExists, "topic %q already exists", name)
	}
	return nil
}

// planTopic checks one topic and decides where its replicas go.
func (s *Server) planTopic(img *metadata.Image, t *kmsg.CreateTopicsRequestTopic, placed **controller.Counts) (*topicPlan, error) {
	if err := checkTopicName(t.Topic); err != nil {
		return nil, err
	}
	p := &topicPlan{spec: metadata.TopicSpec{Name: t.Topic}}
	var err error
	if len(t.ReplicaAssignment) > 0 {
		p.spec.Partitions, p.replicas, err = assignedPartitions(img, t)
	} else {
		err = s.placeTopic(img, t, p, placed)
	}
	if err != nil {
		return nil, err
	}
	overrides := make(map[string]*string, len(t.Configs))
	for _, c := range t.Configs {
		overrides[c.Name] = c.Value
	}
	if p.spec.Overrides, err = config.Replace(config.TopicScope, overrides); err != nil {
		return nil, err
	}
	_, err = config.ResolveTopic(p.spec.Overrides, s.broker.Config())
	return p, err
}

// placeTopic chooses the replicas of a topic whose request leaves that to us.
func (s *Server) placeTopic(img *metadata.Image, t *kmsg.CreateTopicsRequestTopic, p *topicPlan, placed **controller.Counts) error {
	b := s.broker.Config()
	partitions, replicas := t.NumPartitions, t.ReplicationFactor
	nodes := placementNodes(img)
	if partitions == -1 {
		partitions = b.NumPartitions
	}
	if replicas == -1 {
		replicas = b.ReplicationFactor(len(nodes))
		p.spec.AutoRF = b.DefaultReplicationFactor == config.AutoReplicationFactor
	}
	switch {
	case partitions <= 0:
		return refuse(codeInvalidPartitions, "%d partitions: there must be at least 1, or -1 for the default", partitions)
	case partitions > maxNewPartitions:
		return refuse(codePolicyViolation, "%d partitions: at most %d can be created at once", partitions, maxNewPartitions)
	case replicas <= 0:
		return refuse(codeInvalidReplicationFactor, "replication factor %d: it must be at least 1, or -1 for the default", replicas)
	case len(nodes) == 0:
		return refuse(codeInvalidReplicationFactor, "replication factor %d: %s", replicas, takers(img))
	case int(replicas) > len(nodes) && s.cfg.ClampReplicationFactor:
		s.log.Warn("replication factor clamped to the number of brokers", "topic", t.Topic, "asked", replicas, "brokers", len(nodes))
		replicas = int16(len(nodes))
	case int(replicas) > len(nodes):
		return refuse(codeInvalidReplicationFactor, "replication factor %d: %s", replicas, takers(img))
	}
	p.replicas = replicas
	if *placed == nil {
		counts := controller.Count(img)
		*placed = &counts
	}
	p.spec.Partitions = controller.Place(controller.Placement{
		Nodes: nodes, Cluster: **placed, Partitions: int(partitions), Replicas: int(replicas), Start: rand.IntN(len(nodes)),
	})
	(*placed).Add(p.spec.Partitions)
	return nil
}

// assignedPartitions checks replicas that the client chose.
func assignedPartitions(img *metadata.Image, t *kmsg.CreateTopicsRequestTopic) ([][]record.NodeID, int16, error) {
	if t.NumPartitions != -1 || t.ReplicationFactor != -1 {
		return nil, 0, refuse(codeInvalidRequest, "replicas are assigned, so the numbers of partitions and replicas must be -1")
	}
	n := len(t.ReplicaAssignment)
	if n > maxNewPartitions {
		return nil, 0, refuse(codePolicyViolation, "%d partitions: at most %d can be created at once", n, maxNewPartitions)
	}
	parts := make([][]record.NodeID, n)
	for _, a := range t.ReplicaAssignment {
		if a.Partition < 0 || int(a.Partition) >= n || parts[a.Partition] != nil {
			return nil, 0, refuse(codeInvalidReplicaAssignment, "partition %d: the %d assigned partitions must be 0 to %d, each once", a.Partition, n, n-1)
		}
		nodes, err := checkReplicas(img, a.Replicas)
		if err != nil {
			return nil, 0, err
		}
		parts[a.Partition] = nodes
	}
	for p := range parts {
		if len(parts[p]) != len(parts[0]) {
			return nil, 0, refuse(codeInvalidReplicaAssignment, "partition %d has %d replicas, partition 0 has %d", p, len(parts[p]), len(parts[0]))
		}
	}
	return parts, int16(len(parts[0])), nil
}

// createPlanned creates what was planned, some topics at a time, and waits for their leaders.
func (s *Server) createPlanned(ctx context.Context, plans []*topicPlan, results []error) {
	var g errgroup.Group
	g.SetLimit(maxParallelChanges)
	for i := range plans {
		if plans[i] == nil || results[i] != nil {
			continue
		}
		g.Go(func() error {
			t, err := s.meta.CreateTopic(ctx, plans[i].spec)
			if err == nil {
				plans[i].spec.ID = t.ID
			}
			results[i] = err
			return nil
		})
	}
	_ = g.Wait()
	waiting := make(map[record.TopicID]partitionSpan)
	for i := range plans {
		if plans[i] != nil && results[i] == nil {
			waiting[plans[i].spec.ID] = partitionSpan{0, int32(len(plans[i].spec.Partitions))}
		}
	}
	if err := s.awaitLeaders(ctx, waiting); err != nil {
		img := s.meta.Image()
		for i := range plans {
			if plans[i] != nil && results[i] == nil && !hasLeaders(img, plans[i].spec.ID, waiting[plans[i].spec.ID]) {
				results[i] = err
			}
		}
	}
}

// createdTopic is one topic's part of the answer.
func (s *Server) createdTopic(img *metadata.Image, name string, p *topicPlan, err error) kmsg.CreateTopicsResponseTopic {
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic = name
	code, message := s.adminCode("creating topic "+name, err)
	t.ErrorCode, t.ErrorMessage = code.int16(), message
	t.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	if err != nil {
		t.NumPartitions, t.ReplicationFactor = -1, -1
		return t
	}
	t.TopicID, t.NumPartitions, t.ReplicationFactor = p.spec.ID, int32(len(p.spec.Partitions)), p.replicas
	for _, e := range config.DescribeTopic(p.spec.Overrides, s.brokerConfig(img)) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.ReadOnly, c.IsSensitive, c.Source = e.Name, e.Value, e.ReadOnly, e.Sensitive, int8(e.Source)
		t.Configs = append(t.Configs, c)
	}
	return t
}

// brokerConfig is what this node's configs are, as the image has them.
func (s *Server) brokerConfig(img *metadata.Image) *config.Broker {
	if img.NodeConfig != nil {
		return img.NodeConfig
	}
	return s.broker.Config()
}
