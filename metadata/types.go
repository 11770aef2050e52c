// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"encoding/base64"
	"encoding/hex"
	"time"

	"github.com/varve/varve/record"
)

// PartitionID is record.PartitionID, which every signature here is about.
type PartitionID = record.PartitionID

// UUID is an operation id, a store id or an attempt.
type UUID [16]byte

func (u UUID) String() string { return hex.EncodeToString(u[:]) }

// IsZero tells that it names nothing.
func (u UUID) IsZero() bool { return u == UUID{} }

// Incarnation is the create revision of a node's registration: it differs after every restart and every lost lease.
type Incarnation int64

// Endpoint is where a listener of a node can be reached.
type Endpoint struct {
	Listener string `json:"listener"`
	Host     string `json:"host"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
}

// VersionRange is the range of cluster versions that a binary can run.
type VersionRange struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Contains tells whether v lies in the range.
func (r VersionRange) Contains(v int) bool { return r.Min <= v && v <= r.Max }

// BrokerInfo is what a node says about itself when it registers.
type BrokerInfo struct {
	Node      record.NodeID
	StoreID   UUID
	Boots     uint64
	Rack      string
	Endpoints []Endpoint
	HTTP      string // where its HTTP port is, for the operations API
	Roles     []string
	Versions  VersionRange // zero: the Store's
	Started   time.Time
}

// Broker is a registered node.
type Broker struct {
	BrokerInfo
	Incarnation Incarnation
	Rev         Revision
}

// Endpoint finds the endpoint of a listener.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if e.Listener == listener {
			return e, true
		}
	}
	return Endpoint{}, false
}

// StoreBoots says how often a data directory was opened, and its stamp: a number that its owner raises there first and then tells etcd.
type StoreBoots struct {
	StoreID UUID
	Boots   uint64
	Stamp   uint64
}

// LeaderState is a partition's leader key. Rev is the token that fences the leader; 0 means that there was never one.
type LeaderState struct {
	Node        record.NodeID
	Incarnation Incarnation
	Epoch       record.Epoch
	// UncleanEpoch is the epoch of the partition's last unclean election, 0 for none: what is in a log from before it may be lost, also
	// where it was committed then. Later leaders carry it on.
	UncleanEpoch record.Epoch
	Rev          Revision
}

// ISRMember is one in-sync replica.
type ISRMember struct {
	Node        record.NodeID
	Incarnation Incarnation
	StoreID     UUID
}

// ELRMember is a replica that was removed while the in-sync set was below its minimum: it has everything below the high watermark.
type ELRMember struct {
	Node    record.NodeID
	StoreID UUID
}

// ISRState is a partition's in-sync set. It is immutable.
type ISRState struct {
	Members []ISRMember
	ELR     []ELRMember
	HWFloor record.Offset
	Rev     Revision
}

// Member finds a node among the members.
func (s *ISRState) Member(n record.NodeID) (ISRMember, bool) {
	for _, m := range s.Members {
		if m.Node == n {
			return m, true
		}
	}
	return ISRMember{}, false
}

// outOf are those of the nodes that are not members.
func (s *ISRState) outOf(nodes []record.NodeID) (out []record.NodeID) {
	for _, n := range nodes {
		if _, ok := s.Member(n); !ok {
			out = append(out, n)
		}
	}
	return out
}

// among is how many of the nodes are members.
func (s *ISRState) among(nodes []record.NodeID) int { return len(nodes) - len(s.outOf(nodes)) }

// Head is a partition's manifest head. It is immutable.
type Head struct {
	TieredEnd   record.Offset // the first offset that is not in the bucket
	LogStart    record.Offset
	TieredBytes int64
	FoldedEnd   record.Offset       // entries below it are in Pages, whatever seg/ still holds
	Count       int64               // entries in seg/ at or above FoldedEnd
	Pages       [][]byte            // page pointers, opaque here, oldest first
	EpochChain  []record.EpochStart // of the tiered part, oldest first
	Rev         Revision
}

// PartitionState is what the image knows about a partition.
type PartitionState struct {
	Leader LeaderState // Node is record.NoNode and Rev 0 before the first takeover
	ISR    ISRState
	Head   Head
}

// TopicSpec is a topic to be created.
type TopicSpec struct {
	Name       string
	ID         record.TopicID    // zero: a fresh one
	Partitions [][]record.NodeID // the replicas of each partition, preferred leader first
	Overrides  map[string]string
	AutoRF     bool // created with replication factor -1: follows the number of nodes
}

// SegmentValue is one manifest entry as stored: opaque bytes (package manifest owns the encoding) and its revision (segGen).
type SegmentValue struct {
	Base  record.Offset
	Rev   Revision
	Value []byte
}

// IntentKind says what an upload is for.
type IntentKind int8

// The kinds of intents.
const (
	IntentSeal IntentKind = iota + 1
	IntentCompaction
	IntentPage
)

// Intent announces objects before they are written, so that nothing in the bucket is ever unaccounted for.
type Intent struct {
	Attempt  UUID
	Kind     IntentKind
	Keys     []string
	UploadID string
	Range    OffsetRange
	Epoch    record.Epoch
	Started  time.Time
	// Rev is the intent's own revision (intentRev) where it was read; PutIntent with one changes the intent of that revision.
	Rev Revision
}

// OffsetRange is [Base, End).
type OffsetRange struct{ Base, End record.Offset }

// GCRecord lists objects that nothing refers to any more.
type GCRecord struct {
	Attempt   UUID
	Keys      []string
	UploadID  string
	NotBefore time.Time
	Reason    string
	Rev       Revision
}

// Leadership is one term of leading a partition: the token of every change that the leader makes. It is a value; it ends when
// the leader key changes, which every change made under it finds out (ErrFenced).
type Leadership struct {
	ID        PartitionID
	Node      record.NodeID
	Epoch     record.Epoch
	LeaderRev Revision
	ISR       ISRState // as of the takeover
	Head      Head     // as of the takeover
	// UncleanEpoch is LeaderState.UncleanEpoch.
	UncleanEpoch record.Epoch
}

// SegmentCommit turns an uploaded segment into truth.
type SegmentCommit struct {
	IntentRev Revision
	Attempt   UUID
	Range     OffsetRange
	Bytes     int64  // what it adds to the tiered bytes
	Entry     []byte // the manifest entry, opaque
	Epochs    []record.EpochStart
}

// DroppedSegment is an entry that retention takes out of the manifest.
type DroppedSegment struct {
	Base    record.Offset
	Attempt UUID
	Keys    []string // its objects
	Bytes   int64
}

// FoldCommit moves entries into a page object.
type FoldCommit struct {
	IntentRev Revision
	Attempt   UUID
	HeadRev   Revision      // the head that Pages was computed from
	FoldedEnd record.Offset // entries below it are in Pages now
	Folded    int64         // how many entries that are
	Pages     [][]byte      // all page pointers, oldest first
	Replaced  []GCRecord    // page objects that Pages no longer names
}

// PageDrop takes whole pages off the front, once the log start has passed them.
type PageDrop struct {
	HeadRev Revision
	Pages   [][]byte // those that stay
	Bytes   int64    // what leaves the tiered bytes
	Garbage []GCRecord
}

// Base64 is the 22-character form that Kafka uses for ids.
func (u UUID) Base64() string { return base64.RawURLEncoding.EncodeToString(u[:]) }
