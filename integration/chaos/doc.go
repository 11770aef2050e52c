// SPDX-License-Identifier: Apache-2.0

// Package chaos tests a cluster of real processes under faults: three nodes, etcd, an S3 server, and a TCP proxy of the test in each
// link between them. A schedule that a seed decides kills, freezes, cuts off, slows down, fills and empties them while clients
// produce, fetch, look up, delete and reassign; then everything is healed, read, also from one replica alone, and the whole history is
// checked.
//
// It does not decide what the scheduler of the machine does: a seed repeats the faults and their times, not the run. Links to clients
// have no proxy, so that clients reach a node that is cut off from everybody else. It looks at the product from outside only.
//
// Environment: VARVE_CHAOS_SEED and VARVE_CHAOS_SECONDS say which faults, and for how long; VARVE_CHAOS_ONLY=kill,partition keeps only
// those kinds; VARVE_CHAOS_KEEP=DIR keeps the logs of the nodes of a run that failed; VARVE_LONG=1 is the long form: a quarter of an
// hour, three etcd members, and reading from each of the replicas alone.
//
//	H1  what the checker is told is what clients saw: one monotonic clock, an operation's outcome known, refused or open;
//	H2  each rule of the checker has planted histories that break it and are found;
//	H3  a direction that is held loses nothing: what was sent arrives later, or its connection breaks;
//	H4  a fault that costs a disk waits until all copies are there.
//
// The rules have the numbers that the simulation uses: S1 no acknowledged record lost; S2 one value per offset; S3 nothing invented, nothing
// refused visible; S4 order of appends; S5 no duplicates of idempotent producers; S6 marks only grow; S7 what was read stays; S8 epochs
// only grow, one leader each; S10 no gaps; S12 the same bytes from every tier; S13 lookups by time; S19, S20 deletions take effect, and
// nothing else goes; S25 lives of a topic's name are apart; S26 whole batches; S27 what a fetch may answer; S28 no offsets beside errors;
// V1 whole again within 30 s.
package chaos
