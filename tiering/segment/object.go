// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/varve/varve/record"
)

// Object is a built segment whose data still lies in the source. It holds header, index and footer only (W4).
type Object struct {
	Info   Info
	index  *Index
	header []byte
	tail   []byte
	src    Source
	crc    uint32
}

// Size is the length of the object.
func (o *Object) Size() int64 { return o.Info.Bytes }

// CRC32C is the checksum of the whole object.
func (o *Object) CRC32C() uint32 { return o.crc }

// Index is the index a reader would get from the footer.
func (o *Object) Index() *Index { return o.index }

// Open streams the object from its first byte. It may be called any number of times, also concurrently when the source allows it.
// The stream can be sought. It fails rather than give bytes other than those that were checked when it was built (W3).
func (o *Object) Open() (io.ReadCloser, error) { return &body{o: o, from: -1}, nil }

// body reads the source a group of chunks at a time: no goroutine, and one buffer for those that the reader has no room for.
type body struct {
	o      *Object
	pos    int64
	buf    []byte
	room   *[]byte // where buf comes from
	from   int64   // position of buf in the object; -1: none
	closed bool
}

var bodyBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (r *body) Read(p []byte) (int, error) {
	if r.closed {
		return 0, errors.New("segment: read of a closed body")
	}
	data, end := r.o.Info.DataPos, r.o.index.Producers.Pos
	var src []byte
	switch {
	case r.pos < data:
		src = r.o.header[r.pos:]
	case r.pos < end:
		if r.from < 0 || r.pos < r.from || r.pos >= r.from+int64(len(r.buf)) {
			n, err := r.load(p)
			if n > 0 || err != nil {
				r.pos += int64(n)
				return n, err
			}
		}
		src = r.buf[r.pos-r.from:]
	case r.pos < r.o.Info.Bytes:
		src = r.o.tail[r.pos-end:]
	default:
		return 0, io.EOF
	}
	n := copy(p, src)
	r.pos += int64(n)
	return n, nil
}

// load reads whole chunks from the one that holds pos on and checks each against the index: into p, if one begins at pos and p has room, and
// tells how many bytes; else into buf.
func (r *body) load(p []byte) (direct int, err error) {
	cs := r.o.index.Chunks
	first := sort.Search(len(cs), func(i int) bool { return cs[i].Pos+int64(cs[i].Len) > r.pos })
	room := bodyGroup
	isDirect := cs[first].Pos == r.pos && int(cs[first].Len) <= len(p)
	if isDirect {
		room = len(p)
	}
	last, n := first, int(cs[first].Len)
	for last+1 < len(cs) && n+int(cs[last+1].Len) <= room {
		last++
		n += int(cs[last].Len)
	}
	into := p[:0]
	if !isDirect {
		if r.buf == nil {
			r.room = bodyBuffers.Get().(*[]byte)
			r.buf = *r.room
		}
		into = slices.Grow(r.buf[:0], n)
		r.from, r.buf = -1, into
	}
	err = r.o.src.Scan(cs[first].Base, r.o.index.ChunkEnd(last), func(b record.Batch) error {
		if len(into)+len(b) > n {
			return fmt.Errorf("%w: more bytes than when it was built", ErrSource)
		}
		into = append(into, b...)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("segment: read from %d: %w", cs[first].Base, err)
	}
	if len(into) != n {
		return 0, fmt.Errorf("%w: %d bytes from %d on, %d when it was built", ErrSource, len(into), cs[first].Base, n)
	}
	at := 0
	for i := first; i <= last; i++ {
		if crc32.Checksum(into[at:at+int(cs[i].Len)], castagnoli) != cs[i].CRC {
			return 0, fmt.Errorf("%w: bytes from %d on are not those it was built from", ErrSource, cs[i].Base)
		}
		at += int(cs[i].Len)
	}
	if isDirect {
		return n, nil
	}
	r.from, r.buf = cs[first].Pos, into
	return 0, nil
}

// Seek lets a client library rewind for a retry or a checksum of its own.
func (r *body) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.pos
	case io.SeekEnd:
		offset += r.o.Info.Bytes
	}
	if offset < 0 || whence < io.SeekStart || whence > io.SeekEnd {
		return 0, fmt.Errorf("segment: seek to %d (whence %d)", offset, whence)
	}
	r.pos = offset
	return offset, nil
}

func (r *body) Close() error {
	if r.room != nil && cap(r.buf) <= maxPooledBody {
		*r.room = r.buf[:0]
		bodyBuffers.Put(r.room)
	}
	r.closed, r.buf, r.room = true, nil, nil
	return nil
}
