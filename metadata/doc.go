// SPDX-License-Identifier: Apache-2.0

// Package metadata is the cluster's truth: topics, leadership, in-sync sets, manifest heads and entries, upload intents,
// garbage records, registrations, dynamic configs. It lives in a small MVCC key-value store behind the KV seam (etcd, or memory
// in tests); Store is the one domain layer on top of it, and Image the immutable view of it that a node works from.
//
// It decides nothing about data: it never reads a log or an object, does not choose leaders or placements, and does not know
// what a manifest entry or page pointer contains (package manifest owns their encoding). It starts no takeover by itself.
//
// Key and value layout: docs/formats/metadata.md.
//
// Invariants:
//
//   - P1: every change is one compare-and-swap transaction, fenced by its token (for a partition the leader key's revision), that
//     carries an operation id; an outcome that is not known is found out by sending the same transaction again, never assumed.
//   - P2: a partition's leader epoch strictly increases.
//   - P3: the manifest head moves only under the current leader epoch, and every change of a segment entry moves the head.
//   - P5: an image is one revision of the store, whole; it is never published half changed and never goes back.
//   - P6: "does not exist" is decided from a linearizable read, never from an image.
//
// Lock order: partition lock (serialises head changes of one partition, held across the store round trips of one change, as
// rule 0 demands) before anything else; Store.mu is a leaf and no I/O, callback or channel wait happens under it.
package metadata
