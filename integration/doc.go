// SPDX-License-Identifier: Apache-2.0

// Package integration tests the program from outside: the real binary as a process of its own, a real etcd, a real S3 server,
// and clients that know nothing of this repository (franz-go, kcat, Apache Kafka's own). What it needs is started on free ports of the loopback
// interface and ended by process id.
//
// It does not look into the product's packages: whatever it learns, it learns through the Kafka protocol, the HTTP port, the
// command line and the log.
//
// Environment: VARVE_LONG=1 runs the long forms (more input, more kills); VARVE_REQUIRE_TOOLS=1 makes an absent tool a failure
// instead of a skip with a reason; VARVE_BIN=FILE tests that binary (and uses the etcdmember beside it) instead of building one.
//
// What each test holds the product to:
//
//	A1  every acknowledged record is there, at the offset that was acknowledged, once;
//	A2  offsets are dense from the log start to the log end;
//	A3  the log start never goes back;
//	A4  a time lookup equals the brute-force answer, wherever the records lie;
//	A5  a start that cannot work ends within seconds with one line that says what and what to do;
//	A6  what is away (etcd, the bucket) costs retriable errors at most, and nothing once it is back.
package integration
