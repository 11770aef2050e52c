// SPDX-License-Identifier: Apache-2.0

// Package objstoretest holds the suite that every objstore.Store passes (drivers and decorators alike), bodies to feed it
// with, and Proxy, which stands before a real S3 server and does what networks and stores do at their worst.
package objstoretest
