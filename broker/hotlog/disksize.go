// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// DiskSize is the size in bytes of the file system that holds dir.
func DiskSize(dir string) (int64, error) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	if err != nil {
		return 0, fmt.Errorf("size of the disk of %s: %w", dir, err)
	}
	return int64(usage.TotalBytes), nil
}

// AppendedBytes is how many bytes of batches were appended since Open. It costs one atomic read.
func (d *DB) AppendedBytes() int64 { return d.stats.appendedBytes.Load() }

// LiveBytes is what the open logs hold, from start to end, together. It costs one atomic read.
func (d *DB) LiveBytes() int64 { return d.stats.live.Load() }
