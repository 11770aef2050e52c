// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/varve/varve/record"
)

// outlinedLog knows parts of a log, and how many bytes of it were read.
type outlinedLog struct {
	*log
	outline Outline
	read    int
}

func (l *outlinedLog) Outline(from, limit record.Offset) []Part {
	return l.outline.Within(from, limit, nil)
}

func (l *outlinedLog) Scan(from, limit record.Offset, fn func(record.Batch) error) error {
	return l.log.Scan(from, limit, func(b record.Batch) error {
		l.read += len(b)
		return fn(b)
	})
}

// TestOutlineTellsWhatReadingWould: with an outline a segment holds the same batches and says the same of them as without.
func TestOutlineTellsWhatReadingWould(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	spared := 0
	for range 300 {
		l, _, chain := makeLog(t, rng, logOptions{base: record.Offset(rng.IntN(100)), batches: 1 + rng.IntN(60), records: 6, value: 1 + rng.IntN(8000), spread: 50, epochs: rng.IntN(2) == 0, control: rng.IntN(2) == 0})
		noted := &outlinedLog{log: l}
		for _, b := range l.batches[rng.IntN(len(l.batches)):] {
			noted.outline.Add(b)
		}
		from, to := rng.IntN(len(l.batches)), rng.IntN(len(l.batches))
		r := Range{l.batches[min(from, to)].BaseOffset(), l.batches[max(from, to)].NextOffset()}
		if rng.IntN(2) == 0 {
			noted.outline.Trim(r.Base)
		}
		most := int64(rng.IntN(500_000))
		want, err := Build(testIdentity(), l, r, most, extra(chain))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Build(testIdentity(), noted, r, most, extra(chain))
		if err != nil {
			t.Fatal(err)
		}
		spared += int(got.Info.DataBytes) - noted.read
		data := func(o *Object) []byte {
			b := readBody(t, o)
			return b[o.Info.DataPos : o.Info.DataPos+o.Info.DataBytes]
		}
		if !bytes.Equal(data(got), data(want)) {
			t.Fatal("other batches")
		}
		if sum := crc32.Checksum(readBody(t, got), castagnoli); sum != got.CRC32C() {
			t.Fatalf("the object's checksum is %08x, it says %08x", sum, got.CRC32C())
		}
		a, b := got.Info, want.Info
		a.FooterLen, a.Bytes, b.FooterLen, b.Bytes = 0, 0, 0, 0 // the chunks may be cut elsewhere
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("with an outline %+v\nwithout %+v", a, b)
		}
		readIndex(t, readBody(t, got)) // fails for what a reader would not take
	}
	if spared <= 0 {
		t.Error("nothing was spared")
	}
}

// TestOutlineSparesReading: what was noted is not read to describe it, but for the batch with the largest timestamp.
func TestOutlineSparesReading(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 2))
	l, _, chain := makeLog(t, rng, logOptions{batches: 200, records: 3, value: 5000, spread: 50})
	noted := &outlinedLog{log: l}
	for _, b := range l.batches {
		noted.outline.Add(b)
	}
	if _, err := Build(testIdentity(), noted, Range{0, l.end()}, 0, extra(chain)); err != nil {
		t.Fatal(err)
	}
	if noted.read > 3*5000+1000 {
		t.Errorf("%d bytes read", noted.read)
	}
}

// TestOutlineOfOtherBytes: a source that gives other bytes than were noted makes no segment.
func TestOutlineOfOtherBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 3))
	l, _, chain := makeLog(t, rng, logOptions{batches: 20, records: 3, value: 500, spread: 50})
	noted := &outlinedLog{log: l}
	for _, b := range l.batches {
		noted.outline.Add(b)
	}
	o, err := Build(testIdentity(), noted, Range{0, l.end()}, 0, extra(chain))
	if err != nil {
		t.Fatal(err)
	}
	l.batches[7] = slices.Clone(l.batches[7])
	l.batches[7][len(l.batches[7])-1]++
	body, err := o.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := bytes.NewBuffer(nil).ReadFrom(body); err == nil {
		t.Error("another log was streamed")
	}
}

// TestOutlineIsBounded: of a log that is not sealed for long the older parts are forgotten, and what remains tiles.
func TestOutlineIsBounded(t *testing.T) {
	var o Outline
	rb := record.Builder{}
	rb.Add(1, nil, make([]byte, ChunkTarget))
	b, err := rb.Build()
	if err != nil {
		t.Fatal(err)
	}
	const batches = 2*maxParts + 7
	for i := range record.Offset(batches) {
		b.Stamp(i, 1)
		o.Add(b)
		if len(o.parts) > maxParts {
			t.Fatalf("%d parts", len(o.parts))
		}
	}
	parts := o.Within(0, batches, nil)
	if n := len(parts); n < maxParts/2 || parts[n-1].End != batches {
		t.Fatalf("%d parts", n)
	}
	for i := 1; i < len(parts); i++ {
		if parts[i].Base != parts[i-1].End {
			t.Fatalf("a gap before %d", parts[i].Base)
		}
	}
	o.Trim(batches - 3)
	if len(o.parts) != 3 || cap(o.parts) > 16 {
		t.Errorf("%d parts in %d after the rest was sealed", len(o.parts), cap(o.parts))
	}
}
