// SPDX-License-Identifier: Apache-2.0

// Package isr is a leader's view of its replicas: who is in sync, and how far the high watermark may go. It is pure: inputs
// in, outputs out; no time, goroutine, I/O or logger. The broker drives it under the partition's mutex and persists what it
// decides.
//
// It does not decide who leads, and it does not talk to followers.
//
// Invariants:
//
//   - I1: the high watermark never decreases within an epoch and is at most the least durable end over (committed ISR ∪ ISR
//     change in flight), the leader's own included; it moves only while the committed ISR has min ISR members and the ELR is
//     empty.
//   - I2: an ISR change counts only after its compare-and-swap is known to have succeeded.
package isr
