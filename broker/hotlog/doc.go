// SPDX-License-Identifier: Apache-2.0

// Package hotlog keeps the hot tail of every local partition in one Pebble database per data directory: append, read, truncate,
// trim, drop, and beside the records the leader-epoch entries, the producer entries and a high-watermark checkpoint, all of
// which move atomically with the records they belong to. Nothing else in Varve imports Pebble.
//
// It does not validate record batches, assign offsets, know roles, epochs' meaning or the high watermark's, decide what may be
// trimmed, or talk to the network. It never repairs: a directory that is corrupt is reported, with its name, and left alone.
//
// Invariants:
//
//   - H1: offsets are contiguous from the start of a log to its end.
//   - H2: durable is reported only after the sync that covers it, in append order.
//   - H3: truncate removes a suffix and trim a prefix, each atomically.
//   - H4: after a crash a log is a prefix of what was appended and holds everything that was reported durable.
//
// One committer goroutine takes what is queued for all partitions, writes it as one Pebble batch without waiting for the sync,
// and hands it to one syncer goroutine that waits for the syncs in order; DESIGN.md has the flow and its reasons.
//
// Lock order: DB.mu alone. It guards the queue and is never held across I/O, a callback or a channel wait. What readers need of
// a Log is atomic, and is written by the committer and the syncer only.
package hotlog
