// SPDX-License-Identifier: Apache-2.0

// Package harness starts, kills and watches the processes of a black-box test: nodes of the product, etcd members, command
// lines. It builds the binaries once per run.
//
// It does not start S3 servers (internal/testenv does) and checks nothing about the product by itself.
//
//	N1  every process is a child, is ended by its process id, and ends with the test;
//	N2  a port that is chosen lies below the system's ephemeral range, so that a restart finds it free again;
//	N3  a failure shows the end of the log of the process it is about.
package harness
