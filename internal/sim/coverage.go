// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Event is something a set of runs must have met, or it proved less than it says.
type Event string

// The events that are counted.
const (
	CrashAtSync       Event = "crash before a sync of the disk"
	CrashAtTxn        Event = "crash at a metadata transaction"
	CrashAtUpload     Event = "crash at an upload"
	CrashAtCommit     Event = "crash at the commit of a segment"
	CrashAnywhere     Event = "crash at a random time"
	CrashInProduce    Event = "crash with produce requests waiting"
	CrashInStall      Event = "crash while the disk stalled"
	CrashInSync       Event = "crash while a sync stalled"
	DiskStalled       Event = "disk stalled"
	CutInStall        Event = "producers cut off while the disk stalled"
	UnsyncedTail      Event = "restart that lost unsynced data"
	UnsyncedKept      Event = "restart that kept unsynced data"
	CleanStop         Event = "clean stop and start"
	LostCommitReply   Event = "lost reply of a segment's commit"
	LostHeadReply     Event = "lost reply of a log start's commit"
	MetadataOutage    Event = "metadata away"
	ClientsCutOff     Event = "clients cut off"
	HotFetch          Event = "fetch from the hot log"
	ColdFetch         Event = "fetch from the bucket"
	HotAndCold        Event = "batch fetched from both"
	ColdTime          Event = "time lookup below the hot log"
	ColdMaxTimestamp  Event = "largest timestamp asked with a tiered part"
	ManyChunks        Event = "segment of several chunks"
	PagesFolded       Event = "partition with folded pages at the end"
	DeletedInSegment  Event = "log start inside a segment"
	DeletedUnsealed   Event = "records deleted before they were sealed"
	RetentionMoved    Event = "log start moved by retention"
	TopicRecreated    Event = "topic deleted and made again"
	ConfigChanged     Event = "topic config changed"
	ManyEpochs        Event = "partition with more than two epochs"
	OutOfOrderRecords Event = "timestamps out of order"
)

// Events that need several nodes.
const (
	Failover          Event = "failover"
	FailoverInUpload  Event = "failover during an upload"
	TailTruncated     Event = "replica with a tail that its leader does not have"
	BelowMinimum      Event = "in-sync set below its minimum, with replicas noted as eligible"
	EligibleLed       Event = "eligible replica took over"
	StartedAtTier     Event = "replica started at the end of the bucket"
	HandOver          Event = "leadership handed over"
	SessionLost       Event = "registration lost without a crash"
	ISRChangeUnknown  Event = "outcome of a change of an in-sync set unknown"
	LateTxn           Event = "metadata transaction executed long after its sender gave it up"
	HandOverUnknown   Event = "leader cut off from the metadata as it handed over"
	SlowReturn        Event = "node came back with a slow disk, and all others crashed"
	SlowEmptyReturn   Event = "node came back with a slow, empty disk, and all others crashed"
	AskedNoLeader     Event = "node that does not lead asked for its latest offset"
	DiskLost          Event = "disk lost"
	EmptyRejoined     Event = "node with a lost disk in sync again"
	FollowerFetch     Event = "fetch from a follower"
	ReplicaRead       Event = "replica read on, whoever leads"
	Reassigned        Event = "replicas reassigned"
	ProducerThrottled Event = "producer throttled by a quota"
	ConsumerThrottled Event = "consumer throttled by a quota"
	NodesApart        Event = "nodes cut off from each other"
	PowerFailure      Event = "crash of all nodes at a time"
	FailureAtJoin     Event = "crash of all nodes as a replica entered an in-sync set, which came back first"
	EmptyFirst        Event = "crash of all nodes, one with its disk, which came back first"
	UnsyncedFirst     Event = "crash of all nodes while the syncs of one stalled, which came back first"
	EmptyEligible     Event = "eligible replica came back first, with another disk"
	UncleanInCommit   Event = "unclean election while a segment of the leader before was being committed, which arrived afterwards"
)

// Events of worlds in which the controller has something to decide. What it decides is counted by its reason.
const (
	ControllerChanged Event = "another node became the controller"
	ControllerDied    Event = "controller crashed with a move under way"
	NodeDrained       Event = "node drained until it was empty"
	DecidedStep       Event = "controller: move goes on"
	DecidedGiveUp     Event = "controller: node of the move is gone"
	DecidedDrain      Event = "controller: node drains"
	DecidedFactor     Event = "controller: automatic replication factor"
	DecidedLeaders    Event = "controller: balance of leaders"
	DecidedMoves      Event = "controller: balance of leaders, by another replica"
	DecidedReplicas   Event = "controller: balance of replicas"
)

// Events of histories of a consumer group.
const (
	MemberJoined  Event = "member joined"
	MemberLeft    Event = "member left"
	MemberDied    Event = "member died"
	MemberFroze   Event = "member stood still"
	MemberFenced  Event = "member put out that was still there"
	OwnerChanged  Event = "commit by another owner than the one before"
	CommitRefused Event = "commit not accepted"
	CommitUnknown Event = "outcome of a commit of an offset unknown"
)

// Events of histories of a group of the classic protocol.
const (
	FailoverStable           Event = "coordinator failed over: stable"
	FailoverPreparing        Event = "coordinator failed over: preparing"
	FailoverCompleting       Event = "coordinator failed over: completing"
	FailoverPending          Event = "coordinator failed over: member with an id, not joined yet"
	CoordinatorCrashed       Event = "coordinator crashed"
	CoordinatorStopped       Event = "coordinator stopped"
	CoordinatorCutOff        Event = "coordinator cut off from the metadata"
	CoordinatorDrained       Event = "coordinator drained"
	CoordinatorReleasedLate  Event = "coordinator gave up late, with a successor beside it"
	StaleRefused             Event = "member refused as what it was before"
	GroupUpgraded            Event = "classic group became a consumer group"
	GroupUpgradedRebalancing Event = "classic group became a consumer group while it rebalanced"
	GroupDowngraded          Event = "consumer group became a classic group"
)

// classicEvents are those that they must meet.
var classicEvents = []Event{
	CleanStop, Failover, HandOver, SessionLost, MemberJoined, MemberLeft, MemberDied, MemberFroze, MemberFenced, OwnerChanged, CommitRefused, CommitUnknown,
	FailoverStable, FailoverPreparing, FailoverCompleting, FailoverPending, CoordinatorCrashed, CoordinatorStopped, CoordinatorCutOff, CoordinatorDrained, CoordinatorReleasedLate,
	StaleRefused, GroupUpgraded, GroupUpgradedRebalancing, GroupDowngraded,
}

// groupEvents are those that histories of a consumer group must meet.
var groupEvents = []Event{
	CrashAtSync, CrashAtTxn, CrashAnywhere, CleanStop, MetadataOutage, Failover, HandOver, SessionLost, NodesApart,
	MemberJoined, MemberLeft, MemberDied, MemberFroze, MemberFenced, OwnerChanged, CommitRefused, CommitUnknown,
}

// TransactionEnded counts for histories of transactions.
const TransactionEnded Event = "transaction ended"

// nodeEvents are those that runs with one node must meet.
var nodeEvents = []Event{
	CrashAtSync, CrashAtTxn, CrashAtUpload, CrashAtCommit, CrashAnywhere, CrashInProduce, CrashInStall, CrashInSync, DiskStalled, CutInStall, UnsyncedTail, UnsyncedKept, CleanStop,
	LostCommitReply, LostHeadReply, MetadataOutage, ClientsCutOff, HotFetch, ColdFetch, HotAndCold, ColdTime, ColdMaxTimestamp,
	ManyChunks, PagesFolded, DeletedInSegment, DeletedUnsealed, RetentionMoved, TopicRecreated, ConfigChanged, ManyEpochs, OutOfOrderRecords,
}

// clusterEvents are those that runs with several nodes must meet.
var clusterEvents = []Event{
	CrashAtSync, CrashAtTxn, CrashAtUpload, CrashAtCommit, CrashAnywhere, CrashInProduce, CrashInStall, CrashInSync, DiskStalled, UnsyncedTail, UnsyncedKept, CleanStop,
	LostCommitReply, LostHeadReply, MetadataOutage, ClientsCutOff, HotFetch, ColdFetch, HotAndCold, ColdTime, DeletedInSegment, DeletedUnsealed, TopicRecreated,
	Failover, FailoverInUpload, TailTruncated, BelowMinimum, EligibleLed, StartedAtTier, HandOver, SessionLost, ISRChangeUnknown, LateTxn, HandOverUnknown, SlowReturn, SlowEmptyReturn, AskedNoLeader, DiskLost, EmptyRejoined,
	FollowerFetch, ReplicaRead, Reassigned, NodesApart, PowerFailure, FailureAtJoin, UnsyncedFirst, EmptyFirst, EmptyEligible,
	ProducerThrottled, ConsumerThrottled, UncleanInCommit,
}

// controllerEvents are those that runs with more nodes than replicas must meet.
var controllerEvents = []Event{
	CrashAtSync, CrashAtTxn, CrashAnywhere, CrashInSync, CleanStop, Failover, HandOver, SessionLost, DiskLost, EmptyRejoined, NodesApart, Reassigned,
	ControllerChanged, ControllerDied, NodeDrained, DecidedStep, DecidedGiveUp, DecidedDrain, DecidedFactor, DecidedLeaders, DecidedMoves, DecidedReplicas,
}

// txnEvents are those that histories of transactions must meet.
var txnEvents = []Event{
	CrashAtSync, CrashAtTxn, CrashAnywhere, CleanStop, MetadataOutage, Failover, HandOver, SessionLost, NodesApart, TransactionEnded,
}

// Coverage counts events over all runs of a set.
type Coverage struct {
	wanted []Event
	mu     sync.Mutex
	counts map[Event]int64
}

// NewCoverage counts from zero.
func NewCoverage(wanted []Event) *Coverage {
	return &Coverage{wanted: wanted, counts: map[Event]int64{}}
}

func (c *Coverage) hit(e Event) { c.add(e, 1) }

func (c *Coverage) add(e Event, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[e] += n
}

// Missing lists what never happened.
func (c *Coverage) Missing() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.wanted), func(e Event) bool { return c.counts[e] > 0 })
}

func (c *Coverage) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, e := range c.wanted {
		fmt.Fprintf(&b, "%s: %d\n", e, c.counts[e])
	}
	return b.String()
}
