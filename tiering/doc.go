// SPDX-License-Identifier: Apache-2.0

// Package tiering moves sealed ranges of led partitions into the bucket (Archiver) and reads them back (Reader).
//
// It does not decide who leads, what is committed or what a client may see: a partition tells it through the Partition interface, and
// the caller of the Reader bounds every read. It does not delete objects: what nothing refers to any more is left to garbage collection
// through intents and gc records. It never LISTs the bucket.
//
// Invariants:
//
//   - T1: only data below min(HW, LSO) is sealed; above the LSO only over budget, below HW, with firstUnstable recorded.
//   - T2: upload, commit, trim, in no other order.
//   - T3: a cold read verifies the checksums of every byte it gives.
//   - T4: one attempt is in flight per partition and term; an attempt that is lost leaves its intent.
//   - T5: the view of a partition (head and manifest) only changes by an edit that the metadata store has accepted, or by loading it anew.
//   - T6: memory for a GET is reserved before it is sent; caches, flights and workers are bounded (limits.go).
//
// Locks: Archiver.mu and the caches' locks are leaves: nothing is called under them. Handle.turn serialises what changes a partition's
// head, and is held across the metadata store's answer, as rule 0 of the protocols demands; it is taken before any other lock.
package tiering
