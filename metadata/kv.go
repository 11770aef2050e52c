// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"time"
)

// Revision is a point in the store's history. Each transaction that changes anything takes the next one.
type Revision int64

// LeaseID names a lease. 0 is no lease.
type LeaseID int64

// KV is the seam to the metadata store: what etcd offers, and no more. metadata/metadatatest is the suite for implementations.
// All methods are safe for concurrent use. Keys are opaque strings ordered bytewise; values belong to the caller before a call
// and to the caller after it (implementations copy what they keep, answers are never written to again).
//
// Durability: a transaction that was answered survives the loss of any minority of the store.
//
// Errors: ErrUnavailable means surely not applied, retriable. ErrUnknown means that the outcome is unknown: applied, not applied,
// or still on its way (rule 0 says what to do). Reads give ErrUnavailable only. A cancelled context gives ErrUnknown for
// a transaction that may have been sent. Implementations never send a transaction a second time by themselves.
type KV interface {
	Leases
	// Txn executes Then when every compare holds, else Else, as one revision. A key may be put or deleted once per Txn.
	Txn(ctx context.Context, txn Txn) (TxnResult, error)
	// Range reads keys in order, linearizably, at one revision.
	Range(ctx context.Context, req RangeRequest) (RangeResult, error)
	// Watch gives every change of keys with the prefix from revision `from` on, in order. It returns at once: a watch that
	// cannot be had fails in Next.
	Watch(ctx context.Context, prefix string, from Revision) Watcher
	// Status tells about the store; it is not linearizable.
	Status(ctx context.Context) (Status, error)
	// Compact forgets history below rev. Compacting what is compacted already is no error.
	Compact(ctx context.Context, rev Revision) error
	// Close releases the client. It ends its watches.
	Close() error
}

// Leases is the part of the seam about keys that vanish with their owner.
type Leases interface {
	// Grant makes a lease that lives ttl from now; the answer says how long really (stores round up).
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, time.Duration, error)
	// KeepAlive makes the lease live its full time from now, once. ErrLeaseNotFound: it has ended, with its keys.
	KeepAlive(ctx context.Context, id LeaseID) error
	// Revoke ends the lease and deletes its keys. One that is gone is no error.
	Revoke(ctx context.Context, id LeaseID) error
}

// Target is what a Compare looks at.
type Target int8

// What a Compare can look at. An absent key has version, create and mod revision 0, and compares false on its value.
const (
	TargetModRevision Target = iota
	TargetCreateRevision
	TargetVersion
	TargetValue
)

// Relation is how a Compare looks at it.
type Relation int8

// The relations of a Compare.
const (
	Equal Relation = iota
	NotEqual
	Less
	Greater
)

// Compare is one condition of a Txn: the key's target, in relation to Number (or Value). With End set it must hold for every key
// in [Key, End); it holds when there is none.
type Compare struct {
	Key, End string
	Target   Target
	Relation Relation
	Number   int64
	Value    []byte
}

// OpKind says what an Op does.
type OpKind int8

// The operations of a Txn.
const (
	OpPut OpKind = iota
	OpDelete
	OpGet // one key, or [Key, End) up to Limit
)

// Op is one step of a Txn's branch.
type Op struct {
	Kind     OpKind
	Key, End string
	Value    []byte
	Lease    LeaseID
	Limit    int
}

// Txn is one transaction: at most MaxTxnOps compares, and as many operations in each branch.
type Txn struct {
	If   []Compare
	Then []Op
	Else []Op
}

// Header comes with every linearizable answer.
type Header struct {
	// ClusterID names the store itself: another one is another history.
	ClusterID uint64
	// Revision is the store's newest one when it answered. For a Txn that changed something it is that change's own.
	Revision Revision
}

// KeyValue is one key as read.
type KeyValue struct {
	Key            string
	Value          []byte
	CreateRevision Revision
	ModRevision    Revision
	Version        int64
	Lease          LeaseID
}

// TxnResult is a decided transaction.
type TxnResult struct {
	Header
	Succeeded bool
	// Reads has one entry per operation of the branch that ran; those of puts and deletes are empty.
	Reads [][]KeyValue
}

// RangeRequest asks for [Key, End), or for Key alone when End is "".
type RangeRequest struct {
	Key, End string
	// At reads the store as it was; 0 is now. ErrCompacted when that is forgotten.
	At Revision
	// Limit bounds the keys in the answer; 0 is none.
	Limit int
	// MinModRevision leaves out what did not change since.
	MinModRevision Revision
	KeysOnly       bool
	// CountOnly answers with the number of keys in the range; MinModRevision does not count.
	CountOnly bool
}

// RangeResult is what was found.
type RangeResult struct {
	Header
	KVs []KeyValue
	// More: the limit cut the answer.
	More bool
	// Count is the number of keys in the range, whatever Limit and MinModRevision left out.
	Count int64
}

// Event is one change of a key. A deletion has Deleted set, Key and ModRevision.
type Event struct {
	KeyValue
	Deleted bool
}

// WatchBatch is a run of changes: all of the revisions it touches are whole.
type WatchBatch struct {
	Events []Event
	// Revision: everything with the prefix up to and including it has been given. Without events it is a sign of life.
	Revision Revision
}

// Watcher gives the changes of one watch, to one goroutine.
type Watcher interface {
	// Next waits for the next batch. ErrCompacted: the history asked for is forgotten, load again. ErrWatchLost: it ended
	// otherwise. After an error the watch is over.
	Next(ctx context.Context) (WatchBatch, error)
	// RequestProgress asks for a batch that tells how far the watch is, soon. It may be called from any goroutine.
	RequestProgress(ctx context.Context) error
	Close()
}

// Status is the state of the store behind the client.
type Status struct {
	ClusterID   uint64
	Revision    Revision
	Version     string
	DBSize      int64
	DBSizeInUse int64
	Alarms      []string
}
