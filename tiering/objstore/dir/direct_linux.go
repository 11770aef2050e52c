// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// setDirect has writes of a file go past the page cache, or through it again. Some file systems cannot do the first.
func setDirect(f *os.File, on bool) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	err = conn.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if err != nil {
			done = err
			return
		}
		flags &^= unix.O_DIRECT
		if on {
			flags |= unix.O_DIRECT
		}
		_, done = unix.FcntlInt(fd, unix.F_SETFL, flags)
	})
	return errors.Join(err, done)
}

// refusesDirect tells whether a write failed because it was to go past the page cache.
func refusesDirect(err error) bool { return errors.Is(err, unix.EINVAL) }
