// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/segment"
)

var topicID = record.TopicID{1}

func partitionID() record.PartitionID { return record.PartitionID{Topic: topicID} }

// world is an input that cases change: topic t with one partition on nodes 1, 2 and 3, of which the backup knows [0, 20) in two segments
// of epoch 1, and whose nodes hold [10, 50).
type world struct {
	in  *Input
	was *metadata.FrozenPartition
}

func newWorld() *world {
	w := &world{was: &metadata.FrozenPartition{PartitionState: metadata.PartitionState{
		Leader: metadata.LeaderState{Node: 1, Incarnation: 9, Epoch: 1, Rev: 11},
		ISR:    metadata.ISRState{Members: []metadata.ISRMember{{Node: 1}, {Node: 2}, {Node: 3}}, Rev: 12},
		Head:   metadata.Head{Rev: 13, EpochChain: []record.EpochStart{{Epoch: 1, Start: 0}}},
	}}}
	w.in = &Input{
		State: &metadata.Frozen{
			Nodes: []record.NodeID{1, 2, 3}, Topics: []*metadata.Topic{{ID: topicID, Name: "t", Partitions: [][]record.NodeID{{1, 2, 3}}, Rev: 10}},
			Partitions: map[record.PartitionID]*metadata.FrozenPartition{partitionID(): w.was}, NextPID: 7000,
		},
		Bucket: &Bucket{Present: map[string]bool{}, Found: map[record.PartitionID][]Segment{}, Pages: map[string][]manifest.Entry{}},
	}
	w.knows(0, 10, 1)
	w.knows(10, 20, 1)
	for n := record.NodeID(1); n <= 3; n++ {
		w.node(n, 10, 50, 40, record.EpochStart{Epoch: 1, Start: 0})
	}
	return w
}

func entry(base, end record.Offset, e record.Epoch) manifest.Entry {
	return manifest.Entry{Attempt: segment.Attempt{byte(base), byte(end), byte(e)}, Object: fmt.Sprintf("%d-%d-%d", base, end, e), Base: base, End: end,
		DataBytes: int64(end - base), Len: 100, FooterLen: 10, Epochs: []record.EpochStart{{Epoch: e, Start: base}}, FirstUnstable: record.NoOffset}
}

// knows adds a segment to the backup's manifest and to the bucket.
func (w *world) knows(base, end record.Offset, e record.Epoch) {
	x := entry(base, end, e)
	w.was.Segments = append(w.was.Segments, metadata.SegmentValue{Base: base, Rev: 14, Value: manifest.AppendEntry(nil, &x)})
	w.was.Head.TieredEnd, w.was.Head.Count = end, w.was.Head.Count+1
	w.in.Bucket.Present[x.Object] = true
}

// found adds a segment to the bucket alone.
func (w *world) found(base, end record.Offset, e record.Epoch) *Segment {
	s := Segment{Entry: entry(base, end, e), LeaderEpoch: e, TopicName: "t"}
	w.in.Bucket.Present[s.Entry.Object] = true
	all := append(w.in.Bucket.Found[partitionID()], s)
	w.in.Bucket.Found[partitionID()] = all
	return &all[len(all)-1]
}

func (w *world) gone(base, end record.Offset, e record.Epoch) {
	delete(w.in.Bucket.Present, entry(base, end, e).Object)
}

// node gives a node one log, or another one.
func (w *world) node(n record.NodeID, start, end, hw record.Offset, epochs ...record.EpochStart) {
	l := Log{ID: partitionID(), Start: start, End: end, HighWatermark: hw, CurrentEpoch: epochs[len(epochs)-1].Epoch, Epochs: epochs}
	for i := range w.in.Nodes {
		if w.in.Nodes[i].ID == n {
			w.in.Nodes[i].Logs = []Log{l}
			return
		}
	}
	w.in.Nodes = append(w.in.Nodes, Node{ID: n, Store: metadata.UUID{byte(n)}, MaxPID: -1, Logs: []Log{l}})
}

// lose takes a node's directory away.
func (w *world) lose(n record.NodeID) {
	w.in.Nodes = slices.DeleteFunc(w.in.Nodes, func(x Node) bool { return x.ID == n })
	w.in.Without = append(w.in.Without, n)
}

// describe is what a case expects of the partition: "start tiered | segments put | dropped | epoch unclean | in sync".
func describe(r *metadata.Reconciled) string {
	var put, drop, members []string
	for _, v := range r.Put {
		e, _ := manifest.DecodeEntry(v.Value)
		put = append(put, e.Object)
	}
	for _, v := range r.Drop {
		drop = append(drop, fmt.Sprint(v.Base))
	}
	for _, m := range r.ISR.Members {
		members = append(members, fmt.Sprint(m.Node))
	}
	h := &r.Head
	return fmt.Sprintf("log %d..%d of %d in %d | put %s | drop %s | epoch %d unclean %d | isr %s", h.LogStart, h.TieredEnd, h.TieredBytes, h.Count,
		strings.Join(put, " "), strings.Join(drop, " "), r.Leader.Epoch, r.Leader.UncleanEpoch, strings.Join(members, " "))
}

// two is the epoch table of a log over a change of leaders.
var two = []record.EpochStart{{Epoch: 1, Start: 0}, {Epoch: 3, Start: 30}}

var planCases = []struct {
	name  string
	world func(w *world)
	want  string
	warns string
}{
	{"nothing happened", func(*world) {}, "log 0..20 of 20 in 2 | put  | drop  | epoch 1 unclean 0 | isr 1 2 3", ""},
	{"uploads", func(w *world) {
		w.found(20, 30, 1)
		w.found(30, 40, 1)
	}, "log 0..40 of 40 in 4 | put 20-30-1 30-40-1 | drop  | epoch 1 unclean 0 | isr 1 2 3", ""},
	{"uploads and the hot logs trimmed", func(w *world) {
		w.found(20, 30, 1)
		w.found(30, 40, 1)
		for n := record.NodeID(1); n <= 3; n++ {
			w.node(n, 40, 50, 40, record.EpochStart{Epoch: 1, Start: 0})
		}
	}, "log 0..40 of 40 in 4 | put 20-30-1 30-40-1 | drop  | epoch 1 unclean 0 | isr 1 2 3", ""},
	{"a leader change", func(w *world) {
		w.node(2, 10, 60, 40, two...)
		w.node(3, 10, 60, 40, two...)
	}, "log 0..20 of 20 in 2 | put  | drop  | epoch 3 unclean 0 | isr 2 3", ""},
	{"an old leader's longer tail", func(w *world) {
		w.node(1, 10, 90, 30, record.EpochStart{Epoch: 1, Start: 0})
		w.node(2, 10, 60, 40, two...)
		w.node(3, 10, 55, 40, two...)
	}, "log 0..20 of 20 in 2 | put  | drop  | epoch 3 unclean 0 | isr 2", ""},
	{"an upload of a deposed leader beside the one that counts", func(w *world) {
		for n := record.NodeID(1); n <= 3; n++ {
			w.node(n, 40, 60, 40, two...)
		}
		w.found(20, 45, 1) // ends in records that a later leader replaced
		w.found(20, 30, 1)
		w.found(30, 40, 3)
	}, "log 0..40 of 40 in 4 | put 20-30-1 30-40-3 | drop  | epoch 3 unclean 0 | isr 1 2 3", ""},
	{"two attempts, of which one is continued", func(w *world) {
		w.found(20, 35, 1)
		w.found(20, 30, 1)
		w.found(30, 45, 1)
	}, "log 0..45 of 45 in 4 | put 20-30-1 30-45-1 | drop  | epoch 1 unclean 0 | isr 1 2 3", ""},
	{"an upload that garbage collection has claimed", func(w *world) {
		s := w.found(20, 30, 1)
		w.in.State.Garbage = []metadata.GCRecord{{Keys: []string{s.Entry.Object}}}
	}, "log 0..20 of 20 in 2 | put  | drop  | epoch 1 unclean 0 | isr 1 2 3", ""},
	{"retention has deleted the oldest", func(w *world) { w.gone(0, 10, 1) },
		"log 10..20 of 20 in 2 | put  | drop  | epoch 1 unclean 0 | isr 1 2 3", ""},
	{"retention has deleted all that the backup knew", func(w *world) {
		w.gone(0, 10, 1)
		w.gone(10, 20, 1)
		w.found(30, 40, 1)
		for n := record.NodeID(1); n <= 3; n++ {
			w.node(n, 40, 50, 40, record.EpochStart{Epoch: 1, Start: 0})
		}
	}, "log 30..40 of 30 in 3 | put 30-40-1 | drop  | epoch 1 unclean 0 | isr 1 2 3", ""},
	{"an object is gone that no data directory makes up for", func(w *world) {
		w.found(20, 30, 1)
		w.found(30, 40, 1)
		for n := record.NodeID(1); n <= 3; n++ {
			w.node(n, 48, 50, 48, record.EpochStart{Epoch: 1, Start: 0})
		}
	}, "log 48..48 of 20 in 2 | put  | drop  | epoch 1 unclean 0 | isr 1 2 3", "lead up to 48"},
	{"the newest object is gone, the hot logs have it", func(w *world) { w.gone(10, 20, 1) },
		"log 0..10 of 10 in 1 | put  | drop 10 | epoch 1 unclean 0 | isr 1 2 3", "objects of [10, 20)"},
	{"a node is lost", func(w *world) { w.lose(3) }, "log 0..20 of 20 in 2 | put  | drop  | epoch 1 unclean 2 | isr 1 2", ""},
	{"all hot logs are lost", func(w *world) {
		w.found(20, 30, 4)
		w.lose(2)
		w.lose(3)
		w.in.Nodes[0].Logs = nil
	}, "log 0..30 of 30 in 3 | put 20-30-4 | drop  | epoch 4 unclean 5 | isr 1", "no log of 3 of its 3 replicas is left"},
	{"the best log ends below the bucket", func(w *world) {
		w.lose(2)
		w.lose(3)
		w.node(1, 10, 15, 15, record.EpochStart{Epoch: 1, Start: 0})
		w.found(20, 30, 1)
	}, "log 0..30 of 30 in 3 | put 20-30-1 | drop  | epoch 1 unclean 2 | isr 1", "no log of 2 of its 3 replicas is left"},
	{"two best logs end below the bucket", func(w *world) {
		w.lose(3)
		w.node(1, 10, 15, 15, record.EpochStart{Epoch: 1, Start: 0})
		w.node(2, 10, 15, 15, record.EpochStart{Epoch: 1, Start: 0})
	}, "log 0..20 of 20 in 2 | put  | drop  | epoch 1 unclean 2 | isr 1", ""},
	{"what a later leader had in the bucket, and an earlier one's tail", func(w *world) {
		w.lose(1)
		w.lose(2)
		w.found(20, 30, 2)
		w.found(30, 40, 2)
		w.node(3, 10, 50, 20, record.EpochStart{Epoch: 1, Start: 0})
	}, "log 0..40 of 40 in 4 | put 20-30-2 30-40-2 | drop  | epoch 2 unclean 3 | isr 3", "no log of 2 of its 3 replicas is left"},
	{"an epoch without a record, and what was committed after it", func(w *world) {
		w.lose(1)
		w.node(2, 10, 40, 40, record.EpochStart{Epoch: 1, Start: 0}, record.EpochStart{Epoch: 2, Start: 40})
		w.node(3, 10, 50, 50, record.EpochStart{Epoch: 1, Start: 0})
		w.in.Nodes[1].Logs[0].CurrentEpoch = 3
	}, "log 0..20 of 20 in 2 | put  | drop  | epoch 3 unclean 4 | isr 3", ""},
	{"an epoch without a record, and what may have been committed after it", func(w *world) {
		w.lose(1)
		w.node(2, 10, 40, 40, record.EpochStart{Epoch: 1, Start: 0}, record.EpochStart{Epoch: 2, Start: 40})
		w.node(3, 10, 50, 40, record.EpochStart{Epoch: 1, Start: 0})
		w.in.Nodes[1].Logs[0].CurrentEpoch = 3
	}, "log 0..20 of 20 in 2 | put  | drop  | epoch 3 unclean 4 | isr 2", "node 3 has followed a later leader"},
	{"an object is gone that one data directory does not make up for", func(w *world) {
		w.gone(10, 20, 1)
		w.node(3, 20, 50, 40, record.EpochStart{Epoch: 1, Start: 0})
	}, "log 20..20 of 20 in 2 | put  | drop  | epoch 1 unclean 0 | isr 1 2 3", "node 1 holds [10, 20), which is cut off"},
	{"committed records were replaced by later ones", func(w *world) {
		w.node(1, 10, 90, 90, record.EpochStart{Epoch: 1, Start: 0})
		w.node(2, 10, 60, 40, two...)
		w.node(3, 10, 60, 40, two...)
	}, "log 0..20 of 20 in 2 | put  | drop  | epoch 3 unclean 4 | isr 2 3", "node 1 holds committed records up to 90"},
	{"a leader that has written nothing, and an old one's tail", func(w *world) {
		w.node(1, 10, 90, 40, record.EpochStart{Epoch: 1, Start: 0})
		w.node(2, 10, 50, 40, record.EpochStart{Epoch: 1, Start: 0}, record.EpochStart{Epoch: 2, Start: 50})
	}, "log 0..20 of 20 in 2 | put  | drop  | epoch 2 unclean 0 | isr 2 3", ""},
	{"an epoch in which nothing was written", func(w *world) { w.in.Nodes[1].Logs[0].CurrentEpoch = 8 },
		"log 0..20 of 20 in 2 | put  | drop  | epoch 8 unclean 0 | isr 1 2 3", ""},
}

func TestPlanPartition(t *testing.T) {
	for _, c := range planCases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			c.world(w)
			got, err := Plan(w.in)
			if err != nil || len(got.Partitions) != 1 {
				t.Fatalf("%v, %+v", err, got)
			}
			p := &got.Partitions[0]
			if d := describe(p); d != c.want {
				t.Errorf("got  %s\nwant %s\n%v", d, c.want, got.Changes)
			}
			if w := strings.Join(got.Warnings, "\n"); c.warns == "" && w != "" || !strings.Contains(w, c.warns) {
				t.Errorf("warnings %q, want %q", w, c.warns)
			}
			tiles(t, w, p)
		})
	}
}

// tiles checks R1, R2 and R4 whatever the case.
func tiles(t *testing.T, w *world, r *metadata.Reconciled) {
	t.Helper()
	values := map[record.Offset][]byte{}
	for _, v := range w.was.Segments {
		values[v.Base] = v.Value
	}
	for _, v := range r.Drop {
		delete(values, v.Base)
	}
	for _, v := range r.Put {
		values[v.Base] = v.Value
	}
	var entries []manifest.Entry
	for _, v := range values {
		e, err := manifest.DecodeEntry(v)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b manifest.Entry) int { return int(a.Base - b.Base) })
	if _, err := manifest.New(r.Head.LogStart, r.Head.TieredEnd, nil, entries); err != nil {
		t.Errorf("R2: %v", err)
	}
	if r.Leader.Node != record.NoNode || r.Leader.Rev != w.was.Leader.Rev || r.ISR.Rev != w.was.ISR.Rev || r.Head.Rev != w.was.Head.Rev {
		t.Errorf("led by %+v, in sync %+v", r.Leader, r.ISR)
	}
}

// TestPlanIntents: what is taken into the manifest is announced no more, or garbage collection would delete it (R5).
func TestPlanIntents(t *testing.T) {
	w := newWorld()
	s := w.found(20, 30, 1)
	w.was.Intents = []metadata.Intent{{Attempt: metadata.UUID{1}, Keys: []string{s.Entry.Object}, Rev: 5}, {Attempt: metadata.UUID{2}, Keys: []string{"other"}, Rev: 6}}
	got, err := Plan(w.in)
	if err != nil || len(got.Partitions[0].Intents) != 1 || got.Partitions[0].Intents[0].Rev != 5 {
		t.Errorf("%v, %+v", err, got)
	}
}

// TestPlanPages: a manifest page that was replaced since is made up for by what it named; one that is there stays.
func TestPlanPages(t *testing.T) {
	for _, gone := range []bool{false, true} {
		w := newWorld()
		w.was.Segments, w.was.Head.Count = nil, 0
		var raw [][]byte
		for i, entries := range [][]manifest.Entry{{entry(0, 5, 1)}, {entry(5, 10, 1), entry(10, 20, 1)}} {
			page, _, err := manifest.BuildPage(segment.Attempt{byte(i)}, fmt.Sprint("page", i), entries)
			if err != nil {
				t.Fatal(err)
			}
			raw = append(raw, manifest.AppendPage(nil, &page))
			w.in.Bucket.Pages[page.Object] = entries
			for _, e := range entries {
				w.in.Bucket.Present[e.Object] = true
			}
		}
		w.was.Head.Pages, w.was.Head.FoldedEnd = raw, 20
		w.found(20, 30, 1)
		want := "log 0..30 of 30 in 1 | put 20-30-1 | drop  | epoch 1 unclean 0 | isr 1 2 3"
		if gone {
			delete(w.in.Bucket.Pages, "page1")
			w.found(5, 10, 1)
			w.found(10, 20, 1)
			want = "log 0..30 of 30 in 3 | put 5-10-1 10-20-1 20-30-1 | drop  | epoch 1 unclean 0 | isr 1 2 3"
		}
		got, err := Plan(w.in)
		if err != nil {
			t.Fatal(err)
		}
		p := &got.Partitions[0]
		if d := describe(p); d != want {
			t.Errorf("page gone %v:\ngot  %s\nwant %s", gone, d, want)
		}
		if pages, folded := len(p.Head.Pages), p.Head.FoldedEnd; gone && (pages != 1 || folded != 5) || !gone && (pages != 2 || folded != 20) {
			t.Errorf("page gone %v: %d pages, folded up to %d", gone, pages, folded)
		}
	}
}

// TestPlanTopics: what data directories hold of topics and partitions that the backup does not know is not taken for remains.
func TestPlanTopics(t *testing.T) {
	young, nameless, taken, deleting := record.TopicID{2}, record.TopicID{3}, record.TopicID{4}, record.TopicID{5}
	w := newWorld()
	w.in.State.Topics = append(w.in.State.Topics, &metadata.Topic{ID: deleting, Name: "d", Deleting: true, Partitions: [][]record.NodeID{{1}}, Rev: 20})
	log := func(id record.TopicID, index int32) Log {
		return Log{ID: record.PartitionID{Topic: id, Index: index}, Epochs: []record.EpochStart{{Epoch: 0, Start: 0}}, End: 3}
	}
	w.in.Nodes[0].Logs = append(w.in.Nodes[0].Logs, log(young, 1), log(nameless, 0), log(taken, 0), log(deleting, 0), log(topicID, 2))
	w.in.Nodes[1].Logs = append(w.in.Nodes[1].Logs, log(young, 1))
	w.in.Bucket.Found[record.PartitionID{Topic: young}] = []Segment{{TopicName: "young", Entry: entry(0, 3, 0), MaxPID: 9_000}}
	w.in.Bucket.Found[record.PartitionID{Topic: taken}] = []Segment{{TopicName: "t", Entry: entry(0, 3, 0)}}
	got, err := Plan(w.in)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, x := range got.Topics {
		all = append(all, fmt.Sprint(x.Name, x.Partitions, " ", x.Overrides, " ", x.Rev))
	}
	slices.Sort(all)
	keeps := " map[retention.bytes:-1 retention.ms:-1] 0"
	want := []string{"recovered-03000000[[1]]" + keeps, "t-recovered-04000000[[1]]" + keeps, "t[[1 2 3] [1 2 3] [1]] map[] 10", "young[[1] [1 2]]" + keeps}
	if !slices.Equal(all, want) {
		t.Errorf("got  %q\nwant %q", all, want)
	}
	for _, p := range got.Partitions {
		if p.ID.Topic == deleting {
			t.Error("a topic that is being deleted comes back")
		}
	}
	if got.NextPID != 9_001+unusedProducerIDs {
		t.Errorf("producer ids go on at %d", got.NextPID)
	}
}

// TestPlanAssigns: a node that a reassignment added after the backup holds everything, so it is assigned.
func TestPlanAssigns(t *testing.T) {
	w := newWorld()
	w.in.State.Nodes = append(w.in.State.Nodes, 4)
	w.node(4, 10, 70, 60, record.EpochStart{Epoch: 1, Start: 0}, record.EpochStart{Epoch: 2, Start: 50})
	got, err := Plan(w.in)
	if err != nil || len(got.Topics) != 1 || !slices.Equal(got.Topics[0].Partitions[0], []record.NodeID{1, 2, 3, 4}) {
		t.Fatalf("%v, %+v", err, got)
	}
	if m := got.Partitions[0].ISR.Members; len(m) != 1 || m[0].Node != 4 || m[0].StoreID != (metadata.UUID{4}) {
		t.Errorf("in sync: %+v", m)
	}
	if len(w.in.State.Topics[0].Partitions[0]) != 3 {
		t.Error("planning changed its input")
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, c := range []struct {
		world func(w *world)
		says  string
	}{
		{func(w *world) { w.in.State.Registered = []record.NodeID{2} }, "nodes [2] are registered"},
		{func(w *world) { w.in.Nodes = w.in.Nodes[:2] }, "the data directory of node 3 is missing"},
		{func(w *world) { w.in.Nodes = append(w.in.Nodes, w.in.Nodes[0]) }, "node 1 is given twice"},
		{func(w *world) { w.in.Without = []record.NodeID{1} }, "node 1 is said to be lost"},
	} {
		w := newWorld()
		c.world(w)
		if _, err := Plan(w.in); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}

// TestYoungPartitionOfTheBucket: a partition that is younger than the backup and whose replicas are lost comes back from the bucket.
func TestYoungPartitionOfTheBucket(t *testing.T) {
	w := newWorld()
	id := record.PartitionID{Topic: topicID, Index: 1}
	e := entry(0, 30, 1)
	w.in.Bucket.Present[e.Object] = true
	w.in.Bucket.Found[id] = []Segment{{Entry: e, LeaderEpoch: 1, TopicName: "t"}}
	w.lose(3)
	r, err := Plan(w.in)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 2 || len(r.Partitions) != 2 || r.Partitions[1].ID != id || r.Partitions[1].Head.TieredEnd != 30 {
		t.Errorf("%+v", r.Reconciliation)
	}
}

// TestIntentOfAKnownSegment: a reconcile that ended between the head and the intents takes them away when it is run again (R5).
func TestIntentOfAKnownSegment(t *testing.T) {
	w := newWorld()
	w.knows(20, 30, 1)
	w.was.Intents = []metadata.Intent{{Attempt: metadata.UUID{5}, Keys: []string{entry(20, 30, 1).Object}, Rev: 30}}
	r, err := Plan(w.in)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Partitions[0].Put) != 0 || len(r.Partitions[0].Intents) != 1 {
		t.Errorf("%d entries, %d intents", len(r.Partitions[0].Put), len(r.Partitions[0].Intents))
	}
}
