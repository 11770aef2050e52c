// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt: what the bucket holds fails its checksums. Retriable for a client; an operator has to look. See CorruptError.
	ErrCorrupt = errors.New("tiering: corrupt object")
	// ErrNotFound: the object is not there. Read the manifest again: below the log start now, replaced, or an alarm (protocols 6.6).
	ErrNotFound = errors.New("tiering: object not found")
	// ErrUnavailable: no answer yet, or no room; retriable. A read goes on into the cache where it can.
	ErrUnavailable = errors.New("tiering: object store not available")
	// ErrOutOfRange: the offset is below the log start or at or above the tiered end of the view.
	ErrOutOfRange = errors.New("tiering: offset out of the tiered range")
	// ErrNotLoaded: the manifest of the partition is not loaded yet; retriable.
	ErrNotLoaded = errors.New("tiering: manifest not loaded")
	// ErrEnded: the term of the handle is over.
	ErrEnded = errors.New("tiering: leadership over")
)

// CorruptError names what is corrupt.
type CorruptError struct {
	Object   string
	Off, Len int64
	Err      error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("object %s, bytes %d+%d: %v", e.Object, e.Off, e.Len, e.Err)
}

// Is makes it ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

func (e *CorruptError) Unwrap() error { return e.Err }
