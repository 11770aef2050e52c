// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve/varve/record"
)

// Span is a run of whole batches that stays in its log file, for a caller who lets the kernel send it from there (H5). Until Release its
// bytes are what they were: the file is neither closed nor written over. They stay so afterwards too, because the kernel may still
// hold pages of it for a peer that has not read them: a file that was lent is removed when it is dead, never used again.
type Span struct {
	files *fileSet
	file  *logFile
	at    int64
	size  int
}

// Len is the number of bytes.
func (s *Span) Len() int { return s.size }

// File is where the bytes lie: a descriptor, open until Release, and the place in its file.
func (s *Span) File() (fd uintptr, at int64) { return s.file.handle.Fd(), s.at }

// Broken notes that the file did not give the bytes: it is not lent again, so that the next read copies and tells why.
func (s *Span) Broken() {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	s.file.broken = true
}

// Release gives the file back. The Span is not used any more.
func (s *Span) Release() { s.files.release(s.file) }

// Chunk is a part of what a read found: bytes in the buffer, or a span if Span.Len is not 0.
type Chunk struct {
	Data     []byte
	Span     Span
	from, to int // of Data in the buffer, while that may still move
}

// Reading is a Read, with what it asks for and what it found.
type Reading struct {
	From, Limit record.Offset
	MaxBytes    int
	FirstWhole  bool
	Buf         []byte // what is copied goes behind what it holds
	// Lend: runs of at least minSpanBytes in files that are not written to any more may be left there. What was found goes behind what
	// Chunks holds, in order. The caller releases the spans.
	Lend   bool
	Chunks []Chunk
	Size   int           // bytes found
	Next   record.Offset // behind them
}

// ReadInto is Read for a caller who can send from files, or has to know where what was found ends. An error leaves Buf and Chunks as they were.
func (l *Log) ReadInto(r *Reading) error {
	slot, err := l.db.enter()
	if err != nil {
		return err
	}
	defer l.db.leave(slot)
	c := cursors.Get().(*cursor)
	defer cursors.Put(c)
	g := &c.gather
	known := len(r.Chunks)
	*g = gather{l: l, buf: r.Buf, begin: len(r.Buf), next: r.From, lend: r.Lend, chunks: r.Chunks}
	err = l.collect(c, r.From, r.Limit, r.MaxBytes, r.FirstWhole)
	r.Chunks = g.chunks
	if err != nil {
		r.Chunks = ReleaseChunks(r.Chunks, known)
	} else {
		r.Buf, r.Size, r.Next = g.buf, g.size(), g.next
	}
	for i := known; i < len(r.Chunks); i++ {
		if k := &r.Chunks[i]; k.Span.size == 0 {
			k.Data = g.buf[k.from:k.to:k.to]
		}
	}
	*g = gather{}
	return err
}

// ReleaseChunks releases the spans behind the first keep chunks and returns these.
func ReleaseChunks(chunks []Chunk, keep int) []Chunk {
	for i := keep; i < len(chunks); i++ {
		if s := &chunks[i].Span; s.size > 0 {
			s.Release()
		}
	}
	clear(chunks[keep:])
	return chunks[:keep]
}

// copied notes bytes that were read into the buffer.
func (g *gather) copied(from int) {
	if n := len(g.chunks); n > 0 && g.chunks[n-1].to == from && g.chunks[n-1].Span.size == 0 {
		g.chunks[n-1].to = len(g.buf)
		return
	}
	g.chunks = append(g.chunks, Chunk{from: from, to: len(g.buf)})
}

// span leaves a run of n bytes where it is, if that is worth it and the file may be lent. Of the bytes only the first batch's header is
// looked at.
func (g *gather) span(f *logFile, n int) (bool, error) {
	d := g.l.db
	if n < minSpanBytes || d.disk.full.Load() || !d.files.lendOut(f, time.Now().Add(-d.o.spanAfter)) {
		return false, nil
	}
	g.chunks = append(g.chunks, Chunk{Span: Span{&d.files, f, g.at, n}})
	g.spanned += n
	got, err := f.handle.ReadAt(g.header[:], g.at)
	if got < len(g.header) {
		return true, shortRead(f, g.at, len(g.header), got, err)
	}
	if b := record.Batch(g.header[:]); b.BaseOffset() != g.base || b.NextOffset() > g.next || b.Size() > n {
		return true, fmt.Errorf("%w: no batch at %d of %v at offset %d of log file %s", ErrCorrupt, g.base, g.l.id, g.at, f.name)
	}
	return true, nil
}

// lendOut counts a span of a file. Not of one that is written to, or was a moment ago: consumers that keep up would lend every file, and
// then none could be written over. Nor while many dead files wait for their spans.
func (s *fileSet) lendOut(f *logFile, sealedBefore time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !f.sealed || f.broken || f.sealedAt.After(sealedBefore) || s.gone >= maxGoneFiles || f.handle.Fd() == vfs.InvalidFd {
		return false
	}
	s.holdLocked(f)
	f.lent = true
	return true
}
