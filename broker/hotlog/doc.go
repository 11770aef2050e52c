// SPDX-License-Identifier: Apache-2.0

// Package hotlog keeps the hot tail of every local partition in one data directory: append, read, truncate, trim, drop, and
// beside the records the leader-epoch entries, the producer entries and a high-watermark checkpoint, all of which move
// atomically with the records they belong to. Record batches are written once, to log files; a Pebble database, for which these
// are the write-ahead log, says what lies where. Nothing else in Varve imports Pebble.
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
//   - H5: the bytes of a span that was given out never change, not even after it was released.
//
// One committer goroutine takes what is queued for all partitions, writes it as one frame and applies it to Pebble, and one
// syncer goroutine syncs the frames in order. A preparer has the next log file ready and a reclaimer gives dead ones back;
// DESIGN.md has the flow and its reasons.
//
// Lock order: head.mu (the end of the log; held while a frame is written), then files.mu (which files there are and who lives in
// them) or DB.mu (the queue). DB.mu is never held across I/O, a callback or a channel wait. recent.mu (where a
// log's last batches lie) is the innermost: nothing is taken or waited for under it. All else that readers need of a Log is atomic, and is written
// by the committer and the syncer only.
package hotlog
