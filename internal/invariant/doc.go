// SPDX-License-Identifier: Apache-2.0

// Package invariant states what must hold. A violated invariant is a bug in Varve, never bad input: it panics with the id of
// the statement, so that nothing built on a false belief is acknowledged, deleted or uploaded.
//
// It does not handle errors: whatever a peer, a disk or a store can cause is an error value. It imports nothing, so that every
// package may import it, and it owns no invariant of its own.
package invariant
