// SPDX-License-Identifier: Apache-2.0

package tiering

import (
	"context"
	"time"

	"github.com/varve/varve/metadata"
	"github.com/varve/varve/record"
	"github.com/varve/varve/tiering/manifest"
	"github.com/varve/varve/tiering/segment"
)

// Partition is what the archiver needs of a led partition. Methods may be called from any goroutine and must not wait for the
// network; none is called with a lock of this package held, except Archived, which is called in order and must not call back into the handle.
type Partition interface {
	// Policy gives the storage policy in force.
	Policy() Policy
	// Hot samples the partition once.
	Hot(tieredEnd record.Offset) Hot
	// Epochs is the leader-epoch table, ascending. It is not to be changed.
	Epochs() []record.EpochStart
	// Pin keeps [base, limit) in the hot log until it is released; an error when part of it is gone.
	Pin(base, limit record.Offset) (Pinned, error)
	// Archived publishes a new view: the head as committed and the manifest that goes with it. Heads come in order.
	Archived(v *View)
	// Evict trims the hot log below to. The partition lowers `to` to what its own HW, max(tiered end, log start) and its pins allow.
	Evict(to record.Offset) error
}

// Pinned is a range of the hot log that cannot be evicted.
type Pinned interface {
	segment.Source
	// Extra gives what the segment that ends at end carries besides its batches. FirstUnstable and SealedAtMillis are set by the archiver.
	Extra(end record.Offset) (segment.Extra, error)
	Release()
}

// Hot is one sample of a partition.
type Hot struct {
	LocalStart, LogStart, HW, LSO, LogEnd record.Offset
	LocalBytes                            int64 // live bytes in the hot log
	UnsealedBytes                         int64 // of those, at or above the tiered end
	SealableBytes                         int64 // of those, below min(HW, LSO)
}

// Policy is the part of a topic's configuration that storage needs. -1 means no limit where Kafka's config allows it.
type Policy struct {
	SegmentBytes        int64
	SegmentAge          time.Duration
	RetentionAge        time.Duration // -1 also when cleanup.policy has no delete
	RetentionBytes      int64
	LocalRetentionAge   time.Duration // counted from sealing: record timestamps may lie in the future
	LocalRetentionBytes int64
	TimestampAfterMax   time.Duration // message.timestamp.after.max.ms; -1: none
}

// View is one consistent state of a partition's tiered part. It is immutable.
type View struct {
	ID       record.PartitionID
	Head     metadata.Head
	Manifest *manifest.Manifest
}

// Term is one leadership of a partition past its barrier (protocols §2).
type Term struct {
	metadata.Leadership
	ClusterID string
	Gen       int64
	TopicName string
}

// Loader reads a partition's head and manifest entries at one revision.
type Loader interface {
	ReadManifest(ctx context.Context, id record.PartitionID) (metadata.Head, []metadata.SegmentValue, metadata.Revision, error)
}

// Committer changes a partition's manifest under a leadership. Every method is one or more compare-and-swap Txns with known outcome.
type Committer interface {
	PutIntent(ctx context.Context, l metadata.Leadership, i metadata.Intent) (metadata.Revision, error)
	CommitSegment(ctx context.Context, l metadata.Leadership, c metadata.SegmentCommit) (metadata.Head, error)
	AdvanceLogStart(ctx context.Context, l metadata.Leadership, target record.Offset, epochs []record.EpochStart) (metadata.Head, error)
	DropSegments(ctx context.Context, l metadata.Leadership, dropped []metadata.DroppedSegment, grace time.Duration) (metadata.Head, error)
	Fold(ctx context.Context, l metadata.Leadership, f metadata.FoldCommit) (metadata.Head, error)
	DropPages(ctx context.Context, l metadata.Leadership, d metadata.PageDrop) (metadata.Head, error)
}

// Metadata is the part of *metadata.Store that the archiver uses.
type Metadata interface {
	Loader
	Committer
}
