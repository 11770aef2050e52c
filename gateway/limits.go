// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"time"

	"github.com/varve/varve/metadata/config"
)

const (
	// defaultNodeMemory and defaultConnMemory bound the bytes of requests in flight (G4).
	defaultNodeMemory = 256 << 20
	defaultConnMemory = 64 << 20
	// defaultFetchMemory bounds the bytes of fetch answers under construction on the node (G4). A fetch that finds little left
	// answers with less, never with nothing.
	defaultFetchMemory = 128 << 20
	// defaultDrain bounds how long a stopping server waits for requests in progress.
	defaultDrain = 30 * time.Second

	// markerWait bounds how long a coordinator waits for its markers to be committed before it is told to send them again.
	markerWait = 5 * time.Second

	// roleWait bounds how long a request waits for this node to serve a partition that it leads, and fetchRoleWait a fetch, which has
	// other partitions to read and is sent again by every client.
	roleWait      = time.Second
	fetchRoleWait = 250 * time.Millisecond

	// maxPipelined bounds the requests of one connection that are read but not answered.
	maxPipelined = 128
	// maxControlFrame bounds every request that carries no records. Decoded, such a request is larger than its bytes, so it
	// is charged controlCost times its size.
	maxControlFrame = 8 << 20
	controlCost     = 8
	// maxHeaderBytes bounds what is peeked to learn a request's key before its body is admitted.
	maxHeaderBytes = 4 + 8
	// frameStall is how long a peer may take for a request's body beyond frameMinRate; the memory is taken meanwhile.
	frameStall   = 30 * time.Second
	frameMinRate = 256 << 10
	// writeStall and writeMinRate bound how long a peer may take to read an answer.
	writeStall   = 60 * time.Second
	writeMinRate = 64 << 10
	// maxUnsent is how many bytes of answers are held back for the next ones.
	maxUnsent = 32 << 10
	// readerBytes is the buffer of a connection's reader: small requests come in one read with their length.
	readerBytes = 4 << 10

	// maxDelayedCloses bounds the connections that came too fast and are not closed yet; more are closed at once.
	maxDelayedCloses = 1024
	// controlChargeMax bounds what the request quota charges for a request that mostly waits.
	controlChargeMax = time.Millisecond

	// leastSegmentBytes is the smallest segment.bytes. Only internal.segment.bytes goes below it, for tests, and there a batch that
	// is larger than a segment becomes one of its own instead of being refused.
	leastSegmentBytes = 1 << 20

	// maxRequestPartitions bounds the partitions of one produce request; maxControlFrame bounds those of a fetch.
	maxRequestPartitions = 1 << 18

	// maxPooled is the largest buffer that is kept for reuse.
	maxPooled = 16 << 20
	minPooled = 4 << 10
)

const (
	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
)

const (
	// slabMin and slabMax bound the buffers that a fetch reads into.
	slabMin = 64 << 10
	slabMax = 4 << 20
	// slabRoom is the free space that a partition's read is given at least, if it may return that much: the usual
	// max.partition.fetch.bytes.
	slabRoom = 1 << 20
	// fetchHeadBytes and fetchPartBytes size the buffer for an answer's fields.
	fetchHeadBytes = 64
	fetchPartBytes = 96

	// maxColdPerFetch and maxColdReads bound reads from the bucket at a time, of one request and of the node.
	maxColdPerFetch = 16
	maxColdReads    = 256
	// coldShareMin is the least that a cold read asks for.
	coldShareMin = 64 << 10
	// coldGrace is how long an answer that has enough waits for cold reads: what the tier has in its cache comes within it.
	coldGrace = 10 * time.Millisecond

	// sessionIdle is how long a fetch session is safe from being evicted (Kafka's number).
	sessionIdle = 2 * time.Minute

	// maxLookups bounds the partitions of one ListOffsets request that are looked up at a time.
	maxLookups = 16
	// lookupTimeout bounds a ListOffsets request that names no time.
	lookupTimeout = 30 * time.Second
	// complainEvery is how often the data path may write a log line about failing requests.
	complainEvery = time.Second
)

// zstdTopic is compression.type=zstd: clients that fetch with an older version cannot decode it.
const zstdTopic = config.CompressionZstd
