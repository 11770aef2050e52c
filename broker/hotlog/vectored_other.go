// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hotlog

import "github.com/cockroachdb/pebble/v2/vfs"

func vectored(vfs.File) bool { return false }

func writeList(f vfs.File, list [][]byte, at int64) (written int64, err error) {
	return writeRest(f, list, at, 0)
}
