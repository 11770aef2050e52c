// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterReplicaLogDirs takes a replica that is to be where it is and knows no other directory: the directories of a node are one store,
// which places partitions itself.
func (s *Server) alterReplicaLogDirs(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.AlterReplicaLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.AlterReplicaLogDirsResponse)
	codes := map[dirReplica]Code{}
	here, dir := s.replicasHere(), s.hotDir()
	for _, d := range req.Dirs {
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				k := dirReplica{t.Topic, p}
				switch {
				case d.Dir != dir:
					codes[k] = codeLogDirNotFound
				case !here[k]:
					codes[k] = codeReplicaNotAvailable
				default:
					codes[k] = codeNone
				}
			}
		}
	}
	keys := make([]dirReplica, 0, len(codes))
	for k := range codes {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b dirReplica) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	for _, k := range keys {
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != k.topic {
			t := kmsg.NewAlterReplicaLogDirsResponseTopic()
			t.Topic = k.topic
			resp.Topics = append(resp.Topics, t)
		}
		p := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
		p.Partition, p.ErrorCode = k.partition, codes[k].int16()
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return resp, nil
}

// dirReplica is a partition as requests name it.
type dirReplica struct {
	topic     string
	partition int32
}

// replicasHere are this node's replicas. A request may name very many, so they are collected once for all of it.
func (s *Server) replicasHere() map[dirReplica]bool {
	here := map[dirReplica]bool{}
	for _, p := range s.askedReplicas(nil) {
		here[dirReplica{p.Topic(), p.ID().Index}] = true
	}
	return here
}
