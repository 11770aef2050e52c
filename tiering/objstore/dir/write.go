// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"os"
	"sync"
	"unsafe"
)

const (
	// writeBuffer is the memory of one upload, and what it writes at a time.
	writeBuffer = 512 << 10
	// directFrom is the least size of objects that are written past the page cache. A page that nobody reads soon costs more processor time
	// to fill than all else of an upload, the more where a virtual machine gets its memory as it is touched, and takes the place of
	// pages of the hot log.
	directFrom = 1 << 20
	// alignment is what writes past the page cache need of buffer, position and length, on any disk.
	alignment = 4096
)

var buffers = sync.Pool{New: func() any {
	b := make([]byte, writeBuffer+alignment)
	off := int(-uintptr(unsafe.Pointer(&b[0])) & (alignment - 1))
	aligned := b[off : off+writeBuffer]
	return &aligned
}}

// writer writes a file from its start in pieces of writeBuffer.
type writer struct {
	f      *os.File
	buf    *[]byte
	n      int // of buf are filled
	direct bool
}

// newWriter begins to write a file in which an object of a size is to be. release must be called.
func newWriter(f *os.File, size int64) writer {
	return writer{f: f, buf: buffers.Get().(*[]byte), direct: size >= directFrom && setDirect(f, true) == nil}
}

// release gives the memory back.
func (w *writer) release() { buffers.Put(w.buf) }

// space is where the next bytes go; it is never empty.
func (w *writer) space() []byte { return (*w.buf)[w.n:] }

// filled says how many bytes are in space now.
func (w *writer) filled(n int) error {
	if w.n += n; w.n < writeBuffer {
		return nil
	}
	return w.flush()
}

// flush writes what is there. What is no multiple of alignment ends the writing past the page cache.
func (w *writer) flush() error {
	b := (*w.buf)[:w.n]
	w.n = 0
	if len(b) == 0 {
		return nil
	}
	if w.direct && len(b)%alignment == 0 {
		n, err := w.f.Write(b)
		if err == nil || n > 0 || !refusesDirect(err) {
			return err
		}
		// A file system may take the flag and refuse the writes.
	}
	if w.direct {
		w.direct = false
		if err := setDirect(w.f, false); err != nil {
			return err
		}
	}
	_, err := w.f.Write(b)
	return err
}

// end writes what is left, and the last bytes.
func (w *writer) end(last []byte) error {
	for len(last) > 0 {
		n := copy(w.space(), last)
		last = last[n:]
		if err := w.filled(n); err != nil {
			return err
		}
	}
	return w.flush()
}
