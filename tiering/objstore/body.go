// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
)

// VerifiedBody reads a Body for an upload and holds back its last bytes unless the whole has the checksum it should have:
// so a store that was promised the full length never gets a complete wrong object. It can be read again from the start.
//
// A lock lets Close end a Read of an HTTP transport that goes on after the request was answered; after Close the body is
// not touched any more.
type VerifiedBody struct {
	body Body
	want uint32

	mu struct {
		sync.Mutex
		r      io.ReadCloser
		crc    uint32
		at     int64 // bytes delivered of r
		pos    int64 // where the next Read should be
		err    error // of the body; sticky
		closed bool
	}
}

// NewVerifiedBody opens nothing yet.
func NewVerifiedBody(body Body, crc uint32) *VerifiedBody {
	return &VerifiedBody{body: body, want: crc}
}

// Err returns what was wrong with the body, if anything: it explains the failed request better than the transport does.
func (v *VerifiedBody) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.err
}

func (v *VerifiedBody) Read(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, err := v.readLocked(p)
	if err != nil && !errors.Is(err, io.EOF) && !v.mu.closed {
		v.mu.err = err
	}
	return n, err
}

func (v *VerifiedBody) readLocked(p []byte) (int, error) {
	switch {
	case v.mu.closed:
		return 0, io.ErrClosedPipe
	case v.mu.err != nil:
		return 0, v.mu.err
	case v.mu.pos == v.body.Size() && v.body.Size() > 0:
		return 0, io.EOF
	}
	if err := v.positionLocked(); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := v.mu.r.Read(p)
	v.mu.crc = crc32.Update(v.mu.crc, castagnoli, p[:n])
	v.mu.at += int64(n)
	v.mu.pos = v.mu.at
	if errors.Is(err, io.EOF) && v.mu.at < v.body.Size() {
		return 0, fmt.Errorf("%w: body ends after %d of %d bytes", ErrCorrupt, v.mu.at, v.body.Size())
	}
	if v.mu.at > v.body.Size() {
		return 0, fmt.Errorf("%w: body is longer than the %d bytes it promised", ErrCorrupt, v.body.Size())
	}
	if v.mu.at == v.body.Size() && v.mu.crc != v.want {
		return 0, fmt.Errorf("%w: body has checksum %08x, not %08x", ErrCorrupt, v.mu.crc, v.want)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read body: %w", err)
	}
	return n, err
}

// positionLocked opens the body when it is not open where the next Read should be.
func (v *VerifiedBody) positionLocked() error {
	if v.mu.r != nil && v.mu.at == v.mu.pos {
		return nil
	}
	if v.mu.pos != 0 {
		return fmt.Errorf("%w: read at %d of a body that is at %d", ErrRejected, v.mu.pos, v.mu.at)
	}
	if v.mu.r != nil {
		v.mu.r.Close()
	}
	r, err := v.body.Open()
	if err != nil {
		v.mu.r = nil
		return fmt.Errorf("open body: %w", err)
	}
	v.mu.r, v.mu.at, v.mu.crc = r, 0, 0
	return nil
}

// Seek can go anywhere, as SDKs find the length by it, but only the start and the current place can be read.
func (v *VerifiedBody) Seek(offset int64, whence int) (int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += v.mu.pos
	case io.SeekEnd:
		offset += v.body.Size()
	}
	if offset < 0 || offset > v.body.Size() {
		return 0, fmt.Errorf("%w: seek to %d of %d", ErrRejected, offset, v.body.Size())
	}
	v.mu.pos = offset
	return offset, nil
}

// Close ends reading for good. It may be called twice.
func (v *VerifiedBody) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.closed = true
	if v.mu.r == nil {
		return nil
	}
	err := v.mu.r.Close()
	v.mu.r = nil
	return err
}
