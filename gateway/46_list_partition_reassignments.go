// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
)

// listPartitionReassignments shows the moves under way, of all topics or of the partitions named. What does not move, or does not
// exist, is left out, as in Kafka.
func (s *Server) listPartitionReassignments(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ListPartitionReassignmentsRequest)
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	resp.Topics = []kmsg.ListPartitionReassignmentsResponseTopic{}
	img := s.meta.Image()
	show := func(t *metadata.Topic, partitions []int32) {
		if t == nil || t.Deleting {
			return
		}
		out := kmsg.NewListPartitionReassignmentsResponseTopic()
		out.Topic = t.Name
		for _, index := range partitions {
			if _, moves := t.Moves[index]; moves {
				out.Partitions = append(out.Partitions, movingPartition(index, t.Assignment(index)))
			}
		}
		if len(out.Partitions) > 0 {
			resp.Topics = append(resp.Topics, out)
		}
	}
	if req.Topics == nil {
		for t := range img.Topics() {
			if len(t.Moves) > 0 {
				show(t, slices.Sorted(maps.Keys(t.Moves)))
			}
		}
		slices.SortFunc(resp.Topics, func(a, b kmsg.ListPartitionReassignmentsResponseTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	}
	for i := range req.Topics {
		show(img.Topic(req.Topics[i].Topic), req.Topics[i].Partitions)
	}
	return resp, nil
}

// movingPartition is a move as Kafka's tools know it: the replicas are all that have to do with it, whether they are assigned by
// now or not.
func movingPartition(index int32, a metadata.Assignment) kmsg.ListPartitionReassignmentsResponseTopicPartition {
	p := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
	p.Partition = index
	p.AddingReplicas, p.RemovingReplicas = nodeIDs(a.Move.Adding()), nodeIDs(a.Removing())
	p.Replicas = append(nodeIDs(a.Goal()), p.RemovingReplicas...)
	return p
}
