// SPDX-License-Identifier: Apache-2.0

package gateway

import "time"

const (
	// findWait is how long a FindCoordinator waits for a node to coordinate what none does. What is asked on its connection
	// behind it waits as long.
	findWait = 500 * time.Millisecond
	// shardReleaseWait is how long giving a shard up may take.
	shardReleaseWait = 3 * time.Second
	// maxGroupID bounds a group id, in bytes: it is part of several keys of the metadata store.
	maxGroupID = 1024
	// maxGroupTxnOps and maxGroupTxnBytes bound one transaction of coordinator shards.
	maxGroupTxnOps   = 90
	maxGroupTxnBytes = 512 << 10
	// maxGroupWrites and maxGroupReads bound a node's transactions for groups that are on their way, so that commits cannot starve
	// leases and leadership, which share the store. Of the writes, at most maxJointWrites are of what shards have to write.
	maxGroupWrites = 16
	maxGroupReads  = 32
	maxJointWrites = 4
	// maxRestingSenders is how many goroutines stay for the next transaction: one sends while the other tells the shards what became of the last.
	maxRestingSenders = 2
	// maxWaitingCommits bounds the changes of offsets that wait to be written.
	maxWaitingCommits = 4096
	// maxShardFlights is how many batches of a shard, of different groups, may be on their way: with one, a commit that comes while another group
	// is written misses the transaction after that too, which leaves at once, and with it wait the commits behind it on its connection.
	maxShardFlights = 4
	// maxCommitPartitions bounds the partitions of one OffsetCommit.
	maxCommitPartitions = 100_000
	// maxOffsetLookups bounds the topics of one such request that the image does not show and the store is asked for.
	maxOffsetLookups = 16
	// maxShardTakes is how many shards a node takes at a time.
	maxShardTakes = 8
	// maxFetchGroups bounds the groups of one OffsetFetch that are read at a time.
	maxFetchGroups = 4

	// groupWait bounds how long a commit, or a change by administration, waits for the metadata store.
	groupWait = 15 * time.Second
	// shardCheck is how often the ownership of shards is looked at though nothing seems to have changed; shardPause is the least
	// time between two looks.
	shardCheck = time.Second
	shardPause = 50 * time.Millisecond
	// shardFlush bounds how long a shard that is given up writes what waits.
	shardFlush = 5 * time.Second
	// groupRetry is the pause before what the store could not do is tried again.
	groupRetry = 200 * time.Millisecond
)
