// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// alterPartitionReassignments begins moves of replicas, changes or gives up those under way. It answers when that is recorded: the
// moving goes on by itself.
func (s *Server) alterPartitionReassignments(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AlterPartitionAssignmentsRequest)
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	ctx, cancel := adminDeadline(ctx, req.TimeoutMillis)
	defer cancel()
	o := metadata.ReassignOptions{KeepReplicationFactor: req.Version >= 1 && !req.AllowReplicationFactorChange}
	resp.AllowReplicationFactorChange = !o.KeepReplicationFactor
	if total := countPartitions(req.Topics, func(t *kmsg.AlterPartitionAssignmentsRequestTopic) int { return len(t.Partitions) }); total > maxReassigned {
		resp.ErrorCode = codePolicyViolation.int16()
		resp.ErrorMessage = kmsg.StringPtr("too many partitions in one request, reassign some of them first")
		return resp, nil
	}
	resp.Topics = make([]kmsg.AlterPartitionAssignmentsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.AlterPartitionAssignmentsResponseTopicPartition, len(in.Partitions))
		for j, err := range s.reassignTopic(ctx, in, o) {
			p := &out.Partitions[j]
			p.Default()
			p.Partition = in.Partitions[j].Partition
			code, message := s.adminCode("reassigning partitions of "+in.Topic, err)
			p.ErrorCode, p.ErrorMessage = code.int16(), message
		}
	}
	return resp, nil
}

// countPartitions adds up what a request names.
func countPartitions[T any](topics []T, partitions func(*T) int) (total int) {
	for i := range topics {
		total += partitions(&topics[i])
	}
	return total
}

// reassignTopic does one topic's part of a request and gives a result for each of its partitions.
func (s *Server) reassignTopic(ctx context.Context, in *kmsg.AlterPartitionAssignmentsRequestTopic, o metadata.ReassignOptions) []error {
	results := make([]error, len(in.Partitions))
	topic, err := s.findTopic(ctx, in.Topic)
	if err != nil {
		return slices.Repeat([]error{err}, len(in.Partitions))
	}
	img := s.meta.Image()
	twice := duplicates(in.Partitions, func(p *kmsg.AlterPartitionAssignmentsRequestTopicPartition) int32 { return p.Partition })
	var wanted []metadata.Reassignment
	var at []int // where in results the answer to each of wanted goes
	for j := range in.Partitions {
		p := &in.Partitions[j]
		w := metadata.Reassignment{Partition: p.Partition}
		switch {
		case twice[p.Partition]:
			results[j] = refuse(codeInvalidRequest, "partition %d is in the request twice", p.Partition)
		case p.Replicas != nil:
			w.Target, results[j] = checkTarget(img, topic, p)
		}
		if results[j] == nil {
			wanted, at = append(wanted, w), append(at, j)
		}
	}
	if len(wanted) == 0 {
		return results
	}
	answers, rev, err := s.meta.Reassign(ctx, topic.ID, wanted, o)
	for k, j := range at {
		if k < len(answers) {
			results[j] = answers[k]
		} else {
			results[j] = err // of the transaction that this one was to be in
		}
	}
	s.settle(ctx, rev)
	return results
}

// checkTarget checks replicas that a client chose for a partition that has some: those may stay although their node is away.
func checkTarget(img *metadata.Image, t *metadata.Topic, p *kmsg.AlterPartitionAssignmentsRequestTopicPartition) ([]record.NodeID, error) {
	var has []record.NodeID
	if p.Partition >= 0 && int(p.Partition) < len(t.Partitions) {
		has = t.Partitions[p.Partition]
	}
	if len(p.Replicas) == 0 {
		return nil, refuse(codeInvalidReplicaAssignment, "partition %d: a partition needs at least one replica", p.Partition)
	}
	nodes := make([]record.NodeID, 0, len(p.Replicas))
	for _, r := range p.Replicas {
		n := record.NodeID(r)
		if slices.Contains(nodes, n) {
			return nil, refuse(codeInvalidReplicaAssignment, "partition %d: replicas %v name broker %d twice", p.Partition, p.Replicas, r)
		}
		if !slices.Contains(has, n) {
			if err := mayHold(img, n); err != nil {
				return nil, err
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}
