// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"

	"github.com/varve/varve/broker/hotlog"
	"github.com/varve/varve/record"
)

var (
	// ErrUnknownPartition: no such partition is known to this node.
	ErrUnknownPartition = errors.New("broker: unknown partition")
	// ErrNotLeader: this node does not lead the partition now, or no longer; an append that waited may still take effect.
	ErrNotLeader = errors.New("broker: not the leader of the partition")
	// ErrFencedEpoch: the client knows an older leader epoch.
	ErrFencedEpoch = errors.New("broker: leader epoch of the request is older than the partition's")
	// ErrUnknownEpoch: the client knows a newer leader epoch than this node.
	ErrUnknownEpoch = errors.New("broker: leader epoch of the request is newer than this node knows")
	// ErrOffsetOutOfRange: below the log start or above the log end. Only a leader says the latter to a client.
	ErrOffsetOutOfRange = errors.New("broker: offset out of range")
	// ErrTiered: a follower asks for what is only in the bucket; it starts where that ends.
	ErrTiered = errors.New("broker: the offset is in the bucket only")
	// ErrOffsetNotAvailable: just elected, the high watermark is not yet known to be current.
	ErrOffsetNotAvailable = errors.New("broker: high watermark of the new leader is not known yet")
	// ErrNotEnoughReplicas: acks=all refused before the append; nothing was stored.
	ErrNotEnoughReplicas = errors.New("broker: fewer in-sync replicas than min.insync.replicas")
	// ErrNotEnoughReplicasAfterAppend: the ISR fell below the minimum while an append waited; it may still take effect.
	ErrNotEnoughReplicasAfterAppend = errors.New("broker: in-sync replicas fell below min.insync.replicas after the append")
	// ErrTimedOut: the wait for replication ended; the append may still take effect.
	ErrTimedOut = errors.New("broker: timed out waiting for the append to be committed")
	// ErrOutOfOrderSequence: an idempotent producer's sequence neither follows nor repeats.
	ErrOutOfOrderSequence = errors.New("broker: out of order sequence number")
	// ErrInvalidProducerEpoch: the producer's epoch is older than the partition has seen.
	ErrInvalidProducerEpoch = errors.New("broker: producer epoch is older than the newest known")
	// ErrInvalidTxnState: a batch that does not fit the transaction that is open here, or stands outside any.
	ErrInvalidTxnState = errors.New("broker: the batch does not belong to the producer's transaction on the partition")
	// ErrTxnNotAdded: the coordinator does not have the partition in a transaction of the producer that is under way.
	ErrTxnNotAdded = errors.New("broker: the partition is not in the producer's transaction")
	// ErrTxnConcurrent: the coordinator is still ending the producer's last transaction.
	ErrTxnConcurrent = errors.New("broker: the producer's last transaction is being ended")
	// ErrTxnUnavailable: the coordinator could not be asked, or what it said was overtaken; nothing was stored.
	ErrTxnUnavailable = errors.New("broker: the transaction cannot be verified now")
	// ErrProducerIDMapping: the transactional id has another producer id.
	ErrProducerIDMapping = errors.New("broker: the transactional id has another producer id")
	// ErrCoordinatorFenced: a marker from a coordinator that has a successor.
	ErrCoordinatorFenced = errors.New("broker: coordinator epoch of the marker is older than the newest known")
	// ErrDiskFull: the disk of the hot log is full; produce is refused, everything else goes on.
	ErrDiskFull = errors.New("broker: the disk of the hot log is full")
	// ErrBusy: too much is queued; nothing was stored.
	ErrBusy = errors.New("broker: too many appends are queued")
	// ErrStorage: a store did not answer or answered wrong; the same request may work later.
	ErrStorage = errors.New("broker: storage is not available")
	// ErrPolicy: the topic's configuration forbids it.
	ErrPolicy = errors.New("broker: the topic's configuration does not allow this")
	// ErrUnsupportedSpecial: an unknown special timestamp of ListOffsets.
	ErrUnsupportedSpecial = errors.New("broker: unknown special timestamp")
)

// appendError maps what the hot log said to this package's errors.
func appendError(id record.PartitionID, err error) error {
	switch {
	case errors.Is(err, hotlog.ErrDiskFull):
		return fmt.Errorf("%w: %s", ErrDiskFull, id)
	case errors.Is(err, hotlog.ErrQueueFull):
		return fmt.Errorf("%w: %s", ErrBusy, id)
	case errors.Is(err, hotlog.ErrClosed):
		return fmt.Errorf("%w: %s is closing", ErrNotLeader, id)
	default:
		return fmt.Errorf("%w: appending to %s: %w", ErrStorage, id, err)
	}
}
