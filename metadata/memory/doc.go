// SPDX-License-Identifier: Apache-2.0

// Package memory is a metadata store in this process's memory, for tests and simulations: revisions, history, compaction,
// transactions, leases and watches as in etcd, and the faults that a real one has. A Server is the store; each node has a Client
// of its own, whose faults are its own.
//
// Time is Go's own, so that leases end on virtual time inside testing/synctest. Nothing here is durable: what survives a
// simulated crash of a node is the Server.
//
// Invariants:
//
//   - Y1: a transaction is one revision or none.
//   - Y2: a watch gives whole revisions, in order, without a gap, or ends in an error.
package memory
