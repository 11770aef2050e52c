// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/segment"
)

const pageSize = 4

// world is a manifest beside a naive model: a slice of all entries still listed, whatever page they are in.
type world struct {
	t     *testing.T
	m     *Manifest
	all   []Entry
	pages map[segment.Attempt][]byte
	loads int
	made  int
}

func newWorld(t *testing.T) *world {
	m, err := New(0, 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, m: m, pages: map[segment.Attempt][]byte{}}
}

func (w *world) load(p Page) ([]Entry, error) {
	w.loads++
	b, ok := w.pages[p.Attempt]
	if !ok {
		return nil, fmt.Errorf("no page %s", p.Attempt)
	}
	return ReadPage(&p, b)
}

func (w *world) attempt() segment.Attempt {
	w.made++
	return segment.Attempt{byte(w.made), byte(w.made >> 8)}
}

// entry makes the next segment: n offsets, a maximum timestamp at one of them (-1: control records only), epochs around e.
func (w *world) entry(n int, most int64, maxAt int, epoch record.Epoch, grows bool) Entry {
	base := w.m.TieredEnd
	e := Entry{Attempt: w.attempt(), Object: fmt.Sprintf("o/%d", w.made), Len: 1000, Base: base, End: base + record.Offset(n), DataBytes: int64(100 * n),
		MinTimestamp: most, MaxTimestamp: most, OffsetOfMax: base + record.Offset(maxAt%n), Records: int64(n), FooterLen: 50, CRC: 7,
		HasAborted: w.made%3 == 0, FirstUnstable: record.NoOffset, SealedAtMillis: 5, Gen: 1, Epochs: []record.EpochStart{{Epoch: epoch, Start: base}}}
	if most == segment.NoTimestamp {
		e.OffsetOfMax = record.NoOffset
	}
	if grows && n > 1 {
		e.Epochs = append(e.Epochs, record.EpochStart{Epoch: epoch + 2, Start: base + 1})
	}
	return e
}

func (w *world) apply(e Edit) error {
	before := fmt.Sprint(*w.m)
	next, err := w.m.Apply(e)
	if fmt.Sprint(*w.m) != before {
		w.t.Fatalf("%T changed the manifest it was applied to", e)
	}
	if err == nil {
		w.m = next
	}
	return err
}

func (w *world) must(e Edit) {
	w.t.Helper()
	if err := w.apply(e); err != nil {
		w.t.Fatalf("%T: %v", e, err)
	}
}

func (w *world) append(e Entry) {
	w.must(Append{e})
	w.all = append(w.all, e)
}

// fold folds n entries, into the newest page if it has room and replace is wanted.
func (w *world) fold(n int, replace bool) {
	var entries []Entry
	k := len(w.m.Pages)
	replace = replace && k > 0 && w.m.Pages[k-1].Count < pageSize && w.m.Pages[k-1].End == w.m.Entries[0].Base
	if replace {
		old, err := w.load(w.m.Pages[k-1])
		if err != nil {
			w.t.Fatal(err)
		}
		entries = slices.Clone(old)
	}
	n = min(n, pageSize-len(entries), len(w.m.Entries))
	entries = append(entries, w.m.Entries[:n]...)
	p, b, err := BuildPage(w.attempt(), "p", entries)
	if gap := hasGap(entries); gap != (err != nil) {
		w.t.Fatalf("page of %d entries, gap %v: %v", len(entries), gap, err)
	} else if gap {
		return // what lies below the log start has to be dropped first
	}
	w.pages[p.Attempt] = b
	w.must(Fold{p, replace})
}

func hasGap(entries []Entry) bool {
	for i := 1; i < len(entries); i++ {
		if entries[i].Base != entries[i-1].End {
			return true
		}
	}
	return false
}

func (w *world) drop(n int) {
	if len(w.m.Pages) > 0 {
		if p := w.m.Pages[0]; p.End <= w.m.LogStart {
			w.must(DropPage{p.Base})
			w.all = w.all[p.Count:]
		} else if err := w.apply(DropPage{p.Base}); !errors.Is(err, ErrEdit) {
			w.t.Fatalf("a live page was dropped: %v", err)
		}
		return
	}
	var bases []record.Offset
	for i := range w.m.Entries {
		if w.m.Entries[i].End <= w.m.LogStart && len(bases) < n {
			bases = append(bases, w.m.Entries[i].Base)
		}
	}
	w.must(Drop{bases})
	w.all = w.all[len(bases):]
	if len(w.m.Entries) > 0 && w.m.Entries[0].End > w.m.LogStart {
		if err := w.apply(Drop{[]record.Offset{w.m.Entries[0].Base}}); !errors.Is(err, ErrEdit) {
			w.t.Fatalf("a live entry was dropped: %v", err)
		}
	}
}

// check compares every lookup with the model, and what a reload gives with what the edits gave.
func (w *world) check(full bool) {
	w.t.Helper()
	live := []Entry{}
	for _, e := range w.all {
		if e.End > w.m.LogStart {
			live = append(live, e)
		}
	}
	if m, err := New(w.m.LogStart, w.m.TieredEnd, w.m.Pages, w.m.Entries); err != nil || len(m.Entries) != len(w.m.Entries) {
		w.t.Fatalf("does not load: %v", err)
	}
	bytes := int64(0)
	for _, e := range w.all {
		bytes += e.DataBytes
	}
	if w.m.DataBytes() != bytes {
		w.t.Fatalf("%d bytes, not %d", w.m.DataBytes(), bytes)
	}
	step := record.Offset(1)
	if !full {
		step = 1 + w.m.TieredEnd/40
	}
	for o := max(0, w.m.LogStart-2); o <= w.m.TieredEnd+1; o += step {
		i := slices.IndexFunc(live, func(e Entry) bool { return o >= e.Base && o < e.End })
		if o < w.m.LogStart {
			i = -1
		}
		w.same(Query{Kind: ByOffset, Offset: o}, live, i)
		for ts := int64(0); ts < 12; ts++ {
			w.same(Query{Kind: ByTime, Offset: o, Time: ts}, live, slices.IndexFunc(live, func(e Entry) bool { return e.End > o && e.MaxTimestamp >= ts }))
		}
	}
	for ep := record.Epoch(0); ep < 40; ep += 3 {
		w.same(Query{Kind: ByEpoch, Epoch: ep}, live, slices.IndexFunc(live, func(e Entry) bool { return e.LastEpoch() >= ep }))
	}
	w.checkLargest(live)
	var walked []record.Offset
	if err := w.m.Walk(w.m.LogStart, w.load, func(e *Entry) bool { walked = append(walked, e.Base); return true }); err != nil {
		w.t.Fatal(err)
	}
	if len(walked) != len(live) {
		w.t.Fatalf("walked %v of %d", walked, len(live))
	}
}

func (w *world) same(q Query, live []Entry, i int) {
	w.t.Helper()
	got, ok, err := w.m.Locate(q, w.load)
	if err != nil || ok != (i >= 0) || ok && got.Attempt != live[i].Attempt {
		w.t.Fatalf("log start %d, tiered end %d: %+v gave [%d, %d) %v %v, model %d of %d", w.m.LogStart, w.m.TieredEnd, q, got.Base, got.End, ok, err, i, len(live))
	}
}

func (w *world) checkLargest(live []Entry) {
	w.t.Helper()
	w.loads = 0
	l, err := w.m.LargestTimestamp(w.load)
	if err != nil || w.loads > 2 {
		w.t.Fatalf("%d loads, %v", w.loads, err)
	}
	most, cut := segment.NoTimestamp, segment.NoTimestamp
	for _, e := range live {
		if e.OffsetOfMax >= w.m.LogStart {
			most = max(most, e.MaxTimestamp)
		} else {
			cut = max(cut, e.MaxTimestamp)
		}
	}
	if l.HasBest != (most >= 0) || l.HasBest && (l.Best.MaxTimestamp != most || l.Best.OffsetOfMax < w.m.LogStart) {
		w.t.Fatalf("largest %v %+v, model %d", l.HasBest, l.Best, most)
	}
	if l.HasCut != (cut > most) || l.HasCut && l.Cut.MaxTimestamp != cut {
		w.t.Fatalf("cut %v %+v, model %d over %d", l.HasCut, l.Cut, cut, most)
	}
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		epoch := record.Epoch(0)
		for range 120 {
			switch r := rng.IntN(20); {
			case r < 9:
				if rng.IntN(5) == 0 {
					epoch++
				}
				grows := rng.IntN(8) == 0
				w.append(w.entry(1+rng.IntN(5), rng.Int64N(12)-1, rng.IntN(5), epoch, grows))
				if grows {
					epoch += 2
				}
			case r < 12 && len(w.m.Entries) > 0:
				w.fold(1+rng.IntN(6), rng.IntN(3) > 0)
			case r < 15:
				w.must(AdvanceStart{w.m.LogStart + record.Offset(rng.Int64N(int64(w.m.TieredEnd-w.m.LogStart)/2+2))})
			case r < 16:
				w.must(AdvanceStart{w.m.TieredEnd + record.Offset(rng.IntN(4))})
			case r < 19:
				w.drop(1 + rng.IntN(3))
			case len(w.m.Entries) > 1:
				w.replace(rng)
			}
			w.check(false)
		}
		w.check(true)
	}
}

// replace merges a run of entries into one, as compaction may.
func (w *world) replace(rng *rand.Rand) {
	i := rng.IntN(len(w.m.Entries) - 1)
	n := 2 + rng.IntN(len(w.m.Entries)-i-1)
	old := w.m.Entries[i : i+n]
	merged := old[0]
	merged.Attempt, merged.End, merged.DataBytes = w.attempt(), old[n-1].End, 10
	merged.Epochs = nil
	merged.MaxTimestamp = segment.NoTimestamp
	var bases []record.Offset
	for _, e := range old {
		bases = append(bases, e.Base)
		merged.Epochs = append(merged.Epochs, e.Epochs...)
		if e.MaxTimestamp > merged.MaxTimestamp {
			merged.MaxTimestamp, merged.OffsetOfMax = e.MaxTimestamp, e.OffsetOfMax
		}
	}
	err := w.apply(Replace{bases, []Entry{merged}})
	for k := 1; k < n; k++ {
		if old[k].Base != old[k-1].End {
			if !errors.Is(err, ErrEdit) {
				w.t.Fatalf("replaced across a gap: %v", err)
			}
			return
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	at := len(w.all) - len(w.m.Entries) - (n - 1) + i
	w.all = slices.Concat(w.all[:at], []Entry{merged}, w.all[at+n:])
}

// TestSmallWorlds goes through every sequence of up to six edits over a small alphabet.
func TestSmallWorlds(t *testing.T) {
	depth := 6
	if testing.Short() {
		depth = 4
	}
	worlds := 0
	var run func(w *world, left int)
	run = func(w *world, left int) {
		w.check(true)
		worlds++
		if left == 0 {
			return
		}
		for _, step := range []func(*world){
			func(w *world) {
				w.append(w.entry(2, int64(3+(w.made*5)%7), w.made, record.Epoch(w.made), w.made%2 == 0))
			},
			func(w *world) {
				if len(w.m.Entries) > 0 {
					w.fold(1, true)
				}
			},
			func(w *world) { w.must(AdvanceStart{w.m.LogStart + 1}) },
			func(w *world) { w.drop(9) },
		} {
			c := *w
			c.all = slices.Clone(w.all)
			step(&c)
			run(&c, left-1)
		}
	}
	run(newWorld(t), depth)
	t.Logf("%d worlds", worlds)
}

func TestEditsThatDoNotFit(t *testing.T) {
	w := newWorld(t)
	for range 6 {
		w.append(w.entry(3, 5, 0, 1, false))
	}
	w.fold(2, false)
	p := w.m.Pages[0]
	skip := w.entry(3, 5, 0, 1, false)
	skip.Base, skip.End = skip.Base+1, skip.End+1
	under := w.entry(3, 5, 0, 1, false)
	under.Base--
	wrong := p
	wrong.Count = 3
	for name, e := range map[string]Edit{
		"append with a gap":         Append{skip},
		"append with an overlap":    Append{under},
		"append the same again":     Append{w.all[5]},
		"drop behind a page":        Drop{[]record.Offset{w.m.Entries[0].Base}},
		"drop a live page":          DropPage{p.Base},
		"fold what is folded":       Fold{p, false},
		"fold nothing into a page":  Fold{p, true},
		"fold a wrong count":        Fold{wrong, false},
		"replace by a shorter run":  Replace{[]record.Offset{w.m.Entries[0].Base}, []Entry{{Base: w.m.Entries[0].Base, End: w.m.Entries[0].End - 1}}},
		"replace by a longer run":   Replace{[]record.Offset{w.m.Entries[0].Base}, []Entry{{Base: w.m.Entries[0].Base, End: w.m.Entries[0].End + 1}}},
		"replace what is not there": Replace{[]record.Offset{1}, []Entry{w.m.Entries[0]}},
		"replace by nothing":        Replace{[]record.Offset{w.m.Entries[0].Base}, nil},
	} {
		if err := w.apply(e); !errors.Is(err, ErrEdit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.check(true)
}

func TestNewRefuses(t *testing.T) {
	e := func(base, end record.Offset) Entry { return Entry{Base: base, End: end} }
	for name, c := range map[string]struct {
		logStart, tieredEnd record.Offset
		entries             []Entry
		ok                  bool
	}{
		"tiles":                      {0, 9, []Entry{e(0, 4), e(4, 9)}, true},
		"log start inside":           {2, 9, []Entry{e(0, 4), e(4, 9)}, true},
		"gap":                        {0, 9, []Entry{e(0, 4), e(5, 9)}, false},
		"gap below log start":        {5, 9, []Entry{e(0, 4), e(5, 9)}, true},
		"overlap":                    {0, 9, []Entry{e(0, 5), e(4, 9)}, false},
		"overlap below log start":    {9, 9, []Entry{e(0, 5), e(4, 9)}, false},
		"first missing":              {0, 9, []Entry{e(4, 9)}, false},
		"last missing":               {0, 9, []Entry{e(0, 4)}, false},
		"all dropped":                {9, 9, nil, true},
		"all missing":                {0, 9, nil, false},
		"log start above tiered end": {10, 9, nil, false},
		"dead at the tiered end":     {0, 4, []Entry{e(0, 4), e(4, 9)}, true},
		"across the tiered end":      {0, 6, []Entry{e(0, 4), e(4, 9)}, false},
	} {
		_, err := New(c.logStart, c.tieredEnd, nil, c.entries)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCodecs(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.append(w.entry(3, 5, 1, 1, true))
	}
	e := w.all[2]
	e.FirstUnstable = 8
	b := AppendEntry([]byte("before"), &e)[6:]
	got, err := DecodeEntry(b)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(e) {
		t.Fatalf("%v\n%v\n%v", err, got, e)
	}
	t.Logf("entry of %d bytes with a key of %d", len(b), len(e.Object))
	p, page, err := BuildPage(segment.Attempt{9}, "key", w.all)
	if err != nil {
		t.Fatal(err)
	}
	pb := AppendPage(nil, &p)
	if got, err := DecodePage(pb); err != nil || got != p {
		t.Fatalf("%v %v", got, err)
	}
	if entries, err := ReadPage(&p, page); err != nil || fmt.Sprint(entries) != fmt.Sprint(w.all) {
		t.Fatalf("%v %v", entries, err)
	}
	decoders := map[string]struct {
		b      []byte
		decode func([]byte) error
	}{
		"entry":   {b, func(b []byte) error { _, err := DecodeEntry(b); return err }},
		"pointer": {pb, func(b []byte) error { _, err := DecodePage(b); return err }},
		"page":    {page, func(b []byte) error { _, err := ReadPage(&p, b); return err }},
	}
	for name, d := range decoders {
		for at := range d.b {
			for bit := range 8 {
				d.b[at] ^= 1 << bit
				if d.decode(d.b) == nil {
					t.Fatalf("%s: bit %d of byte %d flipped unseen", name, bit, at)
				}
				d.b[at] ^= 1 << bit
			}
			if d.decode(d.b[:at]) == nil {
				t.Fatalf("%s: cut at %d unseen", name, at)
			}
		}
	}
	for name, at := range map[string]int{"entry": 1, "pointer": 1} {
		d := decoders[name]
		d.b[at] = 2
		if err := d.decode(d.b); !errors.Is(err, ErrNewerFormat) {
			t.Errorf("%s: %v", name, err)
		}
		d.b[at] = 1
	}
	page[9] = 2
	p.CRC = 0
	if err := checkFormat("page", 2); !errors.Is(err, ErrNewerFormat) {
		t.Error(err)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	e := Entry{Object: "a/b", Base: 1, End: 3, Len: 10, Epochs: []record.EpochStart{{Epoch: 1, Start: 1}}}
	f.Add(AppendEntry(nil, &e), true)
	p, page, err := BuildPage(segment.Attempt{1}, "k", []Entry{e})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(AppendPage(nil, &p), true)
	f.Add(page, false)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		if fix && len(b) >= 4 {
			b = seal(slices.Clone(b[:len(b)-4]), 0)
		}
		if e, err := DecodeEntry(b); err == nil {
			if again, err := DecodeEntry(AppendEntry(nil, &e)); err != nil || fmt.Sprint(again) != fmt.Sprint(e) {
				t.Fatalf("%v: %v, %v", err, e, again)
			}
		}
		if p, err := DecodePage(b); err == nil {
			if again, err := DecodePage(AppendPage(nil, &p)); err != nil || again != p {
				t.Fatalf("%v: %v, %v", err, p, again)
			}
		}
	})
}
