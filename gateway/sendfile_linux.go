// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/varve/varve/broker"
)

// fileSender lets the kernel send from files to one connection. The connection's write deadline holds.
type fileSender struct{ raw syscall.RawConn }

func newFileSender(nc *net.TCPConn) *fileSender {
	raw, err := nc.SyscallConn()
	if err != nil {
		return nil
	}
	return &fileSender{raw}
}

// send sends a span. With an error some of it may be on its way: the connection has to end.
func (f *fileSender) send(s *broker.Span) error {
	fd, at := s.File()
	left := s.Len()
	var failed error
	err := f.raw.Write(func(to uintptr) (done bool) {
		for left > 0 {
			n, err := syscall.Sendfile(int(to), int(fd), &at, left)
			switch {
			case err == nil && n > 0:
				left -= n
			case err == nil:
				failed = io.ErrUnexpectedEOF
				return true
			case errors.Is(err, syscall.EAGAIN):
				return false
			case !errors.Is(err, syscall.EINTR):
				failed = err
				return true
			}
		}
		return true
	})
	if err == nil && failed != nil && !errors.Is(failed, syscall.EPIPE) && !errors.Is(failed, syscall.ECONNRESET) {
		s.Broken()
	}
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("send %d bytes from a file: %w", left, err)
	}
	return nil
}
