// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of varve: one file per command. Run parses, executes and turns the outcome into an exit code:
// 0 done, 1 failed, 2 wrong usage.
//
// The client commands are built on a public Kafka client (franz-go) only, so that what they show is what any client sees; what
// the protocol does not carry (the manifest, ticks) they ask of a node's operations API over HTTP. Only the commands that run a
// node wire the packages of the broker together.
//
// It does not hold protocol or storage logic, and client commands keep no state between runs.
//
// Invariants:
//
//   - L1: an error is one line on standard error that says what was wrong and what to do; results go to standard output.
//   - L2: exit code 2 means that nothing was sent: usage is checked before the first connection.
//   - L3: a count that a command prints as acknowledged was acknowledged by the broker.
package cli
