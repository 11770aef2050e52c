// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/varve/varve/record"
)

// sent builds a batch with n records of a producer; only the header matters here.
func sent(t testing.TB, pid int64, epoch int16, first int32, n int) record.Batch {
	t.Helper()
	var b record.Builder
	b.SetProducer(record.Producer{ID: pid, Epoch: epoch, Sequence: first})
	for range n {
		b.Add(1, nil, []byte("v"))
	}
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func TestSequencesWrap(t *testing.T) {
	first := sent(t, 1, 0, math.MaxInt32-1, 3) // MaxInt32-1, MaxInt32, 0
	first.Stamp(100, 0)
	p := (*producer)(nil).with(first, -1, 1)
	if got := p.batches[0].next(); got != 103 {
		t.Fatalf("the wrapped batch ends at %d, want 103", got)
	}
	if v := judge(&p, sent(t, 1, 0, 1, 1)); v.err != nil || v.duplicate != nil {
		t.Fatalf("sequence 1 must follow 0: %v", v.err)
	}
	if v := judge(&p, sent(t, 1, 0, 2, 1)); !errors.Is(v.err, ErrOutOfOrderSequence) {
		t.Fatalf("sequence 2 must not follow 0: %v", v.err)
	}
	if v := judge(&p, sent(t, 1, 0, math.MaxInt32-1, 3)); v.duplicate == nil {
		t.Fatal("the wrapped batch is not recognised")
	}
}

func TestJudgeTable(t *testing.T) {
	var known *producer
	for i := range 7 { // sequences 0..6, of which 2..6 stay in the window
		b := sent(t, 9, 3, int32(i), 1)
		b.Stamp(record.Offset(i), 0)
		next := known.with(b, -1, 1)
		known = &next
	}
	for _, tc := range []struct {
		name  string
		epoch int16
		first int32
		n     int
		dup   record.Offset
		err   error
	}{
		{"next", 3, 7, 2, -1, nil},
		{"last again", 3, 6, 1, 6, nil},
		{"oldest in the window", 3, 2, 1, 2, nil},
		{"older than the window", 3, 1, 1, -1, ErrOutOfOrderSequence},
		{"overlapping", 3, 6, 2, -1, ErrOutOfOrderSequence},
		{"gap", 3, 8, 1, -1, ErrOutOfOrderSequence},
		{"old epoch", 2, 7, 1, -1, ErrInvalidProducerEpoch},
		{"new epoch from 0", 4, 0, 1, -1, nil},
		{"new epoch from 5", 4, 5, 1, -1, ErrOutOfOrderSequence},
	} {
		v := judge(known, sent(t, 9, tc.epoch, tc.first, tc.n))
		if !errors.Is(v.err, tc.err) || (v.duplicate != nil) != (tc.dup >= 0) || v.duplicate != nil && v.duplicate.base != tc.dup {
			t.Errorf("%s: %+v", tc.name, v)
		}
	}
	if v := judge(nil, sent(t, 9, 3, 77, 1)); v.err != nil {
		t.Errorf("an unknown producer may begin anywhere: %v", v.err)
	}
}

func TestProducerEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProducer(rapid.Int16().Draw(t, "epoch"), rapid.Int64().Draw(t, "used"))
		p.n = int8(rapid.IntRange(0, producerWindow).Draw(t, "n"))
		if rapid.Bool().Draw(t, "transactional") {
			p.coordinatorEpoch, p.at = rapid.Int32().Draw(t, "coordinator"), record.Offset(rapid.Int64().Draw(t, "at"))
			p.txnEpoch, p.fresh = rapid.Int16().Draw(t, "epoch of the transaction"), rapid.Bool().Draw(t, "fresh")
			p.first, p.marker = record.Offset(rapid.Int64Min(0).Draw(t, "first")), record.Offset(rapid.Int64Min(-1).Draw(t, "marker"))
		}
		for i := range p.batches[:p.n] {
			p.batches[i] = sentBatch{rapid.Int32().Draw(t, "f"), rapid.Int32().Draw(t, "l"), record.Offset(rapid.Int64().Draw(t, "o")), rapid.Int64().Draw(t, "t")}
		}
		raw := p.encode(nil)
		if len(raw) > maxProducerBytes {
			t.Fatalf("%d bytes, at most %d", len(raw), maxProducerBytes)
		}
		got, err := decodeProducer(raw)
		if err != nil || got != p {
			t.Fatalf("%+v, %v; want %+v", got, err, p)
		}
		if _, err := decodeProducer(raw[:len(raw)-1]); err == nil {
			t.Fatal("a cut entry was accepted")
		}
		if p.open() {
			if _, _, err := decodeAbort(p.encodeAbort(nil, 4)); err == nil {
				t.Fatal("an abort marker's entry without an ended transaction was accepted")
			}
		} else if p.first >= 0 {
			abort := p.encodeAbort(nil, 4)
			if pid, again, err := decodeAbort(abort); err != nil || pid != 4 || again != p || len(abort) > maxProducerBytes {
				t.Fatalf("%+v of %d in %d bytes, %v; want %+v", again, pid, len(abort), err, p)
			}
		}
		raw[0] = txnFormat + 1
		if _, err := decodeProducer(raw); err == nil {
			t.Fatal("a newer format was accepted")
		}
	})
}
