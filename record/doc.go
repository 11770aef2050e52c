// SPDX-License-Identifier: Apache-2.0

// Package record holds the vocabulary that every other package shares (Offset, Epoch, NodeID, TopicID, PartitionID) and the
// record batch of format 2 as a view over its bytes: header fields, validation on arrival, iteration, time search.
//
// It does no I/O, knows no Kafka error codes and never re-encodes a batch that may be stored as it came.
//
// Invariants:
//
//   - R1: a batch that Validate accepted has a CRC, a length and counts that agree with its records.
//   - R2: stamping the base offset and the leader epoch never touches bytes that the CRC covers.
package record
