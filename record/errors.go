// SPDX-License-Identifier: Apache-2.0

package record

import "errors"

var (
	// ErrShort: the bytes end before the batch does.
	ErrShort = errors.New("record: batch cut short")
	// ErrMalformed: the bytes cannot be a record batch of format 2.
	ErrMalformed = errors.New("record: malformed batch")
	// ErrChecksum: the batch is not the one its CRC was computed for.
	ErrChecksum = errors.New("record: checksum mismatch")
	// ErrUndecodable: the compressed records are not what the batch's codec writes.
	ErrUndecodable = errors.New("record: undecodable compressed records")
	// ErrTooLarge: the records decompress to more than the bound.
	ErrTooLarge = errors.New("record: decompressed records exceed the bound")
)
