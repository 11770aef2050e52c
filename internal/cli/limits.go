// SPDX-License-Identifier: Apache-2.0

package cli

import "time"

const (
	// maxInputRecordBytes bounds one line or one length-delimited record of produce: what Kafka's largest request can carry.
	maxInputRecordBytes = 100 << 20
	// maxQueuedRecords and maxQueuedBytes bound what produce has read but the broker has not acknowledged.
	maxQueuedRecords = 50_000
	maxQueuedBytes   = 64 << 20
	// transactionTimeout is how long the transaction of one produce may take before the broker aborts it. Kafka's brokers allow up to 15 min.
	transactionTimeout = 5 * time.Minute
	// smallReserve and smallWAL are what a node for development sets aside on its disk, in place of 256 MiB and twice 64 MB.
	smallReserve = 16 << 20
	smallWAL     = 8 << 20
	// txnPoll is the pause before a transaction that is being completed is asked about again.
	txnPoll = 100 * time.Millisecond
	// flushAfterInterrupt is how long an interrupted produce waits for acknowledgements of what it has sent.
	flushAfterInterrupt = 10 * time.Second
	// maxPollRecords bounds one poll of consume.
	maxPollRecords = 10_000
	// maxFetchBytes bounds one fetch of consume, maxProbeBytes one look for invisible offsets.
	maxFetchBytes = 32 << 20
	maxProbeBytes = 1 << 20
	// firstFooterRead is what segment dump reads of an object's end before it knows how long the footer is.
	firstFooterRead = 64 << 10
	// maxBehindSegment is how far before the end of a file the end of a segment is looked for.
	maxBehindSegment = 16 << 10
	// maxStayingIn bounds the topics in an answer about nodes that have replicas which stay on one that drains, maxTopicsNamed those that
	// one line of a command names.
	maxStayingIn   = 100
	maxTopicsNamed = 3
	// stallLook is how often produce looks whether acknowledgements come, and after how long without one it listens to why.
	stallLook = 250 * time.Millisecond
	// maxNotes bounds the different troubles that one run of consume mentions.
	maxNotes = 20
	// autoCreateWait is how long produce waits for a topic that the broker may be creating.
	autoCreateWait = 3 * time.Second
	// coordinatorWait is how long a group or transaction may be without coordinator, as after a start or a move.
	coordinatorWait = 5 * time.Second
	// idleProbe is after how long without records consume looks whether anything visible is left.
	idleProbe = time.Second
	// progressEvery is how often progress is redrawn.
	progressEvery = 200 * time.Millisecond
	// drainLook is how often node drain --wait looks.
	drainLook = 200 * time.Millisecond
	// maxReassignmentBytes bounds what is read of a file with reassignments.
	maxReassignmentBytes = 64 << 20
	// maxHTTPAnswerBytes bounds what is read of an operations API answer.
	maxHTTPAnswerBytes = 256 << 20
	// controllerWait is how long cluster describe waits to hear who is the controller.
	controllerWait = 3 * time.Second
	// stampEvery is how often a node to which something is appended raises the stamps of its data directories: an image of the disk that is
	// younger than that, of a node that ran, is not known as such when it is put back.
	stampEvery = time.Minute
	// httpDialTimeout is how long connecting to one node's HTTP port may take before the next node is asked.
	httpDialTimeout = 5 * time.Second
)
