// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// CheckContentRange compares the Content-Range of an answer with the range asked for (faults D12).
func CheckContentRange(header string, off, n int64) error {
	var first, last, total int64
	if _, err := fmt.Sscanf(header, "bytes %d-%d/%d", &first, &last, &total); err != nil {
		return fmt.Errorf("%w: the store ignored the range: Content-Range %q", ErrUnavailable, header)
	}
	switch {
	case total < off+n:
		return fmt.Errorf("%w: [%d,+%d) of %d", ErrRange, off, n, total)
	case first != off || last != off+n-1:
		return fmt.Errorf("%w: the store sent bytes %d-%d for [%d,+%d)", ErrUnavailable, first, last, off, n)
	}
	return nil
}

// AppendBody appends exactly n bytes of an answer to dst; on error it returns dst as it was.
func AppendBody(dst []byte, r io.Reader, n int64) ([]byte, error) {
	out := slices.Grow(dst, int(n))[:int64(len(dst))+n]
	if got, err := io.ReadFull(r, out[len(dst):]); err != nil {
		return dst, fmt.Errorf("%w: body ends after %d of %d bytes: %w", ErrUnavailable, got, n, err)
	}
	return out, nil
}

// SplitRange decides about a Get before anything is sent: a range of nothing needs only the object's size.
func SplitRange(ctx context.Context, s Store, key string, off, n int64) (done bool, err error) {
	if off < 0 || n < 0 {
		return true, fmt.Errorf("get %s: %w: [%d,+%d)", key, ErrRange, off, n)
	}
	if n > 0 {
		return false, nil
	}
	info, err := s.Stat(ctx, key)
	if err == nil && off > info.Size {
		err = fmt.Errorf("get %s: %w: [%d,+0) of %d", key, ErrRange, off, info.Size)
	}
	return true, err
}

// Uploader is what an SDK does for a multipart upload of one object.
type Uploader interface {
	Begin(ctx context.Context) (uploadID string, err error)
	// Part sends a part; number counts from 1.
	Part(ctx context.Context, uploadID string, number int, data []byte) error
	// Complete makes the object of the parts sent, if its name is free.
	Complete(ctx context.Context, uploadID string) error
	Abort(ctx context.Context, uploadID string) error
}

// Multipart uploads body part by part through one buffer. An upload that surely came to nothing is aborted; one whose
// completion is in doubt is left, as an abort could race with it, and GC knows its id.
func Multipart(ctx context.Context, u Uploader, body *VerifiedBody, size int64, announce func(string) error) error {
	id, err := u.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin multipart upload: %w", err)
	}
	err = sendParts(ctx, u, id, body, size, announce)
	if err == nil {
		if err = u.Complete(ctx, id); err != nil {
			err = fmt.Errorf("complete upload %s: %w", id, err)
		}
	}
	if err != nil && !errors.Is(err, ErrUnknownOutcome) {
		actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortDeadline)
		defer cancel()
		_ = u.Abort(actx, id) // best effort: the caller was told the id
	}
	return err
}

func sendParts(ctx context.Context, u Uploader, id string, body *VerifiedBody, size int64, announce func(string) error) error {
	if announce != nil {
		if err := announce(id); err != nil {
			return fmt.Errorf("announce upload %s: %w", id, err)
		}
	}
	buf := make([]byte, min(PartSizeFor(size), size))
	for number, left := 1, size; left > 0; number++ {
		part := buf[:min(left, int64(len(buf)))]
		if _, err := io.ReadFull(body, part); err != nil {
			return err
		}
		if err := u.Part(ctx, id, number, part); err != nil {
			return fmt.Errorf("part %d of upload %s: %w", number, id, err)
		}
		left -= int64(len(part))
	}
	return nil
}

// DeleteEach deletes keys one by one with some parallelism. Both S3 drivers use it: a multi-object delete needs a checksum
// header that stores disagree about, hides failures in a success (faults D9), and saves nothing, as deletes are not billed.
func DeleteEach(ctx context.Context, keys []string, del func(ctx context.Context, key string) error) []error {
	errs := make([]error, len(keys))
	var g errgroup.Group
	g.SetLimit(deleteParallel)
	for i, key := range keys {
		g.Go(func() error {
			if errs[i] = CheckKey(key); errs[i] == nil {
				errs[i] = del(ctx, key)
			}
			return nil
		})
	}
	_ = g.Wait()
	return errs
}

// NewTransport is the HTTP transport of the S3 drivers.
func NewTransport() *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	TuneTransport(t)
	return t
}

// bulkConn sends bodies in large pieces. The runtime copies 32 KiB at a time into a socket, which makes eight times the calls, and less than
// most readers of ours give at once.
type bulkConn struct{ net.Conn }

var bulkBuffers = sync.Pool{New: func() any { return new([bulkBytes]byte) }}

// ReadFrom is what net/http calls for a body, if the connection is not encrypted.
func (c bulkConn) ReadFrom(r io.Reader) (int64, error) {
	buf := bulkBuffers.Get().(*[bulkBytes]byte)
	defer bulkBuffers.Put(buf)
	return io.CopyBuffer(onlyWriter{c.Conn}, r, buf[:])
}

// onlyWriter hides what else a connection can, which io.Copy would prefer.
type onlyWriter struct{ io.Writer }

// TuneTransport sets what both drivers need. There is no overall timeout: the context's deadline is scaled by size.
func TuneTransport(t *http.Transport) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return bulkConn{c}, nil
	}
	t.TLSHandshakeTimeout = dialTimeout
	t.ExpectContinueTimeout = time.Second
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = maxIdleConns
	t.MaxConnsPerHost = 0
	t.IdleConnTimeout = 30 * time.Second // below the idle timeout of common load balancers
	t.DisableCompression = true          // a range is one of the stored bytes
}
