// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"iter"
	"slices"

	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/record"
)

// Topic is one topic of an image. It is immutable; who needs another one calls the Store.
type Topic struct {
	ID         record.TopicID
	Name       string
	Partitions [][]record.NodeID // the replicas of each partition, preferred leader first
	Overrides  map[string]string
	// Moves are the reassignments under way, by partition; nil for none.
	Moves  map[int32]Move
	AutoRF bool
	// Config is what the overrides and this node's broker configuration come to, resolved once per change.
	Config *config.Topic
	// Deleting: the topic is gone for clients, its remains are being cleared away.
	Deleting bool
	Created  Revision
	Rev      Revision
}

// Image is one revision of the cluster's state, immutable. The zero Image is not loaded.
type Image struct {
	Revision Revision
	// TopicsRevision is one since which no topic was made, deleted or changed. What moves at partitions alone, as their leaders, leaves it.
	TopicsRevision Revision
	ClusterID      string
	Gen            int64
	// Version is the cluster version: what is written.
	Version int
	// NodeConfig is this node's broker configuration with what is set dynamically.
	NodeConfig *config.Broker

	brokers    []*Broker              // sorted by node id
	configs    map[string]configEntry // kind/entity
	drains     map[record.NodeID]Drained
	names      shards[string, nameEntry]
	topics     shards[record.TopicID, *topicEntry]
	other      map[string]Revision // further keys of the state section
	coords     map[int32]Coordinator
	quotas     *Quotas
	keys       int64 // of the state section
	shardCount int32
	// topicDefaults is the configuration of every topic without overrides.
	topicDefaults *config.Topic
}

type nameEntry struct {
	id  record.TopicID
	rev Revision
}

type configEntry struct {
	values map[string]string
	rev    Revision
}

// topicEntry is a topic with the state of its partitions. The state is kept in chunks so that one leader change in a topic of
// 10,000 partitions copies one chunk and the list of chunks, not 10,000 states.
type topicEntry struct {
	mark   *editMark
	topic  *Topic // nil while only partition keys have been seen (a topic's keys arrive in any order during a load)
	chunks []*chunk
}

const chunkSize = 32

type chunk struct {
	mark   *editMark
	states [chunkSize]*PartitionState
}

// Loaded tells whether the image was ever loaded.
func (i *Image) Loaded() bool { return i.Revision != 0 }

// Brokers are the registered nodes, by node id. The slice must not be changed.
func (i *Image) Brokers() []*Broker { return i.brokers }

// Broker finds a registered node, nil when it is not registered.
func (i *Image) Broker(n record.NodeID) *Broker {
	at, ok := slices.BinarySearchFunc(i.brokers, n, byNode)
	if !ok {
		return nil
	}
	return i.brokers[at]
}

// Topic finds a topic by name, nil when there is none.
func (i *Image) Topic(name string) *Topic {
	n, ok := i.names.get(name)
	if !ok {
		return nil
	}
	return i.TopicByID(n.id)
}

// TopicByID finds a topic, nil when there is none. A topic that is being deleted is found, with Deleting set.
func (i *Image) TopicByID(id record.TopicID) *Topic {
	e, ok := i.topics.get(id)
	if !ok {
		return nil
	}
	return e.topic
}

// Topics goes through all topics, those being deleted as well, in no order.
func (i *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		i.topics.each(func(_ record.TopicID, e *topicEntry) bool { return e.topic == nil || yield(e.topic) })
	}
}

// Partition is the state of a partition; false when the topic has no such partition.
func (i *Image) Partition(id PartitionID) (PartitionState, bool) {
	e, ok := i.topics.get(id.Topic)
	if !ok || e.topic == nil || id.Index < 0 || int(id.Index) >= len(e.topic.Partitions) {
		return noPartition, false
	}
	if s := e.at(id.Index); s != nil {
		return *s, true
	}
	return noPartition, true
}

var noPartition = PartitionState{Leader: LeaderState{Node: record.NoNode, Epoch: record.NoEpoch}}

func (e *topicEntry) at(index int32) *PartitionState {
	if c := int(index) / chunkSize; c < len(e.chunks) && e.chunks[c] != nil {
		return e.chunks[c].states[int(index)%chunkSize]
	}
	return nil
}

// TopicCount is the number of topics, those being deleted as well.
func (i *Image) TopicCount() int { return i.topics.len() }

// BrokerConfig is the dynamic configuration of a node, or of all nodes for entity "". The map must not be changed.
func (i *Image) BrokerConfig(entity string) map[string]string {
	return i.configs[configName(ConfigBroker, entity)].values
}

// Config is the dynamic configuration of an entity ("" is the default for the kind). The map must not be changed.
func (i *Image) Config(kind ConfigKind, entity string) map[string]string {
	return i.configs[configName(kind, entity)].values
}

// TopicChange is a topic that differs between two images.
type TopicChange struct {
	ID         record.TopicID
	Old, New   *Topic  // nil: not there; equal pointers: only partition states changed
	Partitions []int32 // those whose leader, ISR or head differs, ascending
}

// Diff gives every topic that differs between two images. Its cost is that of the difference, not of the images, when the
// new one grew out of the old one by events.
func Diff(old, new *Image, fn func(TopicChange)) {
	diffShards(&old.topics, &new.topics, func(id record.TopicID, a, b *topicEntry) {
		c := TopicChange{ID: id}
		if a != nil {
			c.Old = a.topic
		}
		if b != nil {
			c.New = b.topic
		}
		c.Partitions = diffPartitions(a, b)
		fn(c)
	})
}

func diffPartitions(a, b *topicEntry) []int32 {
	var none topicEntry
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	var out []int32
	for c := range max(len(a.chunks), len(b.chunks)) {
		var ca, cb *chunk
		if c < len(a.chunks) {
			ca = a.chunks[c]
		}
		if c < len(b.chunks) {
			cb = b.chunks[c]
		}
		if ca == cb {
			continue
		}
		for i := range chunkSize {
			var pa, pb *PartitionState
			if ca != nil {
				pa = ca.states[i]
			}
			if cb != nil {
				pb = cb.states[i]
			}
			if pa != pb {
				out = append(out, int32(c*chunkSize+i))
			}
		}
	}
	return out
}

// revisionOf is the revision of a key of the state section (without the cluster's prefix), 0 when the image does not have it.
func (i *Image) revisionOf(rest string) Revision {
	kind, part := cutKind(rest)
	switch kind {
	case kindLeader, kindISR, kindHead:
		return i.partitionRevision(kind, part)
	case kindTopic:
		if id, err := record.ParseTopicIDHex(part); err == nil {
			if t := i.TopicByID(id); t != nil {
				return t.Rev
			}
		}
		return 0
	case kindName:
		if name, err := UnescapeID(part); err == nil {
			n, _ := i.names.get(name)
			return n.rev
		}
		return 0
	case kindBroker:
		if n, err := parseNode(part); err == nil {
			if b := i.Broker(n); b != nil {
				return b.Rev
			}
		}
		return 0
	case kindConfig:
		return i.configs[part].rev
	case kindDrain:
		if n, err := parseNode(part); err == nil {
			return i.drains[n].Rev
		}
		return 0
	case kindQuota:
		return i.quotas.revision(part)
	}
	return i.other[rest]
}

func (i *Image) partitionRevision(kind, part string) Revision {
	id, err := parsePartition(part)
	if err != nil {
		return 0
	}
	e, ok := i.topics.get(id.Topic)
	if !ok {
		return 0
	}
	st := e.at(id.Index)
	switch {
	case st == nil:
		return 0
	case kind == kindLeader:
		return st.Leader.Rev
	case kind == kindISR:
		return st.ISR.Rev
	}
	return st.Head.Rev
}
