// SPDX-License-Identifier: Apache-2.0

package hotlog

import "time"

const (
	// defaultMaxBatchBytes bounds one Pebble batch of small requests; a larger request goes alone.
	defaultMaxBatchBytes = 4 << 20
	// quantumBytes is what one log may put into a Pebble batch while others wait.
	quantumBytes = 1 << 20
	// maxMisfits is how many logs the committer looks at in vain when a Pebble batch is nearly full.
	maxMisfits = 64
	// opOverhead is what an op counts beside its bytes.
	opOverhead = 128
	// maxInFlight is how many frames may be written and not yet synced.
	maxInFlight = 2
	// maxQueuedBytes and maxQueuedOps bound what waits for the committer. One request larger than that is taken when nothing else waits.
	maxQueuedBytes = 256 << 20
	maxQueuedOps   = 1 << 16
	// maxFreeOps bounds the recycled queue entries, maxFreeState the producer state each may keep.
	maxFreeOps   = 4096
	maxFreeState = 1 << 10

	// DefaultMemTableBytes and SmallMemTableBytes are Options.MemTableBytes for a machine with plenty of memory, and with less than 1 GiB.
	// Memtables hold keys, pointers and small state only.
	DefaultMemTableBytes = 16 << 20
	SmallMemTableBytes   = 8 << 20
	// DefaultCacheBytes is Pebble's block cache; record batches are not in it, the kernel's page cache holds them.
	DefaultCacheBytes = 32 << 20

	// minTrimBytes and maxTrimBytes bound the dead bytes a log keeps before a range deletion is worth its cost to later seeks.
	minTrimBytes = 64 << 10
	maxTrimBytes = 1 << 20

	// hwInterval is how often at most a changed high-watermark checkpoint goes beside appended batches.
	hwInterval = 50 * time.Millisecond

	// diskCheckInterval and diskCheckBytes bound how stale the committer's view of the free space is.
	diskCheckInterval = 100 * time.Millisecond
	diskCheckBytes    = 64 << 20
	// maxHighWater and maxReserve bound what is kept free of appends and held in the reserve file on a large disk.
	maxHighWater = 4 << 30
	maxReserve   = 256 << 20
	// stayFull is how long appends stay refused after a write found no space, whatever the file system says about it.
	stayFull = 5 * time.Second
)

// The log's files; DESIGN.md has the measurements.
const (
	// filePerMemTable and maxFileBytes size a log file by the memtable, so that what is small is small in everything.
	filePerMemTable = 4
	maxFileBytes    = 64 << 20
	// allocateBytes is how much space is set aside at a time in a file that is not a used one.
	allocateBytes = 4 << 20
	// gatherBytes is what a commit keeps to gather small batches in; a batch of directBytes is written from where it lies, or one of
	// vectorBytes where up to maxVectors pieces go with one write.
	gatherBytes = 512 << 10
	directBytes = 32 << 10
	vectorBytes = 4 << 10
	maxVectors  = 1000
	// pageBytes is the unit in which the kernel keeps files.
	pageBytes = 4 << 10
	// maxRetainedMeta is what a commit keeps of a Pebble batch that was large once.
	maxRetainedMeta = 1 << 20
	// flushAfterFiles is after how many files' worth of log Pebble is flushed: a start replays no more than that and a bit.
	flushAfterFiles = 2
	// minSpareFiles is how many dead files are kept to be written over, since writing over a file syncs faster than growing one. As many
	// are kept as were begun in the last spareFor, if that is more and they take a spareShare of the free space at most.
	minSpareFiles = 4
	spareFor      = 20 * time.Second
	spareShare    = 4
	// maxSpareLen is how many times as long as a file is to be a spare may be: a large request goes into one file.
	maxSpareLen = 2
	// garbageFiles is how many files' worth of dead bytes are let be beside live ones, if that is more than is live.
	garbageFiles = 4
	// rewriteAfter is how old a file has to be, so that what is about to be trimmed is not moved before.
	rewriteAfter = 5 * time.Second
	// badFileAfter is how long a file is let be that cannot be emptied, because some of it cannot be read.
	badFileAfter = time.Minute
	// maxMovingBytes is how much a rewrite has read and not yet written: about a frame.
	maxMovingBytes = 4 << 20
	// moveBytes is what a rewrite moves of one log at a time, scanBytes what a Scan reads at a time.
	moveBytes = 1 << 20
	scanBytes = 1 << 20
	// recentPlaces is of how many batches a log knows the place without a look-up in Pebble: 24 bytes each.
	recentPlaces = 64
	// minSpanBytes is the shortest run that is worth sending from its file instead of copying it.
	minSpanBytes = 32 << 10
	// spanAfter is how long ago a file was written to when it may be lent: consumers that keep up read the newest by copying.
	spanAfter = 500 * time.Millisecond
	// maxGoneFiles is how many dead files may wait for their spans before no more are lent.
	maxGoneFiles = 4
	// maxOpenFiles bounds the handles of log files that are kept open.
	maxOpenFiles = 512
	// failoverAfter is how long the log waits for a disk before it goes on in the failover directory.
	failoverAfter = 100 * time.Millisecond
	// slowSync is when a sync is worth a warning.
	slowSync = 5 * time.Second
)
