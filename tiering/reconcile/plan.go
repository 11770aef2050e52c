// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
)

// planner makes one plan.
type planner struct {
	in     *Input
	out    *Result
	logs   map[record.PartitionID][]held
	topics map[record.TopicID]*metadata.Topic
	names  map[string]bool
}

// held is a hot log and whose it is.
type held struct {
	Log
	node  record.NodeID
	store metadata.UUID
}

// lastEpoch is the epoch of the last record.
func (h *held) lastEpoch() record.Epoch { return record.EpochAt(h.Epochs, h.End-1) }

// begun is the newest epoch that began here, also one without a record: whoever began it as the leader had everything that was committed,
// and what others went on with in an earlier epoch was not.
func (h *held) begun() record.Epoch { return record.EpochAt(h.Epochs, h.End) }

// Plan compares the state of the metadata with the bucket and the data directories. An error says what is missing for a plan.
func Plan(in *Input) (*Result, error) {
	if err := check(in); err != nil {
		return nil, err
	}
	p := &planner{in: in, out: &Result{}, logs: map[record.PartitionID][]held{}, topics: map[record.TopicID]*metadata.Topic{}, names: map[string]bool{}}
	for _, n := range in.Nodes {
		p.out.Stores = append(p.out.Stores, n.Store)
		p.out.Met = max(p.out.Met, n.Gen)
		for _, l := range n.Logs {
			p.logs[l.ID] = append(p.logs[l.ID], held{Log: l, node: n.ID, store: n.Store})
		}
	}
	for _, t := range in.State.Topics {
		copied := *t
		copied.Partitions = slices.Clone(t.Partitions)
		p.topics[t.ID] = &copied
		p.names[t.Name] = true
	}
	p.out.Warnings = append(p.out.Warnings, in.Bucket.Broken...)
	changed := p.planTopics()
	for _, t := range p.sortedTopics() {
		if t.Deleting {
			continue
		}
		for i := range t.Partitions {
			reassigned, err := p.planPartition(t, int32(i))
			if err != nil {
				return nil, err
			}
			changed[t.ID] = changed[t.ID] || reassigned
		}
		if changed[t.ID] {
			p.out.Topics = append(p.out.Topics, t)
		}
	}
	p.planProducerIDs()
	return p.out, nil
}

// check refuses what no plan can be made of.
func check(in *Input) error {
	if n := in.State.Registered; len(n) > 0 {
		return fmt.Errorf("nodes %v are registered: stop all nodes first; registrations that the backup brought back expire by themselves", n)
	}
	seen := map[record.NodeID]bool{}
	for _, n := range in.Nodes {
		if seen[n.ID] {
			return fmt.Errorf("node %d is given twice", n.ID)
		}
		seen[n.ID] = true
	}
	for _, n := range in.Without {
		if seen[n] {
			return fmt.Errorf("node %d is said to be lost, and its data directory is given", n)
		}
		seen[n] = true
	}
	need := slices.Clone(in.State.Nodes)
	for _, t := range in.State.Topics {
		for _, replicas := range t.Partitions {
			need = append(need, replicas...)
		}
	}
	slices.Sort(need)
	for _, n := range slices.Compact(need) {
		if !seen[n] {
			return fmt.Errorf("the data directory of node %d is missing: what only it holds would be lost; give it, or say that it is lost with --without %d", n, n)
		}
	}
	return nil
}

func (p *planner) change(what, format string, args ...any) {
	p.out.Changes = append(p.out.Changes, Change{What: what, Why: fmt.Sprintf(format, args...)})
}

func (p *planner) warn(format string, args ...any) {
	p.out.Warnings = append(p.out.Warnings, fmt.Sprintf(format, args...))
}

func (p *planner) sortedTopics() []*metadata.Topic {
	return slices.SortedFunc(maps.Values(p.topics), func(a, b *metadata.Topic) int { return cmp.Compare(a.Name, b.Name) })
}

// planTopics brings back topics and partitions that were made after the backup: whatever a data directory holds the metadata has to know,
// or the node would take it for the remains of a deleted topic; and what the bucket holds of a topic somebody wants back.
func (p *planner) planTopics() (changed map[record.TopicID]bool) {
	changed = map[record.TopicID]bool{}
	held := map[record.PartitionID]bool{}
	for id := range p.logs {
		held[id] = true
	}
	for id, found := range p.in.Bucket.Found {
		held[id] = held[id] || len(found) > 0
	}
	maps.DeleteFunc(held, func(_ record.PartitionID, is bool) bool { return !is })
	ids := slices.SortedFunc(maps.Keys(held), func(a, b record.PartitionID) int {
		return cmp.Or(cmp.Compare(a.Topic.Hex(), b.Topic.Hex()), cmp.Compare(a.Index, b.Index))
	})
	for _, id := range ids {
		t := p.topics[id.Topic]
		if t == nil {
			t = p.newTopic(id.Topic)
			changed[t.ID] = true
		}
		if t.Deleting {
			continue
		}
		before := len(t.Partitions)
		for int(id.Index) >= len(t.Partitions) {
			next := record.PartitionID{Topic: t.ID, Index: int32(len(t.Partitions))}
			t.Partitions = append(t.Partitions, p.replicas(next, t))
		}
		if n := len(t.Partitions); n > before {
			changed[t.ID] = true
			if t.Rev != 0 {
				p.change("topic "+t.Name, "has %d partitions, not %d: data directories or the bucket hold more than the backup knew", n, before)
			}
		}
	}
	return changed
}

// newTopic brings a topic back that the backup does not know. Its configs are not known; nothing of it may expire before somebody has
// looked at it.
func (p *planner) newTopic(id record.TopicID) *metadata.Topic {
	name := ""
	for at, found := range p.in.Bucket.Found {
		if at.Topic == id && len(found) > 0 {
			name = found[len(found)-1].TopicName
		}
	}
	short := id.Hex()[:8]
	switch {
	case name == "":
		name = "recovered-" + short
	case p.names[name]:
		name += "-recovered-" + short
	}
	p.names[name] = true
	t := &metadata.Topic{ID: id, Name: name, Overrides: map[string]string{"retention.ms": "-1", "retention.bytes": "-1"}}
	p.topics[id] = t
	p.change("topic "+name, "is made anew with id %s: it is younger than the backup, and data directories hold it; its configs are not known, it keeps everything until they are set", id)
	return t
}

// replicas are the nodes that hold a partition; where none does, those of the partition before, or any.
func (p *planner) replicas(id record.PartitionID, t *metadata.Topic) []record.NodeID {
	var out []record.NodeID
	for _, h := range p.logs[id] {
		out = append(out, h.node)
	}
	if n := len(t.Partitions); len(out) == 0 && n > 0 {
		return slices.Clone(t.Partitions[n-1])
	}
	if len(out) == 0 {
		out = append(out, p.in.Nodes[0].ID)
	}
	return out
}

// planProducerIDs makes sure that no id is given out twice, also none that was given out and never used.
func (p *planner) planProducerIDs() {
	next := p.in.State.NextPID
	for _, n := range p.in.Nodes {
		next = max(next, n.MaxPID+1)
	}
	for _, found := range p.in.Bucket.Found {
		for i := range found {
			next = max(next, found[i].MaxPID+1)
		}
	}
	p.out.NextPID = next + unusedProducerIDs
	p.change("producer ids", "go on at %d: none is given out twice", p.out.NextPID)
}
