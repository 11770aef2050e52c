// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/varve/varve/record"
)

// machine runs a log beside its naive twin, with restarts.
type machine struct {
	fs   *vfs.MemFS
	d    *DB
	logs [2]*Log
	twin [2]*twin
}

func (m *machine) open(t *rapid.T) {
	var err error
	o := small(m.fs)
	o.MemTableBytes = 256 << 10
	o.fileBytes, o.rewriteAfter, o.eager, o.recentPlaces = 64<<10, time.Nanosecond, true, 5
	if m.d, err = Open("data", o); err != nil {
		t.Fatal(err)
	}
	for i := range m.logs {
		if m.logs[i], err = m.d.OpenLog(partition(i), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// drain waits until what was appended can be read.
func (m *machine) drain(t *rapid.T, i int) {
	wait, err := m.logs[i].AdoptEpoch(0)
	if err == nil {
		err = wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	m.twin[i].current = max(m.twin[i].current, 0)
}

func pick(t *rapid.T, from, to record.Offset, name string) record.Offset {
	return record.Offset(rapid.Int64Range(int64(from), int64(to)).Draw(t, name))
}

func TestAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{fs: vfs.NewMem()}
		for i := range m.twin {
			m.twin[i] = newTwin()
		}
		m.open(t)
		defer func() { _ = m.d.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"append":   m.append,
			"epoch":    m.epoch,
			"truncate": m.truncate,
			"trim":     m.trim,
			"reset":    m.reset,
			"drop":     m.drop,
			"replace":  m.replace,
			"read":     m.read,
			"sizes":    m.sizes,
			"reopen": func(t *rapid.T) {
				if err := m.d.Close(); err != nil {
					t.Fatal(err)
				}
				m.open(t)
			},
			"": m.compare,
		})
	})
}

func (m *machine) which(t *rapid.T) int { return rapid.IntRange(0, len(m.logs)-1).Draw(t, "log") }

func (m *machine) append(t *rapid.T) {
	i := m.which(t)
	for range rapid.IntRange(1, 20).Draw(t, "batches") {
		w := m.twin[i]
		b := makeBatch(w.end, max(w.current, 0)+record.Epoch(rapid.IntRange(0, 1).Draw(t, "newer")), rapid.IntRange(1, 4).Draw(t, "records"),
			rapid.SampledFrom([]int{61, 300, 5000, 30000}).Draw(t, "size"), byte(w.end))
		pid := rapid.Int64Range(-1, 3).Draw(t, "pid")
		state := fmt.Appendf(nil, "s%d", w.end)
		w.append(b, pid, state)
		if err := m.logs[i].Append(b, pid, state); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *machine) epoch(t *rapid.T) {
	i := m.which(t)
	e := m.twin[i].current + 1
	m.twin[i].begin(e, m.twin[i].end, true)
	wait, err := m.logs[i].BeginEpoch(e, m.twin[i].end)
	if err == nil {
		err = wait()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) truncate(t *rapid.T) {
	i := m.which(t)
	to := pick(t, m.twin[i].start, m.twin[i].end+2, "to")
	m.twin[i].truncate(to)
	if err := m.logs[i].Truncate(to); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) trim(t *rapid.T) {
	i := m.which(t)
	m.drain(t, i)
	to := pick(t, 0, m.twin[i].end, "to")
	m.twin[i].trim(to)
	if err := m.logs[i].Trim(to); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) reset(t *rapid.T) {
	i := m.which(t)
	start := pick(t, 0, m.twin[i].end+50, "start")
	epochs := []record.EpochStart{{Epoch: max(0, m.twin[i].current), Start: start / 2}}
	ps := []Producer{{ID: 2, State: []byte("reset")}}
	m.twin[i].reset(start, epochs, ps)
	if err := m.logs[i].Reset(start, epochs, ps); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) drop(t *rapid.T) {
	i := m.which(t)
	m.twin[i] = newTwin()
	err := m.d.Drop(partition(i))
	if err == nil {
		m.logs[i], err = m.d.OpenLog(partition(i), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) replace(t *rapid.T) {
	i := m.which(t)
	ps := []Producer{{ID: 0, State: []byte("zero")}, {ID: 3, State: []byte("three"), End: pick(t, 1, m.twin[i].end+2, "end")}}
	m.twin[i].replaceProducers(ps)
	if err := m.logs[i].ReplaceProducers(ps); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) read(t *rapid.T) {
	i := m.which(t)
	m.drain(t, i)
	w := m.twin[i]
	from, limit := pick(t, w.start, w.end+1, "from"), pick(t, w.start, w.end+1, "limit")
	maxBytes := rapid.SampledFrom([]int{0, 100, 10000, 1 << 30}).Draw(t, "max")
	firstWhole := rapid.Bool().Draw(t, "first whole")
	var want []byte
	for _, b := range w.batches {
		if b.NextOffset() <= from || b.BaseOffset() >= limit || from >= limit {
			continue
		}
		if len(want)+len(b) > maxBytes && (len(want) > 0 || !firstWhole) {
			break
		}
		want = append(want, b...)
	}
	got, err := m.logs[i].Read(from, limit, maxBytes, firstWhole, []byte("kept"))
	if err != nil || !bytes.Equal(got[4:], want) {
		t.Fatalf("read [%d,%d) max %d: %d bytes, want %d, error %v", from, limit, maxBytes, len(got)-4, len(want), err)
	}
}

func (m *machine) sizes(t *rapid.T) {
	i := m.which(t)
	m.drain(t, i)
	w := m.twin[i]
	if got := m.logs[i].Bytes(); got != w.bytes() {
		t.Fatalf("%d bytes, want %d", got, w.bytes())
	}
	from := pick(t, 0, w.end+1, "from")
	want := int64(0)
	for _, b := range w.batches {
		if b.NextOffset() > from {
			want += int64(len(b))
		}
	}
	for range 2 { // the second answer is the kept one
		if got := m.logs[i].BytesFrom(from); got != want {
			t.Fatalf("%d bytes from %d, want %d", got, from, want)
		}
	}
}

func (m *machine) compare(t *rapid.T) {
	defer func() {
		if got, want := m.d.LiveBytes(), m.twin[0].bytes()+m.twin[1].bytes(); got != want {
			t.Fatalf("%d live bytes, want %d", got, want)
		}
	}()
	for i, l := range m.logs {
		m.drain(t, i)
		got, err := describeLog(l)
		if want := m.twin[i].String(); err != nil || got != want {
			t.Fatalf("log %d, error %v\n got %s\nwant %s", i, err, got, want)
		}
		if l.DurableEnd() != m.twin[i].end {
			t.Fatalf("durable end %d, want %d", l.DurableEnd(), m.twin[i].end)
		}
	}
}

// TestReadBesideChanges: readers of a log that is trimmed, truncated, reset and dropped get the right bytes or a plain refusal, never a gap.
func TestReadBesideChanges(t *testing.T) {
	o := small(vfs.NewMem())
	o.MemTableBytes = 256 << 10
	o.fileBytes, o.rewriteAfter, o.eager = 64<<10, time.Nanosecond, true
	d := mustOpen(t, "data", o)
	defer d.Close()
	l := mustLog(t, d, 1, nil)
	var current sync.Map // reader's log after a drop
	current.Store("log", l)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for r := range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			rng := rand.New(rand.NewPCG(uint64(r), 9))
			for {
				select {
				case <-stop:
					return
				default:
				}
				v, _ := current.Load("log")
				if err := readSome(v.(*Log), rng); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for step := range 400 {
		for range 8 {
			check(t, l.Append(filled(l.q.end, rng), -1, nil))
		}
		wait, err := l.AdoptEpoch(0)
		check(t, err)
		check(t, wait())
		start, end := l.Start(), l.AppendedEnd()
		switch {
		case step%100 == 99:
			check(t, d.Drop(l.ID()))
			l = mustLog(t, d, 1, nil)
			current.Store("log", l)
		case step%40 == 39:
			check(t, l.Reset(record.Offset(rng.Int64N(int64(end)+100)), nil, nil))
		case step%4 == 1:
			check(t, l.Truncate(start+record.Offset(rng.Int64N(int64(end-start)+1))))
		case step%4 == 3:
			check(t, l.Trim(start+record.Offset(rng.Int64N(int64(end-start)+1))))
		}
	}
	close(stop)
	readers.Wait()
}

// filled is a batch whose bytes follow from its offset, so that a reader knows what must be there.
func filled(base record.Offset, rng *rand.Rand) record.Batch {
	return makeBatch(base, 0, 1+rng.IntN(3), 500+rng.IntN(9000), byte(base*7))
}

func readSome(l *Log, rng *rand.Rand) error {
	start, end := l.Start(), l.AppendedEnd()
	if end <= start {
		return nil
	}
	from := start + record.Offset(rng.Int64N(int64(end-start)))
	got, err := l.Read(from, end, 1<<20, true, nil)
	if errors.Is(err, ErrTrimmed) || errors.Is(err, ErrClosed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read from %d of [%d,%d): %w", from, start, end, err)
	}
	next := record.NoOffset
	for len(got) > 0 {
		b, rest, err := record.Split(got)
		if err != nil {
			return err
		}
		if next == record.NoOffset && (b.BaseOffset() > from || b.NextOffset() <= from) || next != record.NoOffset && b.BaseOffset() != next {
			return fmt.Errorf("read from %d: batch [%d,%d) where %d is due", from, b.BaseOffset(), b.NextOffset(), next)
		}
		if b[len(b)-1] != byte(b.BaseOffset()*7) {
			return fmt.Errorf("batch at %d has another's bytes", b.BaseOffset())
		}
		next, got = b.NextOffset(), rest
	}
	return nil
}
