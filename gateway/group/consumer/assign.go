// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"cmp"
	"slices"
	"strings"
)

// The assignors, by the names that members choose them by.
const (
	Uniform = "uniform"
	Range   = "range"
)

// Supported tells whether there is an assignor of that name.
func Supported(name string) bool { return name == Uniform || name == Range }

// reader is a member as an assignor sees it.
type reader struct {
	id, instance string
	static       bool
	topics       []int      // places in plan.topics, ascending
	has          Partitions // what it was to have so far
}

// plan is what an assignor is to decide on: the readers and the topics that any of them reads.
type plan struct {
	readers []reader
	topics  []Topic
	counts  []int        // of partitions, per reader
	out     []Partitions // per reader
}

// assign computes who is to have what. The answer has one entry per reader; every partition of every topic is in exactly one.
func (p *plan) assign(assignor string) []Partitions {
	p.out, p.counts = make([]Partitions, len(p.readers)), make([]int, len(p.readers))
	for i := range p.out {
		p.out[i] = Partitions{}
	}
	if assignor == Range {
		p.ranges()
	} else {
		p.uniform()
	}
	for i := range p.out {
		for _, list := range p.out[i] {
			slices.Sort(list)
		}
	}
	return p.out
}

func (p *plan) give(reader, topic int, index int32) {
	id := p.topics[topic].ID
	p.out[reader][id] = append(p.out[reader][id], index)
	p.counts[reader]++
}

// subscribers are the readers of each topic, in the given order of readers.
func (p *plan) subscribers(order []int) [][]int {
	all := make([][]int, len(p.topics))
	for _, r := range order {
		for _, t := range p.readers[r].topics {
			all[t] = append(all[t], r)
		}
	}
	return all
}

// ranges gives the readers of each topic consecutive partitions, in the order of their instance ids, then member ids. So readers of
// several topics with as many partitions get the same numbers of each, and a static member that comes back gets what it had.
func (p *plan) ranges() {
	order := make([]int, len(p.readers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &p.readers[a], &p.readers[b]
		switch {
		case x.static && y.static:
			return strings.Compare(x.instance, y.instance)
		case x.static != y.static:
			return map[bool]int{true: -1, false: 1}[x.static]
		}
		return strings.Compare(x.id, y.id)
	})
	for t, readers := range p.subscribers(order) {
		at := int32(0)
		for i, r := range readers {
			n := p.topics[t].Partitions / int32(len(readers))
			if int32(i) < p.topics[t].Partitions%int32(len(readers)) {
				n++
			}
			for range n {
				p.give(r, t, at)
				at++
			}
		}
	}
}

// uniform spreads partitions evenly and moves as few as it can. Readers keep what they have as far as that is even; what is free
// goes to those with the least; then single partitions move for as long as one brings two readers of a topic closer together.
func (p *plan) uniform() {
	order := make([]int, len(p.readers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(p.readers[a].id, p.readers[b].id) })
	subscribers := p.subscribers(order)
	for t, free := range p.keep(order) {
		for _, index := range free {
			if r := p.least(subscribers[t]); r >= 0 {
				p.give(r, t, index)
			}
		}
	}
	for moved := true; moved; {
		moved = false
		for t := range p.topics {
			for p.level(t, subscribers[t]) {
				moved = true
			}
		}
	}
}

// keep lets readers keep what they have and still read. It gives what is free, per topic. When all read the same topics, those who
// have more than their share give the rest up here, at once; else level does.
func (p *plan) keep(order []int) [][]int32 {
	total := int32(0)
	for t := range p.topics {
		total += p.topics[t].Partitions
	}
	quota, extra := int(total), 0
	if p.alike() && len(order) > 0 {
		quota, extra = int(total)/len(order), int(total)%len(order)
	}
	taken := make([]map[int32]bool, len(p.topics))
	for t := range taken {
		taken[t] = map[int32]bool{}
	}
	for _, r := range order {
		most := quota
		if extra > 0 && p.readers[r].kept(p.topics) > quota {
			most, extra = quota+1, extra-1
		}
		for _, t := range p.readers[r].topics {
			for _, index := range p.readers[r].has[p.topics[t].ID] {
				if p.counts[r] < most && index < p.topics[t].Partitions && !taken[t][index] {
					taken[t][index] = true
					p.give(r, t, index)
				}
			}
		}
	}
	free := make([][]int32, len(p.topics))
	for t := range p.topics {
		for index := range p.topics[t].Partitions {
			if !taken[t][index] {
				free[t] = append(free[t], index)
			}
		}
	}
	return free
}

// kept is how many partitions the reader has of the topics that it reads.
func (r *reader) kept(topics []Topic) (n int) {
	for _, t := range r.topics {
		n += len(r.has[topics[t].ID])
	}
	return n
}

// alike tells whether all read the same.
func (p *plan) alike() bool {
	for i := range p.readers {
		if !slices.Equal(p.readers[i].topics, p.readers[0].topics) {
			return false
		}
	}
	return true
}

// least is the reader with the fewest partitions, -1 for none.
func (p *plan) least(readers []int) int {
	if len(readers) == 0 {
		return -1
	}
	return slices.MinFunc(readers, func(a, b int) int { return cmp.Compare(p.counts[a], p.counts[b]) })
}

// level moves one partition of a topic from the reader of it that has most to the one that has least, if that brings them closer.
func (p *plan) level(topic int, readers []int) bool {
	to, from, id := p.least(readers), -1, p.topics[topic].ID
	for _, r := range readers {
		if len(p.out[r][id]) > 0 && (from < 0 || p.counts[r] > p.counts[from]) {
			from = r
		}
	}
	if from < 0 || p.counts[from] <= p.counts[to]+1 {
		return false
	}
	list := p.out[from][id]
	last := len(list) - 1
	for i := range list { // rather one that it has not had yet
		if !p.readers[from].has.Has(id, list[i]) {
			last = i
		}
	}
	index := list[last]
	p.out[from][id] = slices.Delete(list, last, last+1)
	if last == 0 && len(list) == 1 {
		delete(p.out[from], id)
	}
	p.counts[from]--
	p.give(to, topic, index)
	return true
}
