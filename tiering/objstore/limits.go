// SPDX-License-Identifier: Apache-2.0

package objstore

import "time"

// Limits of the seam. Each is a starting value; the options of the decorators change those that a workload may need to.
const (
	// MaxSingleShot is the largest object sent by one conditional PUT; larger ones go by multipart upload, which holds parts in
	// memory. A segment of the default 64 MiB with its indexes is below it.
	MaxSingleShot = 80 << 20
	// PartSize is the part size of a multipart upload, and the memory one holds. It grows with the object, as
	// a store takes at most maxParts parts.
	PartSize = 16 << 20
	// maxParts leaves room below the 10,000 parts of the S3 protocol.
	maxParts = 9_000
	// MaxObjectSize bounds one object (5 TiB in the S3 protocol).
	MaxObjectSize = 5 << 40
	// MaxKeyLength is the S3 limit in bytes, prefix of the bucket URL included.
	MaxKeyLength = 1024
	// deleteParallel is how many deletes of one call the S3 drivers have under way.
	deleteParallel = 8
	// dialTimeout bounds connecting and the TLS handshake each; maxIdleConns the connections kept per store.
	dialTimeout  = 5 * time.Second
	maxIdleConns = 64
	// bulkBytes is how much of a body goes with one write to an S3 server.
	bulkBytes = 256 << 10
	// ListPageSize is the page size that drivers ask for.
	ListPageSize = 1000
	// MaxMetadataBytes is the S3 limit on user metadata, names and values together.
	MaxMetadataBytes = 2048

	// DefaultTries bounds the tries of one call under Retry.
	DefaultTries = 6
	// DefaultBackoffBase and DefaultBackoffMax bound the pause between two tries; the pause is random below the bound.
	DefaultBackoffBase = 50 * time.Millisecond
	DefaultBackoffMax  = 5 * time.Second
	// DefaultDeadline is the deadline of one request that moves no bytes; DefaultMinRate (bytes per second) extends it
	// by the bytes moved (faults C15).
	DefaultDeadline = 30 * time.Second
	DefaultMinRate  = 1 << 20

	// DefaultConcurrency and DefaultBytesInFlight bound each lane (reads, writes) of Limit.
	DefaultConcurrency   = 16
	DefaultBytesInFlight = 256 << 20

	// checkDeadline bounds the probe at start, retries not included.
	checkDeadline = 10 * time.Second
	// abortDeadline bounds the best-effort abort of an upload that was given up.
	abortDeadline = 10 * time.Second
	// maxLateCreates bounds the uploads that Fault lets land after their reply.
	maxLateCreates = 256
)

// PartSizeFor returns the part size for an object of that size.
func PartSizeFor(size int64) int64 {
	part := int64(PartSize)
	for part*maxParts < size {
		part *= 2
	}
	return part
}

// Deadline scales a deadline by the bytes to move.
func Deadline(base time.Duration, minRate, bytes int64) time.Duration {
	if base <= 0 {
		base = DefaultDeadline
	}
	if minRate <= 0 {
		minRate = DefaultMinRate
	}
	return base + time.Duration(float64(max(bytes, 0))/float64(minRate)*float64(time.Second))
}
