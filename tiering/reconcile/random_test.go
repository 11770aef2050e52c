// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/segment"
)

// model is one partition on three nodes, as the protocols have it. A record is its epoch: with its offset that says which one it is.
type model struct {
	rng    *rand.Rand
	logs   [3]modelLog
	leader int
	epoch  record.Epoch
	isr    [3]bool
	synced [3]int // what a follower is known to hold, in this epoch
	hw     int
	start  int // log start
	tiered int
	chain  []record.EpochStart
	segs   []manifest.Entry
	object map[string]Segment // in the bucket
	made   int
}

type modelLog struct {
	start, hw int
	records   []record.Epoch
	entries   []record.EpochStart
	current   record.Epoch
}

func newModel(seed uint64) *model {
	m := &model{rng: rand.New(rand.NewPCG(seed, 1)), isr: [3]bool{true, true, true}, object: map[string]Segment{}}
	m.logs[0].entries = []record.EpochStart{{}}
	return m
}

func (m *model) step() {
	f := m.rng.IntN(3)
	switch m.rng.IntN(12) {
	case 0, 1, 2:
		l := &m.logs[m.leader]
		for range 1 + m.rng.IntN(5) {
			l.records = append(l.records, m.epoch)
		}
	case 3, 4, 5:
		m.replicate(f)
	case 6:
		m.elect(f)
	case 7:
		if f != m.leader {
			m.isr[f] = false
		}
	case 8, 9:
		if m.seal(m.rng.IntN(4) > 0) && m.rng.IntN(2) == 0 {
			m.evict(f)
		}
	case 10:
		m.evict(f)
	case 11:
		m.retain()
	}
	m.commit()
}

func (l *modelLog) truncate(to int) {
	l.records = l.records[:to]
	l.entries = slices.DeleteFunc(l.entries, func(e record.EpochStart) bool { return int(e.Start) >= to })
}

// replicate has a follower cut what the leader does not have, and copy some of the rest.
func (m *model) replicate(f int) {
	if f == m.leader {
		return
	}
	l, x := &m.logs[m.leader], &m.logs[f]
	x.current = m.epoch
	same := 0
	for same < min(len(l.records), len(x.records)) && l.records[same] == x.records[same] {
		same++
	}
	if same < len(x.records) {
		x.truncate(same)
	}
	if len(x.records) < max(m.tiered, m.start) { // it begins at the tiered end
		end := max(m.tiered, m.start)
		*x = modelLog{start: end, hw: end, records: slices.Clone(l.records[:end]), entries: slices.Clone(m.chain), current: m.epoch}
	}
	for range m.rng.IntN(8) {
		o := len(x.records)
		if o == len(l.records) {
			break
		}
		if n := len(x.entries); n > 0 && int(x.entries[n-1].Start) >= o && x.entries[n-1].Epoch > l.records[o] {
			x.truncate(o) // it led, and wrote nothing
		}
		if n := len(x.entries); n == 0 || x.entries[n-1].Epoch < l.records[o] {
			x.entries = append(x.entries, record.EpochStart{Epoch: l.records[o], Start: record.Offset(o)})
		}
		x.records = append(x.records, l.records[o])
	}
	m.synced[f] = len(x.records)
	x.hw = max(x.hw, min(m.hw, len(x.records)))
	if n := len(l.entries); len(x.records) >= max(m.hw, int(l.entries[n-1].Start)) {
		m.isr[f] = true
	}
}

func (m *model) elect(n int) {
	if !m.isr[n] {
		return
	}
	m.leader, m.epoch, m.synced = n, m.epoch+1, [3]int{}
	l := &m.logs[n]
	l.entries = slices.DeleteFunc(l.entries, func(e record.EpochStart) bool { return int(e.Start) >= len(l.records) })
	l.entries = append(l.entries, record.EpochStart{Epoch: m.epoch, Start: record.Offset(len(l.records))})
	l.current = m.epoch
}

func (m *model) commit() {
	end := len(m.logs[m.leader].records)
	for n, in := range m.isr {
		if in && n != m.leader {
			end = min(end, m.synced[n])
		}
	}
	m.hw = max(m.hw, end)
	m.logs[m.leader].hw = max(m.logs[m.leader].hw, m.hw)
}

// seal uploads a segment, and commits it or leaves it.
func (m *model) seal(commit bool) bool {
	if m.tiered >= m.hw {
		return false
	}
	base, end := m.tiered, m.tiered+1+m.rng.IntN(m.hw-m.tiered)
	m.made++
	s := Segment{LeaderEpoch: m.epoch, TopicName: "t", Entry: manifest.Entry{Attempt: segment.Attempt{byte(m.made), byte(m.made >> 8)}, Object: fmt.Sprint("o", m.made), Len: 100, FooterLen: 10,
		Base: record.Offset(base), End: record.Offset(end), FirstUnstable: record.NoOffset}}
	for o, e := range m.logs[m.leader].records[base:end] {
		if n := len(s.Entry.Epochs); n == 0 || s.Entry.Epochs[n-1].Epoch != e {
			s.Entry.Epochs = append(s.Entry.Epochs, record.EpochStart{Epoch: e, Start: record.Offset(base + o)})
		}
	}
	m.object[s.Entry.Object] = s
	if commit {
		m.segs, m.tiered, m.chain = append(m.segs, s.Entry), end, record.MergeEpochs(m.chain, s.Entry.Epochs)
	}
	return commit
}

func (m *model) evict(n int) {
	l := &m.logs[n]
	if to := min(l.hw, max(m.tiered, m.start), len(l.records)); to > l.start {
		l.start = to
	}
}

// retain moves the log start, in or beyond the bucket, and deletes what lies below it.
func (m *model) retain() {
	if m.hw == m.start || m.rng.IntN(3) > 0 {
		return
	}
	m.start += m.rng.IntN(m.hw - m.start)
	if m.start > m.tiered {
		m.tiered = m.start
		l := &m.logs[m.leader]
		for _, e := range l.entries {
			if int(e.Start) < m.tiered {
				m.chain = record.MergeEpochs(m.chain, []record.EpochStart{e})
			}
		}
	}
	for len(m.segs) > 0 && int(m.segs[0].End) <= m.start {
		delete(m.object, m.segs[0].Object)
		m.segs = m.segs[1:]
	}
}

// backup is what a snapshot taken now knows.
func (m *model) backup() *metadata.FrozenPartition {
	p := &metadata.FrozenPartition{PartitionState: metadata.PartitionState{
		Leader: metadata.LeaderState{Node: record.NodeID(m.leader), Epoch: m.epoch, Rev: 1}, ISR: metadata.ISRState{Rev: 1},
		Head: metadata.Head{LogStart: record.Offset(m.start), TieredEnd: record.Offset(m.tiered), Count: int64(len(m.segs)), EpochChain: slices.Clone(m.chain), Rev: 1},
	}}
	for i := range m.segs {
		p.Segments = append(p.Segments, metadata.SegmentValue{Base: m.segs[i].Base, Rev: 1, Value: manifest.AppendEntry(nil, &m.segs[i])})
	}
	return p
}

// input is what a reconcile finds at the end.
func (m *model) input(p *metadata.FrozenPartition) *Input {
	in := &Input{
		State: &metadata.Frozen{Topics: []*metadata.Topic{{ID: topicID, Name: "t", Partitions: [][]record.NodeID{{0, 1, 2}}, Rev: 1}},
			Partitions: map[record.PartitionID]*metadata.FrozenPartition{partitionID(): p}},
		Bucket: &Bucket{Present: map[string]bool{}, Found: map[record.PartitionID][]Segment{}},
	}
	known := map[string]bool{}
	for _, v := range p.Segments {
		e, _ := manifest.DecodeEntry(v.Value)
		known[e.Object] = true
	}
	for name, s := range m.object {
		in.Bucket.Present[name] = true
		if !known[name] {
			in.Bucket.Found[partitionID()] = append(in.Bucket.Found[partitionID()], s)
		}
	}
	for n := range m.logs {
		l := &m.logs[n]
		in.Nodes = append(in.Nodes, Node{ID: record.NodeID(n), Store: metadata.UUID{byte(n + 1)}, Logs: []Log{{ID: partitionID(), Start: record.Offset(l.start),
			End: record.Offset(len(l.records)), HighWatermark: record.Offset(l.hw), CurrentEpoch: l.current, Epochs: slices.Clone(l.entries)}}})
	}
	return in
}

// check reads everything through the plan: what was committed and not deleted is there, and the same.
func (m *model) check(t *testing.T, r *metadata.Reconciled) {
	t.Helper()
	committed := m.logs[m.leader].records
	if int(r.Head.LogStart) > m.start {
		t.Errorf("the log starts at %d, not %d", r.Head.LogStart, m.start)
	}
	at := map[int]record.Epoch{}
	for _, p := range r.Put {
		e, _ := manifest.DecodeEntry(p.Value)
		for o := e.Base; o < e.End; o++ {
			at[int(o)] = e.EpochAt(o)
		}
		if int(e.Base) >= m.start && m.object[e.Object].Entry.Object == "" {
			t.Errorf("%s is in the manifest and not in the bucket", e.Object)
		}
	}
	for o := m.start; o < min(m.hw, int(r.Head.TieredEnd)); o++ {
		if e, put := at[o]; put && e != committed[o] {
			t.Errorf("offset %d is of epoch %d in the bucket, of %d where it was committed", o, e, committed[o])
		}
	}
	for n := range m.logs {
		if m.logs[n].start > int(r.Head.TieredEnd) {
			t.Errorf("R2: the hot log of node %d begins at %d, the bucket ends at %d", n, m.logs[n].start, r.Head.TieredEnd)
		}
	}
	if len(r.ISR.Members) == 0 {
		t.Fatal("nobody may lead")
	}
	for _, x := range r.ISR.Members {
		l := &m.logs[x.Node]
		if len(l.records) < m.hw {
			t.Errorf("node %d holds [%d, %d), committed is %d", x.Node, l.start, len(l.records), m.hw)
			continue
		}
		for o := l.start; o < m.hw; o++ {
			if l.records[o] != committed[o] {
				t.Fatalf("node %d holds offset %d of epoch %d, committed was %d", x.Node, o, l.records[o], committed[o])
			}
		}
	}
	if r.Leader.Epoch < m.epoch || r.Leader.UncleanEpoch != 0 {
		t.Errorf("next leader %+v, last epoch %d", r.Leader, m.epoch)
	}
}

// TestPlanRandomly runs random histories of a partition, takes the backup somewhere in them, and reads through the plan.
func TestPlanRandomly(t *testing.T) {
	adopted := 0
	for seed := range uint64(3000) {
		m := newModel(seed)
		steps := 20 + m.rng.IntN(150)
		at := m.rng.IntN(steps)
		var p *metadata.FrozenPartition
		for i := range steps {
			if i == at {
				p = m.backup()
			}
			m.step()
		}
		got, err := Plan(m.input(p))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		r := &got.Partitions[0]
		adopted += len(r.Put)
		m.check(t, r)
		tiles(t, &world{was: p}, r)
		if t.Failed() {
			t.Fatalf("seed %d: backup after %d of %d steps; %s\n%v\n%v\nlog start %d tiered %d hw %d %+v", seed, at, steps, describe(r), got.Changes, got.Warnings, m.start, m.tiered, m.hw, m.logs)
		}
	}
	if adopted < 1000 {
		t.Errorf("only %d segments were taken in: the test tests little", adopted)
	}
}
