// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// replay brings Pebble, which knows the log up to its last flush, up to the log's end, and makes that durable. Errors: ErrCorrupt
// when the log lost what was acknowledged. clean: the directory was closed, so nothing in the log was on its way to the disk.
func (d *DB) replay(clean bool) error {
	value, found, err := d.get(keyApplied)
	if err != nil {
		return err
	}
	var at position
	if found {
		if at, err = parsePosition(value); err != nil {
			return err
		}
	}
	r := replayer{d: d, at: at, files: d.files.sorted(), clean: clean}
	if err := r.run(found); err != nil {
		return err
	}
	d.sequence = r.at.sequence
	d.synced.begin(d.sequence)
	d.appliedTo.Store(d.sequence)
	d.durableTo.Store(d.sequence)
	if r.replayed > 0 {
		d.o.Logger.Info("hot log replayed", "dir", d.dir, "frames", r.replayed, "bytes", r.bytes)
		if err := d.p.Flush(); err != nil {
			return fmt.Errorf("flush what was replayed: %w", err)
		}
	}
	d.flushedTo = d.sequence
	return nil
}

type replayer struct {
	d        *DB
	at       position // of the last frame that is good
	clean    bool
	files    []*logFile
	replayed int
	bytes    int64
	body     []byte
}

// run replays the frames behind at. found tells that at is one, and not the beginning.
func (r *replayer) run(found bool) error {
	n := 0
	for n < len(r.files) && r.files[n].number < r.at.file {
		n++
	}
	r.files = r.files[n:]
	again, err := r.findAgain()
	if err != nil {
		return err
	}
	if found && !again && len(r.files) > 0 && r.files[0].number == r.at.file {
		if err := r.checkApplied(r.files[0]); err != nil {
			return err
		}
	}
	for _, f := range r.files {
		from := int64(0)
		if f.number == r.at.file {
			from = r.at.end
		}
		if err := r.file(f, from); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return r.checkTail()
}

// findAgain looks for frames that were written again in the failover directory, behind the file in which Pebble found them first.
func (r *replayer) findAgain() (found bool, err error) {
	for _, f := range r.files {
		if f.number == r.at.file || found {
			continue
		}
		err := r.with(f, func(in io.ReaderAt) error {
			h, ok, err := r.frame(in, f, 0)
			found = ok && h.sequence <= r.at.sequence
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return found, nil
}

// checkApplied finds a log that lost a frame that Pebble has: the file may be gone, when all in it was flushed, but not shorter.
func (r *replayer) checkApplied(f *logFile) error {
	return r.with(f, func(in io.ReaderAt) error {
		h, ok, err := r.header(in, f, r.at.start)
		if ok && !r.clean { // after a clean end damage to record batches is for those to meet who read them
			ok, err = r.readBody(in, h, r.at.start)
		}
		if err == nil && (!ok || h.sequence != r.at.sequence || h.next(r.at.start) != r.at.end) {
			err = fmt.Errorf("%w: no valid frame %d at offset %d of %s, which the database has", ErrCorrupt, r.at.sequence, r.at.start, f.name)
		}
		return err
	})
}

func (r *replayer) with(f *logFile, fn func(io.ReaderAt) error) error {
	h, err := r.d.files.acquire(f.number)
	if err != nil {
		return err
	}
	defer r.d.files.release(h)
	return fn(h.handle)
}

// file replays the frames of one file that follow the last good one.
func (r *replayer) file(f *logFile, from int64) error {
	return r.with(f, func(in io.ReaderAt) error {
		synced := false
		for start := from; ; {
			h, ok, err := r.frame(in, f, start)
			if ok && start == 0 && h.sequence <= r.at.sequence {
				// The frames from this one on were written again because the disk of the file before stalled. That one may have
				// lost them, so Pebble gets the new places; what else they change is what it has already.
				r.at.sequence = h.sequence - 1
			}
			if err != nil || !ok || h.sequence != r.at.sequence+1 {
				return err
			}
			if !synced {
				// A process that was killed leaves frames that only the kernel has. Pebble must not have them first.
				if err := f.handle.SyncData(); err != nil {
					return fmt.Errorf("sync: %w", err)
				}
				synced = true
			}
			if err := r.apply(h); err != nil {
				return fmt.Errorf("replay frame %d at offset %d: %w", h.sequence, start, err)
			}
			r.at = position{f.number, start, h.next(start), h.sequence}
			f.lastSequence = h.sequence
			r.replayed++
			r.bytes += h.len()
			start = r.at.end
		}
	})
}

// frame reads the frame at an offset, its body into r.body. ok is false if there is no valid one.
func (r *replayer) frame(in io.ReaderAt, f *logFile, start int64) (h frameHeader, ok bool, err error) {
	if h, ok, err = r.header(in, f, start); ok {
		ok, err = r.readBody(in, h, start)
	}
	return h, ok, err
}

func (r *replayer) header(in io.ReaderAt, f *logFile, start int64) (h frameHeader, ok bool, err error) {
	var b [frameHeaderLen]byte
	if ok, err := readFull(in, b[:], start); !ok {
		return h, false, err
	}
	h, ok, err = parseFrameHeader(b[:], &r.d.storeID, f.number)
	return h, ok && h.len() <= f.size-start, err
}

func (r *replayer) readBody(in io.ReaderAt, h frameHeader, start int64) (ok bool, err error) {
	n := int(h.data) + int(h.meta)
	if cap(r.body) < n {
		r.body = make([]byte, n)
	}
	r.body = r.body[:n]
	if ok, err := readFull(in, r.body, start+frameHeaderLen); !ok {
		return false, err
	}
	return crc32.Checksum(r.body, castagnoli) == h.body, nil
}

func readFull(in io.ReaderAt, b []byte, at int64) (ok bool, err error) {
	n, err := in.ReadAt(b, at)
	if n == len(b) {
		return true, nil
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return false, err
}

// apply gives Pebble the batch of the frame in r.body.
func (r *replayer) apply(h frameHeader) error {
	b := r.d.p.NewBatch()
	if err := b.SetRepr(bytes.Clone(r.body[h.data:])); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := r.d.p.Apply(b, pebble.NoSync); err != nil {
		return err
	}
	return b.Close()
}

// checkTail looks behind the end of the log. What a crash left there was on its way to the disk and never acknowledged; a frame
// that knows of the one missing at the end as synced shows that the log was damaged.
func (r *replayer) checkTail() error {
	for _, f := range r.files {
		from := int64(0)
		switch {
		case f.number < r.at.file:
			continue
		case f.number == r.at.file:
			from = r.at.end
		}
		err := r.with(f, func(in io.ReaderAt) error { return r.searchTail(in, f, from) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *replayer) searchTail(in io.ReaderAt, f *logFile, from int64) error {
	const step = 1 << 20
	b := make([]byte, step+frameHeaderLen)
	for ; from < f.size; from += step {
		n, err := in.ReadAt(b, from)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s at %d: %w", f.name, from, err)
		}
		for i := 0; i < step && i+frameHeaderLen <= n; i += frameAlign {
			if binary.BigEndian.Uint32(b[i:]) != frameMagic {
				continue
			}
			h, ok, err := parseFrameHeader(b[i:], &r.d.storeID, f.number)
			if err != nil {
				return fmt.Errorf("%s at %d: %w", f.name, from+int64(i), err)
			}
			if ok && h.synced > r.at.sequence {
				return fmt.Errorf("%w: the log ends with frame %d at offset %d of %s, but the frame at offset %d of %s was written when frame %d was on disk",
					ErrCorrupt, r.at.sequence, r.at.end, logFileName(r.at.file), from+int64(i), f.name, h.synced)
			}
		}
	}
	return nil
}
