// SPDX-License-Identifier: Apache-2.0

// Package broker holds the partitions of this node: who leads them, appending, reading, producer state, and the wake-ups of
// those that wait for data. It stands between the gateway, which speaks Kafka, and the hot log and the tier, which store bytes.
//
// It knows no Kafka wire format and no error codes, and it never calls upwards: waiting fetches are woken through Listener.
//
// Invariants:
//
//   - B1: only the leader of the current epoch assigns offsets, densely.
//   - B2: acks=all is answered only when the high watermark passed the batch and the epoch is still that of the append.
//   - B3: a batch is appended at most once per (producer, epoch, sequence).
//   - B4: consumers never see at or above the high watermark, or the last stable offset when they read committed.
//   - B5: a role lives in one scope and ends with its epoch.
//   - B6: a transaction begins on a partition only when its coordinator confirmed it and nothing ended it since. It is open until its
//     marker is below the high watermark, and no marker of another transaction ends it.
//   - B7: what is known of producers and transactions is a function of the log, the same for who leads, follows, restarts, or starts at
//     the end of the bucket.
//
// Lock order: Broker.mu before Partition.mu before leavers.mu, under which nothing is taken. No I/O, callback or channel wait happens under
// Partition.mu; queueing to the hot log is neither.
package broker
