// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve/varve/record"
)

// twin is the naive log: what one partition holds.
type twin struct {
	start, end record.Offset
	batches    []record.Batch
	epochs     []record.EpochStart
	current    record.Epoch
	producers  map[int64]twinProducer
	stale      bool
}

type twinProducer struct {
	state string
	end   record.Offset
}

func newTwin() *twin { return &twin{current: record.NoEpoch, producers: map[int64]twinProducer{}} }

func (w *twin) append(b record.Batch, pid int64, state []byte) {
	w.begin(b.LeaderEpoch(), b.BaseOffset(), false)
	w.batches = append(w.batches, b)
	w.end = b.NextOffset()
	if pid >= 0 && len(state) > 0 {
		w.producers[pid] = twinProducer{string(state), w.end}
	}
}

func (w *twin) begin(e record.Epoch, start record.Offset, _ bool) {
	if n := len(w.epochs); e < 0 || n > 0 && w.epochs[n-1].Epoch >= e {
		return
	}
	w.cutEpochs(start)
	w.epochs = append(w.epochs, record.EpochStart{Epoch: e, Start: start})
	w.current = max(w.current, e)
}

func (w *twin) cutEpochs(from record.Offset) {
	for n := len(w.epochs); n > 0 && w.epochs[n-1].Start >= from; n-- {
		w.epochs = w.epochs[:n-1]
	}
}

func (w *twin) truncate(to record.Offset) {
	for n := len(w.batches); n > 0 && w.batches[n-1].NextOffset() > to; n-- {
		w.end = w.batches[n-1].BaseOffset()
		w.batches = w.batches[:n-1]
	}
	w.start = min(w.start, w.end)
	w.cutEpochs(w.end)
	for pid, p := range w.producers {
		if p.end > w.end {
			delete(w.producers, pid)
			w.stale = true
		}
	}
}

func (w *twin) trim(to record.Offset) {
	w.start = max(w.start, to)
	for len(w.batches) > 0 && w.batches[0].NextOffset() <= w.start {
		w.batches = w.batches[1:]
	}
}

func (w *twin) replaceProducers(ps []Producer) {
	w.producers, w.stale = map[int64]twinProducer{}, false
	for _, p := range ps {
		end := w.end
		if p.End > 0 {
			end = min(end, p.End)
		}
		w.producers[p.ID] = twinProducer{string(p.State), end}
	}
}

func (w *twin) reset(start record.Offset, epochs []record.EpochStart, ps []Producer) {
	current := w.current
	for _, e := range epochs {
		current = max(current, e.Epoch)
	}
	*w = twin{start: start, end: start, epochs: append([]record.EpochStart(nil), epochs...), current: current}
	w.replaceProducers(ps)
}

func (w *twin) bytes() (n int64) {
	for _, b := range w.batches {
		n += int64(len(b))
	}
	return n
}

// String is everything a log holds, in one comparable form.
func (w *twin) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "[%d,%d) epochs %v current %d stale %v producers", w.start, w.end, w.epochs, w.current, w.stale)
	var ids []int64
	for pid := range w.producers {
		ids = append(ids, pid)
	}
	sortInt64(ids)
	for _, pid := range ids {
		fmt.Fprintf(&s, " %d=%s", pid, w.producers[pid].state)
	}
	for _, b := range w.batches {
		describe(&s, b)
	}
	return s.String()
}

func describe(s *strings.Builder, b record.Batch) {
	fmt.Fprintf(s, " %d+%d/%d:%d:%x", b.BaseOffset(), b.RecordCount(), b.LeaderEpoch(), len(b), b[len(b)-1])
}

func sortInt64(v []int64) {
	for i := range v {
		for j := i; j > 0 && v[j] < v[j-1]; j-- {
			v[j], v[j-1] = v[j-1], v[j]
		}
	}
}

// describeLog is the same for a real log, read through its API.
func describeLog(l *Log) (string, error) {
	var s strings.Builder
	m := l.Meta()
	fmt.Fprintf(&s, "[%d,%d) epochs %v current %d stale %v producers", l.Start(), l.AppendedEnd(), l.Epochs(), m.CurrentEpoch, m.ProducersStale)
	err := l.Producers(func(pid int64, state []byte) error {
		fmt.Fprintf(&s, " %d=%s", pid, state)
		return nil
	})
	if err != nil {
		return "", err
	}
	err = l.Scan(l.Start(), l.AppendedEnd(), func(b record.Batch) error {
		describe(&s, b)
		return nil
	})
	return s.String(), err
}

// history is the oracle of one partition: the state after each operation, in order, and which operation was reported durable.
type history struct {
	mu      sync.Mutex
	now     *twin
	states  []string
	acked   int
	appends []issued // not yet reported durable
}

type issued struct {
	state int
	end   record.Offset
}

func newHistory() *history {
	h := &history{now: newTwin()}
	h.states = []string{h.now.String()}
	return h
}

// issue records the state an operation leads to, before it is issued.
func (h *history) issue(change func(*twin)) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h.now)
	h.states = append(h.states, h.now.String())
	return len(h.states) - 1
}

func (h *history) ack(state int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked = max(h.acked, state)
}

func (h *history) Appended(record.Offset) {}

func (h *history) Durable(end record.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, a := range h.appends {
		if a.end == end {
			h.acked = max(h.acked, a.state)
			h.appends = h.appends[i+1:]
			return
		}
	}
	panic(fmt.Sprintf("durable end %d that no append led to", end))
}

func (h *history) durableState() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.acked
}

// allows tells whether a recovered state is one at or after the durable one.
func (h *history) allows(from int, got string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.states[from:] {
		if s == got {
			return nil
		}
	}
	return fmt.Errorf("recovered\n  %s\nreported durable\n  %s\nlast issued\n  %s", got, h.states[from], h.states[len(h.states)-1])
}

const crashPartitions = 3

// crasher clones the file system at each sync with 0, 50 and 100 % of the unsynced bytes and checks what a restart finds.
type crasher struct {
	t         *testing.T
	fs        *vfs.MemFS
	histories [crashPartitions]*history
	points    atomic.Int64
	active    atomic.Bool
	mu        sync.Mutex // one check at a time
	options   func(*Options)
}

func (c *crasher) point() {
	if !c.active.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.points.Add(1)
	for _, percent := range []int{0, 50, 100} {
		var durable [crashPartitions]int
		for i, h := range c.histories {
			durable[i] = h.durableState() // before the clone: what is acknowledged later need not be in it
		}
		clone := c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(n), uint64(percent)))})
		if err := c.recover(clone, durable); err != nil {
			c.t.Errorf("sync point %d, %d %% of unsynced data: %v", n, percent, err)
			c.active.Store(false)
			return
		}
	}
}

func (c *crasher) recover(fs vfs.FS, durable [crashPartitions]int) error {
	o := small(fs)
	if c.options != nil {
		c.options(&o)
	}
	d, err := Open("data", o)
	if err != nil {
		return err
	}
	defer d.Close()
	for i, h := range c.histories {
		l, err := d.OpenLog(partition(i), nil)
		if err != nil {
			return err
		}
		got, err := describeLog(l)
		if err != nil {
			return err
		}
		if err := h.allows(durable[i], got); err != nil {
			return fmt.Errorf("partition %d: %w", i, err)
		}
	}
	return nil
}

// TestCrashAtEverySync: H1–H4 at each sync point of a script that does everything.
func TestCrashAtEverySync(t *testing.T) {
	c := &crasher{t: t, fs: vfs.NewCrashableMem()}
	c.script(&syncFS{FS: c.fs, before: c.point}, 20, 100)
}

// TestCrashAtEveryWrite: and before each write to the log, whose earlier frames are then in every state between written and synced.
func TestCrashAtEveryWrite(t *testing.T) {
	c := &crasher{t: t, fs: vfs.NewCrashableMem()}
	c.script(&writeFS{FS: c.fs, before: c.point}, 16, 60)
}

func (c *crasher) script(fs vfs.FS, steps int, atLeast int64) {
	t := c.t
	if raceDetector { // ten times as slow
		steps, atLeast = steps/2, atLeast/3
	}
	o := small(fs)
	o.MemTableBytes = 256 << 10                                          // flushes and compactions are sync points too
	o.fileBytes, o.rewriteAfter, o.eager = 16<<10, time.Nanosecond, true // and so are rotations and rewrites
	d := mustOpen(t, "data", o)
	logs := make([]*Log, crashPartitions)
	for i := range logs {
		c.histories[i] = newHistory()
		logs[i] = mustLog(t, d, i, c.histories[i])
	}
	c.active.Store(true)
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range steps {
		for i := range logs {
			logs[i] = crashStep(t, d, logs[i], c.histories[i], rng, step+i)
		}
		if t.Failed() {
			break
		}
	}
	moved, files := d.stats.movedBytes.Load(), d.files.last
	check(t, d.Close())
	c.point()
	if n := c.points.Load(); n < atLeast && !t.Failed() {
		t.Fatalf("only %d points", n)
	}
	if moved == 0 {
		t.Error("no batch got another place")
	}
	t.Logf("%d points, 3 crashes each; %d log files, %d bytes moved", c.points.Load(), files, moved)
}

// writeFS calls before ahead of each write to a log file.
type writeFS struct {
	vfs.FS
	before func()
}

func (w *writeFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := w.FS.OpenReadWrite(name, c, o...)
	if err != nil || !isWAL(name) {
		return f, err
	}
	return &writeFile{f, w.before}, nil
}

type writeFile struct {
	vfs.File
	before func()
}

func (f *writeFile) WriteAt(b []byte, at int64) (int, error) {
	f.before()
	return f.File.WriteAt(b, at)
}

// crashStep issues a burst of appends without waiting and one other operation.
func crashStep(t *testing.T, d *DB, l *Log, h *history, rng *rand.Rand, step int) *Log {
	for range 1 + rng.IntN(4) {
		epoch := max(h.now.current, 0)
		if rng.IntN(6) == 0 {
			epoch++
		}
		b := makeBatch(h.now.end, epoch, 1+rng.IntN(5), 61+rng.IntN(6000), byte(step))
		pid, state := rng.Int64N(4)-1, fmt.Appendf(nil, "s%d", h.now.end)
		n := h.issue(func(w *twin) { w.append(b, pid, state) })
		h.mu.Lock()
		h.appends = append(h.appends, issued{n, b.NextOffset()})
		h.mu.Unlock()
		check(t, l.Append(b, pid, state))
	}
	between := func(a, b record.Offset) record.Offset { return a + record.Offset(rng.Int64N(int64(b-a)+1)) }
	switch step % 8 {
	case 0:
		e := h.now.current + 1
		n := h.issue(func(w *twin) { w.begin(e, w.end, true) })
		wait, err := l.BeginEpoch(e, h.now.end)
		check(t, err)
		check(t, wait())
		h.ack(n)
	case 1, 5:
		// A trim needs its offset to be appended: wait for everything first.
		wait, err := l.AdoptEpoch(0)
		check(t, err)
		check(t, wait())
		to := between(h.now.start, h.now.end)
		n := h.issue(func(w *twin) { w.trim(to) })
		check(t, l.Trim(to))
		h.ack(n)
	case 2, 6:
		to := between(h.now.start, h.now.end)
		n := h.issue(func(w *twin) { w.truncate(to) })
		check(t, l.Truncate(to))
		h.ack(n)
	case 3:
		ps := []Producer{{ID: 1, State: fmt.Appendf(nil, "r%d", step)}}
		n := h.issue(func(w *twin) { w.replaceProducers(ps) })
		check(t, l.ReplaceProducers(ps))
		h.ack(n)
	case 4:
		h.issue(func(w *twin) { delete(w.producers, 1) })
		check(t, l.DropProducers([]int64{1}))
		if step%16 == 4 {
			n := h.issue(func(w *twin) { *w = *newTwin() })
			check(t, d.Drop(l.ID()))
			h.ack(n)
			l, err := d.OpenLog(l.ID(), h)
			check(t, err)
			return l
		}
	case 7:
		start, epochs := h.now.end+100, []record.EpochStart{{Epoch: h.now.current, Start: 3}}
		n := h.issue(func(w *twin) { w.reset(start, epochs, []Producer{{ID: 2, State: []byte("two")}}) })
		check(t, l.Reset(start, epochs, []Producer{{ID: 2, State: []byte("two")}}))
		h.ack(n)
	}
	return l
}
