// SPDX-License-Identifier: Apache-2.0

// Package manifest is the ordered list of a partition's segments as an immutable value, with its edits, its one lookup function and
// the encoding of entries and pages (docs/formats/manifest.md).
//
// It is pure: no I/O, no time, no goroutine. It does not know where entries are kept; a lookup that needs a folded page calls the
// loader it was given.
//
// Invariants:
//
//   - M1: segments tile [log start, tiered end) without gap or overlap, pages first, then entries. Below log start a gap may remain until
//     retention has dropped what lies there.
//   - M2: an edit applies or fails, never half: Apply gives a new manifest or leaves everything as it was.
package manifest
