// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"errors"
	"fmt"
)

// Errors of the KV seam.
var (
	// ErrUnavailable: the store did not do it, and will not; retriable.
	ErrUnavailable = errors.New("metadata store unavailable")
	// ErrUnknown: the store may have done it, or may still.
	ErrUnknown = errors.New("metadata store: outcome unknown")
	// ErrCompacted: the revision asked for is forgotten.
	ErrCompacted = errors.New("metadata store: revision compacted")
	// ErrWatchLost: the watch ended.
	ErrWatchLost = errors.New("metadata store: watch lost")
	// ErrLeaseNotFound: the lease has ended.
	ErrLeaseNotFound = errors.New("metadata store: lease not found")
	// ErrTooLarge: more operations or bytes than a transaction may have.
	ErrTooLarge = errors.New("metadata: change too large for one transaction")
	// ErrRefused: the store refuses by itself (credentials, quota, malformed request); trying again does not help.
	ErrRefused = errors.New("metadata store refused")
	// ErrClosed: the client or the session was closed.
	ErrClosed = errors.New("metadata: closed")
)

// Errors of the Store.
var (
	// ErrFenced: somebody else leads the partition now, or nobody; whatever was asked for did not and will not happen, unless it
	// had happened before the fence. The leadership is over.
	ErrFenced = errors.New("fenced: leadership is over")
	// ErrConflict: another change came first; read again and decide again.
	ErrConflict = errors.New("lost a race against another change")
	// ErrTxnChanged: the transaction is not what it was when the change was decided.
	ErrTxnChanged = errors.New("the transaction has changed")
	// ErrNotLoaded: the image is not there yet; retriable.
	ErrNotLoaded = errors.New("metadata not loaded yet")
	// ErrTopicExists: the name is taken.
	ErrTopicExists = errors.New("topic exists already")
	// ErrUnknownTopic: no such topic, or it is being deleted.
	ErrUnknownTopic = errors.New("unknown topic")
	// ErrUnknownPartition: the topic has no such partition.
	ErrUnknownPartition = errors.New("unknown partition")
	// ErrUnknownNode: no node of that id was ever part of the cluster.
	ErrUnknownNode = errors.New("unknown node")
	// ErrNoMove: the partition has no reassignment under way.
	ErrNoMove = errors.New("no reassignment in progress")
	// ErrReplicationFactor: a reassignment would change the number of replicas, which it was not allowed to.
	ErrReplicationFactor = errors.New("reassignment would change the replication factor")
	// ErrNotInSync: none of the replicas that would stay is in sync.
	ErrNotInSync = errors.New("none of the remaining replicas is in sync")
	// ErrNotEligible: this node may not lead the partition.
	ErrNotEligible = errors.New("not eligible to lead")
	// ErrLeaderAlive: the partition's leader is registered.
	ErrLeaderAlive = errors.New("the leader is still registered")
	// ErrInSyncAlive: a replica that is in sync is registered, so no other may lead.
	ErrInSyncAlive = errors.New("an in-sync replica is registered")
	// ErrIntentClaimed: the intent is gone: garbage collection claimed it, or it was used.
	ErrIntentClaimed = errors.New("intent is gone: claimed by garbage collection")
	// ErrTieredEndMoved: the segment does not begin at the tiered end.
	ErrTieredEndMoved = errors.New("segment does not begin at the tiered end")
	// ErrShardTaken: the coordinator shard has an owner.
	ErrShardTaken = errors.New("coordinator shard has an owner")
	// ErrSessionLost: the node's registration has ended.
	ErrSessionLost = errors.New("registration lost")
	// ErrNodeIDTaken: a live node has that id.
	ErrNodeIDTaken = errors.New("node id in use")
	// ErrWentBack: the store's history went back; nothing here may go on.
	ErrWentBack = errors.New("etcd went back")
	// ErrGeneration: the cluster was reconciled after a restore while this node ran.
	ErrGeneration = errors.New("cluster generation changed: restart this node")
	// ErrCorrupt: a value cannot be read. The store holds it, so nothing that depends on it may be guessed.
	ErrCorrupt = errors.New("corrupt metadata value")
	// ErrVersionRange: the cluster version and what a binary can run do not fit.
	ErrVersionRange = errors.New("cluster version out of range")
)

// Errors of Open: one per row of the identity table.
var (
	// ErrEtcdEmpty: the bucket knows the cluster, etcd does not.
	ErrEtcdEmpty = errors.New("etcd is empty")
	// ErrBucketEmpty: etcd knows the cluster, the bucket does not.
	ErrBucketEmpty = errors.New("wrong or emptied bucket")
	// ErrBucketOfOther: etcd and the bucket name different clusters.
	ErrBucketOfOther = errors.New("bucket of another cluster")
	// ErrDataOfOther: the data directory belongs to another cluster.
	ErrDataOfOther = errors.New("data directory of another cluster")
	// ErrDataOfOtherNode: the data directory belongs to another node.
	ErrDataOfOtherNode = errors.New("data directory of another node")
)

// ErrNewerVersion: a value was written in a format that this binary does not know.
type ErrNewerVersion struct {
	What       string // the kind of value, or "cluster version"
	Have, Can  int    // what was found, the newest this binary can read
	Additional string // where, or what to do
}

func (e *ErrNewerVersion) Error() string {
	s := fmt.Sprintf("%s has format %d, this binary reads up to %d: upgrade varve", e.What, e.Have, e.Can)
	if e.Additional != "" {
		s += " (" + e.Additional + ")"
	}
	return s
}

// WentBackError tells how far the store went back. It is ErrWentBack.
type WentBackError struct {
	From, To         Revision
	FromEtcd, ToEtcd uint64
}

func (e *WentBackError) Error() string {
	s := fmt.Sprintf("etcd went back from revision %d to %d (restored backup?): stop all nodes and run \"varve restore --reconcile\"", e.From, e.To)
	if e.FromEtcd != e.ToEtcd {
		s += fmt.Sprintf(" (etcd cluster %x, was %x)", e.ToEtcd, e.FromEtcd)
	}
	return s
}

// Is makes every WentBackError an ErrWentBack.
func (e *WentBackError) Is(target error) bool { return target == ErrWentBack }

// PartitionError says which partition of a batch an error is about.
type PartitionError struct {
	ID  PartitionID
	Err error
}

func (e *PartitionError) Error() string { return e.ID.String() + ": " + e.Err.Error() }
func (e *PartitionError) Unwrap() error { return e.Err }
