// SPDX-License-Identifier: Apache-2.0

package gateway

import "time"

const (
	// maxTxnID bounds a transactional id, in bytes: it is part of a key of the metadata store.
	maxTxnID = 1024
	// maxTxnRetries is how often a step of a transactional id is decided again after it lost a race.
	maxTxnRetries = 16
	// maxTxnPartitions bounds the partitions of one AddPartitionsToTxn; they are read from the store when the image does not show them.
	maxTxnPartitions = 10_000
	// maxTxnBatch bounds the transactions of one AddPartitionsToTxn that are decided at a time.
	maxTxnBatch = 8
	// maxMarkerRequests is how many requests with markers are under way to one node: a partition that waits for its replicas must not hold all
	// others up. maxMarkerPartitions bounds the partitions of one.
	maxMarkerRequests   = 4
	maxMarkerPartitions = 2000
	// maxPendingBytes bounds what a transaction commits for one group: it is one value of the store.
	maxPendingBytes = 200 << 10

	// txnSweep is how often open transactions are looked at, whose time may be over; txnExpirySweep how often unused ids are.
	txnSweep       = time.Second
	txnExpirySweep = time.Minute
	// markerRetryMin and markerRetryMax are the pauses between attempts to write markers.
	markerRetryMin = 20 * time.Millisecond
	markerRetryMax = time.Second
	// pendingRefresh is how often a group's coordinator reads offsets again that transactions may have committed.
	pendingRefresh = 2 * time.Second
	// coordinatorWait is how long a node looks for a coordinator that moves, coordinatorPause the time between two looks.
	coordinatorWait  = time.Second
	coordinatorPause = 50 * time.Millisecond
)
