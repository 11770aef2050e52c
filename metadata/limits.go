// SPDX-License-Identifier: Apache-2.0

package metadata

import "time"

// Limits of a transaction. etcd's own defaults are 128 operations and 1.5 MiB per request.
const (
	MaxTxnOps     = 100
	MaxValueBytes = 256 << 10
	MaxTxnBytes   = 1 << 20
)

const (
	// takeoverBatch is how many partitions change leaders in one transaction. Each needs up to five compares.
	takeoverBatch = 16
	// takeoverParallel is how many of those are on their way at once.
	takeoverParallel = 4
	// leaderBatch is how many in-sync sets, or leaders, their leaders change in one transaction. Each needs three compares or so.
	leaderBatch = 30
	// MaxAssignmentChanges is how many partitions of a topic change their assignment in one transaction. Each may need a compare.
	MaxAssignmentChanges = 90
	// dropBatch is how many entries leave the manifest in one transaction; each needs two compares or operations.
	dropBatch = 40
	// foldBatch is how many folded entries are deleted in one transaction.
	foldBatch = 90
	// drainBatch is how many operations a step of a topic's deletion has.
	drainBatch = 90
	// loadPage is how many keys one page of a load has.
	loadPage = 2000
	// maxEpochChain is how many epochs a head carries.
	maxEpochChain = 1000
	// maxStoresPerNode is how many data directories are remembered per node, so that an old one that comes back is known.
	maxStoresPerNode = 16
	// producerIDBlock is how many producer ids a node takes at once.
	producerIDBlock = 1000
	// OffsetsPerChunk is how many partitions of a topic share a key of committed offsets: with the longest metadata that clients
	// usually may give (4 KiB) the value stays below MaxValueBytes, and a commit of one partition rewrites a small one.
	OffsetsPerChunk = 50
	// groupPageBytes is how much of a group's state one key holds.
	groupPageBytes = 200 << 10
	// MaxGroupState is the largest state of a group: it is written in one transaction.
	MaxGroupState = MaxTxnBytes - 64<<10
	// groupKeyBytes bounds a group's key without its id.
	groupKeyBytes = 128
	// moveRoom and moveBytes bound the offsets that one change of a transaction moves: compares or operations, and bytes.
	moveRoom  = MaxTxnOps - 10
	moveBytes = MaxTxnBytes / 2
	// offsetTopicsPerRead and offsetKeysPerRead bound one read of committed offsets.
	offsetTopicsPerRead = 64
	offsetKeysPerRead   = 200
	// quotaBatch is how many entities change their quotas in one transaction; each needs a compare and an operation.
	quotaBatch = 40
	// maxConflicts is how often a change is decided again after it lost a race, before ErrConflict.
	maxConflicts = 16
	// maxSamples is how many (time, revision) pairs the compactor remembers.
	maxSamples = 64
	// maxTopicName is Kafka's limit.
	maxTopicName = 249
)

// Times. Those in Options are defaults.
const (
	defaultLeaseTTL = 10 * time.Second
	minLeaseTTL     = 2 * time.Second
	maxLeaseMargin  = 3 * time.Second
	// silence is how long a watch may say nothing before it is checked.
	defaultSilence = 30 * time.Second
	// wentBackGrace is how long a lower revision is asked again before it is believed.
	defaultWentBackGrace = 30 * time.Second
	// witnessEvery bounds how often the highest revision is written to the data directory.
	witnessEvery = 10 * time.Second
	// unavailableWait is how long a change that was surely not applied is tried again before the caller hears of it.
	unavailableWait = 5 * time.Second
	// attemptTimeout bounds one round trip to the store.
	attemptTimeout = 5 * time.Second
	// catchUpEvery bounds how often CatchUp reads the store.
	catchUpEvery = 5 * time.Millisecond
	retryMin     = 20 * time.Millisecond
	retryMax     = 500 * time.Millisecond
	// deletingMinAge is how long the keys of a deleted topic stay at least: longer than a lost CreateTopic can be on its way.
	defaultDeletingMinAge = time.Minute
	defaultCompactEvery   = 30 * time.Second
	compactAge            = 2 * time.Minute
)
