// SPDX-License-Identifier: Apache-2.0

package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Store is the seam. All methods may be called concurrently. Keys are relative to the prefix of the bucket URL and obey
// CheckKey. No method keeps an argument after it has returned.
type Store interface {
	// Create stores body under key if nothing is there (O1). nil: the object is durable and complete. ErrExists: the store
	// says there is one. ErrUnknownOutcome: the answer was lost. Callers use CreateResolved, which settles the last two.
	Create(ctx context.Context, key string, body Body, o PutOptions) error
	// Get appends bytes [off, off+n) of the object to dst (O4). On error the returned slice holds no more than dst did.
	Get(ctx context.Context, key string, off, n int64, dst []byte) ([]byte, error)
	// Stat describes the object.
	Stat(ctx context.Context, key string) (Info, error)
	// List calls fn for each object whose key begins with prefix and is greater than startAfter, in byte order of keys,
	// over as many pages as there are. It leaves Info.Metadata nil. An error of fn ends the listing and is returned (ErrStop: nil).
	List(ctx context.Context, prefix, startAfter string, fn func(Info) error) error
	// Delete removes the keys; the result has one error per key (O5). A key that is not there counts as removed.
	Delete(ctx context.Context, keys []string) []error
	// AbortUpload gives up a multipart upload by its id. nil also when the store no longer knows it.
	AbortUpload(ctx context.Context, key, uploadID string) error
	// Close releases what the store holds. No call may be running or follow.
	Close() error
}

// Body is the content of an object. It can be opened again, so that a retry needs no memory; every Open yields the same bytes.
type Body interface {
	Open() (io.ReadCloser, error)
	Size() int64
}

// Bytes makes a Body of a slice, which must not change while the Body is used.
func Bytes(b []byte) Body { return bytesBody(b) }

type bytesBody []byte

func (b bytesBody) Open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
func (b bytesBody) Size() int64                  { return int64(len(b)) }

// Names of metadata that the seam itself reads. Metadata names are lower-case letters, digits and dashes.
const (
	// MetaAttempt holds the attempt that wrote the object: CreateResolved knows its own by it.
	MetaAttempt = "attempt"
	// MetaCRC32C holds the CRC-32C of the whole object as eight hex digits. Every driver stores it beside the caller's metadata.
	MetaCRC32C = "crc32c"
)

// PutOptions go with Create.
type PutOptions struct {
	// CRC32C of the whole body. A driver checks the bytes it sends against it and fails with ErrCorrupt, storing nothing,
	// when they differ. 0: not known; then the driver reads the body once more to find it.
	CRC32C uint32
	// Metadata is stored with the object. MetaAttempt names the attempt; MetaCRC32C is added by the driver.
	Metadata map[string]string
	// OnMultipart is called with the id of a multipart upload after it was begun and before its first part is sent. It may be
	// called again, with another id, when Create is tried again; every id must be remembered until the object is resolved
	// (faults D6). An error ends the attempt. It may be nil.
	OnMultipart func(uploadID string) error
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64
	Modified time.Time
	Metadata map[string]string
}

// Op names the methods of Store that talk to the store.
type Op string

const (
	OpCreate Op = "create"
	OpGet    Op = "get"
	OpStat   Op = "stat"
	OpList   Op = "list"
	OpDelete Op = "delete"
	OpAbort  Op = "abort"
)

// Ops lists every operation.
func Ops() []Op { return []Op{OpCreate, OpGet, OpStat, OpList, OpDelete, OpAbort} }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C returns the checksum that PutOptions wants for a body in memory.
func CRC32C(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// BodyCRC32C reads the body once and returns its checksum. A body shorter or longer than its Size is ErrCorrupt.
func BodyCRC32C(body Body) (uint32, error) {
	r, err := body.Open()
	if err != nil {
		return 0, fmt.Errorf("open body: %w", err)
	}
	h := crc32.New(castagnoli)
	n, err := io.Copy(h, r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return 0, fmt.Errorf("read body: %w", err)
	}
	if n != body.Size() {
		return 0, fmt.Errorf("%w: body has %d bytes, not the %d it promised", ErrCorrupt, n, body.Size())
	}
	return h.Sum32(), nil
}

// StoredMetadata returns what a driver stores: the caller's metadata and the checksum, which it computes when it is not given.
func StoredMetadata(body Body, o PutOptions) (map[string]string, uint32, error) {
	crc := o.CRC32C
	if crc == 0 {
		var err error
		if crc, err = BodyCRC32C(body); err != nil {
			return nil, 0, err
		}
	}
	m := make(map[string]string, len(o.Metadata)+1)
	size := 0
	for k, v := range o.Metadata {
		if err := checkMetadata(k, v); err != nil {
			return nil, 0, err
		}
		size += len(k) + len(v)
		m[k] = v
	}
	m[MetaCRC32C] = FormatCRC(crc)
	if size += len(MetaCRC32C) + 8; size > MaxMetadataBytes {
		return nil, 0, fmt.Errorf("%w: %d bytes of metadata, more than %d", ErrRejected, size, MaxMetadataBytes)
	}
	return m, crc, nil
}

// FormatCRC is the text form of a checksum in metadata.
func FormatCRC(crc uint32) string { return fmt.Sprintf("%08x", crc) }

func checkMetadata(k, v string) error {
	if k == "" || strings.Trim(k, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("%w: metadata name %q: lower-case letters, digits and dashes only", ErrRejected, k)
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return fmt.Errorf("%w: metadata %s: value %q is not printable ASCII", ErrRejected, k, v)
		}
	}
	if v != strings.TrimSpace(v) {
		return fmt.Errorf("%w: metadata %s: value %q begins or ends with a space", ErrRejected, k, v)
	}
	return nil
}

// CheckKey tells whether every driver can hold the key: valid UTF-8 without control characters, 1 to MaxKeyLength bytes,
// slashes only between non-empty elements, and no element "." or "..".
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: empty key", ErrRejected)
	case len(key) > MaxKeyLength:
		return fmt.Errorf("%w: key of %d bytes, more than %d: %.40q…", ErrRejected, len(key), MaxKeyLength, key)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: key %q is not valid UTF-8", ErrRejected, key)
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' || r == 0xfffe || r == 0xffff }):
		return fmt.Errorf("%w: key %q has a control character or a backslash", ErrRejected, key)
	}
	for element := range strings.SplitSeq(key, "/") {
		if element == "" || element == "." || element == ".." {
			return fmt.Errorf("%w: key %q has an element %q", ErrRejected, key, element)
		}
	}
	return nil
}

// Emit passes the found objects to fn as List must: it heeds ctx between two keys, and ErrStop ends the listing without an error.
func Emit(ctx context.Context, found []Info, fn func(Info) error) error {
	for _, info := range found {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("list: %w: %w", ErrUnavailable, err)
		}
		if err := fn(info); err != nil {
			return ListEnd(err)
		}
	}
	return nil
}

// ListEnd is what List returns when its callback ended it with err.
func ListEnd(err error) error {
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}
