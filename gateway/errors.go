// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"

	"github.com/varve/varve/broker"
	"github.com/varve/varve/gateway/group"
	"github.com/varve/varve/gateway/group/consumer"
	"github.com/varve/varve/gateway/txn"
	"github.com/varve/varve/metadata"
	"github.com/varve/varve/metadata/config"
	"github.com/varve/varve/record"
)

// Code is a Kafka error code.
type Code int16

// Kafka's error codes, as far as any API here answers them.
const (
	codeUnknownServerError           Code = -1
	codeNone                         Code = 0
	codeOffsetOutOfRange             Code = 1
	codeCorruptMessage               Code = 2
	codeUnknownTopicOrPartition      Code = 3
	codeLeaderNotAvailable           Code = 5
	codeNotLeaderOrFollower          Code = 6
	codeRequestTimedOut              Code = 7
	codeReplicaNotAvailable          Code = 9
	codeMessageTooLarge              Code = 10
	codeCoordinatorLoadInProgress    Code = 14
	codeCoordinatorNotAvailable      Code = 15
	codeNotCoordinator               Code = 16
	codeOffsetMetadataTooLarge       Code = 12
	codeInvalidTopic                 Code = 17
	codeRecordListTooLarge           Code = 18
	codeNotEnoughReplicas            Code = 19
	codeNotEnoughReplicasAfterAppend Code = 20
	codeInvalidRequiredAcks          Code = 21
	codeIllegalGeneration            Code = 22
	codeInconsistentGroupProtocol    Code = 23
	codeInvalidGroupID               Code = 24
	codeUnknownMemberID              Code = 25
	codeInvalidSessionTimeout        Code = 26
	codeRebalanceInProgress          Code = 27
	codeTopicAuthorizationFailed     Code = 29
	codeClusterAuthorizationFailed   Code = 31
	codeInvalidTimestamp             Code = 32
	codeUnsupportedSASLMechanism     Code = 33
	codeUnsupportedVersion           Code = 35
	codeTopicAlreadyExists           Code = 36
	codeInvalidPartitions            Code = 37
	codeInvalidReplicationFactor     Code = 38
	codeInvalidReplicaAssignment     Code = 39
	codeInvalidConfig                Code = 40
	codeNotController                Code = 41
	codeInvalidRequest               Code = 42
	codePolicyViolation              Code = 44
	codeOutOfOrderSequence           Code = 45
	codeInvalidProducerEpoch         Code = 47
	codeInvalidTxnState              Code = 48
	codeInvalidProducerIDMapping     Code = 49
	codeTransactionCoordinatorFenced Code = 52
	codeInvalidTransactionTimeout    Code = 50
	codeConcurrentTransactions       Code = 51
	codeTransactionalIDAuthorization Code = 53
	codeSecurityDisabled             Code = 54
	codeOperationNotAttempted        Code = 55
	codeKafkaStorageError            Code = 56
	codeLogDirNotFound               Code = 57
	codeDelegationTokenRequest       Code = 64 // DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
	codeNonEmptyGroup                Code = 68
	codeGroupIDNotFound              Code = 69
	codeFetchSessionIDNotFound       Code = 70
	codeInvalidFetchSessionEpoch     Code = 71
	codeListenerNotFound             Code = 72
	codeTopicDeletionDisabled        Code = 73
	codeFencedLeaderEpoch            Code = 74
	codeUnknownLeaderEpoch           Code = 75
	codeUnsupportedCompressionType   Code = 76
	codeStaleBrokerEpoch             Code = 77
	codeOffsetNotAvailable           Code = 78
	codeMemberIDRequired             Code = 79
	codePreferredLeaderNotAvailable  Code = 80
	codeGroupMaxSizeReached          Code = 81
	codeFencedInstanceID             Code = 82
	codeEligibleLeadersNotAvailable  Code = 83
	codeElectionNotNeeded            Code = 84
	codeNoReassignmentInProgress     Code = 85
	codeGroupSubscribedToTopic       Code = 86
	codeInvalidRecord                Code = 87
	codeUnstableOffsetCommit         Code = 88
	codeThrottlingQuotaExceeded      Code = 89
	codeProducerFenced               Code = 90
	codeResourceNotFound             Code = 91
	codeDuplicateResource            Code = 92
	codeUnacceptableCredential       Code = 93
	codeInvalidUpdateVersion         Code = 95
	codeUnknownTopicID               Code = 100
	codeBrokerIDNotRegistered        Code = 102
	codeInconsistentTopicID          Code = 103
	codeTransactionalIDNotFound      Code = 105
	codeFetchSessionTopicIDError     Code = 106
	codeOffsetMovedToTieredStorage   Code = 109
	codeMismatchedEndpointType       Code = 114
	codeUnsupportedEndpointType      Code = 115
	codeFencedMemberEpoch            Code = 110
	codeUnreleasedInstanceID         Code = 111
	codeUnsupportedAssignor          Code = 112
	codeStaleMemberEpoch             Code = 113
	codeTransactionAbortable         Code = 120
	codeInvalidRegularExpression     Code = 128
	codeRebootstrapRequired          Code = 129
)

// mapping is one row of the only table from errors of the packages below to Kafka codes (G3).
type mapping struct {
	err  error
	code Code
	// retriable tells what clients do with the code; it is Kafka's, not ours.
	retriable bool
}

// mappings is searched in order with errors.Is: the more special error stands first.
var mappings = []mapping{
	{broker.ErrUnknownPartition, codeUnknownTopicOrPartition, true},
	{broker.ErrNotLeader, codeNotLeaderOrFollower, true},
	{broker.ErrFencedEpoch, codeFencedLeaderEpoch, true},
	{broker.ErrUnknownEpoch, codeUnknownLeaderEpoch, true},
	{broker.ErrOffsetOutOfRange, codeOffsetOutOfRange, false},
	{broker.ErrTiered, codeOffsetMovedToTieredStorage, false},
	{broker.ErrOffsetNotAvailable, codeOffsetNotAvailable, true},
	{broker.ErrNotEnoughReplicasAfterAppend, codeNotEnoughReplicasAfterAppend, true},
	{broker.ErrNotEnoughReplicas, codeNotEnoughReplicas, true},
	{broker.ErrTimedOut, codeRequestTimedOut, true},
	{broker.ErrOutOfOrderSequence, codeOutOfOrderSequence, false},
	{broker.ErrInvalidProducerEpoch, codeInvalidProducerEpoch, false},
	{broker.ErrInvalidTxnState, codeInvalidTxnState, false},
	{broker.ErrTxnNotAdded, codeInvalidTxnState, false}, // from Produce version 11 on: produceCode
	// Old clients do not know these of a produce, and every one of them sends again after this code.
	{broker.ErrTxnConcurrent, codeNotEnoughReplicas, true},
	{broker.ErrTxnUnavailable, codeNotEnoughReplicas, true},
	{broker.ErrProducerIDMapping, codeInvalidProducerIDMapping, false},
	{broker.ErrCoordinatorFenced, codeTransactionCoordinatorFenced, false},
	{broker.ErrDiskFull, codeKafkaStorageError, true},
	// Too much queued: clients take the storage error's retry, with its metadata refresh, for a short back-off.
	{broker.ErrBusy, codeKafkaStorageError, true},
	{broker.ErrStorage, codeKafkaStorageError, true},
	{broker.ErrPolicy, codePolicyViolation, false},
	{broker.ErrUnsupportedSpecial, codeUnsupportedVersion, false},

	{metadata.ErrTopicExists, codeTopicAlreadyExists, false},
	{metadata.ErrUnknownTopic, codeUnknownTopicOrPartition, true},
	{metadata.ErrUnknownPartition, codeUnknownTopicOrPartition, true},
	{metadata.ErrNoMove, codeNoReassignmentInProgress, false},
	{metadata.ErrReplicationFactor, codeInvalidReplicationFactor, false},
	{metadata.ErrNotInSync, codeInvalidReplicaAssignment, false},
	{metadata.ErrFenced, codeNotLeaderOrFollower, true},
	{metadata.ErrNotEligible, codeNotLeaderOrFollower, true},
	{metadata.ErrInSyncAlive, codeNotLeaderOrFollower, true},
	{metadata.ErrLeaderAlive, codeNotLeaderOrFollower, true},
	// The store is away, or changed under our hands: the same request may work later.
	{metadata.ErrUnavailable, codeRequestTimedOut, true},
	{metadata.ErrUnknown, codeRequestTimedOut, true},
	{metadata.ErrConflict, codeRequestTimedOut, true},
	{metadata.ErrTxnChanged, codeRequestTimedOut, true},
	{metadata.ErrNotLoaded, codeRequestTimedOut, true},
	{metadata.ErrSessionLost, codeRequestTimedOut, true},
	{metadata.ErrShardTaken, codeNotCoordinator, true},
	{metadata.ErrWatchLost, codeRequestTimedOut, true},
	{metadata.ErrCompacted, codeRequestTimedOut, true},
	{metadata.ErrLeaseNotFound, codeRequestTimedOut, true},
	{metadata.ErrClosed, codeRequestTimedOut, true},
	{metadata.ErrIntentClaimed, codeRequestTimedOut, true},
	{metadata.ErrTieredEndMoved, codeRequestTimedOut, true},
	{metadata.ErrTooLarge, codeInvalidRequest, false},
	// A node that may not go on answers nothing that looks like a fact.
	{metadata.ErrRefused, codeUnknownServerError, false},
	{metadata.ErrCorrupt, codeUnknownServerError, false},
	{metadata.ErrWentBack, codeUnknownServerError, false},
	{metadata.ErrGeneration, codeUnknownServerError, false},
	{metadata.ErrVersionRange, codeUnknownServerError, false},

	{group.ErrUnknownMember, codeUnknownMemberID, false},
	{group.ErrIllegalGeneration, codeIllegalGeneration, false},
	{group.ErrInconsistentProtocol, codeInconsistentGroupProtocol, false},
	{group.ErrSessionTimeout, codeInvalidSessionTimeout, false},
	{group.ErrRebalance, codeRebalanceInProgress, false},
	{group.ErrMemberIDRequired, codeMemberIDRequired, false},
	{group.ErrFull, codeGroupMaxSizeReached, false},
	{group.ErrFencedInstance, codeFencedInstanceID, false},
	{group.ErrNotEmpty, codeNonEmptyGroup, false},
	{group.ErrNotFound, codeGroupIDNotFound, false},
	{group.ErrSubscribed, codeGroupSubscribedToTopic, false},
	{group.ErrTooLarge, codeGroupMaxSizeReached, false},
	{group.ErrCorrupt, codeUnknownServerError, false},
	{consumer.ErrFencedEpoch, codeFencedMemberEpoch, false},
	{consumer.ErrStaleEpoch, codeStaleMemberEpoch, false},
	{consumer.ErrUnreleasedInstance, codeUnreleasedInstanceID, false},
	{consumer.ErrUnsupportedAssignor, codeUnsupportedAssignor, false},
	{consumer.ErrInvalidRegex, codeInvalidRegularExpression, false},
	{consumer.ErrInvalidRequest, codeInvalidRequest, false},
	{consumer.ErrOldVersion, codeUnsupportedVersion, false},

	{txn.ErrMapping, codeInvalidProducerIDMapping, false},
	{txn.ErrFenced, codeProducerFenced, false},
	{txn.ErrConcurrent, codeConcurrentTransactions, false},
	{txn.ErrInvalidState, codeInvalidTxnState, false},
	{txn.ErrNotAdded, codeTransactionAbortable, false},
	{txn.ErrCorrupt, codeUnknownServerError, false},

	{config.ErrUnknown, codeInvalidConfig, false},
	{config.ErrInvalid, codeInvalidConfig, false},
	{config.ErrReadOnly, codeInvalidRequest, false},
	{config.ErrBadOperation, codeInvalidRequest, false},

	// A stored batch that does not check out: its partition must not look empty, another replica or a later read may do.
	{record.ErrShort, codeKafkaStorageError, true},
	{record.ErrMalformed, codeKafkaStorageError, true},
	{record.ErrChecksum, codeKafkaStorageError, true},
	{record.ErrUndecodable, codeKafkaStorageError, true},
	{record.ErrTooLarge, codeKafkaStorageError, true},

	{context.DeadlineExceeded, codeRequestTimedOut, true},
	{context.Canceled, codeRequestTimedOut, true},
}

// rejections maps why a batch was refused on arrival.
var rejections = map[record.Reason]Code{
	record.CorruptMessage:         codeCorruptMessage,
	record.InvalidRecord:          codeInvalidRecord,
	record.InvalidTimestamp:       codeInvalidTimestamp,
	record.MessageTooLarge:        codeMessageTooLarge,
	record.UnsupportedCompression: codeUnsupportedCompressionType,
}

// codeOf is the Kafka code of err; an error that is not in the table is a server error and worth a log line of its owner.
func codeOf(err error) Code {
	if err == nil {
		return codeNone
	}
	for i := range mappings {
		if errors.Is(err, mappings[i].err) {
			return mappings[i].code
		}
	}
	return codeUnknownServerError
}

// int16 is the code as kmsg's fields want it.
func (c Code) int16() int16 { return int16(c) }
