// SPDX-License-Identifier: Apache-2.0

// Package reconcile works out what the metadata of a cluster has to say after etcd was put back to an older state: it compares that state
// with what the bucket and the nodes' data directories hold. Plan is pure; Survey lists the bucket for it.
//
// It writes nothing and deletes nothing. It does not know how the data directories are read or the metadata is changed (internal/cli
// and metadata do that).
//
// Invariants:
//
//   - R1: the log start and the tiered end of a partition never go back.
//   - R2: after the plan segments tile [log start, tiered end), and no hot log begins above the tiered end.
//   - R3: whoever may lead holds everything that any data directory looked at holds in the newest epoch.
//   - R4: the next leader epoch is above every epoch in the metadata, in the segments and in the data directories.
//   - R5: no object of the manifest is announced by an intent or named by a garbage record: nobody deletes it.
package reconcile
