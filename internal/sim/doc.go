// SPDX-License-Identifier: Apache-2.0

// Package sim runs real brokers, gateways and controllers, of one to four nodes, in one synctest bubble, with real franz-go clients over a
// memory network, memory metadata, a faulty bucket in memory and Pebble on disks that forget what was not synced, and checks what the clients see.
//
// A run is the history of a seed: what is produced, read, looked up, deleted and configured, in which order. Which faults and
// crashes meet it, and how small the segments and caches are, are its knobs. With one node the main oracle is that the knobs do not
// show: what was acknowledged reads the same, offset by offset, with and without tiering, crashes and faults. With three, nodes also lose
// their disks, their leases and each other, come back first of all or last, leaderships and replicas move, one partition's leaders are elected
// uncleanly, clients are throttled, and every replica holds the same in the end. With four there are more nodes than replicas: nodes drain, the controller moves and balances, and must come
// to rest. The others are the safety statements that this can violate (S1 to S10, S12, S13, S19 to S22, S25 to S28) and recovery in time (V1,
// V2, V4, V5, V8).
//
// A seed reproduces inputs and faults, not interleavings: a finding usually comes again within a few repetitions of its seed.
//
// Histories of transactions (RunTransactions) are of their own: movers and writers of either protocol under the same faults, and readers of
// what is committed (S14 to S16, S23, V3). So are those of a group of the consumer protocol (RunGroup) and of the classic one (RunClassicGroup),
// whose members come, leave, die and are cut off (S23, S24, V6). In the latter the coordinator fails while the group is in each of its states.
//
// The package does not simulate quotas of requests and connections, compaction or garbage collection, and it does not replace the crash tests of the
// hot log, which stop at every sync.
//
// Invariants:
//
//  1. What a dead process does is seen by nobody: its port, its connections, its metadata and its bucket are gone before the disk is copied.
//  2. The history is a function of the seed alone.
//  3. A set of runs that did not meet every event of its Coverage proves too little and fails.
//  4. A disk is lost only while all replicas of every partition are in sync on the disks that the nodes have, or while one other node is in
//     all in-sync sets and keeps its disk.
package sim
