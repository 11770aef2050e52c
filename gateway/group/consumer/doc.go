// SPDX-License-Identifier: Apache-2.0

// Package consumer is the consumer-group protocol of KIP-848 as a step machine: a Group takes heartbeats and the passing of time,
// decides which member is to have which partition, and moves its members there one by one.
//
// Three epochs say where everybody is. The group epoch rises with every change of members, subscriptions or topics. The target
// assignment is computed for a group epoch, which then is its epoch. A member has the epoch of the target that it was moved to.
// A member that has to give something up first says with a heartbeat that it did; only then do others get it.
//
// Members of the classic protocol may be in a consumer group too (Join, Sync, ClassicHeartbeat): a group that is being moved from one
// protocol to the other has both kinds. Upgrade and Downgrade turn one kind of group into the other.
//
// It knows no clock, goroutine, store or wire format: the caller says what time it is and what topics there are, and stores the
// group (Encode) before it lets out what a step answered. It holds no offsets. Racks are kept and shown and do not count: Kafka's
// assignors do not look at them either.
//
// Invariants:
//
//   - N1: a partition has at most one owner: it is in the assignment, or waits to be given up, of at most one member.
//   - N2: the group epoch never goes back, the target's is never above it, a member's never above the target's.
//   - N3: a step that refuses a request leaves the group as it was.
//   - N4: a member that is silent, or does not give up what it must, is removed by a deadline.
//   - N5: a step that changes what must outlive this process says so (Dirty); one that changes nothing does not.
package consumer
