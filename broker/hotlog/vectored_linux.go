// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// vectored tells whether writeList writes the whole list at once.
func vectored(f vfs.File) bool { return f.Fd() != vfs.InvalidFd }

// writeList writes the pieces one behind the other, from at on, and tells how many bytes. What a first try leaves, for want of space or because it
// was interrupted, goes piece by piece through the file itself, which gives the reserve away and tries again. Any other error is final.
func writeList(f vfs.File, list [][]byte, at int64) (written int64, err error) {
	first := 0
	if vectored(f) && len(list) > 1 {
		first, err = unix.Pwritev(int(f.Fd()), list, at)
		if err != nil && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
	}
	return writeRest(f, list, at, max(first, 0))
}
