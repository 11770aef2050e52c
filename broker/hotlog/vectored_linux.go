// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"golang.org/x/sys/unix"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// vectored tells whether writeList writes the whole list at once.
func vectored(f vfs.File) bool { return f.Fd() != vfs.InvalidFd }

// writeList writes the pieces one behind the other, from at on, and tells how many bytes. What a first try leaves goes piece by piece through
// the file itself, which knows what to do when no space is left.
func writeList(f vfs.File, list [][]byte, at int64) (written int64, err error) {
	first := 0
	if vectored(f) && len(list) > 1 {
		first, _ = unix.Pwritev(int(f.Fd()), list, at)
	}
	return writeRest(f, list, at, max(first, 0))
}
