// SPDX-License-Identifier: Apache-2.0

// Package quota decides how long a client has to be quiet: which quota holds for it, what it used, and what follows from that. It
// computes as Kafka does: a rate over a number of windows, so that a client that was idle may use what the windows would have let
// through, or a bucket of tokens for changes of the cluster.
//
// It does not wait, mute or refuse, knows no connections and no protocol, and takes the time as an input.
//
// Invariants:
//
//   - U1: which quota holds is decided per kind, by Kafka's precedence; entities that have no quota of that kind do not count.
//   - U2: over a long time no more passes than the quota, if the caller keeps the delays, as long as single pieces are small against
//     what the windows let through. With larger ones it is up to half as much again, as in Kafka: the windows forget the rest.
//   - U3: what is kept is bounded: clients that are idle are forgotten, and beyond a limit new ones of one quota share a meter.
package quota
