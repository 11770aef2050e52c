// SPDX-License-Identifier: Apache-2.0

//go:build linux

package hotlog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/varve/varve/record"
)

// spanLog is a log on a disk, since only files there can be lent, with the bytes that were appended.
type spanLog struct {
	t    *testing.T
	dir  string
	o    Options
	d    *DB
	l    *Log
	w    *watch
	all  []byte
	ends []int // in all, of each batch
}

const spanBatch = 64 << 10

func newSpanLog(t *testing.T) *spanLog {
	s := &spanLog{t: t, dir: t.TempDir(), o: small(nil), w: newWatch()}
	s.o.fileBytes, s.o.rewriteAfter, s.o.spanAfter, s.o.eager = 1<<20, time.Nanosecond, time.Nanosecond, true
	s.open()
	return s
}

func (s *spanLog) open() {
	s.d = mustOpen(s.t, s.dir, s.o)
	s.l = mustLog(s.t, s.d, 1, s.w)
}

// put appends n batches.
func (s *spanLog) put(n int) {
	s.t.Helper()
	for range n {
		end := record.Offset(len(s.ends))
		b := makeBatch(end, 0, 1, spanBatch, byte(end))
		check(s.t, s.l.Append(b, -1, nil))
		s.w.waitDurable(end + 1)
		s.all = append(s.all, b...)
		s.ends = append(s.ends, len(s.all))
	}
}

// read reads from a batch on, with spans.
func (s *spanLog) read(from, maxBytes int) (chunks []Chunk, want []byte) {
	s.t.Helper()
	r := Reading{From: record.Offset(from), Limit: record.Offset(len(s.ends)), MaxBytes: maxBytes, FirstWhole: true, Buf: make([]byte, 0, maxBytes), Lend: true}
	check(s.t, s.l.ReadInto(&r))
	begin := 0
	if from > 0 {
		begin = s.ends[from-1]
	}
	if end := s.ends[r.Next-1]; end-begin != r.Size {
		s.t.Fatalf("%d bytes from %d to %d, want %d", r.Size, from, r.Next, end-begin)
	}
	return r.Chunks, s.all[begin : begin+r.Size]
}

func lentBytes(chunks []Chunk) (n int) {
	for i := range chunks {
		n += chunks[i].Span.Len()
	}
	return n
}

// bytesOf reads chunks as the kernel would, from the descriptors.
func bytesOf(t *testing.T, chunks []Chunk) (all []byte) {
	t.Helper()
	for i := range chunks {
		c := &chunks[i]
		if c.Span.Len() == 0 {
			all = append(all, c.Data...)
			continue
		}
		b := make([]byte, c.Span.Len())
		fd, at := c.Span.File()
		if n, err := syscall.Pread(int(fd), b, at); n < len(b) {
			t.Fatalf("%d of %d bytes of a span: %v", n, len(b), err)
		}
		all = append(all, b...)
	}
	return all
}

// giveBack trims everything and appends until the first n log files are dead and gone.
func (s *spanLog) giveBack(n uint32) {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for number := uint32(1); number <= n; {
		if s.d.files.get(number) == nil {
			number++
			continue
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("log file %d is still there", number)
		}
		s.put(4)
		check(s.t, s.l.Trim(record.Offset(len(s.ends)-1)))
	}
}

// TestSpans: what lies in files that are not written to any more is lent, the rest is copied, and together it is what was appended. Short
// runs are copied, and so is everything for who does not ask for spans.
func TestSpans(t *testing.T) {
	s := newSpanLog(t)
	defer func() { check(t, s.d.Close()) }()
	s.put(100)
	for _, from := range []int{0, 1, 17, 50, 99} {
		chunks, want := s.read(from, 100*2*spanBatch)
		if got := bytesOf(t, chunks); !bytes.Equal(got, want) {
			t.Errorf("from %d: %d bytes, want %d", from, len(got), len(want))
		}
		if lent := lentBytes(chunks); from == 0 && (lent < len(want)/2 || lent == len(want)) {
			t.Errorf("%d bytes of %d are lent", lent, len(want))
		}
		ReleaseChunks(chunks, 0)
	}
	got, err := s.l.Read(0, 100, 1<<30, true, nil)
	if check(t, err); !bytes.Equal(got, s.all) {
		t.Errorf("without spans: %d bytes, want %d", len(got), len(s.all))
	}
	for _, f := range s.d.files.sorted() {
		if f.sealed && f.refs != 0 {
			t.Errorf("%s is still held %d times", f.name, f.refs)
		}
	}
	b := makeBatch(100, 0, 1, 1000, 7)
	check(t, s.l.Append(b, -1, nil))
	s.w.waitDurable(101)
	s.all, s.ends = append(s.all, b...), append(s.ends, len(s.all)+len(b))
	s.put(40)
	if chunks, _ := s.read(100, len(b)); lentBytes(chunks) != 0 {
		t.Error("a batch of 1000 bytes is lent")
	}
}

// TestSpanOutlivesItsFile: a span's bytes stay when its batches are trimmed, their file is dead, and others like it are written over, until it
// is released; and after that they stay for what the kernel has not delivered yet.
func TestSpanOutlivesItsFile(t *testing.T) {
	s := newSpanLog(t)
	s.put(60)
	chunks, want := s.read(0, 2<<20)
	want = bytes.Clone(want)
	if lentBytes(chunks) < 1<<20 {
		t.Fatalf("%d bytes are lent", lentBytes(chunks))
	}
	same := s.keep(func(f *logFile) bool { return f.lent })
	check(t, s.l.Trim(60))
	s.giveBack(3)
	if got := bytesOf(t, chunks); !bytes.Equal(got, want) {
		t.Fatal("the bytes of a span changed")
	}
	if all, _ := s.d.files.usage(); s.d.files.gone == 0 || all < s.d.files.goneBytes || s.d.files.goneBytes == 0 {
		t.Errorf("%d files are gone but for spans, of %d bytes; %d in all", s.d.files.gone, s.d.files.goneBytes, all)
	}
	ReleaseChunks(chunks, 0)
	if s.d.files.gone != 0 || s.d.files.goneBytes != 0 {
		t.Errorf("%d files of %d bytes wait for spans that were released", s.d.files.gone, s.d.files.goneBytes)
	}
	s.giveBack(s.d.files.last)
	same("lent")
	// What the process before may have lent is not written over either.
	s.put(40)
	same = s.keep(func(f *logFile) bool { return f.sealed && !f.lent })
	check(t, s.d.Close())
	s.open()
	check(t, s.l.Trim(record.Offset(len(s.ends))))
	s.giveBack(s.d.files.last + 5)
	same("there before the start")
	check(t, s.d.Close())
}

// keep opens files of the log and remembers what they hold. The function that it returns fails the test if one of them was written over.
func (s *spanLog) keep(which func(*logFile) bool) func(what string) {
	s.t.Helper()
	kept := map[*os.File][]byte{}
	for _, f := range s.d.files.sorted() {
		if !which(f) {
			continue
		}
		h, err := os.Open(f.name)
		check(s.t, err)
		s.t.Cleanup(func() { _ = h.Close() })
		b := make([]byte, s.o.fileBytes/2)
		n, err := h.ReadAt(b, 0)
		if errors.Is(err, io.EOF) && n > 0 { // what did not fit into it was a large move
			err = nil
		}
		check(s.t, err)
		kept[h] = b[:n]
	}
	if len(kept) == 0 {
		s.t.Fatal("no such file")
	}
	return func(what string) {
		s.t.Helper()
		for h, before := range kept {
			after := make([]byte, len(before))
			if _, err := h.ReadAt(after, 0); err != nil || !bytes.Equal(before, after) {
				s.t.Errorf("%s, which was %s, was written over: %v", h.Name(), what, err)
			}
		}
	}
}

// TestSpansBounded: while many dead files wait for their spans no more are lent, and so it is while the disk is full, with a file that did
// not give what was sent from it, and with one that was written to a moment ago.
func TestSpansBounded(t *testing.T) {
	s := newSpanLog(t)
	defer func() { check(t, s.d.Close()) }()
	s.put(40)
	lends := func(want bool, why string) {
		t.Helper()
		chunks, _ := s.read(0, 1<<20)
		if got := lentBytes(chunks) > 0; got != want {
			t.Errorf("%s: lent %v", why, got)
		}
		ReleaseChunks(chunks, 0)
	}
	lends(true, "at first")
	s.d.files.mu.Lock()
	s.d.files.gone = maxGoneFiles
	s.d.files.mu.Unlock()
	lends(false, "many files are gone")
	s.d.files.mu.Lock()
	s.d.files.gone = 0
	s.d.files.mu.Unlock()
	s.d.o.spanAfter = time.Hour
	lends(false, "all files are new")
	s.d.o.spanAfter = time.Nanosecond
	lends(true, "again")
	chunks, _ := s.read(0, 2*spanBatch)
	chunks[0].Span.Broken()
	ReleaseChunks(chunks, 0)
	chunks, _ = s.read(0, 2*spanBatch)
	if lentBytes(chunks) != 0 {
		t.Error("a broken file is lent")
	}
}

// TestSpanDamage: a run that does not begin with the batch its key names is an error, and nothing is held of it; so is one behind the end of
// its file.
func TestSpanDamage(t *testing.T) {
	for name, damage := range map[string]func(*os.File) error{
		"another batch": func(f *os.File) error {
			_, err := f.WriteAt(make([]byte, 8), frameHeaderLen+7)
			return err
		},
		"short": func(f *os.File) error { return f.Truncate(frameHeaderLen + 20) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpanLog(t)
			defer func() { check(t, s.d.Close()) }()
			s.put(40)
			key, first := s.firstFile()
			f, err := os.OpenFile(first.name, os.O_RDWR, 0)
			check(t, err)
			defer f.Close()
			check(t, damage(f))
			r := Reading{From: key, Limit: 40, MaxBytes: 1 << 20, Lend: true}
			wantErr(t, s.l.ReadInto(&r), ErrCorrupt)
			if len(r.Chunks) != 0 || first.refs != 0 {
				t.Errorf("%d chunks, the file is held %d times", len(r.Chunks), first.refs)
			}
		})
	}
}

// firstFile is a sealed file whose first frame begins with a batch of the log, and that batch's offset.
func (s *spanLog) firstFile() (record.Offset, *logFile) {
	for _, e := range s.l.w.extents {
		if e.file.sealed && e.base > 0 {
			return e.base, e.file
		}
	}
	s.t.Fatal("no sealed file")
	return 0, nil
}

// TestSpanAtClose: a span that is still out when the store is closed keeps its file open until it is released, and no longer.
func TestSpanAtClose(t *testing.T) {
	s := newSpanLog(t)
	s.put(40)
	chunks, want := s.read(0, 1<<20)
	check(t, s.d.Close())
	if got := bytesOf(t, chunks); !bytes.Equal(got, want) {
		t.Error("the bytes of a span changed")
	}
	open := s.d.files.open
	ReleaseChunks(chunks, 0)
	if open == 0 || s.d.files.open != 0 {
		t.Errorf("%d files were open while spans were out, %d after", open, s.d.files.open)
	}
}
