// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varve/varve/broker"
)

// tieredDir is the name of the log directory that stands for the bucket.
const tieredDir = "tiered"

// describeLogDirs answers how large partitions are: this node's hot copies in the first directory, and in one named tiered what
// is in the bucket of the partitions that this node leads, so that a sum over the nodes counts it once.
func (s *Server) describeLogDirs(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	hot, tiered := newLogDir(s.hotDir()), newLogDir(tieredDir)
	for _, p := range s.askedReplicas(req.Topics) {
		m := p.Marks()
		hot.add(p, m.HotSize)
		if m.Leading && m.TieredSize > 0 {
			tiered.add(p, m.TieredSize)
		}
	}
	resp.Dirs = append(resp.Dirs, hot.dir)
	if len(tiered.dir.Topics) > 0 {
		resp.Dirs = append(resp.Dirs, tiered.dir)
	}
	return resp, nil
}

func (s *Server) hotDir() string {
	if dirs := s.broker.Config().List("log.dirs"); len(dirs) > 0 {
		return dirs[0]
	}
	return "hot"
}

// askedReplicas are this node's replicas among those asked for, by topic and partition; null asks for all.
func (s *Server) askedReplicas(topics []kmsg.DescribeLogDirsRequestTopic) []*broker.Partition {
	type key struct {
		topic     string
		partition int32
	}
	asked := make(map[key]bool)
	for i := range topics {
		for _, p := range topics[i].Partitions {
			asked[key{topics[i].Topic, p}] = true
		}
	}
	img := s.meta.Image()
	var replicas []*broker.Partition
	for _, p := range s.broker.Partitions() {
		t := img.TopicByID(p.ID().Topic)
		if t != nil && !t.Deleting && (topics == nil || asked[key{p.Topic(), p.ID().Index}]) {
			replicas = append(replicas, p)
		}
	}
	slices.SortFunc(replicas, func(a, b *broker.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic(), b.Topic()), cmp.Compare(a.ID().Index, b.ID().Index))
	})
	return replicas
}

// logDir is a directory of the answer under construction; its replicas come sorted by topic.
type logDir struct {
	dir kmsg.DescribeLogDirsResponseDir
}

func newLogDir(name string) *logDir {
	d := kmsg.NewDescribeLogDirsResponseDir()
	d.Dir = name
	d.Topics = []kmsg.DescribeLogDirsResponseDirTopic{}
	return &logDir{d}
}

func (d *logDir) add(p *broker.Partition, size int64) {
	if n := len(d.dir.Topics); n == 0 || d.dir.Topics[n-1].Topic != p.Topic() {
		t := kmsg.NewDescribeLogDirsResponseDirTopic()
		t.Topic = p.Topic()
		d.dir.Topics = append(d.dir.Topics, t)
	}
	t := &d.dir.Topics[len(d.dir.Topics)-1]
	out := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
	out.Partition, out.Size = p.ID().Index, size
	t.Partitions = append(t.Partitions, out)
}
