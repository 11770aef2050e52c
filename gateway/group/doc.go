// SPDX-License-Identifier: Apache-2.0

// Package group is the classic consumer-group protocol as a step machine: a Group takes joins, syncs, heartbeats, leaves and the
// passing of time, and gives answers to the requests that wait.
//
// It knows no clock, goroutine, store, topic or wire format: the caller says what time it is, gives each waiting request a token,
// and persists the group (Encode) before it lets out the answers that are marked so. It does not understand subscriptions or
// assignments, which are the clients' bytes, and holds no offsets.
//
// Invariants:
//
//   - Q1: one generation at a time; requests with another one are refused, and so are those of members that are not of it.
//   - Q2: every token is answered exactly once, by a step or by the end of the group's coordinator, never twice.
//   - Q3: a member that waits for an answer is not expired for being silent; every other one is, in every state.
//   - Q4: in every state but Empty some deadline is set, so that no group waits for ever for a member.
//   - Q5: an answer that names a generation or an assignment is marked durable: it leaves only once Encode's value is stored.
package group
