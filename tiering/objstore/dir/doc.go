// SPDX-License-Identifier: Apache-2.0

// Package dir is the driver of file:// URLs: objects as files of a directory, for varve dev and small installations. Several
// processes of one machine may share the directory.
//
// One object is one file: the object's bytes from position 0, then its metadata and a fixed trailer with checksum and length.
// A single file makes data and metadata appear at once, and keeps them together when the directory is copied. A file is written
// under a temporary name, synced and linked to its own name, which fails if that is taken; then the directory is synced.
// So a crash leaves either the whole object or none, and at most a temporary file, which a later start removes.
//
// A large file is written past the page cache where the file system can: nobody reads it soon, and filling pages cost more processor time than
// the rest of an upload.
//
// A key becomes a path that is distinct on every file system (case, reserved names, length): see path.go. The driver does
// not check an object's bytes at reading: readers of segments do.
//
// Invariants:
//
//   - D1: a name is linked only to a complete, synced file.
//   - D2: two keys never have one path, also where the file system ignores case or normalises Unicode.
//   - D3: nil from Create and Delete means that the directory entry's change is synced.
package dir
