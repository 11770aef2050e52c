// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawPlan makes any plan: some topics, some readers, each of which reads some topics; alike: all of them.
func drawPlan(t *rapid.T, alike bool) *plan {
	p := &plan{}
	for i := range rapid.IntRange(1, 5).Draw(t, "topics") {
		name := fmt.Sprintf("t%d", i)
		p.topics = append(p.topics, Topic{Name: name, ID: topicID(name), Partitions: int32(rapid.IntRange(1, 9).Draw(t, "partitions"))})
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "readers") {
		r := reader{id: fmt.Sprintf("m%d", i), has: Partitions{}}
		for k := range p.topics {
			if alike || rapid.Bool().Draw(t, "reads") {
				r.topics = append(r.topics, k)
			}
		}
		p.readers = append(p.readers, r)
	}
	return p
}

// again is the plan after an assignment, with the readers for whom keep says so.
func (p *plan) again(keep func(i int) bool, more ...reader) *plan {
	next := &plan{topics: slices.Clone(p.topics)}
	for i, r := range p.readers {
		if keep(i) {
			r.has = p.out[i]
			next.readers = append(next.readers, r)
		}
	}
	next.readers = append(next.readers, more...)
	return next
}

// complete: every partition that somebody reads is given to exactly one who reads it.
func complete(t *rapid.T, p *plan) {
	for k := range p.topics {
		read := false
		count := map[int32]int{}
		for i := range p.readers {
			reads := slices.Contains(p.readers[i].topics, k)
			read = read || reads
			list := p.out[i][p.topics[k].ID]
			if len(list) > 0 && !reads {
				t.Fatalf("%s gets %s and does not read it", p.readers[i].id, p.topics[k].Name)
			}
			for _, index := range list {
				count[index]++
			}
		}
		for index := range p.topics[k].Partitions {
			if want := map[bool]int{true: 1}[read]; count[index] != want {
				t.Fatalf("%s-%d is given to %d readers, not %d", p.topics[k].Name, index, count[index], want)
			}
		}
	}
}

// balanced: no partition could go to a reader of it with two fewer.
func balanced(t *rapid.T, p *plan) {
	for i := range p.readers {
		for k := range p.topics {
			for other := range p.readers {
				if len(p.out[i][p.topics[k].ID]) > 0 && slices.Contains(p.readers[other].topics, k) && p.counts[i] > p.counts[other]+1 {
					t.Fatalf("%s has %d partitions, %s, which reads %s too, %d", p.readers[i].id, p.counts[i], p.readers[other].id, p.topics[k].Name, p.counts[other])
				}
			}
		}
	}
}

// kept is how many partitions stayed where they were.
func (p *plan) keptCount() (n int) {
	for i := range p.readers {
		for id, list := range p.readers[i].has {
			for _, index := range list {
				if p.out[i].Has(id, index) {
					n++
				}
			}
		}
	}
	return n
}

func TestUniform(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t, rapid.Bool().Draw(t, "alike"))
		p.assign(Uniform)
		complete(t, p)
		balanced(t, p)
		same := p.again(func(int) bool { return true })
		same.assign(Uniform)
		if same.keptCount() != total(p.out) {
			t.Fatalf("nothing changed, and partitions move: %v, %v", p.out, same.out)
		}
		fewer := p.again(func(i int) bool { return i != 0 || len(p.readers) == 1 })
		fewer.assign(Uniform)
		complete(t, fewer)
		balanced(t, fewer)
	})
}

func total(list []Partitions) (n int) {
	for _, p := range list {
		n += p.Count()
	}
	return n
}

// TestUniformMovesLittle: readers that all read the same give up no more than a new one must get.
func TestUniformMovesLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t, true)
		p.assign(Uniform)
		grown := p.again(func(int) bool { return true }, reader{id: "new", topics: p.readers[0].topics})
		grown.assign(Uniform)
		complete(t, grown)
		balanced(t, grown)
		all := total(p.out)
		if got, want := grown.keptCount(), all-all/len(grown.readers); got != want && got != want-1 {
			t.Fatalf("%d of %d partitions stay, %d could", got, all, want)
		}
		left := grown.again(func(i int) bool { return i != 0 })
		left.assign(Uniform)
		complete(t, left)
		if got, want := left.keptCount(), all-grown.out[0].Count(); got != want {
			t.Fatalf("one leaves, and %d of the others' %d partitions stay", got, want)
		}
	})
}

// TestRange: consecutive partitions in the order of the members, static ones first, as Kafka has it; the same numbers of topics with as
// many partitions.
func TestRange(t *testing.T) {
	p := &plan{
		topics: []Topic{{ID: topicID("t"), Partitions: 7}, {ID: topicID("u"), Partitions: 7}, {ID: topicID("v"), Partitions: 2}},
		readers: []reader{
			{id: "b", topics: []int{0, 1, 2}}, {id: "a", topics: []int{0, 1}}, {id: "z", instance: "2", static: true, topics: []int{0, 1, 2}}, {id: "y", instance: "1", static: true, topics: []int{0, 1, 2}},
		},
	}
	p.assign(Range)
	want := []string{"t:6;u:6", "t:4,5;u:4,5", "t:2,3;u:2,3;v:1", "t:0,1;u:0,1;v:0"}
	for i := range want {
		if got := show(p.out[i]); got != want[i] {
			t.Errorf("%s gets %s, want %s", p.readers[i].id, got, want[i])
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t, rapid.Bool().Draw(t, "alike"))
		p.assign(Range)
		complete(t, p)
	})
}

func BenchmarkUniform(b *testing.B) {
	p := &plan{}
	for i := range 100 {
		p.topics = append(p.topics, Topic{ID: topicID(fmt.Sprint(i)), Partitions: 100})
	}
	for i := range 500 {
		r := reader{id: fmt.Sprintf("%04d", i), has: Partitions{}}
		for k := range p.topics {
			if (i+k)%3 != 0 {
				r.topics = append(r.topics, k)
			}
		}
		p.readers = append(p.readers, r)
	}
	for b.Loop() {
		p.assign(Uniform)
	}
}
