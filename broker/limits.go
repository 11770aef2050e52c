// SPDX-License-Identifier: Apache-2.0

package broker

import "time"

// maxProducersPerPartition bounds the producer window's memory (about 250 B each): the sweep drops those idle longest beyond it. A
// variable only so that a test can reach it.
var maxProducersPerPartition = 100_000

const (
	// txnVerifyTimeout bounds one question to a transaction coordinator: the connection that asks is not read meanwhile.
	txnVerifyTimeout = 5 * time.Second
	// txnConcurrentWait and txnConcurrentPause are how long, and how often, a coordinator that is still ending the last transaction is
	// asked again (Kafka's add.partitions.to.txn.retry.backoff.max.ms and .ms).
	txnConcurrentWait  = 100 * time.Millisecond
	txnConcurrentPause = 20 * time.Millisecond
	// maxTxnGuards bounds the verifications under way, or refused lately, of one partition (about 60 B each).
	maxTxnGuards = 10_000
	// lateTxnFactor is after how many of the longest timeout an open transaction is late.
	lateTxnFactor = 2
	// producerWindow is how many of a producer's last batches are recognised when sent again: Kafka's number, and the most
	// that a client has in flight.
	producerWindow = 5
	// hotIndexChunkBytes is how much of the hot log one entry of the time index covers.
	hotIndexChunkBytes = 64 << 10
	// hotIndexGroup is how many entries one entry of the index's upper level sums up.
	hotIndexGroup = 64
	// maxTimeTableBytes bounds the tables that answer repeated lookups by time, for the whole node.
	maxTimeTableBytes = 16 << 20
	// takeOverBatch is how many partitions one round of takeovers asks for; the metadata store cuts it into Txns.
	takeOverBatch = 1000
	// lateRole is how long requests wait for a partition that this node is to lead, from the first of them on: a takeover that
	// takes longer must not make every request of its connections slow.
	lateRole = time.Second
	// retryPause is how long a failed background step waits before it is tried again.
	retryPause = 250 * time.Millisecond
	// producerSweepInterval is how often idle producers are looked for; expiry itself is producer.id.expiration.ms.
	producerSweepInterval = time.Minute
)

// Replication.
const (
	// fetchVersion is the version of Fetch that followers speak: with topic ids and the follower's incarnation.
	fetchVersion = 17
	// replicaFetchWait is how long a leader may hold a fetch that has nothing to tell.
	replicaFetchWait = 500 * time.Millisecond
	// peerFetchTimeout is when a fetch is given up: the leader is gone, or stopped.
	peerFetchTimeout = 5 * time.Second
	peerDialTimeout  = 2 * time.Second
	// replicaFetchBytes and replicaPartitionBytes bound one answer; a first batch that is larger comes whole.
	replicaFetchBytes     = 10 << 20
	replicaPartitionBytes = 1 << 20
	// peerAskTimeout bounds an answer that is no fetch's: longer than a marker waits for the high watermark.
	peerAskTimeout = 10 * time.Second
	// maxIdlePeers is how many connections per node are kept for the next request, maxPeerIdle how long: less than a listener's own limit.
	maxIdlePeers = 4
	maxPeerIdle  = time.Minute
	// maxPeerFrame bounds an answer: the bytes asked for, one batch of the largest size, and what stands around them.
	maxPeerFrame = 256 << 20
	// maxPeerBuffer is the largest buffer that a connection keeps for the next answer.
	maxPeerBuffer = 2 * replicaFetchBytes
	// fetchBackoffMin and fetchBackoffMax bound the pause after a failed fetch, partitionBackoffMin and partitionBackoff that of one
	// partition: a leader may be named a moment before it serves.
	fetchBackoffMin     = 20 * time.Millisecond
	fetchBackoffMax     = time.Second
	partitionBackoffMin = 2 * time.Millisecond
	partitionBackoff    = 100 * time.Millisecond
	// complainEvery is how often a fetcher says that replicas cannot follow: the cause is mostly the same for all of them.
	complainEvery = 5 * time.Second
	// maxRepairs is how many replicas read the bucket at once in order to follow.
	maxRepairs = 8
	// idleFetcher is how long a fetcher without partitions sleeps if nobody wakes it.
	idleFetcher = time.Minute
	// minISRInterval bounds how often slow followers are looked for.
	minISRInterval = 100 * time.Millisecond
	// preferredAfter is how long a leader leads before it hands over to the preferred replica, preferredLag how recently that one
	// must have had everything.
	preferredAfter = 3 * time.Second
	preferredLag   = time.Second
	// handOverWait is how long nothing is appended at most while a successor catches up, and handOverTogether how long those that are ready
	// wait for others.
	handOverWait     = time.Second
	handOverTogether = 5 * time.Millisecond
	// handOverHold is how long appends are held back at most until a handover is decided.
	handOverHold = 2 * time.Second
	// handOverServed is how long at most the next ones wait until the successors of those before serve.
	handOverServed = 500 * time.Millisecond
	// handOverTries is how often a node that leaves tries to hand over what it leads.
	handOverTries = 4
	// handOverLeast and handOverMost are how many leaderships are handed over at once, handOverWithin how long all of them should take at most.
	handOverLeast  = 4
	handOverMost   = 128
	handOverWithin = 4 * time.Second
	// leaveWait is how long a node that leaves waits at most to be out of the in-sync sets, leaveStill how long without a
	// change, leavePoll how often it looks.
	leaveWait  = 10 * time.Second
	leaveStill = time.Second
	leavePoll  = 10 * time.Millisecond
	// isrParallel is how many transactions with changes of in-sync sets are under way at once, isrTogether how many changes they have.
	isrParallel = 4
	isrTogether = 30
	// electionStep is how much longer than the replica before it one waits to take over.
	electionStep = 150 * time.Millisecond
)
