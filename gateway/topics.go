// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"sync"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/record"
)

// topicRef is what the data path needs of one topic under one configuration. It is immutable; a changed topic or broker
// configuration makes another one.
type topicRef struct {
	topic   *metadata.Topic
	broker  *config.Broker
	config  *config.Topic
	rules   record.Rules // Now and AllowZstd are the request's
	metrics *topicMetrics
	// internal topics are written by the broker only.
	internal bool
}

// topicCache holds the refs by topic id. Names are looked up in the metadata image first: they are no identity.
type topicCache struct {
	mu   sync.RWMutex
	refs map[record.TopicID]*topicRef
}

// internalTopics are Kafka's own; clients must not write them.
var internalTopics = map[string]bool{"__consumer_offsets": true, "__transaction_state": true, "__share_group_state": true}

// topicNamed finds a topic by name, nil when clients must not see one.
func (s *Server) topicNamed(img *metadata.Image, name string) *topicRef {
	return s.ref(img.Topic(name))
}

// topicWithID finds a topic by id, nil when clients must not see one.
func (s *Server) topicWithID(img *metadata.Image, id record.TopicID) *topicRef {
	return s.ref(img.TopicByID(id))
}

func (s *Server) ref(t *metadata.Topic) *topicRef {
	if t == nil || t.Deleting {
		return nil
	}
	b := s.broker.Config()
	s.topics.mu.RLock()
	r := s.topics.refs[t.ID]
	s.topics.mu.RUnlock()
	if r != nil && r.topic == t && r.broker == b {
		return r
	}
	r = newTopicRef(t, b, s.metrics.topics)
	s.topics.mu.Lock()
	s.topics.refs[t.ID] = r
	s.topics.mu.Unlock()
	return r
}

func newTopicRef(t *metadata.Topic, b *config.Broker, m *topicMetricsSet) *topicRef {
	// What is wrong with stored overrides the broker says in its log; the rest of them is in force.
	c, _ := config.ResolveStoredTopic(t.Overrides, b)
	return &topicRef{
		topic: t, broker: b, config: c, metrics: m.of(t.Name), internal: internalTopics[t.Name],
		rules: record.Rules{
			MaxBytes:        c.MaxMessageBytes,
			MaxDecompressed: c.MaxDecompressedBytes,
			LogAppendTime:   c.LogAppendTime,
			BeforeMax:       c.TimestampBeforeMillis,
			AfterMax:        c.TimestampAfterMillis,
			RequireKeys:     c.CleanupCompact,
			Compression:     int8(c.Compression),
			Level:           c.CompressionLevel,
		},
	}
}

// imageChanged forgets topics that are gone, and their metrics. It runs in the metadata store's goroutine.
func (s *Server) imageChanged(old, img *metadata.Image) {
	s.quotas.follow(img)
	metadata.Diff(old, img, func(c metadata.TopicChange) {
		if c.Old == nil || (c.New != nil && !c.New.Deleting) {
			return
		}
		s.groups.topicsGone()
		s.topics.mu.Lock()
		delete(s.topics.refs, c.ID)
		s.topics.mu.Unlock()
		if t := img.Topic(c.Old.Name); t == nil || t.Deleting {
			s.metrics.topics.forget(c.Old.Name)
		}
	})
}

// readable finds a partition that this node leads or, for a reader that takes it, follows.
func (s *Server) readable(img *metadata.Image, t *topicRef, index int32, follower bool) (*broker.Partition, Code) {
	p, code := s.partition(img, t, index)
	if code != codeNotLeaderOrFollower || !follower {
		return p, code
	}
	if p, err := s.broker.Partition(record.PartitionID{Topic: t.topic.ID, Index: index}); err == nil && p.Follows() {
		return p, codeNone
	}
	return nil, code
}

// partition finds a partition of a topic that this node leads, or the code that says why not. What the image tells of the leader may be
// older than what the broker knows of itself.
func (s *Server) partition(img *metadata.Image, t *topicRef, index int32) (*broker.Partition, Code) {
	id := record.PartitionID{Topic: t.topic.ID, Index: index}
	state, ok := img.Partition(id)
	if !ok {
		return nil, codeUnknownTopicOrPartition
	}
	p, err := s.broker.Partition(id)
	switch {
	case err == nil && p.LedSince(state.Leader.Epoch):
		return p, codeNone
	case err == nil || state.Leader.Node != s.cfg.NodeID:
		return nil, codeNotLeaderOrFollower
	}
	return nil, codeOf(err)
}

// endpoint is a node as the clients of one listener reach it.
type endpoint struct {
	node record.NodeID
	host string
	port int32
	rack string
}

// endpointOf finds where clients of listener reach node.
func endpointOf(img *metadata.Image, node record.NodeID, listener string) (endpoint, bool) {
	b := img.Broker(node)
	if b == nil {
		return endpoint{}, false
	}
	e, ok := b.Endpoint(listener)
	if !ok {
		return endpoint{}, false
	}
	return endpoint{node: node, host: e.Host, port: e.Port, rack: b.Rack}, true
}

// leaders gathers the nodes that an answer names as leaders (KIP-951).
type leaders struct{ list []endpoint }

func (l *leaders) add(img *metadata.Image, node record.NodeID, listener string) {
	for _, e := range l.list {
		if e.node == node {
			return
		}
	}
	if e, ok := endpointOf(img, node, listener); ok {
		l.list = append(l.list, e)
	}
}
