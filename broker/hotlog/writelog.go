// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"fmt"
	"hash/crc32"
	"math"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// beginFrame finds the place of c's frame, in a new file when the one at hand is full.
func (d *DB) beginFrame(c *commit) error {
	if err := d.comeBackLocked(); err != nil {
		return err
	}
	if d.head.at > 0 && d.head.at+int64(c.bytes) > d.o.fileBytes {
		if err := d.rotate(); err != nil {
			return err
		}
	}
	c.file, c.start, c.data = d.head.file, d.head.at, 0
	return nil
}

// rotate goes on in the next file, which the preparer has ready.
func (d *DB) rotate() error {
	full := d.head.file
	for d.head.file == full {
		var late <-chan time.Time
		if d.o.WALFailoverDir != "" {
			late = time.After(failoverAfter)
		}
		select {
		case next := <-d.prepared:
			if err := d.goOnIn(next); err != nil {
				return err
			}
		case <-late:
			f, err := d.files.create(true)
			if err != nil {
				return err
			}
			if err := d.goOnIn(preparedFile{file: f}); err != nil {
				return err
			}
		}
	}
	return nil
}

// place says where a record batch will lie.
func (c *commit) place(b []byte) pointer {
	p := pointer{c.file.number, uint32(c.start + frameHeaderLen + c.data), uint32(len(b))}
	c.pieces = append(c.pieces, b)
	c.data += int64(len(b))
	return p
}

// writeFrame ends c's Pebble batch with the position it leads to, and writes the frame.
func (d *DB) writeFrame(c *commit) error {
	set := c.batch.SetDeferred(len(keyApplied), positionValueLen)
	copy(set.Key, keyApplied)
	h := frameHeader{file: c.file.number, data: uint32(c.data), sequence: c.sequence, synced: d.synced.load()}
	h.meta = uint32(c.batch.Len())
	at := position{c.file.number, c.start, h.next(c.start), c.sequence}
	at.put(set.Value)
	if err := set.Finish(); err != nil {
		return err
	}
	if n := at.end - d.head.allocated; n > 0 {
		// The file is not a used one: without space set aside each sync would have to note where its bytes went.
		_ = c.file.handle.Preallocate(d.head.allocated, max(n, allocateBytes))
		d.head.allocated += max(n, allocateBytes)
	}
	d.head.at = at.end
	d.stats.logBytes.Add(h.len())
	d.stats.logSinceFlush.Add(h.len())
	d.files.wrote(c.file, at.end, c.sequence)
	if err := d.putFrame(c, &h); err != nil {
		return err
	}
	if d.o.WALFailoverDir != "" {
		d.head.unsynced = append(d.head.unsynced, c)
	}
	d.synced.wrote(c.sequence)
	return nil
}

func (d *DB) putFrame(c *commit, h *frameHeader) error {
	if d.o.WALFailoverDir != "" {
		return d.putImage(c, h)
	}
	w := frameWriter{c: c, at: c.start, buffer: c.buffer[:frameHeaderLen], direct: directBytes}
	if vectored(c.file.handle) {
		w.direct = vectorBytes
	}
	for _, b := range c.pieces {
		if err := w.add(b); err != nil {
			return err
		}
	}
	if err := w.add(c.batch.Repr()); err != nil {
		return err
	}
	h.body = w.sum
	return w.end(h, &d.storeID)
}

// putImage writes a frame that may have to be written again, elsewhere. A write that stalls keeps the memory.
func (d *DB) putImage(c *commit, h *frameHeader) error {
	image := append(c.image[:0], make([]byte, frameHeaderLen)...)
	for _, b := range c.pieces {
		image = append(image, b...)
	}
	image = append(image, c.batch.Repr()...)
	h.body = crc32.Checksum(image[frameHeaderLen:], castagnoli)
	h.put(image, &d.storeID)
	c.image, c.imageEnd = image, int64(len(image))
	f, start := c.file, c.start
	err := d.attempt(f, func() error {
		_, err := f.handle.WriteAt(image, start)
		return err
	})
	if err == errStalled {
		return d.failOverLocked(c)
	}
	return err
}

// frameWriter writes a frame: small pieces are gathered in the buffer, large ones are written from where they lie. What is in the list goes
// with one write, if the file takes lists. A frame whose small pieces fit into the buffer has its header in that; else it comes last.
type frameWriter struct {
	c      *commit
	at     int64 // of the frame, then of the list
	buffer []byte
	listed int // bytes of the buffer that are in the list already
	direct int // the size from which a piece is not gathered
	sum    uint32
	begun  bool // the header is not at the front of the list any more
}

func (w *frameWriter) add(b []byte) error {
	w.sum = crc32.Update(w.sum, castagnoli, b)
	if len(w.c.list) >= maxVectors || len(b) < w.direct && len(w.buffer)+len(b) > gatherBytes-pageBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(b) < w.direct {
		w.buffer = append(w.buffer, b...)
		return nil
	}
	w.listBuffer()
	w.c.list = append(w.c.list, b)
	return nil
}

// listBuffer puts what was gathered last into the list.
func (w *frameWriter) listBuffer() {
	if len(w.buffer) > w.listed {
		w.c.list = append(w.c.list, w.buffer[w.listed:])
		w.listed = len(w.buffer)
	}
}

// flush writes the list, without the header.
func (w *frameWriter) flush() error {
	w.listBuffer()
	if !w.begun {
		w.begun = true
		w.c.list[0] = w.c.list[0][frameHeaderLen:]
		w.at += frameHeaderLen
	}
	return w.write()
}

func (w *frameWriter) write() error {
	n, err := writeList(w.c.file.handle, w.c.list, w.at)
	w.at += n
	clear(w.c.list)
	w.c.list, w.buffer, w.listed = w.c.list[:0], w.buffer[:0], 0
	return err
}

// end writes the rest and the header. Zeros up to the end of the page spare the kernel from reading what an old file has there.
func (w *frameWriter) end(h *frameHeader, store *[16]byte) error {
	end := w.at + int64(len(w.buffer)-w.listed)
	for _, b := range w.c.list {
		end += int64(len(b))
	}
	pad := (pageBytes - end%pageBytes) % pageBytes
	clear(w.buffer[len(w.buffer) : len(w.buffer)+int(pad)])
	w.buffer = w.buffer[:len(w.buffer)+int(pad)]
	w.listBuffer()
	if !w.begun {
		h.put(w.c.list[0], store)
		return w.write()
	}
	if err := w.write(); err != nil {
		return err
	}
	header := w.buffer[:frameHeaderLen]
	h.put(header, store)
	_, err := w.c.file.handle.WriteAt(header, w.c.start)
	return err
}

// writeRest writes a list of which so many bytes are written already.
func writeRest(f vfs.File, list [][]byte, at int64, done int) (written int64, err error) {
	for _, b := range list {
		if done >= len(b) {
			done -= len(b)
		} else {
			if _, err := f.WriteAt(b[done:], at+written+int64(done)); err != nil {
				return written, err
			}
			done = 0
		}
		written += int64(len(b))
	}
	return written, nil
}

// sync makes c's frame durable.
func (d *DB) sync(c *commit) error {
	slow := time.AfterFunc(slowSync, func() {
		d.stats.slow.Add(1)
		d.o.Logger.Warn("disk slow", "dir", d.dir, "operation", "sync of the log", "longer than", slowSync)
	})
	defer slow.Stop()
	if d.hasFailed() {
		return ErrFailed
	}
	var err error
	if d.o.WALFailoverDir != "" {
		err = d.syncSomewhere(c)
	} else {
		err = c.file.handle.SyncData()
		d.files.release(c.file)
	}
	if err != nil {
		return fmt.Errorf("sync the log: %w", err)
	}
	d.synced.reached(c.sequence)
	return nil
}

// syncedTo is how far the log is written and synced. Pebble may make nothing durable that the log could still lose.
type syncedTo struct {
	mu              sync.Mutex
	moved           sync.Cond
	written, synced uint64
	failed          bool
}

// begin notes what is durable at a start. Pebble may write already, and must not see the one without the other: nothing would wake it.
func (s *syncedTo) begin(sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written, s.synced = sequence, sequence
}

func (s *syncedTo) load() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

func (s *syncedTo) wrote(sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = sequence
}

func (s *syncedTo) reached(sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = sequence
	s.moved.Broadcast()
}

func (s *syncedTo) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = true
	s.moved.Broadcast()
}

// wait blocks until everything written by now is synced.
func (s *syncedTo) wait() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for written := s.written; s.synced < written; s.moved.Wait() {
		if s.failed {
			return ErrFailed
		}
	}
	return nil
}

// prepared is a file for the log to go on in, or why there is none.
type preparedFile struct {
	file *logFile
	err  error
}

// prepareLoop keeps one file ready, so that a rotation does not wait for names to become durable.
func (d *DB) prepareLoop() {
	defer close(d.preparerDone)
	for {
		f, err := d.files.create(false)
		select {
		case d.prepared <- preparedFile{f, err}:
		case <-d.stop:
			if err == nil {
				d.files.release(f)
			}
			return
		}
		if err != nil {
			return
		}
	}
}

// commitDirect writes a batch while the committer is not running, and makes it durable.
func (d *DB) commitDirect(fill func(*commit) error) error {
	c := d.newCommit()
	d.sequence++
	c.sequence = d.sequence
	if err := d.writeDirect(c, fill); err != nil {
		return err
	}
	if err := d.sync(c); err != nil {
		return err
	}
	if err := d.p.Apply(c.batch, pebble.NoSync); err != nil {
		return err
	}
	if err := d.applyRepoint(math.MaxUint64); err != nil {
		return err
	}
	d.appliedTo.Store(c.sequence)
	d.durableTo.Store(c.sequence)
	return c.batch.Close()
}

func (d *DB) writeDirect(c *commit, fill func(*commit) error) error {
	d.head.mu.Lock()
	defer d.head.mu.Unlock()
	if err := d.beginFrame(c); err != nil {
		return err
	}
	if err := fill(c); err != nil {
		return err
	}
	return d.writeFrame(c)
}
