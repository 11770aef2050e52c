// SPDX-License-Identifier: Apache-2.0

// Package txn is the coordinator's view of one transactional id as a step machine: a Txn is a value, a step gives the value that follows.
//
// It knows no clock, goroutine, store or wire format: the caller says what time it is, stores the value that a step gives (Encode) and
// answers only then. A step that gives no value changes nothing: what it answers holds for the value that it was asked of.
//
//	Empty ── Add ──► Ongoing ── End ──► PrepareCommit ── Complete ──► CompleteCommit ── Add ──► Ongoing …
//	                    └─ End, Abort ► PrepareAbort  ── Complete ──► CompleteAbort
//	Empty, CompleteCommit, CompleteAbort ── Init ──► Empty;  ── Expire ──► Dead
//
// Invariants:
//
//   - X1: one transaction is one (producer id, epoch): whoever ends one with a client of transaction version 2, or by force, moves the epoch
//     by exactly one. Clients of version 1 keep their epoch; their markers are told apart by the revision of the decision.
//   - X2: a decision is final: from PrepareCommit only CompleteCommit follows, from PrepareAbort only CompleteAbort.
//   - X3: after Init has given (id, epoch), nothing is done for an older one, but that a lost answer is given again.
//   - X4: epochs that are given to clients end at 32766; one more is left for the marker of the last transaction.
package txn
