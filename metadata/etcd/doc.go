// SPDX-License-Identifier: Apache-2.0

// Package etcd is the metadata store on etcd v3. It adds nothing to what etcd does but a clear answer to one question: after
// an error, may the transaction have happened?
//
// It never sends a transaction twice by itself, keeps leases by single keepalives of its caller's, and gives each watch a stream
// of its own, so that one that hangs can be thrown away.
//
// Invariants:
//
//   - E1: ErrUnavailable for a transaction means that etcd cannot have proposed it; whatever is not certain is ErrUnknown.
//   - E2: every read is linearizable.
package etcd
