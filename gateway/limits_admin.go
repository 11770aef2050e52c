// SPDX-License-Identifier: Apache-2.0

package gateway

import "time"

const (
	// maxNewPartitions bounds the partitions that one topic of a CreateTopics or CreatePartitions request adds, and all topics of
	// it together; Kafka's bound.
	maxNewPartitions = 10_000
	// maxReassigned bounds the partitions that one AlterPartitionReassignments request moves.
	maxReassigned = 10_000
	// maxQuotaEntities bounds the entities that have quotas: every node holds them all.
	maxQuotaEntities = 50_000
	// maxQuotaName bounds the bytes of a name that has quotas. Escaped it is three times as long; as many entities with two names as
	// one metadata transaction changes have to fit into it, compared and put.
	maxQuotaName = 1 << 10
	// maxParallelChanges bounds the metadata transactions that one request has in flight.
	maxParallelChanges = 8
	// maxAutoCreated bounds the topics that one Metadata request creates; the client asks again for the rest.
	maxAutoCreated = 16
	// autoCreateWait bounds how long a Metadata request waits for the store to create topics.
	autoCreateWait = 2 * time.Second
	// firstLeaderWait bounds how long a Metadata request waits for the first leaders of a new topic.
	firstLeaderWait = time.Second

	// minAdminWait and maxAdminWait bound the time limit that a client gives for a change. Below the lower one no transaction
	// could ever succeed.
	minAdminWait = 100 * time.Millisecond
	maxAdminWait = 5 * time.Minute
	// settleWait is how long the answer to a change waits for this node's own image.
	settleWait = 5 * time.Second
)
