// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// noMemoryLimit is above any real one; cgroup v1 writes "none" as the largest page-aligned int64.
const noMemoryLimit = int64(1) << 60

// minGoHeapBytes is the least Go heap that a node can work with.
const minGoHeapBytes = 64 << 20

// ErrMemoryTooSmall: the memory limit does not hold what lies outside the Go heap and a usable heap.
var ErrMemoryTooSmall = errors.New("ops: the memory limit is too small")

// CgroupMemoryLimit returns the memory limit of the control group that the process is in, version 1 or 2, the lowest on the way
// up to the root; ok is false when there is none. root is the file system's root, os.DirFS("/") outside of tests.
func CgroupMemoryLimit(root fs.FS) (limit int64, ok bool, err error) {
	self, err := fs.ReadFile(root, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil // not Linux, or no control groups
	}
	if err != nil {
		return 0, false, fmt.Errorf("reading the control group: %w", err)
	}
	limit = noMemoryLimit
	for line := range strings.Lines(string(self)) {
		// hierarchy:controllers:path; version 2 is hierarchy 0 without controllers
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var found int64
		switch {
		case parts[0] == "0" && parts[1] == "":
			if found, err = lowestLimit(root, "sys/fs/cgroup", parts[2], "memory.max"); err == nil && found == noMemoryLimit {
				found, err = lowestLimit(root, "sys/fs/cgroup/unified", parts[2], "memory.max")
			}
		case hasController(parts[1], "memory"):
			found, err = lowestLimit(root, "sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes")
		default:
			continue
		}
		if err != nil {
			return 0, false, err
		}
		limit = min(limit, found)
	}
	return limit, limit < noMemoryLimit, nil
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// lowestLimit walks from a group to the mount's root. In a container the path may name groups that are not mounted: those are
// not there, and the mount's root is the container's own group.
func lowestLimit(root fs.FS, mount, group, file string) (int64, error) {
	limit := noMemoryLimit
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		b, err := fs.ReadFile(root, path.Join(mount, dir, file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return 0, fmt.Errorf("reading the memory limit: %w", err)
		default:
			text := strings.TrimSpace(string(b))
			if text != "max" {
				v, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return 0, fmt.Errorf("reading the memory limit: %s holds %q", path.Join(mount, dir, file), text)
				}
				limit = min(limit, v)
			}
		}
		if dir == "/" {
			return limit, nil
		}
	}
}

// OffHeap is what a node allocates outside the Go heap.
type OffHeap struct {
	MemTableBytes int64 // of one memtable; the store holds up to four
	CacheBytes    int64 // all block caches
}

// memTables is how many memtables may exist at once: one being filled, the others being flushed.
const memTables = 4

func (o OffHeap) total() int64 { return memTables*o.MemTableBytes + o.CacheBytes }

// leastLimit is the smallest limit of the process that GoMemoryLimit accepts.
func (o OffHeap) leastLimit() int64 { return o.total() + (minGoHeapBytes+2)/3*4 }

// GoMemoryLimit is what the Go runtime may use under a limit for the whole process: three quarters of what the store's memory
// leaves, so that a burst of garbage and the runtime's own overhead do not end in a kill.
func GoMemoryLimit(limit int64, o OffHeap) (int64, error) {
	outside := o.total()
	heap := (limit - outside) / 4 * 3
	if heap < minGoHeapBytes {
		return 0, fmt.Errorf("%w: %d bytes, of which the hot log's memtables and cache take %d; give the process at least %d, or lower varve.cache.bytes",
			ErrMemoryTooSmall, limit, outside, o.leastLimit())
	}
	return heap, nil
}
