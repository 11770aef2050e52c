// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt: the bytes are not what a builder wrote.
	ErrCorrupt = errors.New("segment: corrupt")
	// ErrNewerFormat: a newer binary wrote this. Nothing is wrong with it, this binary cannot read it.
	ErrNewerFormat = errors.New("segment: newer format")
	// ErrSource: what the source gave is not a contiguous run of valid batches, or not the same one twice.
	ErrSource = errors.New("segment: source")
)

// NeedMore is the error of ReadIndex when the tail is too short: Bytes is how long it must be.
type NeedMore struct{ Bytes int64 }

func (e *NeedMore) Error() string {
	return fmt.Sprintf("segment: the index needs the last %d bytes", e.Bytes)
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

func newer(what string, got uint16) error {
	return fmt.Errorf("%w: %s has format %d, this binary reads up to %d", ErrNewerFormat, what, got, Format)
}
