// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// dirtySet gathers which partitions' roles are to be looked at, from images that come faster than they are acted upon. Its
// size is bounded by the number of partitions.
type dirtySet struct {
	mu struct {
		sync.Mutex
		all        bool
		topics     map[record.TopicID]struct{}
		partitions map[record.PartitionID]struct{}
	}
}

func (d *dirtySet) addAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.all = true
}

func (d *dirtySet) add(c metadata.TopicChange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.Old != c.New {
		if d.mu.topics == nil {
			d.mu.topics = map[record.TopicID]struct{}{}
		}
		d.mu.topics[c.ID] = struct{}{}
		return
	}
	for _, index := range c.Partitions {
		d.addPartitionLocked(record.PartitionID{Topic: c.ID, Index: index})
	}
}

func (d *dirtySet) addPartition(id record.PartitionID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addPartitionLocked(id)
}

func (d *dirtySet) addPartitionLocked(id record.PartitionID) {
	if d.mu.partitions == nil {
		d.mu.partitions = map[record.PartitionID]struct{}{}
	}
	d.mu.partitions[id] = struct{}{}
}

// take empties the set.
func (d *dirtySet) take() (all bool, topics map[record.TopicID]struct{}, partitions map[record.PartitionID]struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, topics, partitions = d.mu.all, d.mu.topics, d.mu.partitions
	d.mu.all, d.mu.topics, d.mu.partitions = false, nil, nil
	return all, topics, partitions
}
