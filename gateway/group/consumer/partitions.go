// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"maps"
	"slices"

	"github.com/varve/varve/record"
)

// Partitions are partitions of topics, each topic's in order.
type Partitions map[record.TopicID][]int32

// Has tells whether a partition is among them.
func (p Partitions) Has(topic record.TopicID, index int32) bool {
	_, ok := slices.BinarySearch(p[topic], index)
	return ok
}

// Count is how many they are.
func (p Partitions) Count() (n int) {
	for _, list := range p {
		n += len(list)
	}
	return n
}

func (p Partitions) equal(o Partitions) bool { return maps.EqualFunc(p, o, slices.Equal[[]int32]) }

// topics gives their topics in a fixed order.
func sortedTopics[V any](m map[record.TopicID]V) []record.TopicID {
	return slices.SortedFunc(maps.Keys(m), compareTopics)
}

func compareTopics(a, b record.TopicID) int { return bytes.Compare(a[:], b[:]) }

// owned are partitions that a member has, each with the epoch at which it got it.
type owned map[record.TopicID]map[int32]int32

func (o owned) put(topic record.TopicID, index, epoch int32) {
	if o[topic] == nil {
		o[topic] = map[int32]int32{}
	}
	o[topic][index] = epoch
}

func (o owned) epoch(topic record.TopicID, index int32) (int32, bool) {
	e, ok := o[topic][index]
	return e, ok
}

func (o owned) equal(p owned) bool {
	return maps.EqualFunc(o, p, maps.Equal[map[int32]int32, map[int32]int32])
}

// same tells whether they are the same partitions, whenever they were got.
func (o owned) same(p owned) bool { return o.partitions().equal(p.partitions()) }

func (o owned) partitions() Partitions {
	p := make(Partitions, len(o))
	for topic, list := range o {
		p[topic] = slices.Sorted(maps.Keys(list))
	}
	return p
}

// restart sets all epochs to zero: whoever comes under this membership next may commit for all of them.
func (o owned) restart() owned {
	out := make(owned, len(o))
	for topic, list := range o {
		for index := range list {
			out.put(topic, index, 0)
		}
	}
	return out
}

// holdsAny tells whether one of the partitions is among o.
func (o owned) holdsAny(p Partitions) bool {
	for topic, list := range p {
		for _, index := range list {
			if _, ok := o.epoch(topic, index); ok {
				return true
			}
		}
	}
	return false
}

// holdsAll tells whether all partitions are among o.
func (o owned) holdsAll(p Partitions) bool {
	for topic, list := range p {
		for _, index := range list {
			if _, ok := o.epoch(topic, index); !ok {
				return false
			}
		}
	}
	return true
}

// Add adds a partition.
func (p Partitions) Add(topic record.TopicID, index int32) {
	if at, there := slices.BinarySearch(p[topic], index); !there {
		p[topic] = slices.Insert(p[topic], at, index)
	}
}
