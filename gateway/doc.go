// SPDX-License-Identifier: Apache-2.0

// Package gateway speaks the Kafka wire protocol: listeners, connections, the table of APIs, one file per API key.
//
// One goroutine of a connection reads and decodes requests, another one finishes and answers them strictly in order. Produce
// appends in the reader, so that pipelined batches keep their order and their syncs overlap. OffsetCommit begins there too, or, behind a
// request that it must not overtake, when that is answered; everything else runs when its turn to be answered has come, as in Kafka, which serves one request of a
// connection at a time.
//
// A request for a partition of which this node is, or may be, named the leader and does not serve yet waits for that (roles.go): at most a
// second from when the first one came, in its place among the connection's requests, and not at a node that stops.
//
// It does not store anything, decide nothing about leadership or offsets, and no other package knows a Kafka error code.
//
// Invariants:
//
//   - G1: a connection's answers leave in the order of its requests.
//   - G2: the versions that ApiVersions advertises are exactly those of the API table.
//   - G3: every error sentinel of the packages below maps to one Kafka code, in errors.go only.
//   - G4: the bytes of requests in flight are bounded per connection and per node, admitted before they are read; the bytes of
//     fetch answers under construction are bounded per node.
//   - G5: a buffer has one owner at a time and goes back to its pool only when nothing below can still read it. A span of a file of the
//     hot log is held by one answer, and by none that waits for as long as a client likes.
//   - G6: an offset in an answer is either set by the broker or stands beside an error code.
//   - G7: a client that used more than its quota is muted for as long as its answer says; followers never are.
//
// Groups: coordinator*.go give this node's shards their term, their turns and their transactions; package group decides.
//
// Transactions: txn_term.go has the transactional ids of a shard, on each of which one step at a time is decided by package txn;
// txn_markers.go tells the partitions' leaders, produce_txn.go and 27_write_txn_markers.go are the leaders' side.
//
// Lock order: fetch session cache → fetch session. Neither is held across a call into broker that can block. A shard's turn → groupWriter.mu, which
// is not held when the outcome of a transaction is told to the shards.
package gateway
