// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package dir

import "os"

// syncDir makes the entries of a directory durable (D3).
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
