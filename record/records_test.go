// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func equal(a, b []seen) bool { return reflect.DeepEqual(a, b) }

func TestTimeSearch(t *testing.T) {
	for _, c := range allCodecs {
		b := Builder{Codec: c, BaseOffset: 100}
		b.Add(1000, nil, nil) // 100
		b.Skip(1)
		b.Add(3000, nil, nil) // 102
		b.Add(2000, nil, nil) // 103
		b.Add(3000, nil, nil) // 104
		batch := build(t, &b)
		for _, q := range []struct {
			ts   int64
			from Offset
			want Offset
			t    int64
		}{
			{0, 0, 100, 1000}, {1000, 0, 100, 1000}, {1001, 0, 102, 3000}, {3000, 0, 102, 3000}, {3001, 0, NoOffset, NoTimestamp},
			{0, 101, 102, 3000}, {0, 103, 103, 2000}, {2001, 103, 104, 3000}, {0, 105, NoOffset, NoTimestamp},
		} {
			o, ts, ok, err := batch.FirstAtOrAfter(q.ts, q.from)
			if o != q.want || ts != q.t || ok != (q.want != NoOffset) || err != nil {
				t.Errorf("%v: first at or after %d from %d is %d at %d (%v, %v), want %d at %d", c, q.ts, q.from, o, ts, ok, err, q.want, q.t)
			}
		}
		if o, ts, err := batch.OffsetOfMaxTimestamp(); o != 102 || ts != 3000 || err != nil {
			t.Errorf("%v: maximum %d at %d (%v)", c, ts, o, err)
		}
	}
}

func TestTimeSearchInLogAppendTime(t *testing.T) {
	for _, sparse := range []bool{false, true} {
		b := Builder{BaseOffset: 10}
		b.SetLogAppendTime(500)
		if sparse {
			b.Skip(1)
		}
		b.Add(9000, nil, nil)
		b.Add(1, nil, nil)
		batch := build(t, &b)
		first := Offset(10)
		if sparse {
			first = 11
		}
		if o, ts, ok, err := batch.FirstAtOrAfter(500, 0); o != first || ts != 500 || !ok || err != nil {
			t.Errorf("sparse %v: %d at %d %v %v", sparse, o, ts, ok, err)
		}
		if o, ts, ok, err := batch.FirstAtOrAfter(500, first+1); o != first+1 || ts != 500 || !ok || err != nil {
			t.Errorf("sparse %v, from the second: %d at %d %v %v", sparse, o, ts, ok, err)
		}
		if _, _, ok, _ := batch.FirstAtOrAfter(501, 0); ok {
			t.Errorf("sparse %v: found a record behind the append time", sparse)
		}
		if o, ts, err := batch.OffsetOfMaxTimestamp(); o != first || ts != 500 || err != nil {
			t.Errorf("sparse %v: maximum %d at %d %v", sparse, ts, o, err)
		}
	}
}

func TestTimeSearchPassesOver(t *testing.T) {
	marker, err := Marker{Commit: true, CoordinatorEpoch: 4}.Batch(Producer{ID: 5, Epoch: 6}, 9000)
	if err != nil {
		t.Fatal(err)
	}
	empty := Builder{BaseOffset: 20}
	empty.Skip(3)
	untimed := Builder{}
	untimed.Add(NoTimestamp, nil, nil)
	for name, b := range map[string]Batch{"marker": marker, "empty": build(t, &empty), "untimed": build(t, &untimed)} {
		if o, _, ok, err := b.FirstAtOrAfter(0, 0); ok || err != nil {
			t.Errorf("%s: found %d %v", name, o, err)
		}
		if o, ts, err := b.OffsetOfMaxTimestamp(); o != NoOffset || ts != NoTimestamp || err != nil {
			t.Errorf("%s: maximum %d at %d %v", name, ts, o, err)
		}
		if err := b.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMaxTimestampOfACompactedBatch(t *testing.T) {
	b := Builder{BaseOffset: 5}
	b.Add(10, nil, nil)
	b.Add(30, nil, nil)
	b.Add(20, nil, nil)
	stale := edit(build(t, &b), at(35, 0, 0, 0, 0, 0, 0, 0, 99))
	if o, ts, err := stale.OffsetOfMaxTimestamp(); o != 6 || ts != 30 || err != nil {
		t.Fatalf("maximum %d at %d %v, want 30 at 6", ts, o, err)
	}
}

func TestMarkers(t *testing.T) {
	for _, want := range []Marker{{Commit: true, CoordinatorEpoch: 7}, {CoordinatorEpoch: 1 << 30}} {
		b, err := want.Batch(Producer{ID: 5, Epoch: 6}, 1234)
		if err != nil {
			t.Fatal(err)
		}
		got, ok, err := b.Marker()
		if got != want || !ok || err != nil {
			t.Errorf("read %+v %v %v, want %+v", got, ok, err, want)
		}
		if !b.IsControl() || !b.IsTransactional() || b.ProducerID() != 5 || b.ProducerEpoch() != 6 || b.BaseSequence() != -1 || b.RecordCount() != 1 || b.MaxTimestamp() != 1234 {
			t.Errorf("header of %+v: %x", want, []byte(b))
		}
		r := all(t, b)[0]
		kind := byte(0)
		if want.Commit {
			kind = 1
		}
		if !bytes.Equal(r.Key, []byte{0, 0, 0, kind}) || len(r.Value) != 6 {
			t.Errorf("marker's key %x value %x", r.Key, r.Value)
		}
	}
	if _, _, err := three(t, None).Marker(); !errors.Is(err, ErrMalformed) {
		t.Errorf("a data batch read as a marker: %v", err)
	}
	other := Builder{control: true}
	other.Add(1, []byte{0, 0, 0, 2}, make([]byte, 6))
	if _, ok, err := build(t, &other).Marker(); ok || err != nil {
		t.Errorf("a leader-change record read as a marker: %v %v", ok, err)
	}
}

func TestCheck(t *testing.T) {
	ok := three(t, Lz4)
	if err := ok.Check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		b    Batch
		want error
	}{
		"short":         {ok[:60], ErrShort},
		"cut":           {ok[:len(ok)-1], ErrShort},
		"longer":        {append(bytes.Clone(ok), 0), ErrMalformed},
		"magic":         {edit(ok, at(16, 1)), ErrMalformed},
		"flipped":       {flip(ok, len(ok)-1), ErrChecksum},
		"too many":      {edit(ok, at(60, 4)), ErrMalformed},
		"negative last": {edit(ok, at(23, 0xff)), ErrMalformed},
	} {
		if err := c.b.Check(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	fewer := edit(ok, at(60, 2))
	if err := fewer.Check(); err != nil {
		t.Errorf("a batch that compaction thinned: %v", err)
	}
}

func TestStampKeepsTheCRC(t *testing.T) {
	b := three(t, Gzip)
	b.Stamp(1<<40, 99)
	if err := b.Check(); err != nil || b.BaseOffset() != 1<<40 || b.LeaderEpoch() != 99 {
		t.Fatalf("R2: %v, offset %d, epoch %d", err, b.BaseOffset(), b.LeaderEpoch())
	}
	if got := all(t, b); got[2].Offset != 1<<40+2 {
		t.Fatalf("last record at %d", got[2].Offset)
	}
}

func TestEachRefusesBrokenRecords(t *testing.T) {
	ok := three(t, None)
	back := Builder{}
	back.Add(1, nil, nil)
	back.Skip(-1)
	back.Add(1, nil, nil)
	back.Skip(2)
	for name, b := range map[string]Batch{
		"twice":   build(t, &back),
		"missing": withRecords(ok, None, 4, ok[HeaderSize:]),
		"left":    withRecords(ok, None, 2, ok[HeaderSize:]),
		"beyond":  edit(ok, at(26, 1)),
		"garbage": withRecords(ok, None, 1, []byte("nonsense")),
	} {
		if err := b.Each(func(*Record) bool { return true }); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := withRecords(ok, Zstd, 3, []byte("x")).Each(func(*Record) bool { return true }); !errors.Is(err, ErrUndecodable) {
		t.Errorf("undecodable: %v", err)
	}
	n := 0
	if err := ok.Each(func(*Record) bool { n++; return n < 2 }); err != nil || n != 2 {
		t.Errorf("stopping early: %v after %d", err, n)
	}
}

func TestSequenceMovesOnAndWraps(t *testing.T) {
	var b Builder
	b.SetProducer(Producer{ID: 1, Sequence: 1<<31 - 2})
	var got []int32
	for range 3 {
		b.Add(0, nil, nil)
		b.Add(0, nil, nil)
		got = append(got, build(t, &b).BaseSequence())
	}
	if !reflect.DeepEqual(got, []int32{1<<31 - 2, 0, 2}) {
		t.Fatalf("base sequences %v", got)
	}
	if _, err := b.Build(); err == nil {
		t.Fatal("built a batch without offsets")
	}
}
