// SPDX-License-Identifier: Apache-2.0

// Package tidy checks the source tree itself: who imports whom, which package may use which library, licence headers, package
// comments, sizes, links. It is tests only; nothing imports it.
//
// It does not judge what a linter judges, and runs no other program: it opens the files itself, so that the go tool's test
// cache knows that a change in any of them makes the result stale.
//
// Invariants:
//
//   - Y1: every package of the module has a row in the import table.
//   - Y2: every check has a test that shows it failing.
package tidy
