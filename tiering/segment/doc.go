// SPDX-License-Identifier: Apache-2.0

// Package segment builds and reads the immutable object into which a sealed range of a partition's log settles. The bytes are
// specified in docs/formats/segment.md.
//
// It does no I/O: a builder reads batches from a Source and gives a body that can be streamed any number of times; the reading side
// takes bytes that somebody fetched. It does not choose what to seal, name objects or know the bucket.
//
// Invariants:
//
//   - W1: a segment is immutable, self-describing and checksummed: every byte is covered by a checksum, every length read from it is
//     bounded before use.
//   - W2: a segment carries an offset and time index, the leader-epoch table, a producer snapshot and the aborted-transaction index, so
//     that a replica can start from the tiered end.
//   - W3: what a builder streams is what was checked, by it or when it came (Outline): offsets ascend without gap from base to end (only
//     the first batch may begin below base, when the log start had cut it), each batch has a valid CRC, and every later pass over the
//     source gives the same bytes or fails.
//   - W4: building holds the index in memory and nothing else: no batch outlives its callback.
package segment
