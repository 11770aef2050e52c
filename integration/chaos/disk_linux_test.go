// SPDX-License-Identifier: Apache-2.0

package chaos

import "syscall"

// freeBytes is the free space of the filesystem of a file.
func freeBytes(name string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(name, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}
