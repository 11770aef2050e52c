// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package dir

import (
	"errors"
	"os"
)

// setDirect can do nothing here.
func setDirect(*os.File, bool) error { return errors.ErrUnsupported }

func refusesDirect(error) bool { return false }
