// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/controller"
	"github.com/varve/varve/record"
)

// strictCreatePartitions is the first version whose clients know the refusal for a used-up quota.
const strictCreatePartitions = 3

// createPartitions adds partitions to topics and answers when their leaders are visible here.
func (s *Server) createPartitions(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.CreatePartitionsRequest)
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	ctx, cancel := adminDeadline(ctx, req.TimeoutMillis)
	defer cancel()
	twice := duplicates(req.Topics, func(t *kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
	grown := make(map[record.TopicID]partitionSpan)
	at := make([]record.TopicID, len(req.Topics)) // the topic of each result that waits
	results := make([]error, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		if twice[t.Topic] {
			results[i] = refuse(codeInvalidRequest, "topic %q is in the request twice", t.Topic)
			continue
		}
		var topic *metadata.Topic
		if topic, results[i] = s.growTopic(ctx, r, t, req.ValidateOnly); results[i] == nil && !req.ValidateOnly {
			at[i], grown[topic.ID] = topic.ID, partitionSpan{int32(len(topic.Partitions)), t.Count}
		}
	}
	if err := s.awaitLeaders(ctx, grown); err != nil {
		img := s.meta.Image()
		for i := range results {
			if span, ok := grown[at[i]]; ok && results[i] == nil && !hasLeaders(img, at[i], span) {
				results[i] = err
			}
		}
	}
	answered := make(map[string]bool)
	for i := range req.Topics {
		if answered[req.Topics[i].Topic] {
			continue
		}
		answered[req.Topics[i].Topic] = true
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic = req.Topics[i].Topic
		code, message := s.adminCode("adding partitions to "+t.Topic, results[i])
		t.ErrorCode, t.ErrorMessage = code.int16(), message
		resp.Topics = append(resp.Topics, t)
	}
	return resp, nil
}

// growTopic adds the partitions of one topic and gives the topic as it was before.
func (s *Server) growTopic(ctx context.Context, r *Request, t *kmsg.CreatePartitionsRequestTopic, validateOnly bool) (*metadata.Topic, error) {
	topic, err := s.findTopic(ctx, t.Topic)
	if err != nil {
		return nil, err
	}
	if topic, err = s.meta.ReadTopic(ctx, topic.ID); err != nil { // the image may not have the last growth yet
		return nil, err
	}
	have := int32(len(topic.Partitions))
	add := t.Count - have
	switch {
	case add <= 0:
		return nil, refuse(codeInvalidPartitions, "topic %q has %d partitions: the new number %d must be more", t.Topic, have, t.Count)
	case add > maxNewPartitions:
		return nil, refuse(codePolicyViolation, "%d new partitions: at most %d can be created at once", add, maxNewPartitions)
	}
	parts, err := placeMore(s.meta.Image(), topic, t, add)
	if err == nil {
		err = s.quotas.mutate(r, r.Version >= strictCreatePartitions, int(add))
	}
	if err != nil || validateOnly {
		return topic, err
	}
	_, err = s.meta.CreatePartitions(ctx, topic.ID, int(have), parts)
	return topic, err
}

// placeMore chooses, or checks, the replicas of new partitions: as many as the topic's other partitions have.
func placeMore(img *metadata.Image, topic *metadata.Topic, t *kmsg.CreatePartitionsRequestTopic, add int32) ([][]record.NodeID, error) {
	assigned := topic.Assignment(0)
	replicas := len(assigned.Goal())
	if t.Assignment == nil {
		nodes := placementNodes(img)
		if topic.AutoRF {
			replicas = max(1, min(replicas, len(nodes)))
		}
		if len(nodes) == 0 || replicas > len(nodes) {
			return nil, refuse(codeInvalidReplicationFactor, "topic %q has %d replicas: %s", t.Topic, replicas, takers(img))
		}
		return controller.Place(controller.Placement{
			Nodes: nodes, Existing: topic.Partitions, Cluster: controller.Count(img), Partitions: int(add), Replicas: replicas,
			Start: rand.IntN(len(nodes)),
		}), nil
	}
	if int(add) != len(t.Assignment) {
		return nil, refuse(codeInvalidReplicaAssignment, "%d new partitions, but replicas of %d are assigned", add, len(t.Assignment))
	}
	parts := make([][]record.NodeID, add)
	for i := range parts {
		nodes, err := checkReplicas(img, t.Assignment[i].Replicas)
		if err != nil {
			return nil, err
		}
		if len(nodes) != replicas {
			return nil, refuse(codeInvalidReplicaAssignment, "replicas %v: the topic's partitions have %d replicas", t.Assignment[i].Replicas, replicas)
		}
		parts[i] = nodes
	}
	return parts, nil
}
