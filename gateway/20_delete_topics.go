// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// strictDeleteTopics is the first version whose clients know the refusal for a used-up quota.
const strictDeleteTopics = 5

// doomed is one topic of a DeleteTopics request.
type doomed struct {
	name  *string
	id    record.TopicID
	topic *metadata.Topic
	err   error
}

// deleteTopics takes topics away from the clients at once; what they leave is cleared away later.
func (s *Server) deleteTopics(ctx context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	ctx, cancel := adminDeadline(ctx, req.TimeoutMillis)
	defer cancel()
	list := s.findDoomed(ctx, req, r.Version)
	if !s.broker.Config().DeleteTopics {
		code := codeTopicDeletionDisabled
		if r.Version < 3 {
			code = codeInvalidRequest
		}
		for i := range list {
			list[i].err = refuse(code, "topics cannot be deleted: delete.topic.enable is false")
		}
	}
	for i := range list {
		if d := &list[i]; d.err == nil {
			d.err = s.quotas.mutate(r, r.Version >= strictDeleteTopics, len(d.topic.Partitions))
		}
	}
	s.deleteFound(ctx, list)
	for i := range list {
		d := &list[i]
		t := kmsg.NewDeleteTopicsResponseTopic()
		t.Topic, t.TopicID = d.name, d.id
		if d.topic != nil && d.err == nil {
			t.Topic, t.TopicID = &d.topic.Name, d.topic.ID
		}
		code, message := s.adminCode("deleting topic", d.err)
		t.ErrorCode, t.ErrorMessage = code.int16(), message
		resp.Topics = append(resp.Topics, t)
	}
	return resp, nil
}

// findDoomed lists what to delete, each topic once: one that is named twice, whether by name or by id, is not deleted.
func (s *Server) findDoomed(ctx context.Context, req *kmsg.DeleteTopicsRequest, version int16) []doomed {
	var list []doomed
	if version < 6 {
		for i := range req.TopicNames {
			list = append(list, doomed{name: &req.TopicNames[i]})
		}
	} else {
		for i := range req.Topics {
			list = append(list, doomed{name: req.Topics[i].Topic, id: req.Topics[i].TopicID})
		}
	}
	for i := range list {
		switch d := &list[i]; {
		case d.name != nil && d.id != record.TopicID{}:
			d.err = refuse(codeInvalidRequest, "topic %q: give its name or its id, not both", *d.name)
		case d.name == nil && d.id == record.TopicID{}:
			d.err = refuse(codeInvalidRequest, "a topic needs a name or an id")
		case d.name != nil:
			d.topic, d.err = s.findTopic(ctx, *d.name)
		default:
			d.topic, d.err = s.findTopicByID(ctx, d.id)
		}
	}
	return onceEach(list)
}

func onceEach(list []doomed) []doomed {
	key := func(d *doomed) string {
		switch {
		case d.topic != nil:
			return "i" + string(d.topic.ID[:])
		case d.name != nil:
			return "n" + *d.name
		}
		return "i" + string(d.id[:])
	}
	twice := duplicates(list, key)
	seen := make(map[string]bool)
	var out []doomed
	for i := range list {
		k := key(&list[i])
		if seen[k] {
			// By name and by id: the answer has both, so that either caller finds it.
			for j := range out {
				if key(&out[j]) == k && out[j].name == nil {
					out[j].name = list[i].name
				}
				if key(&out[j]) == k && out[j].id == (record.TopicID{}) {
					out[j].id = list[i].id
				}
			}
			continue
		}
		seen[k] = true
		if twice[k] {
			list[i].err = refuse(codeInvalidRequest, "a topic is in the request twice")
		}
		out = append(out, list[i])
	}
	return out
}

func (s *Server) deleteFound(ctx context.Context, list []doomed) {
	var g errgroup.Group
	g.SetLimit(maxParallelChanges)
	var newest atomic.Int64
	for i := range list {
		d := &list[i]
		if d.err != nil {
			continue
		}
		g.Go(func() error {
			var rev metadata.Revision
			if rev, d.err = s.meta.DeleteTopic(ctx, d.topic.ID); d.err == nil {
				raise(&newest, int64(rev))
			}
			return nil
		})
	}
	_ = g.Wait()
	if rev := newest.Load(); rev > 0 {
		s.settle(ctx, metadata.Revision(rev))
	}
}

// raise sets v to n if that is more.
func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); n > old && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}
