// SPDX-License-Identifier: Apache-2.0

package hotlog

import (
	"log/slog"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve/varve/record"
)

// Options of Open. The zero value is right for a disk.
type Options struct {
	// FS is the file system; nil means the disk.
	FS vfs.FS
	// CacheBytes and MemTableBytes size Pebble's block cache and each memtable (0: the defaults). Both lie outside the Go heap.
	CacheBytes, MemTableBytes int64
	// WALFailoverDir is a directory on another disk that takes the write-ahead log while the first disk stalls. "" is none.
	WALFailoverDir string
	// Logger gets Pebble's warnings and our own; nil discards.
	Logger *slog.Logger
	// Fatal is told of a failed apply or sync. Nothing is acknowledged after it. nil: log and end the process with code 1.
	// Only a test should give a function that returns.
	Fatal func(error)
	// ReserveBytes bounds the space that is held for when the disk is full (0: 256 MiB); of a small disk it is a fiftieth anyway.
	ReserveBytes int64
	// MaxBatchBytes bounds one Pebble batch unless a single request is larger (0: 4 MiB).
	MaxBatchBytes int

	// fileBytes, rewriteAfter, spanAfter and recentPlaces are for tests of this package (0: what limits.go says; a negative recentPlaces: none);
	// eager: any garbage is too much.
	fileBytes    int64
	rewriteAfter time.Duration
	spanAfter    time.Duration
	recentPlaces int
	eager        bool
}

func (o Options) withDefaults() Options {
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = DefaultMemTableBytes
	}
	if o.ReserveBytes == 0 {
		o.ReserveBytes = maxReserve
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = defaultMaxBatchBytes
	}
	if o.fileBytes == 0 {
		o.fileBytes = min(filePerMemTable*o.MemTableBytes, maxFileBytes)
	}
	if o.rewriteAfter == 0 {
		o.rewriteAfter = rewriteAfter
	}
	if o.spanAfter == 0 {
		o.spanAfter = spanAfter
	}
	switch {
	case o.WALFailoverDir != "" || o.recentPlaces < 0:
		o.recentPlaces = 0 // frames that are written again move
	case o.recentPlaces == 0:
		o.recentPlaces = recentPlaces
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Fatal == nil {
		logger := o.Logger
		o.Fatal = func(err error) {
			logger.Error("hot log failed, ending the process", "error", err)
			os.Stderr.WriteString("varve: hot log failed, ending the process: " + err.Error() + "\n")
			os.Exit(1)
		}
	}
	return o
}

// Observer learns how far a log is written and how far it is on disk. The committer calls Appended and the syncer Durable, each
// in append order and outside all locks of this package; for one end Appended comes first. Neither may block, since every
// partition waits behind it. Truncate and Reset call neither: their caller knows the new end.
type Observer interface {
	// Appended: everything below end can be read.
	Appended(end record.Offset)
	// Durable: everything below end survives a crash.
	Durable(end record.Offset)
}

// Identity names a data directory.
type Identity struct {
	// StoreID is minted with the store.
	StoreID [16]byte
	// Boots counts the Opens of this store, this one included. It is on disk before Open returns.
	Boots uint64
	// ClusterID and Node are what SetIdentity stored; "" and -1 before.
	ClusterID string
	Node      int32
}

// Meta is the small state a log keeps beside its records.
type Meta struct {
	// HighWatermark is a checkpoint at or below the true one; record.NoOffset when none was taken.
	HighWatermark record.Offset
	// CurrentEpoch is the highest leader epoch adopted by BeginEpoch, AdoptEpoch or an appended batch; record.NoEpoch at first.
	CurrentEpoch record.Epoch
	// ProducersStale: a truncation removed producer entries that ReplaceProducers has not replaced yet.
	ProducersStale bool
}

// Producer is one producer entry: the broker's state of one producer id.
type Producer struct {
	ID    int64
	State []byte
	// End is where the batch ended that the entry is of: a truncation below takes the entry away. 0: the end of the log.
	End record.Offset
}
