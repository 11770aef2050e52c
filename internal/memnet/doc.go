// SPDX-License-Identifier: Apache-2.0

// Package memnet is a network in memory for tests: listen and dial functions, buffered connections with deadlines, and faults
// that a test sets or a seed draws: cut, delay, partition, lost replies. It works inside a testing/synctest bubble: every wait is
// a channel or a timer, and no mutex is held across one.
//
// It does not model congestion, reordering within a connection, or name resolution: an address is a name.
//
// Invariants:
//
//   - N1: what a connection delivers is a prefix of what was written, in order; only a cut or reset ends it early.
//   - N2: a host that is partitioned from another gets nothing from it until the partition heals; nothing is lost by it.
//   - N3: at most maxBuffered bytes (or one larger write's rest) wait in one direction of a connection.
package memnet
